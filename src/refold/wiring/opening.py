"""Opens a process that executes runs, and closes it again."""

import asyncio
import os
import random
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from threading import Thread
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from refold.core.expressions import Evaluate, Values
from refold.core.plan import Plan
from refold.core.queueing import INTERPRETER, RAY
from refold.doorbells.local import LocalDoorbell
from refold.errors import Unusable
from refold.executors.inline import Inline
from refold.executors.limits import environment
from refold.executors.process_services import ProcessServices
from refold.logs import ERROR, INFO, event, logger
from refold.ports import Advance, AtOnce, Clock, Store, Tool
from refold.runtime.engine import Engine, ServiceHealth
from refold.settings import PROCESSES_EACH, Settings
from refold.stores.open import is_server, shown_address
from refold.wiring.process import Process, assemble, open_secrets
from refold.wiring.store import kept_in
from refold.wiring.world import ARTIFACTS, NoCluster, StoreTime, World, working_directory
from refold.worker.leases import on_thread

if TYPE_CHECKING:
    from refold.executors.ray import RayCluster
    from refold.playbooks.playbook import Playbook
    from refold.python.startable import StartInput
    from refold.python.workflow import Flow, Workflow
    from refold.runtime.sync import LoopThread, SyncEngine

P = ParamSpec("P")
R = TypeVar("R")

log = logger("engine")


class EngineOpening:
    """An engine that is opened by `async with`, or by `with` for code without `async`."""

    def __init__(self, process: AbstractAsyncContextManager[Process]) -> None:
        self._process = process
        self._thread: LoopThread | None = None

    async def __aenter__(self) -> Engine:
        return (await self._process.__aenter__()).engine

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._process.__aexit__(*error)

    def __enter__(self) -> "SyncEngine":
        from refold.runtime.sync import LoopThread, SyncEngine

        self._thread = LoopThread(self)
        return SyncEngine(self._thread)

    def __exit__(self, *error: Any) -> None:
        assert self._thread is not None
        self._thread.close()


def open_engine(
    tools: Mapping[str, Tool] | None = None,
    *,
    evaluate: Evaluate | None = None,
    db: str | os.PathLike[str] | None = None,
    store: Store | None = None,
    settings: Settings | None = None,
) -> EngineOpening:
    """Open an engine that executes its own runs and all others in the store, until it is closed.

    `async with open_engine() as engine` gives an Engine. `with open_engine() as engine` gives a SyncEngine, which has
    the same methods and awaits nothing: it runs the engine on a thread of its own.

    `db` is a SQLite file, created if it does not exist; without it, everything is in memory and ends with the process.
    """
    return EngineOpening(open_process(tools, evaluate=evaluate, db=db, store=store, settings=settings))


@asynccontextmanager
async def open_process(
    tools: Mapping[str, Tool] | None = None,
    *,
    evaluate: Evaluate | None = None,
    db: str | os.PathLike[str] | None = None,
    store: Store | None = None,
    settings: Settings | None = None,
    only: str = "",
    works: bool = True,
    claims: bool = True,
) -> AsyncIterator[Process]:
    """Open an engine and all its parts; when it is closed, unfinished work is handed back immediately.

    `only` is a run: this process serves it and what it starts, and leaves the rest of the store to others. Without
    `works` it executes nothing: it starts and steers runs, which the workers of other processes execute. Without
    `claims` it decides what follows, and other workers, or remote ones, run the steps.
    """
    settings = settings if settings is not None else Settings()
    async with (
        kept_in(store, db, settings.doorbell) as (kept, advance),
        own_world(StoreTime(kept), advance, advance.here, settings, db) as world,
    ):
        process = assemble(
            kept,
            world,
            evaluate if evaluate is not None else Values(),
            tools or {},
            settings,
            f"run-{only[:8]}-{os.urandom(2).hex()}" if only else f"worker-{os.urandom(4).hex()}",
            only=only,
            shared=db is not None,
            works=works,
            claims=claims,
        )
        serving = asyncio.create_task(process.serve())
        at = {"worker": process.worker.can.worker, "db": shown_address(db) if db is not None else "", "run": only}
        event(log, INFO, "engine opened", at, slots=settings.slots)
        try:
            async with _as_long_as(serving, process.service):
                yield process
        finally:
            try:
                await process.stop()
            finally:
                serving.cancel()
                await asyncio.wait([serving])
                error = None if serving.cancelled() else serving.exception()
                cause = None if error is None else _first_cause(error)
                if isinstance(cause, Unusable):  # whoever writes next is told why
                    event(log, ERROR, "engine ended, because its database cannot be used", at)
                elif error is not None and not process.service.has_failed:  # else `_as_long_as` has raised it
                    event(log, ERROR, "engine ended with an internal error", at, error=error)
                await process.close()
                event(log, INFO, "engine closed", at)


