"""Settings to a running engine: the only place where parts are put together."""

import asyncio
import os
import random
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Thread
from typing import Any

from msgspec import Struct

from refold.core.expressions import Evaluate, Values
from refold.core.facts import Instant
from refold.core.plan import Call, Plan
from refold.doorbells.local import LocalDoorbell
from refold.executors.inline import Inline
from refold.executors.processes import Processes
from refold.ports import Abilities, Advance, Clock, Doorbell, Executor, Lease, Store, Tool
from refold.runtime.advance import AdvancingThread, Here
from refold.runtime.desk import LocalDesk
from refold.runtime.engine import Engine
from refold.runtime.mailroom import Mailroom
from refold.runtime.sweep import Sweep
from refold.runtime.timers import Timers
from refold.runtime.turn import Turns
from refold.settings import Settings
from refold.stores.memory import MemoryStore
from refold.tools.function import FunctionTool
from refold.tools.noop import noop
from refold.worker.heartbeat import Heartbeat, as_task, on_thread
from refold.worker.loop import Worker


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


class Process(Struct):
    """One process: an engine, and a worker and a sweep that serve every run of the store."""

    engine: Engine
    worker: Worker
    sweep: Sweep
    timers: Timers
    desk: LocalDesk

    async def serve(self) -> None:
        """Everything that runs for the life of the process; returns when it was stopped."""
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(part()) for part in (self.sweep.run, self.timers.run)]
            await self.worker.run()
            for each in beside:
                each.cancel()

    async def stop(self, grace: float = 0.0) -> None:
        """Take nothing new; what does not finish within the grace is handed back, for others to go on with."""
        await self.worker.stop(grace)


def assemble(
    store: Store, world: World, evaluate: Evaluate, tools: Mapping[str, Tool], settings: Settings, name: str
) -> Process:
    turns = Turns(store, evaluate, world.chance, world.new_id, settings.lease_for)
    turns.keep = settings.states_kept
    mailroom = Mailroom(turns, world.advance, world.doorbell)
    engine = Engine(store, mailroom, world.advance, world.clock, world.new_id)
    engine.poll = settings.poll
    desk = LocalDesk(store, world.advance, mailroom)

    async def tool_settings(lease: Lease) -> Mapping[str, Any]:
        work = (await world.advance(lambda: turns.graph(lease.plan))).plan.steps
        step = next(step for step in work if step.name == lease.command.step)
        return step.work.settings if isinstance(step.work, Call) else {}

    known: dict[str, Tool] = {"noop": noop}
    if world.executors:
        known["function"] = FunctionTool(world.executors)
    known.update(tools)
    can = Abilities(worker=name, tools=frozenset(known))
    worker = Worker(desk, known, tool_settings, world.clock, world.doorbell, can)
    worker.slots, worker.lease_for, worker.poll = settings.slots, settings.lease_for, settings.poll
    worker.heartbeat = world.heartbeat
    mailroom.on_withdrawn = worker.keeper.withdraw
    sweep = Sweep(store, world.advance, mailroom, world.clock, world.doorbell)
    sweep.every = settings.sweep_every
    timers = Timers(world.clock, mailroom.wake)
    mailroom.on_alarm = timers.set
    return Process(engine, worker, sweep, timers, desk)


@asynccontextmanager
async def open_engine(
    tools: Mapping[str, Tool] | None = None,
    *,
    evaluate: Evaluate | None = None,
    db: str | Path | None = None,
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
    db: str | Path | None = None,
    store: Store | None = None,
    settings: Settings | None = None,
) -> AsyncIterator[Process]:
    """The engine and all that works for it; when it is closed, what is under way is handed back at once."""
    clock = WallClock()
    async with _kept(store, db, clock) as (kept, advance):
        settings = settings if settings is not None else Settings()
        inline = Inline(settings.slots)
        processes = Processes(settings.processes or os.cpu_count() or 1, grace=settings.process_grace)
        world = World(
            clock,
            LocalDoorbell(),
            advance,
            random.random,
            lambda: uuid.uuid4().hex,
            on_thread,
            {"inline": inline, "process": processes},
        )
        process = assemble(
            kept,
            world,
            evaluate if evaluate is not None else Values(),
            tools or {},
            settings,
            f"worker-{uuid.uuid4().hex[:8]}",
        )
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
async def _kept(store: Store | None, db: str | Path | None, clock: Clock) -> AsyncIterator[tuple[Store, Advance]]:
    """The store, and where its turns are taken: a file may make its thread wait, and that is not the event loop's."""
    if db is None:
        yield store if store is not None else MemoryStore(clock.now), Here()
        return
    from refold.stores.sqlite.store import SqliteStore

    advance = AdvancingThread()
    try:
        file = await advance(lambda: SqliteStore(db, clock.now))
        try:
            yield file, advance
        finally:
            await advance(file.close)
    finally:
        advance.close()


def run_sync(
    plan: Plan,
    input: dict[str, Any] | None = None,
    *,
    tools: Mapping[str, Tool] | None = None,
    evaluate: Evaluate | None = None,
    db: str | Path | None = None,
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
