"""Settings to a running engine: the only place where parts are put together."""

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from threading import Thread
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from refold.core.expressions import Evaluate, Values, unknown
from refold.core.facts import Instant
from refold.core.plan import Call, Plan
from refold.doorbells.local import LocalDoorbell
from refold.executors.inline import Inline
from refold.ports import Abilities, Advance, AtOnce, Clock, Doorbell, Executor, Lease, Say, Store, Tool
from refold.runtime.advance import Advancing, Here
from refold.runtime.desk import LocalDesk
from refold.runtime.engine import Engine
from refold.runtime.intake import Intake
from refold.runtime.kin import Kin
from refold.runtime.mailroom import Mailroom
from refold.runtime.sweep import Sweep
from refold.runtime.timers import Timers
from refold.runtime.turn import Seen, Turns
from refold.settings import Settings
from refold.stores.memory import MemoryStore
from refold.tools.function import FunctionTool
from refold.tools.noop import noop
from refold.tools.shelf import Shelf
from refold.worker.heartbeat import Heartbeat, as_task, on_thread
from refold.worker.loop import Worker

if TYPE_CHECKING:
    from refold.stores.sqlite.store import SqliteStore


class WallClock:
    def now(self) -> Instant:
        return time.time_ns() // 1000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class World(Struct):
    """What a process gets from outside: time, chance, names, and a thread to take turns on."""

    clock: Clock
    doorbell: Doorbell
    advance: Advance
    chance: Callable[[], float]
    new_id: Callable[[], str]
    heartbeat: Heartbeat = as_task
    executors: Mapping[str, Executor] = {}  # by the name of their isolation
    at_once: AtOnce = lambda work: (False, None)


class Process(Struct):
    """One process: an engine, and a worker and a sweep that serve every run of the store, or a run and its kin."""

    engine: Engine
    worker: Worker
    sweep: Sweep
    timers: Timers
    desk: LocalDesk
    tools: Shelf
    kin: Kin | None = None

    async def serve(self) -> None:
        """Everything that runs for the life of the process; returns when it was stopped."""
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(part()) for part in (self.sweep.run, self.timers.run)]
            if self.kin is not None:
                beside.append(group.create_task(self.kin.run_for(self.sweep.clock)))
            await self.worker.run()
            for each in beside:
                each.cancel()

    async def stop(self, grace: float = 0.0) -> None:
        """Take nothing new; what does not finish within the grace is handed back, for others to go on with."""
        await self.worker.stop(grace)


@cache
def language(name: str) -> Evaluate:
    """The language of a plan's expressions; loaded when the first such plan appears."""
    from refold.templates import Templates

    if name == "refold":
        return Templates("strict")
    return Templates("chainable") if name == "noetl" else unknown(name)


def assemble(
    store: Store, world: World, evaluate: Evaluate, tools: Mapping[str, Tool], settings: Settings, name: str
) -> Process:
    turns = Turns(store, evaluate, world.chance, world.new_id, settings.lease_for)
    turns.languages = language
    turns.keep = settings.states_kept
    turns.lineage.limit = settings.depth_limit
    mailroom = Mailroom(turns, world.advance, world.doorbell)
    engine = Engine(store, mailroom, world.advance, world.clock, world.new_id)
    engine.ends.poll = settings.poll
    desk = LocalDesk(store, world.advance, mailroom)

    async def tool_settings(lease: Lease) -> Mapping[str, Any]:
        graph = turns.graphs.get(lease.plan) or await world.advance(lambda: turns.graph(lease.plan))
        work = graph.plan.steps[graph.index[lease.command.step]].work
        return work.settings if isinstance(work, Call) else {}

    known = _tools(tools, world, settings)
    can = Abilities(worker=name, tools=frozenset(known))
    worker = Worker(desk, known, tool_settings, world.clock, world.doorbell, can)
    worker.slots, worker.lease_for, worker.poll = settings.slots, settings.lease_for, settings.poll
    worker.heartbeat = world.heartbeat
    mailroom.taker, mailroom.at_once = worker, world.at_once
    mailroom.on_withdrawn = worker.keeper.withdraw
    sweep = Sweep(store, world.advance, mailroom, world.clock, world.doorbell)
    sweep.every = settings.sweep_every
    timers = Timers(world.clock, mailroom.wake)
    mailroom.on_alarm = timers.set
    return Process(engine, worker, sweep, timers, desk, known)


def _tools(given: Mapping[str, Tool], world: World, settings: Settings) -> Shelf:
    """Those given, and Refold's own where there is a world to run them in; none is loaded before it is used."""

    def python() -> Tool:
        from refold.tools.python import PythonTool

        return PythonTool(world.executors)

    def shell() -> Tool:
        from refold.executors.programs import Programs
        from refold.tools.shell import ShellTool

        return ShellTool(Programs(settings.process_grace))

    def http() -> Tool:
        from refold.tools.http import HttpTool

        return HttpTool(settings.private_addresses)

    if not world.executors:
        return Shelf({"noop": noop, **given}, {})
    ready: dict[str, Tool] = {"noop": noop, "function": FunctionTool(world.executors), **given}
    return Shelf(ready, {"python": python, "shell": shell, "http": http})


