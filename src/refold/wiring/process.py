"""The parts of a process, put together. No tool is loaded, and no library of a database, before a step needs it."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from refold.core import plan as plans
from refold.core.commands import SOURCE_TOOL
from refold.core.expressions import Evaluate
from refold.core.pipeline import TOOL, TaskPipeline
from refold.ports import Abilities, Lease, Programs, Store, Tool, ToolCall
from refold.queries.reading import stored_value
from refold.queries.workers import abilities
from refold.registry import TOOLS, EntryPoints, LazyRegistry
from refold.runtime.background import Listener, ServedRuns, Sweep, Timers
from refold.runtime.desk import LocalDesk
from refold.runtime.engine import Engine, EngineParts, Service
from refold.runtime.mailroom import Mailroom, TurnObserver
from refold.runtime.run_waiters import RunWaiters
from refold.runtime.turn import RunSnapshot, TurnOptions, Turns
from refold.secrets.access import SecretAccess, SecretPlaces, file_beside
from refold.settings import Settings
from refold.tool_api import not_installed, refused
from refold.tools.simple import FunctionTool, noop
from refold.wiring.python_code import PythonCode
from refold.wiring.sources import source_tool
from refold.wiring.vault import vault_of
from refold.wiring.world import WallClock, World, language
from refold.worker.loop import Worker, WorkerOptions
from refold.worker.redaction import NO_REDACTION
from refold.worker.run_tool import RESULT


class Process(Struct, frozen=True):
    """An engine, with a worker and a sweep that serve every run of the store, or one run and the runs it starts."""

    engine: Engine
    worker: Worker
    sweep: Sweep
    timers: Timers
    desk: LocalDesk
    tools: LazyRegistry[Tool]
    code: PythonCode
    service: Service
    served_runs: ServedRuns | None = None  # None: it serves every run
    listener: Listener | None = None  # only if other processes may write to the store
    secrets: SecretAccess | None = None

    async def serve(self) -> None:
        """Run all parts; return after `stop`."""
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(part()) for part in (self.sweep.run, self.timers.run)]
            if self.listener is not None:
                beside.append(group.create_task(self.listener.run()))
            if self.served_runs is not None:
                beside.append(group.create_task(self.served_runs.run_for(self.sweep.clock)))
            await self.worker.run()
            for each in beside:
                each.cancel()

    async def stop(self, grace: float = 0.0) -> None:
        """Take nothing new; work that does not finish within the grace is handed back, and others can continue it."""
        await self.worker.stop(grace)

    async def close(self) -> None:
        """Close tools and Python code; only after the end of `serve`."""
        await self.tools.close()
        await self.code.close()


def assemble(
    store: Store,
    world: World,
    evaluate: Evaluate,
    tools: Mapping[str, Tool],
    settings: Settings,
    name: str,
    *,
    only: str = "",
    shared: bool = False,
    turn_options: TurnOptions | None = None,
) -> Process:
    """Create the parts of a process. Where two need each other, the first gets a function that finds the second
    when it is called.

    `only` is a run: the process serves it and the runs that it starts. `shared`: other processes use the store too.
    """
    options = structs.replace(
        turn_options or TurnOptions(),
        lease_for=settings.lease_for,
        languages=language,
        keep=settings.states_kept,
        depth_limit=settings.depth_limit,
    )
    turns = Turns(store, evaluate, world.chance, world.new_id, options)

    def run_ended(snapshot: RunSnapshot) -> None:
        run = snapshot.state.run
        code.run_ended(run)
        if served_runs is not None:
            served_runs.ended(run)
        waiters.ended(snapshot)

    def children_started(births: Sequence[tuple[str, str]]) -> None:
        code.children_started(births)
        if served_runs is not None:
            served_runs.add(births)

    observer = TurnObserver(
        run_ended,
        children_started,
        lambda due, run: timers.set(due, run),
        lambda run, command: worker.keeper.withdraw(run, command),
    )
    mailroom = Mailroom(
        turns, world.advance, world.doorbell, worker=lambda: worker, observer=observer, at_once=world.at_once
    )
    waiters = RunWaiters(store, world.advance, settings.poll)
    timers = Timers(world.clock, mailroom.wake)
    desk = LocalDesk(store, world.advance, mailroom)

    async def tool_settings(lease: Lease) -> Mapping[str, Any]:
        graph = turns.graphs.get(lease.plan) or await world.advance(lambda: turns.graph(lease.plan))
        step = graph.plan.steps[graph.index[lease.command.step]]
        if isinstance(step.work, TaskPipeline):
            if step.work.secret:  # its result can be checked only before it is encrypted
                return {step.work.tool: structs.replace(step.work, schema=step.result)}
            settings: dict[str, Any] = {step.work.tool: step.work}
        else:
            settings = step.work.settings if isinstance(step.work, plans.Call) else {}
        return settings if step.result is None else {**settings, RESULT: step.result}

    async def read_blob(run: str, hash: str) -> bytes:
        def read() -> bytes:
            with store.turn(()) as turn:
                return turn.blob(run, hash)

        found: bytes = await world.advance(read)
        return found

    async def read_value(run: str, hash: str) -> Any:
        def read() -> Any:
            with store.turn(()) as turn:
                return stored_value(turn, run, hash)

        return await world.advance(read)

    known = make_tools(tools, world, settings, read_blob, name)
    queues = settings.queues or None
    runs = frozenset({only}) if only else None
    worker = Worker(
        desk,
        known,
        tool_settings,
        world.clock,
        world.doorbell,
        Abilities(worker=name, queues=queues, tools=frozenset(known), runs=runs),
        WorkerOptions(
            slots=settings.slots,
            lease_for=settings.lease_for,
            poll=settings.poll,
            heartbeat=world.heartbeat,
            redaction=world.secrets.redaction if world.secrets is not None else NO_REDACTION,
        ),
    )
    served_runs = ServedRuns(only, turns, world.advance, worker.serve_runs) if only else None
    sweep = Sweep(
        store,
        world.advance,
        mailroom,
        world.clock,
        world.doorbell,
        every=settings.sweep_every,
        served_runs=served_runs,
    )

    async def enrol(can: Abilities) -> None:
        """Let other processes know what the worker of this one can take."""
        if shared:
            await world.advance(lambda: store.enrol(can))

    code = PythonCode(
        turns,
        world.advance,
        worker,
        known,
        read_value,
        register=lambda workflow: engine.register(workflow),
        enrol=enrol,
        isolated=world.executors.get("process"),
    )
    service = Service()
    engine = Engine(
        EngineParts(
            store=store,
            mailroom=mailroom,
            advance=world.advance,
            clock=world.clock,
            new_id=world.new_id,
            waiters=waiters,
            code=code,
            workers=lambda: abilities(store.views) if shared else {worker.can.worker: worker.can},
            service=service,
            queues=queues,
        )
    )

    async def others_wrote() -> None:
        if served_runs is not None:
            await served_runs.gather()  # or the worker would not take commands of runs that others have started
        world.doorbell.ring()
        waiters.look_now()
        await worker.keeper.look()

    listener = None
    if shared:
        listener = Listener(store.foreign_writes, world.advance, world.clock, others_wrote, settings.listen_every)
    return Process(
        engine=engine,
        worker=worker,
        sweep=sweep,
        timers=timers,
        desk=desk,
        tools=known,
        code=code,
        service=service,
        served_runs=served_runs,
        listener=listener,
        secrets=world.secrets,
    )


def open_secrets(settings: Settings, db: str | os.PathLike[str] | None) -> SecretAccess:
    """Return access to the secrets. Nothing is read before the first secret is asked for."""
    where = SecretPlaces(
        folder=settings.secrets_folder,
        file=settings.secrets or (file_beside(db) if db is not None else ""),
        key_file=settings.key_file,
        keyring=settings.keyring,
    )
    return SecretAccess(os.environ, where, WallClock())


BY_ENGINE = ("wait", "gate", "quality", "poll", "playbook", "workbook")  # executed by the engine; not tool names

ReadBlob = Callable[[str, str], Awaitable[bytes]]
"""A stored value, by its run and its hash. Raises NotFound."""


def make_tools(
    given: Mapping[str, Tool], world: World, settings: Settings, read_blob: ReadBlob, worker: str
) -> LazyRegistry[Tool]:
    """Return the given tools, Refold's own as far as this process can run them, and those of installed packages."""

    def programs() -> Programs:
        assert world.isolated is not None
        found = world.isolated.programs
        return found if world.secrets is None else world.secrets.guarded(found)

    conceal = _concealing(world)

    def insisting() -> Tool:
        from refold.tools.simple import assert_that

        return assert_that

    def python() -> Tool:
        from refold.tools.python.tool import PythonTool

        return PythonTool(world.executors)

    def shell() -> Tool:
        from refold.tools.shell.tool import ShellTool

        return ShellTool(programs(), conceal)

    def http() -> Tool:
        from refold.tools.http.tool import HttpTool

        return HttpTool(settings.private_addresses)

    def pipeline() -> Tool:
        from refold.tools.pipeline.tool import PipelineTool

        vault = vault_of(world.secrets, tools) if world.secrets is not None else None
        return PipelineTool(tools, language, world.clock, worker, vault)

    makers: dict[str, Callable[[], Tool]] = {
        "assert": insisting,
        TOOL: pipeline,
        SOURCE_TOOL: lambda: source_tool(world, tools),
    }
    ready: dict[str, Tool] = {"noop": noop, **given}
    if world.executors:
        ready = {"function": FunctionTool(world.executors), **ready}
        makers |= {"python": python, "shell": shell, "http": http, **database_tools(http)}
        makers |= _outward(world, lambda: tools["http"], programs, read_blob)
        makers |= EntryPoints(TOOLS, {*makers, *ready, *BY_ENGINE}).makers()
    tools = LazyRegistry(ready, makers)
    return tools


