"""A Python workflow under faults: processes die in the middle of its bodies, and its result is the same."""

import asyncio
from typing import Any

import pytest

from refold import Collect, Context, Event, Retry, StartEvent, StopEvent, Workflow, step
from refold.runtime.engine import Engine
from refold.runtime.handle import Handle
from refold.testing.core import Scripted
from refold.testing.simulator.event_loop import SimProcess
from refold.testing.simulator.oracles import Violation
from refold.testing.simulator.simulation import Simulation, stubborn
from refold.wiring import Process
from tests.simulator.scenarios import _lost_too_many

PAGES = 6


class Page(Event):
    n: int


class Done(Event):
    n: int
    square: int


class Crawl(Workflow):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []

    async def square(self, n: int) -> int:
        await asyncio.sleep(0.1)
        self.calls.append(n)
        return n * n

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> list[Page]:
        ctx.set("expected", ev.pages)
        return [Page(n=n) for n in range(ev.pages)]

    @step(workers=2, retry=Retry(attempts=5, delay=0.5))
    async def fetch(self, ctx: Context, ev: Page) -> Done:
        square = await ctx.call(self.square, ev.n)
        if ev.n == 2 and ctx.attempt < 3:
            raise ConnectionError("away")
        await ctx.sleep(60.0 if ev.n == 3 else 0.5)
        ctx.update("sum", lambda held: held + square, 0)
        return Done(n=ev.n, square=square)

    @step(collect=Collect(Done, n="expected"))
    async def join(self, ctx: Context, done: list[Done]) -> StopEvent:
        word = await ctx.wait_for("word")
        return StopEvent(result=(sorted(each.square for each in done), ctx.get("sum"), word))


class Coded(Simulation):
    """Every process has the code."""

    def __init__(self, seed: int) -> None:
        self.workflow = Crawl()
        super().__init__(seed, {}, Scripted())

    def _parts(self, process: SimProcess) -> Process:
        parts = super()._parts(process)
        process.spawn(stubborn(lambda: parts.engine.code.known(self.workflow)))
        return parts


def simulate(seed: int) -> tuple[str, int, list[int]]:
    simulation = Coded(seed)
    handles: list[Handle] = []

    async def script(engine: Engine) -> None:
        handle: Any = await stubborn(lambda: engine.options(key="one").start(simulation.workflow, pages=PAGES))
        handles.append(handle)
        await stubborn(lambda: handle.signal("word", (1, 2)))

    try:
        simulated = simulation.run(script, limit=3600.0)
        [handle] = handles
        state = simulation.folded(handle.id)
        assert handle.definition is not None
        if not _lost_too_many(simulation, handle.id):
            squares = [n * n for n in range(PAGES)]
            result = handle.definition.codec.get(state.result)
            if (state.life, result) != ("completed", (squares, sum(squares), (1, 2))):
                raise Violation(f"seed {seed}: the run ended as {state.life}: {result}, {state.error}")
    finally:
        simulation.loop.close()
    return simulated.digest, sum(simulated.faults.values()), simulation.workflow.calls


@pytest.mark.parametrize("block", range(3))
def test_a_workflow_of_the_user_keeps_every_promise_in_24_seeds(block: int) -> None:
    found = [simulate(seed) for seed in range(8 * block, 8 * block + 8)]
    assert sum(faults for _, faults, _ in found) > 50
    assert simulate(8 * block)[0] == found[0][0]


def test_every_durable_call_is_made() -> None:
    made = [simulate(seed)[2] for seed in range(3)]
    assert all({*calls} == {*range(PAGES)} for calls in made)
