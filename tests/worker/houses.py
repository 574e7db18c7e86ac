"""Engine processes of the tests in real time: several over one memory store, each with its heartbeat thread."""

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from threading import Thread
from typing import Any

from refold.core.expressions import Values
from refold.core.facts import StepSettled
from refold.doorbells.local import LocalDoorbell
from refold.executors.inline import Inline
from refold.executors.interpreter_pool import InterpreterPool
from refold.plan import Call, Plan, Step
from refold.ports import Executor, Tool
from refold.runtime.engine import Engine
from refold.runtime.turn_thread import InCaller
from refold.settings import Settings
from refold.stores.memory import MemoryStore
from refold.wiring import Process, WallClock, World, assemble
from refold.worker.leases import Heartbeat, on_thread

BODIES = "tests.executors.bodies"
SHORT = Settings(lease_for=0.3, sweep_every=0.05, poll=0.05, process_grace=0.1)


class Town:
    """One store, and one lock for all that touch it."""

    def __init__(self) -> None:
        self.clock = WallClock()
        self.store = MemoryStore(self.clock.now)
        self.advance = InCaller()

    @asynccontextmanager
    async def house(
        self,
        name: str,
        settings: Settings = SHORT,
        heartbeat: Heartbeat = on_thread,
        serves: bool = True,
        tools: Mapping[str, Tool] | None = None,
    ) -> AsyncIterator[Process]:
        inline, processes = Inline(settings.slots), InterpreterPool(2, grace=settings.process_grace)
        executors: dict[str, Executor] = {"inline": inline, "process": processes}
        world = World(
            self.clock, LocalDoorbell(), self.advance, random.random, lambda: uuid.uuid4().hex, heartbeat, executors
        )
        process = assemble(self.store, world, Values(), tools or {}, settings, name)
        serving = asyncio.create_task(process.serve()) if serves else None
        try:
            yield process
        finally:
            await process.stop()
            if serving is not None:
                serving.cancel()
                await asyncio.wait([serving])
            await inline.close()
            await processes.close()

    def far_house(self, name: str, settings: Settings = SHORT, **more: Any) -> "FarHouse":
        return FarHouse(self, name, settings, more)


class FarHouse:
    """A house with a thread and an event loop of its own, as if it were another program."""

    def __init__(self, town: Town, name: str, settings: Settings, more: dict[str, Any]) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self.process: Process | None = None
        self._thread = Thread(target=lambda: asyncio.run(self._live(town, name, settings, more)), name=name)

    async def _live(self, town: Town, name: str, settings: Settings, more: dict[str, Any]) -> None:
        self.loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        async with town.house(name, settings, **more) as self.process:
            await self._end.wait()

    async def __aenter__(self) -> "FarHouse":
        self._thread.start()
        while self.process is None:
            await asyncio.sleep(0.005)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self.loop is not None and self._end is not None
        self.loop.call_soon_threadsafe(self._end.set)
        await asyncio.to_thread(self._thread.join)

    async def start(self, plan: Plan) -> str:
        assert self.loop is not None and self.process is not None
        started = asyncio.run_coroutine_threadsafe(
            self.process.engine.options(run=uuid.uuid4().hex).start(plan), self.loop
        )
        return (await asyncio.wrap_future(started)).id


def calls(body: str, input: Any = None, isolation: str = "inline", **more: Any) -> Plan:
    """A workflow of one step."""
    settings = {"call": f"{BODIES}:{body}", "isolation": isolation}
    return Plan(name=body, steps=(Step(name="a", work=Call(tool="function", settings=settings), input=input, **more),))


async def settled(engine: Engine, run: str) -> StepSettled:
    """The one report of its one step, once the run has ended."""
    await asyncio.wait_for(engine.wait(run), 60)
    [fact] = [fact for _, _, fact in await engine.history(run) if isinstance(fact, StepSettled)]
    return fact