def _concealing(world: World) -> Callable[[str], str]:
    return str if world.secrets is None else world.secrets.redaction.text


def _outward(
    world: World, http: Callable[[], Tool], programs: Callable[[], Programs], read_blob: ReadBlob
) -> dict[str, Callable[[], Tool]]:
    """Return the tools that reach beyond the run."""
    conceal = _concealing(world)

    def artifact() -> Tool:
        from refold.tools.artifact.tool import ArtifactTool

        return ArtifactTool(world.artifacts, read_blob)

    def emitting() -> Tool:
        from refold.tools.simple import emit

        return emit

    def container() -> Tool:
        from refold.tools.container.tool import ContainerTool

        return ContainerTool(programs(), world.docker, conceal)

    def mcp() -> Tool:
        from refold.tools.mcp.tool import McpTool

        return McpTool(http(), programs(), conceal)

    def llm() -> Tool:
        from refold.tools.llm.tool import LlmTool

        return LlmTool(http())

    return {"artifact": artifact, "emit": emitting, "container": container, "mcp": mcp, "llm": llm}


def database_tools(http: Callable[[], Tool]) -> dict[str, Callable[[], Tool]]:
    """Return a maker for each kind; `http` makes the tool that fetches what transfers read from an address."""
    return {
        "sqlite": lambda: _or_missing(_sqlite, "sqlite"),
        "duckdb": lambda: _or_missing(_duckdb, "duckdb"),
        "postgres": lambda: _or_missing(_postgres, "postgres"),
        "transfer": lambda: _transfer(http),
    }


