"""Settings to a running engine: the only place where parts are put together."""

import asyncio
import random
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from threading import Thread
from typing import Any

from msgspec import Struct

from refold.core.expressions import Evaluate, Values
from refold.core.facts import Instant
from refold.core.plan import Call, Plan
from refold.doorbells.local import LocalDoorbell
from refold.ports import Abilities, Advance, Clock, Doorbell, Lease, Store, Tool
from refold.runtime.advance import inline
from refold.runtime.desk import LocalDesk
from refold.runtime.engine import Engine
from refold.runtime.mailroom import Mailroom
from refold.runtime.sweep import Sweep
from refold.runtime.timers import Timers
from refold.runtime.turn import Turns
from refold.settings import Settings
from refold.stores.memory import MemoryStore
from refold.tools.noop import noop
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


class Process(Struct):
    """One process: an engine, and a worker and a sweep that serve every run of the store."""

    engine: Engine
    worker: Worker
    sweep: Sweep
    timers: Timers
    desk: LocalDesk

    async def serve(self) -> None:
        """Everything that runs for the life of the process."""
        async with asyncio.TaskGroup() as group:
            for part in (self.worker.run, self.sweep.run, self.timers.run):
                group.create_task(part())


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

    known = {"noop": noop, **tools}
    can = Abilities(worker=name, tools=frozenset(known))
    worker = Worker(desk, known, tool_settings, world.clock, world.doorbell, can)
    worker.slots, worker.lease_for, worker.poll = settings.slots, settings.lease_for, settings.poll
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
    store: Store | None = None,
    settings: Settings | None = None,
) -> AsyncIterator[Engine]:
    """An engine that works: it executes its runs, and those of others it finds in the store, until it is closed."""
    clock = WallClock()
    world = World(clock, LocalDoorbell(), inline, random.random, lambda: uuid.uuid4().hex)
    process = assemble(
        store if store is not None else MemoryStore(clock.now),
        world,
        evaluate if evaluate is not None else Values(),
        tools or {},
        settings if settings is not None else Settings(),
        f"worker-{uuid.uuid4().hex[:8]}",
    )
    serving = asyncio.create_task(process.serve())
    try:
        yield process.engine
    finally:
        await process.worker.hand_back()
        serving.cancel()
        await asyncio.wait([serving])


def run_sync(
    plan: Plan,
    input: dict[str, Any] | None = None,
    *,
    tools: Mapping[str, Tool] | None = None,
    evaluate: Evaluate | None = None,
    store: Store | None = None,
) -> Any:
    """Run a workflow to its end and return its result; works inside a running event loop too (notebooks)."""

    async def run() -> Any:
        async with open_engine(tools, evaluate=evaluate, store=store) as engine:
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