class LazyProcesses:
    """The pool of warm processes, which is loaded and made when a step first needs it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._pool: Any = None

    async def run(self, call: str, input: Any, say: Say | None = None) -> Any:
        if self._pool is None:
            from refold.executors.processes import Processes

            size = self.settings.processes or os.cpu_count() or 1
            self._pool = Processes(size, grace=self.settings.process_grace)
        return await self._pool.run(call, input, say)

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()


def serve_only(process: Process, run: str) -> None:
    """This run and what it starts."""
    worker, mailroom = process.worker, process.engine.mailroom
    kin = process.kin = process.sweep.kin = Kin(run, mailroom.turns, process.engine.advance)
    tell = mailroom.on_end

    def serve(runs: frozenset[str]) -> None:
        worker.can = structs.replace(worker.can, runs=runs)

    def ended(seen: Seen) -> None:
        kin.ended(seen.state.run)
        tell(seen)

    kin.on_change, mailroom.on_births, mailroom.on_end = serve, kin.born, ended
    serve(kin.runs)


@asynccontextmanager
async def open_engine(
    tools: Mapping[str, Tool] | None = None,
    *,
    evaluate: Evaluate | None = None,
    db: str | os.PathLike[str] | None = None,
    store: Store | None = None,
    settings: Settings | None = None,
) -> AsyncIterator[Engine]:
    """An engine that works: it executes its runs, and those of others it finds in the store, until it is closed.

    `db` is a SQLite file, made if it is not there; without one, everything is in memory and goes with the process.
    """
    async with open_process(tools, evaluate=evaluate, db=db, store=store, settings=settings) as process:
        yield process.engine


@asynccontextmanager
async def open_process(
    tools: Mapping[str, Tool] | None = None,
    *,
    evaluate: Evaluate | None = None,
    db: str | os.PathLike[str] | None = None,
    store: Store | None = None,
    settings: Settings | None = None,
    only: str = "",
) -> AsyncIterator[Process]:
    """The engine and all that works for it; when it is closed, what is under way is handed back at once.

    `only` is a run: this process serves it and what it starts, and leaves the rest of the store to others.
    """
    clock = WallClock()
    async with _kept(store, db, clock) as (kept, advance):
        settings = settings if settings is not None else Settings()
        inline = Inline(settings.slots)
        processes = LazyProcesses(settings)
        world = World(
            clock,
            LocalDoorbell(),
            advance,
            random.random,
            lambda: os.urandom(16).hex(),
            on_thread,
            {"inline": inline, "process": processes},
            advance.here,
        )
        process = assemble(
            kept,
            world,
            evaluate if evaluate is not None else Values(),
            tools or {},
            settings,
            f"run-{only[:8]}-{os.urandom(2).hex()}" if only else f"worker-{os.urandom(4).hex()}",
        )
        if only:
            serve_only(process, only)
        serving = asyncio.create_task(process.serve())
        try:
            async with _as_long_as(serving):
                yield process
        finally:
            try:
                await process.stop()
            finally:
                serving.cancel()
                await asyncio.wait([serving])
                await process.tools.close()
                await inline.close()
                await processes.close()


@asynccontextmanager
async def _as_long_as(serving: "asyncio.Task[None]") -> AsyncIterator[None]:
    """Nobody may wait for what nobody will do: an error that ends the service ends what goes on inside."""
    waiting, errors = asyncio.current_task(), list[BaseException]()
    assert waiting is not None

    def end(task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            errors.append(error)
            waiting.cancel()

    serving.add_done_callback(end)
    try:
        yield
    except asyncio.CancelledError:
        if not errors or waiting.uncancel():
            raise  # somebody else wants it to end
        error = errors[0]
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None
    finally:
        serving.remove_done_callback(end)


@asynccontextmanager
async def _kept(
    store: Store | None, db: str | os.PathLike[str] | None, clock: Clock
) -> AsyncIterator[tuple[Store, Here | Advancing]]:
    """The store, and where its turns are taken: a file may make its thread wait, and that is not the event loop's."""
    if db is None:
        yield store if store is not None else MemoryStore(clock.now), Here()
        return
    from refold.stores.sqlite.store import SqliteStore

    advance = Advancing()
    try:
        file = await advance(lambda: SqliteStore(db, clock.now))
        try:
            yield file, advance
        finally:
            await advance(file.close)
    finally:
        advance.close()


@contextmanager
def open_intake(db: str | os.PathLike[str]) -> "Iterator[tuple[Intake, SqliteStore]]":
    """Mail for the runs of a file, where nothing is executed: whoever serves them finds what has changed."""
    from refold.stores.sqlite.store import SqliteStore

    store = SqliteStore(db, WallClock().now)
    turns = Turns(store, Values(), random.random, lambda: os.urandom(16).hex())
    turns.languages = language
    try:
        yield Intake(turns), store
    finally:
        store.close()


def rebuild_file(db: str | os.PathLike[str]) -> dict[str, Exception | None]:
    """All that follows from the logs of a file, made again; each run with what stood in its way."""
    from refold.runtime.rebuild import rebuild
    from refold.stores.sqlite.store import SqliteStore

    store = SqliteStore(db, WallClock().now)
    try:
        return rebuild(store, Values(), language)
    finally:
        store.close()


def run_sync(
    plan: Plan,
    input: dict[str, Any] | None = None,
    *,
    tools: Mapping[str, Tool] | None = None,
    evaluate: Evaluate | None = None,
    db: str | os.PathLike[str] | None = None,
    store: Store | None = None,
) -> Any:
    """Run a workflow to its end and return its result; works inside a running event loop too (notebooks)."""

    async def run() -> Any:
        async with open_engine(tools, evaluate=evaluate, db=db, store=store) as engine:
            return await engine.run(plan, input)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run())
    return _in_a_thread(run)


def _in_a_thread(run: Callable[[], Any]) -> Any:
    ended: list[Any] = []

    def target() -> None:
        try:
            ended.extend((asyncio.run(run()), None))
        except BaseException as error:
            ended.extend((None, error))

    thread = Thread(target=target, name="refold-run-sync")
    thread.start()
    thread.join()
    result, error = ended
    if error is not None:
        raise error
    return result