def _sqlite() -> Tool:
    from refold.tools.sql.sqlite import sqlite_tool

    return sqlite_tool()


def _duckdb() -> Tool:
    from refold.tools.sql.duckdb import duckdb_tool

    return duckdb_tool()


def _postgres() -> Tool:
    from refold.tools.sql.postgres import PostgresTool

    return PostgresTool()


def _transfer(http: Callable[[], Tool]) -> Tool:
    from refold.tools.transfer.tool import TransferTool

    def sqlite_side() -> Any:
        from refold.tools.transfer.sqlite import SqliteSide

        return SqliteSide()

    def duckdb_side() -> Any:
        from refold.tools.transfer.duckdb import DuckdbSide

        return DuckdbSide()

    def postgres_side() -> Any:
        from refold.tools.transfer.postgres import PostgresSide

        return PostgresSide()

    def http_side() -> Any:
        from refold.tools.transfer.http import HttpSide

        return HttpSide(http())

    return TransferTool({"sqlite": sqlite_side, "duckdb": duckdb_side, "postgres": postgres_side, "http": http_side})


def _or_missing(make: Callable[[], Tool], extra: str) -> Tool:
    """Return the tool; or one that fails with what to install, so that only steps that need the library fail."""
    try:
        return make()
    except ModuleNotFoundError as error:
        return _failing(not_installed(error, extra))


def _failing(why: str) -> Tool:
    async def fail(call: ToolCall) -> Any:
        raise refused(why, "missing_package")

    return fail
