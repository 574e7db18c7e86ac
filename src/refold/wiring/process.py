"""The parts of a process, put together."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field, structs

from refold.core import plan as plans
from refold.core import queueing
from refold.core.expressions import Evaluate
from refold.core.graph import Graph
from refold.core.pipeline import TaskPipeline
from refold.core.plan import Step
from refold.errors import NotFound
from refold.ports import Abilities, Advance, Lease, Ring, Store, Tool
from refold.queries.code import open_plans
from refold.queries.reading import stored_value
from refold.queries.workers import abilities as live_abilities
from refold.registry import LazyRegistry
from refold.runtime.background import Listener, ServedRuns, Sweep, Timers, concerns
from refold.runtime.caller_contexts import CallerContexts
from refold.runtime.desk import LocalDesk
from refold.runtime.engine import Engine, EngineParts, ServiceHealth
from refold.runtime.mailroom import Mailroom, TurnObserver
from refold.runtime.retention import OldRuns
from refold.runtime.run_waiters import RunWaiters
from refold.runtime.schedules import ScheduleReader, Schedules
from refold.runtime.turn import RunSnapshot, TurnOptions, Turns
from refold.secrets.access import SecretAccess, SecretPlaces, file_beside
from refold.settings import Settings
from refold.stores.open import is_server
from refold.wiring.python_code import PythonCode
from refold.wiring.tools import make_tools
from refold.wiring.world import WallClock, World, language
from refold.worker.loop import Worker, WorkerOptions
from refold.worker.run_tool import NO_REDACTION, RESULT

if TYPE_CHECKING:
    from refold.python.body_call import ChildRun

SERVER_FILES = os.path.join(".refold", "server")  # what is next to a file, where the database is on a server
NEW_RUNS = 200  # runs in which instances of workflows are looked for when another process has written


class Process(Struct, frozen=True):
    """An engine, with a worker and a sweep that serve every run of the store, or one run and the runs it starts."""

    engine: Engine
    worker: Worker
    sweep: Sweep
    timers: Timers
    desk: LocalDesk
    tools: LazyRegistry[Tool]
    code: PythonCode
    service: ServiceHealth
    schedules: Schedules | None = None  # None: it serves one run, and no schedules
    served_runs: ServedRuns | None = None  # None: it serves every run
    listener: Listener | None = None  # only if other processes may write to the store
    secrets: SecretAccess | None = None
    old_runs: OldRuns | None = None  # removes what the retention does not keep
    works: bool = True  # if not, it only steers runs, and others execute them
    claims: bool = True  # if not, it decides what follows in every run, and leaves all commands to other workers
    stopped: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self) -> None:
        """Run all parts; return after `stop`. A process that does not work hears of what others write."""
        if not self.works:
            if self.listener is not None:
                await self.listener.run()
            return
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(part()) for part in (self.sweep.run, self.timers.run)]
            if self.old_runs is not None:
                beside.append(group.create_task(self.old_runs.run()))
            if self.listener is not None:
                beside.append(group.create_task(self.listener.run()))
            if self.served_runs is not None:
                beside.append(group.create_task(self.served_runs.run_for(self.sweep.clock)))
            if self.schedules is not None:
                beside.append(group.create_task(self.schedules.run()))
            await (self.worker.run() if self.claims else self.stopped.wait())
            for each in beside:
                each.cancel()

    async def enrol(self) -> None:
        """Let other processes know that this one executes every run, before its worker has claimed anything."""
        await self.engine.advance(lambda: self.engine.store.enrol(self.worker.can))

    def late_loops(self) -> list[str]:
        """The loops that every run depends on and that have not turned for three of their periods."""
        loops = {"sweep": self.sweep.is_late(), "schedules": self.schedules is not None and self.schedules.is_late()}
        return [name for name, is_late in loops.items() if is_late and self.works]

    def wake_schedules(self) -> None:
        """A document of a schedule may have changed."""
        if self.schedules is not None:
            self.schedules.wake()

    async def stop(self, grace: float = 0.0) -> None:
        """Take nothing new; work that does not finish within the grace is handed back, and others can continue it."""
        self.stopped.set()
        await self.worker.stop(grace)

    async def close(self) -> None:
        """Close tools and Python code, and wake those who wait for runs; only after the end of `serve`."""
        await self.tools.close()
        await self.code.close()
        self.engine.ends.close()


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
    works: bool = True,
    claims: bool = True,
    turn_options: TurnOptions | None = None,
) -> Process:
    """Create the parts of a process. Parts that need one another get a function that returns the finished process;
    none of them calls it before `assemble` has returned.

    `only` is a run: the process serves it and the runs that it starts. `shared`: other processes use the store too.
    Without `works` it executes nothing, and others do not see a worker in it; without `claims` it only decides.
    """

    def process() -> Process:
        return assembled

    advance = world.advance

    def executor_of(plan: str, step: Step) -> str:
        return queueing.executor_of(plan, step, process().code.isolation_of)

    turns = Turns(store, evaluate, world.chance, world.new_id, _turn_options(settings, turn_options, executor_of, only))
    stored = StoredData(store, turns, advance)
    mailroom = Mailroom(
        turns,
        advance,
        world.doorbell,
        worker=lambda: process().worker,
        observer=_observer(process),
        at_once=world.at_once,
    )
    desk = LocalDesk(store, advance, mailroom)
    contexts = CallerContexts()
    registry = make_tools(tools, world, settings, stored.blob, name)
    queues = settings.queues or None
    runs = frozenset({only}) if only else None
    abilities = Abilities(worker=name, queues=queues, tools=frozenset(registry), runs=runs)
    worker = Worker(
        desk,
        registry,
        stored.settings,
        world.clock,
        world.doorbell,
        abilities,
        structs.replace(worker_options(settings, world), context_of=contexts.of),
    )
    served_runs = ServedRuns(only, turns, advance, worker.serve_runs) if only else None
    code = PythonCode(
        stored,
        worker,
        registry,
        stored.value,
        register=lambda workflow: process().engine.register(workflow),
        enrol=_enrolment(store, world) if shared and works and claims else _keep_to_oneself,
        chance=world.chance,
        new_id=world.new_id,
        in_thread=world.in_thread,
        isolated=world.isolated_bodies or world.executors.get("process"),
        cluster=world.cluster,
    )
    service = ServiceHealth()
    engine = Engine(
        EngineParts(
            store=store,
            mailroom=mailroom,
            advance=advance,
            clock=world.clock,
            new_id=world.new_id,
            waiters=RunWaiters(store, advance, settings.poll),
            code=code,
            workers=lambda: live_abilities(store.views) if shared else {worker.can.worker: worker.can},
            service=service,
            contexts=contexts,
            queues=queues,
            folder=world.folder,
            wake_schedules=lambda: process().wake_schedules(),
        )
    )
    listener = None
    if shared:
        others_wrote = _foreign_write(process, world)
        listener = Listener(
            store.foreign_writes, advance, world.clock, others_wrote, settings.listen_every, store.listen
        )
    schedules = None
    if not only:
        schedules = Schedules(ScheduleReader(store, turns), advance, mailroom.send, world.clock, shared=shared)
    assembled = Process(
        engine=engine,
        worker=worker,
        sweep=Sweep(
            store,
            advance,
            mailroom,
            world.clock,
            world.doorbell,
            every=settings.sweep_every,
            lease_for=settings.lease_for,
            served_runs=served_runs,
        ),
        timers=Timers(world.clock, mailroom.wake, world.doorbell),
        desk=desk,
        tools=registry,
        code=code,
        service=service,
        schedules=schedules,
        served_runs=served_runs,
        listener=listener,
        secrets=world.secrets,
        old_runs=_old_runs(settings, store, world) if not only else None,
        works=works,
        claims=claims,
    )
    return assembled


def _old_runs(settings: Settings, store: Store, world: World) -> OldRuns | None:
    if settings.retention.is_empty:
        return None
    return OldRuns(store, world.advance, world.clock, settings.retention, settings.retention_every)


class StoredData:
    """What the worker and the bodies of a process read from the store, on the thread of its turns."""

    def __init__(self, store: Store, turns: Turns, advance: Advance) -> None:
        self._store, self._turns, self._advance = store, turns, advance

    async def settings(self, lease: Lease) -> Mapping[str, Any]:
        """Return what the plan of a run says about the tool of this command."""
        turns = self._turns
        graph = turns.graphs.get(lease.plan) or await self._advance(lambda: turns.graph(lease.plan))
        return settings_of(graph, lease)

    async def child(self, run: str) -> "ChildRun":
        from refold.python.body_call import ChildRun

        def seen() -> ChildRun:
            try:
                state = self._turns.look(run).state
            except NotFound:
                return ChildRun(run)  # the letter that starts it is not delivered yet
            return ChildRun(run, state.started_at, state.ended_at, dict(state.usage))

        child: ChildRun = await self._advance(seen)
        return child

    async def open_plans(
        self, workflows: Collection[str], known: Collection[str], newest: int | None
    ) -> Mapping[str, bytes]:
        found: Mapping[str, bytes] = await self._advance(
            lambda: open_plans(self._store.views, workflows, known, newest)
        )
        return found

    async def blob(self, run: str, hash: str) -> bytes:
        """Return the bytes of a large value. Raises NotFound."""
        data: bytes = await self._advance(lambda: self._store.views.blob(run, hash))
        return data

    async def value(self, run: str, hash: str) -> Any:
        """Return a large value. Raises Corrupt."""
        return await self._advance(lambda: stored_value(self._store.views, run, hash))


def settings_of(graph: Graph, lease: Lease) -> Mapping[str, Any]:
    """Return what a plan says about the tool of a command."""
    step = graph.plan.steps[graph.index[lease.command.step]]
    if isinstance(step.work, TaskPipeline):
        if step.work.secret:  # its result can be checked only before it is encrypted
            return {step.work.tool: structs.replace(step.work, schema=step.result)}
        settings: dict[str, Any] = {step.work.tool: step.work}
    else:
        settings = step.work.settings if isinstance(step.work, plans.Call) else {}
    return settings if step.result is None else {**settings, RESULT: step.result}


def _turn_options(
    settings: Settings, options: TurnOptions | None, executor_of: Callable[[str, Step], str], kept_run: str
) -> TurnOptions:
    return structs.replace(
        options or TurnOptions(),
        lease_for=settings.lease_for,
        languages=language,
        keep=settings.states_kept,
        depth_limit=settings.depth_limit,
        executor_of=executor_of,
        kept_run=kept_run,
    )


def worker_options(settings: Settings, world: World) -> WorkerOptions:
    return WorkerOptions(
        slots=settings.slots,
        places=world.places,
        lease_for=settings.lease_for,
        poll=settings.poll,
        parked_bodies=settings.parked_bodies,
        heartbeat=world.heartbeat,
        redaction=world.secrets.redaction if world.secrets is not None else NO_REDACTION,
    )


def _observer(process: Callable[[], Process]) -> TurnObserver:
    """Return what the parts of the process do after a commit."""

    def run_ended(snapshot: RunSnapshot) -> None:
        run, served_runs = snapshot.state.run, process().served_runs
        process().code.run_ended(run)
        process().engine.contexts.forget(run)
        if snapshot.state.schedule is not None:
            process().wake_schedules()
        if served_runs is not None:
            served_runs.ended(run)
        process().engine.ends.ended(snapshot)

    def children_started(births: Sequence[tuple[str, str]]) -> None:
        served_runs = process().served_runs
        process().code.children_started(births)
        process().engine.contexts.started(births)
        if served_runs is not None:
            served_runs.add(births)

    return TurnObserver(
        run_ended,
        children_started,
        lambda due, run: process().timers.set(due, run),
        lambda due: process().timers.ring_at(due),
        lambda run, command: process().worker.withdraw(run, command),
        lambda run, command: process().worker.keeper.interrupt(run, command),
    )


def _foreign_write(process: Callable[[], Process], world: World) -> Callable[[Collection[Ring]], Awaitable[None]]:
    """Return what is done as soon as another process has written to the store."""

    async def others_wrote(rings: Collection[Ring]) -> None:
        worker, served_runs = process().worker, process().served_runs
        if concerns(rings, "runs"):
            if served_runs is not None:
                await served_runs.gather()  # or the worker would not take commands of runs that others have started
            await process().code.adopt_stored(NEW_RUNS)
        if concerns(rings, "runs") or concerns(rings, "work", worker.can.queues):
            world.doorbell.ring()
        if concerns(rings, "documents") or concerns(rings, "ended"):
            process().wake_schedules()
        if concerns(rings, "ended"):
            process().engine.ends.look_now()
        held = {place[0] for place in worker.keeper.held}
        if any(concerns(rings, kind, held) for kind in ("withdrawn", "runs", "ended")):
            await worker.keeper.look()

    return others_wrote


def _enrolment(store: Store, world: World) -> Callable[[Abilities], Awaitable[None]]:
    """Return what lets other processes know which commands the worker of this one can take."""

    async def enrol(can: Abilities) -> None:
        await world.advance(lambda: store.enrol(can))

    return enrol


async def _keep_to_oneself(can: Abilities) -> None:
    """No other process uses the store."""


def open_secrets(settings: Settings, db: str | os.PathLike[str] | None) -> SecretAccess:
    """Return access to the secrets. Nothing is read before the first secret is asked for."""
    where = SecretPlaces(
        folder=settings.secrets_folder,
        file=settings.secrets or (file_beside(SERVER_FILES if is_server(db) else db) if db is not None else ""),
        key_file=settings.key_file,
        keyring=settings.keyring,
    )
    return SecretAccess(os.environ, where, WallClock())