@asynccontextmanager
async def own_world(
    clock: Clock, advance: Advance, at_once: AtOnce, settings: Settings, db: str | os.PathLike[str] | None
) -> AsyncIterator[World]:
    """Yield what a process gets from outside, with executors that end with it. `db`: where its secrets and artifacts
    are kept beside, if it is a file."""
    inline = Inline(settings.slots)
    interpreters = settings.processes or PROCESSES_EACH * (os.cpu_count() or 1)
    isolated = ProcessServices(
        interpreters,
        settings.process_grace,
        settings.tool_limits,
        environment(os.environ, settings.pass_env),
    )
    cluster = _cluster(settings)
    try:
        yield World(
            clock,
            LocalDoorbell(),
            advance,
            random.random,
            lambda: os.urandom(16).hex(),
            on_thread,
            {"inline": inline, "process": isolated},
            at_once,
            secrets=open_secrets(settings, db),
            isolated=isolated,
            artifacts=settings.artifacts
            or (f"{os.fspath(db)}-artifacts" if db is not None and not is_server(db) else ARTIFACTS),
            docker={name: value for name, value in os.environ.items() if name.startswith("DOCKER_")},
            folder=working_directory(),
            places={INTERPRETER: interpreters, RAY: settings.ray_slots},
            cluster=cluster,
        )
    finally:
        await cluster.close()
        await inline.close()
        await isolated.close()


def _cluster(settings: Settings) -> "RayCluster | NoCluster":
    if not settings.ray:
        return NoCluster()
    from refold.executors.ray import RayCluster

    return RayCluster(settings.ray, settings.process_grace)


@asynccontextmanager
async def _as_long_as(serving: "asyncio.Task[None]", service: ServiceHealth) -> AsyncIterator[None]:
    """An error that ends the service also ends the body of this context: it must not wait for what nothing will do."""
    waiting, errors = asyncio.current_task(), list[BaseException]()
    assert waiting is not None

    def end(task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            errors.append(error)
            service.fail()
            waiting.cancel()
            event(log, INFO, "engine stops serving", why=type(error).__name__)

    serving.add_done_callback(end)
    try:
        yield
    except asyncio.CancelledError:
        if not errors or waiting.uncancel():
            raise  # the cancellation did not come from `end`
        raise _first_cause(errors[0]) from None
    finally:
        serving.remove_done_callback(end)


def _first_cause(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class SyncRunner:
    """Runs workflows with the options that were given to `refold.options`. All its keywords are inputs."""

    def __init__(self, opening: Mapping[str, Any], key: str, name: str) -> None:
        self._opening, self._key, self._name = opening, key, name

    @overload
    def run_sync(self, workflow: "Flow[P, R]", /, *inputs: P.args, **named: P.kwargs) -> R: ...

    @overload
    def run_sync(
        self, workflow: "Workflow[R] | type[Workflow[R]]", input: "StartInput" = None, /, **named: Any
    ) -> R: ...

    @overload
    def run_sync(self, workflow: "Plan | Playbook", input: "StartInput" = None, /, **named: Any) -> Any: ...

    def run_sync(self, workflow: Any, /, *inputs: Any, **named: Any) -> Any:
        """Run a workflow to its end and return its result; works inside a running event loop too (notebooks).

        Ctrl-C leaves the run in its database, and prints the command that resumes it.
        """
        begun: list[str] = []

        async def run() -> Any:
            async with open_engine(**self._opening) as engine:
                handle = await engine.options(key=self._key, name=self._name).start(workflow, *inputs, **named)
                begun.append(handle.id)
                return await handle.result()

        try:
            return _in_a_thread(run) if _is_in_a_loop() else asyncio.run(run())
        except KeyboardInterrupt:
            db = self._opening["db"]
            if begun and db is not None:
                again = f"refold runs resume {begun[0]} --db {shlex.quote(shown_address(db))}"
                print(f"run {begun[0]} is not cancelled\nto continue: {again}", file=sys.stderr)
            raise


def options(
    *,
    db: str | os.PathLike[str] | None = None,
    store: Store | None = None,
    tools: Mapping[str, Tool] | None = None,
    evaluate: Evaluate | None = None,
    settings: Settings | None = None,
    key: str = "",
    name: str = "",
) -> SyncRunner:
    """Set the options of a run, apart from its inputs: `refold.options(db="refold.db").run_sync(order, amount=25)`.

    `key` and `name` are those of `Engine.options`, the others those of `open_engine`.
    """
    opening = {"db": db, "store": store, "tools": tools, "evaluate": evaluate, "settings": settings}
    return SyncRunner(opening, key, name)


@overload
def run_sync(workflow: "Flow[P, R]", /, *inputs: P.args, **named: P.kwargs) -> R: ...


@overload
def run_sync(workflow: "Workflow[R] | type[Workflow[R]]", input: "StartInput" = None, /, **named: Any) -> R: ...


@overload
def run_sync(workflow: "Plan | Playbook", input: "StartInput" = None, /, **named: Any) -> Any: ...


def run_sync(workflow: Any, /, *inputs: Any, **named: Any) -> Any:
    """Run a workflow to its end, in memory, and return its result; works inside a running event loop too (notebooks).

    `refold.options(db=...).run_sync(...)` does the same with a database.
    """
    return options().run_sync(workflow, *inputs, **named)


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _in_a_thread(run: Callable[[], Any]) -> Any:
    ended: list[Any] = []
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []

    async def main() -> Any:
        task = asyncio.current_task()
        assert task is not None
        running.append((asyncio.get_running_loop(), task))
        return await run()

    def target() -> None:
        try:
            ended.extend((asyncio.run(main()), None))
        except BaseException as error:
            ended.extend((None, error))

    thread = Thread(target=target, name="refold-run-sync")
    thread.start()
    try:
        thread.join()
    except KeyboardInterrupt:  # only the main thread gets it
        for loop, task in running:
            with suppress(RuntimeError):  # the loop is closed: the run has ended
                loop.call_soon_threadsafe(task.cancel)
        thread.join()
        raise
    result, error = ended
    if error is not None:
        raise error
    return result
