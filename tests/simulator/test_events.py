"""A workflow of events under faults: whatever fails, stalls or is told twice, it ends as if nothing had happened."""

import asyncio
import random
from functools import partial
from typing import Any

import pytest

from refold.core.outcomes import SECOND, AddTo, Awaited, Sent, Succeeded, Suspended
from refold.core.plan import Call, Collect, EventType, Plan, Retry, Step
from refold.ports import Done, ToolCall
from refold.runtime.engine import Engine
from refold.testing.core import Scripted
from refold.testing.simulator.oracles import Violation
from refold.testing.simulator.simulation import Simulation, stubborn
from tests.simulator.scenarios import Stage, _lost_too_many

PAGES = 9
TYPES = ("StartEvent", "StopEvent", "Page", "Done", "Broken")

CRAWL = Plan(
    name="crawl",
    events=tuple(EventType(name=name) for name in TYPES),
    on_failure="cancel",
    steps=(
        Step(name="begin", work=Call(tool="body"), accepts=("StartEvent",)),
        Step(
            name="fetch",
            work=Call(tool="body"),
            accepts=("Page",),
            workers=3,
            retry=Retry(attempts=3, delay=0.5),
            on_error="Broken",
        ),
        Step(name="mend", work=Call(tool="body"), accepts=("Broken",)),
        Step(name="join", work=Call(tool="body"), accepts=("Done",), collect=Collect(n=3, by="group", timeout=600.0)),
        Step(name="last", work=Call(tool="body"), accepts=("StartEvent", "Page")),
        Step(name="total", work=Call(tool="body"), accepts=("Broken", "Done"), collect=Collect(n=PAGES + 1)),
    ),
)


class Bodies(Stage):
    """One tool for all steps; a page may fail, or sleep before it goes on."""

    def tools(self) -> dict[str, Any]:
        return {"body": self._noted(self.body)}

    async def body(self, call: ToolCall) -> Any:
        await asyncio.sleep(0.1)
        events = call.input["events"]
        sent: list[Sent] = []
        match call.command.step, events[0]["data"]:
            case "begin", _:
                sent = [Sent("Page", {"n": n}) for n in range(PAGES)]
            case "fetch", {"n": n}:
                if n == 4 or (n == 5 and call.command.attempt < 3):
                    raise RuntimeError("scripted")
                if n % 4 == 1 and "nap" not in call.command.recorded:
                    return Suspended((Awaited("nap", until=self.now() + 2 * SECOND),))
                sent = [Sent("Done", {"n": n, "group": n % 3})]
            case "mend", {"events": [{"data": {"n": n}}]}:
                sent = [Sent("Done", {"n": n, "group": n % 3})]
            case "total", _:
                numbers = sorted(each["data"]["n"] for each in events if each["type"] == "Done")
                sent = [Sent("StopEvent", {"result": numbers})]
        return Done(Succeeded(), events=tuple(sent), writes=(AddTo(call.command.step, 1),))


def simulate(seed: int) -> tuple[str, int]:
    stage, chance = Bodies(), random.Random(seed)
    simulation = stage.simulation = Simulation(seed, stage.tools(), Scripted())
    runs: list[str] = []

    async def script(engine: Engine) -> None:
        for key in ("a", "b"):
            runs.append((await stubborn(partial(engine.options(key=key).start, CRAWL))).id)
        await asyncio.sleep(chance.uniform(0, 3))
        await stubborn(lambda: engine.pause(runs[0]))
        await asyncio.sleep(chance.uniform(0, 3))
        await stubborn(lambda: engine.resume(runs[0]))

    try:
        simulated = simulation.run(script)
        for run in runs:
            state = simulation.folded(run)
            if _lost_too_many(simulation, run):
                continue
            ended = (state.life, state.result, state.ctx.get("begin"), state.ctx.get("fetch"), state.ctx.get("mend"))
            if ended != ("completed", list(range(PAGES)), 1, PAGES - 1, 1):
                raise Violation(f"seed {seed}: the run ended as {ended}: {state.error}")
    finally:
        simulation.loop.close()
    return simulated.digest, sum(simulated.faults.values())


@pytest.mark.parametrize("block", range(4))
def test_40_seeds_of_events_keep_every_promise(block: int) -> None:
    found = [simulate(seed) for seed in range(10 * block, 10 * block + 10)]
    assert sum(faults for _, faults in found) > 100
    assert simulate(10 * block)[0] == found[0][0]
