"""Trees of runs under faults: paused, cancelled, retried at any moment; each side tells its half once."""

import asyncio
import os
import random
from collections import Counter
from functools import partial
from typing import Any

import pytest

from refold.core.facts import ChildEnded, Fact, ItemsSettled, RunEnded, RunReopened, StepSettled
from refold.core.outcomes import Succeeded
from refold.core.plan import Arc, Call, Child, Gate, Loop, Plan, Retry, Step, Wait, plan_hash
from refold.core.state import TERMINAL
from refold.ports import Done, ToolCall
from refold.runtime.engine import Engine
from refold.testing.core import Scripted
from refold.testing.simulator.faults import Rates
from refold.testing.simulator.oracles import Violation
from refold.testing.simulator.simulation import Simulation, stubborn

TIDY = Step(name="tidy", work=Call(tool="uses"))
LEAF = Plan(
    name="leaf",
    always=("tidy",),
    steps=(
        Step(name="nap", work=Wait(seconds=0.3), arcs=(Arc(to="use"),)),
        Step(name="use", work=Call(tool="uses"), retry=Retry(attempts=2, delay=0.2)),
        TIDY,
    ),
)
MIDDLE = Plan(
    name="middle",
    always=("tidy",),
    steps=(
        Step(
            name="kids",
            work=Child(plan=plan_hash(LEAF)),
            loop=Loop(items=[1, 2, 3], max_in_flight=2),
            retry=Retry(attempts=2, delay=1.0),
            arcs=(Arc(to="gate"),),
        ),
        Step(name="gate", work=Gate(timeout=1.0, on_timeout="continue")),
        TIDY,
    ),
)
ROOT = Plan(
    name="root",
    always=("tidy",),
    steps=(
        Step(name="fork", mode="inclusive", work=Call(tool="uses"), arcs=(Arc(to="left"), Arc(to="right"))),
        Step(name="left", work=Child(plan=plan_hash(MIDDLE)), arcs=(Arc(to="join"),)),
        Step(name="right", work=Child(plan=plan_hash(LEAF)), arcs=(Arc(to="join"),)),
        Step(name="join", work=Call(tool="uses")),
        TIDY,
    ),
)


class Story:
    """What somebody does to one tree."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(f"{seed}/story")
        self.broken = self.chance.random() < 0.4
        self.run = ""

    async def uses(self, call: ToolCall) -> Any:
        await asyncio.sleep(0.1)
        if self.broken and call.command.step == "use":
            raise RuntimeError("broken")
        return Done(Succeeded(call.command.id), usage={"calls": 1})

    async def script(self, engine: Engine) -> None:
        for plan in (LEAF, MIDDLE):
            await stubborn(partial(engine.register, plan))
        self.run = (await stubborn(lambda: engine.options(key="tree").start(ROOT))).id
        await asyncio.sleep(self.chance.uniform(0, 6))
        await self.steer(engine)
        await self.over(engine)
        self.broken = False
        for _ in range(3):  # a worker may be lost too often, and then some more
            if (await stubborn(lambda: engine.show(self.run))).status == "completed":
                return
            await stubborn(lambda: engine.retry(self.run, by="ann"))
            await self.over(engine)

    async def steer(self, engine: Engine) -> None:
        rows = await stubborn(lambda: engine.runs())
        some = self.chance.choice(rows).run
        match self.chance.choice(["nothing", "pause", "pause", "cancel", "cancel", "twice"]):
            case "pause":
                for run in dict.fromkeys((self.run, some)):
                    await stubborn(partial(engine.pause, run, "ann"))
                await asyncio.sleep(self.chance.uniform(0, 5))
                for run in dict.fromkeys((some, self.run)):
                    await stubborn(partial(engine.resume, run, "ann"))
            case "cancel":
                await stubborn(lambda: engine.cancel(some))
            case "twice":
                for _ in range(2):
                    await stubborn(lambda: engine.cancel(self.run))
                    await asyncio.sleep(self.chance.uniform(0, 0.3))
            case _:
                pass

    async def over(self, engine: Engine) -> None:
        while (await stubborn(lambda: engine.show(self.run))).status not in TERMINAL:
            await asyncio.sleep(0.5)


def usage_of(facts: list[Fact]) -> Counter[str]:
    """All that tools of these logs have reported, each report once."""
    found: Counter[str] = Counter()
    for fact in facts:
        reports = (
            (fact.report,) if isinstance(fact, StepSettled) else fact.reports if isinstance(fact, ItemsSettled) else ()
        )
        for report in reports:
            found.update(report.usage)
    return found


def judge(simulation: Simulation, story: Story) -> int:
    store = simulation.store
    logs = {run: [fact for _, _, fact in store.facts(run)] for run in store.logs}
    state = simulation.folded(story.run)
    total = usage_of([fact for log in logs.values() for fact in log])
    if Counter(state.usage) != total:
        raise Violation(f"usage: the root says {state.usage}, the logs {total}")
    heard = Counter(fact.child for log in logs.values() for fact in log if isinstance(fact, ChildEnded))
    born = {row.run: 1 for row in store.rows.values() if row.parent}
    if heard != born:
        raise Violation(f"children: {heard} were heard of, {born} were born")
    for run in born:
        if sum(isinstance(fact, RunEnded) for fact in logs[run]) != 1:
            raise Violation(f"child {run} ended more than once")
    if state.life != "completed" and not any(
        b'"kind":"lost"' in entry.data for log in store.logs.values() for entry in log
    ):
        raise Violation(f"the tree ended as {state.life}: {state.error}")
    return sum(isinstance(fact, RunReopened) for fact in logs[story.run])


def simulate(seed: int, rates: Rates | None = None) -> tuple[str, int]:
    story = Story(seed)
    simulation = Simulation(seed, {"uses": story.uses}, Scripted(), rates)
    try:
        simulated = simulation.run(story.script)
        return simulated.digest, judge(simulation, story)
    finally:
        simulation.loop.close()


def test_trees_keep_every_promise_under_faults() -> None:
    assert sum(simulate(seed)[1] for seed in range(30)) > 5


def test_trees_without_faults_are_exact() -> None:
    for seed in range(15):
        assert simulate(seed, Rates())[0] == simulate(seed, Rates())[0]


@pytest.mark.proof
@pytest.mark.timeout(3600)
def test_trees_of_1000_seeds_keep_every_promise() -> None:
    first = int(os.environ.get("REFOLD_FIRST_SEED", "1000"))
    reopened = sum(simulate(seed)[1] for seed in range(first, first + 1000))
    print(f"\n{reopened} runs were reopened")
    assert reopened > 150
