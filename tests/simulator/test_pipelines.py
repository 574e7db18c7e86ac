"""A pipeline of workflows under faults: processes die between and inside its stages, and its result is the same."""

import asyncio
from typing import Any

import pytest

from refold import Context, Retry, flow
from refold.runtime.engine import Engine
from refold.runtime.handle import Handle
from refold.stages import LoopStage, ParallelStage, Pipeline, PipelineState, Stage, StageResult
from refold.testing.core import Scripted
from refold.testing.simulator.event_loop import SimProcess
from refold.testing.simulator.oracles import Violation
from refold.testing.simulator.simulation import Simulation, stubborn
from refold.wiring import Process
from tests.simulator.scenarios import _lost_too_many


@flow
async def double(ctx: Context, value: int) -> int:
    await asyncio.sleep(0.1)
    await ctx.sleep(0.5)
    if ctx.attempt < 2:
        raise ConnectionError("away")
    ctx.usage(tokens=value)
    return value * 2


@flow
async def stuck(ctx: Context, value: int) -> int:
    await ctx.sleep("10h")
    return -1


async def number(state: PipelineState) -> int:
    state.set("asked", state.get("asked", 0) + 1)
    last = state.last
    return last if isinstance(last, int) else int(sum(last.values()))


async def until(state: PipelineState, round: int) -> bool:
    return round == 3


def made() -> Pipeline:
    return Pipeline(
        "simulated",
        [
            Stage("first", double),
            ParallelStage("both", [Stage("a", double, input=number), Stage("b", double, input=number)]),
            ParallelStage("race", [Stage("x", stuck, input=number), Stage("y", double, input=number)], join="first"),
            LoopStage("grow", Stage("s", double, input=number), until=until, max_rounds=9),
        ],
        retry=Retry(attempts=9, delay=0.2),
        stage_timeout="5h",
    )


EXPECTED = [2, {"a": 4, "b": 4}, {"y": 16}, 128]


class Coded(Simulation):
    """Every process has the code."""

    def __init__(self, seed: int) -> None:
        self.pipeline = made()
        super().__init__(seed, {}, Scripted())

    def _parts(self, process: SimProcess) -> Process:
        parts = super()._parts(process)
        process.spawn(stubborn(lambda: parts.engine.code.known(self.pipeline)))
        return parts


def simulate(seed: int) -> tuple[str, int]:
    simulation = Coded(seed)
    handles: list[Handle] = []

    async def script(engine: Engine) -> None:
        handle: Any = await stubborn(lambda: engine.options(key="one").start(simulation.pipeline, value=1))
        handles.append(handle)

    try:
        simulated = simulation.run(script, limit=7200.0)
        [handle] = handles
        state = simulation.folded(handle.id)
        assert handle.definition is not None
        if state.life != "completed":
            if not _lost_too_many(simulation, handle.id) and "lost" not in str(state.error):
                raise Violation(f"seed {seed}: the run ended as {state.life}: {state.error}")
        else:
            _judge(seed, handle.definition.codec.get(state.result), state.usage)
    finally:
        simulation.loop.close()
    return simulated.digest, sum(simulated.faults.values())


def _judge(seed: int, done: Any, used: dict[str, int | float]) -> None:
    stages: list[StageResult] = done.stages
    if [each.output for each in stages] != EXPECTED or done.state != {"asked": 7}:
        raise Violation(f"seed {seed}: the result is {done}")
    if used != {"tokens": 1 + 2 + 2 + 8 + 16 + 32 + 64}:
        raise Violation(f"seed {seed}: it has used {used}")


@pytest.mark.parametrize("block", range(2))
def test_a_pipeline_keeps_every_promise_in_12_seeds(block: int) -> None:
    found = [simulate(seed) for seed in range(6 * block, 6 * block + 6)]
    assert sum(faults for _, faults in found) > 30
    assert simulate(6 * block)[0] == found[0][0]
