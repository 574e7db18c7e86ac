"""Workloads for the simulator: generated programs, and one workflow with every construct that waits."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from refold.core.outcomes import SECOND, AddTo, AppendTo, Awaited, Parked, Succeeded, Suspended
from refold.core.plan import Arc, Call, Child, Gate, Loop, Plan, Retry, Step, Wait, plan_hash
from refold.ports import Done, ToolCall
from refold.runtime.engine import Engine
from refold.testing.core import Scripted
from refold.testing.simulator.faults import Rates
from refold.testing.simulator.oracles import Violation
from refold.testing.simulator.simulation import EPOCH, Simulation, SimulationResult, stubborn
from tests.programs import random_program
from tests.referee import run as referee
from tests.ticks import pick, plan_of

TICK = 0.2  # seconds of a referee's tick

CHILD = Plan(
    name="child",
    steps=(
        Step(name="one", work=Call(tool="slow"), arcs=(Arc(to="two"),)),
        Step(name="two", input={"path": ["one"]}),
    ),
)

SINK = Plan(
    name="sink",
    timeout=900.0,
    always=("tidy",),
    steps=(
        Step(name="a", work=Call(tool="slow"), arcs=(Arc(to="wait"),)),
        Step(name="wait", work=Wait(signal="go", seconds=20), arcs=(Arc(to="gate"),)),
        Step(name="gate", work=Gate(timeout=6.0, on_timeout="continue"), arcs=(Arc(to="child"),)),
        Step(name="child", work=Child(plan=plan_hash(CHILD)), input={"n": 1}, arcs=(Arc(to="parked"),)),
        Step(name="parked", work=Call(tool="parks"), arcs=(Arc(to="suspended"),)),
        Step(name="suspended", work=Call(tool="suspends"), arcs=(Arc(to="late"),)),
        Step(
            name="late",
            work=Call(tool="hangs_once"),
            timeout=1.0,
            retry=Retry(attempts=5, delay=1.0, max_delay=4.0, backoff="exponential", jitter=0.5),
            arcs=(Arc(to="items"),),
        ),
        Step(
            name="items",
            work=Call(tool="counts"),
            loop=Loop(items=[0, 1, 2, 3, 4, 5, 6], max_in_flight=3),
            input={"path": ["item"]},
            retry=Retry(attempts=2, delay=0.5),
            arcs=(Arc(to="sum"),),
        ),
        Step(name="sum", input={"total": {"path": ["ctx", "total"]}, "order": {"path": ["ctx", "order"]}}),
        Step(name="tidy", work=Call(tool="slow")),
    ),
)

SINK_RESULT = {"total": 21, "order": [0, 1, 2, 3, 4, 5, 6]}


class Stage:
    """The tools of a simulation; they know its clock and note each body that began."""

    def __init__(self) -> None:
        self.simulation: Simulation | None = None
        self.began: list[tuple[str, str, int]] = []

    def tools(self) -> dict[str, Callable[[ToolCall], Awaitable[Any]]]:
        names = ("work", "slow", "parks", "suspends", "hangs_once", "counts")
        return {name: self._noted(getattr(self, name)) for name in names}

    def _noted(self, tool: Callable[[ToolCall], Awaitable[Any]]) -> Callable[[ToolCall], Awaitable[Any]]:
        async def noted(call: ToolCall) -> Any:
            self.began.append((call.run, call.command.id, call.command.attempt))
            return await tool(call)

        return noted

    def now(self) -> int:
        assert self.simulation is not None
        return EPOCH + round(self.simulation.loop.time() * SECOND)

    async def work(self, call: ToolCall) -> Any:
        step, command = call.settings, call.command
        await asyncio.sleep(TICK * pick(step.get("duration", [1]), command.visit))
        if command.item is None:
            fails, value = pick(step.get("outcome", ["ok"]), command.visit), f"{command.step}.{command.visit}"
        else:
            fails, value = step["loop"]["items"][command.item], f"{command.step}.{command.visit}.{command.item}"
        times = {"ok": 0, "fail": -1}.get(fails, fails)
        if times == -1 or command.attempt <= times:
            raise RuntimeError("scripted")
        return value

    async def slow(self, call: ToolCall) -> Any:
        await asyncio.sleep(0.3)
        return call.input

    async def parks(self, call: ToolCall) -> Any:
        await asyncio.sleep(0.1)
        if call.command.progress is None:
            return Parked(until=self.now() + 2 * SECOND, progress={"half": True}, reason="rate limit")
        return call.command.progress

    async def suspends(self, call: ToolCall) -> Any:
        calls = (
            Awaited("nap", until=self.now() + 3 * SECOND),
            Awaited("word", signal="word", until=self.now() + 30 * SECOND),
            Awaited("kid", child=plan_hash(CHILD), input={"n": 2}),
        )
        await asyncio.sleep(0.1)
        if all(call.command.recorded.get(each.key) for each in calls):
            return sorted(call.command.recorded)
        return Suspended(tuple(each for each in calls if each.key not in call.command.recorded))

    async def hangs_once(self, call: ToolCall) -> Any:
        await asyncio.sleep(60.0 if call.command.attempt == 1 else 0.1)
        return "in time"

    async def counts(self, call: ToolCall) -> Any:
        await asyncio.sleep(0.1 * (7 - call.input))
        if call.input == 3 and call.command.attempt == 1:
            raise RuntimeError("flaky")
        writes = (AddTo("total", call.input), AppendTo("order", call.input))
        return Done(Succeeded(call.input), writes=writes, usage={"calls": 1})


def timing_free(workflow: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Whether visits and status do not depend on who is faster."""
    joins = all(step.get("join", "all") == "all" for step in workflow["steps"].values())
    return joins and expected["status"] == "completed"


class Client:
    """Starts a few runs and steers some of them; everything it does, a person could do at any moment."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(f"{seed}/client")
        count = self.chance.randint(1, 3)
        self.workflows = {f"p{n}": random_program(1_000_000 + 10 * seed + n) for n in range(count)}
        self.ids: dict[str, str] = {}
        self.cancelled: set[str] = set()

    async def script(self, engine: Engine) -> None:
        await stubborn(lambda: engine.register(CHILD))
        plans = {key: plan_of(workflow, "work") for key, workflow in self.workflows.items()} | {"sink": SINK}
        steering = []
        for key, plan in plans.items():
            self.ids[key] = (await stubborn(partial(engine.options(key=key).start, plan))).id
            if self.chance.random() < 0.6:
                steering.append(asyncio.create_task(self.steer(engine, key)))
            await asyncio.sleep(self.chance.uniform(0, 2))
        await asyncio.gather(*steering)
        await self.answer(engine)

    async def steer(self, engine: Engine, key: str) -> None:
        await asyncio.sleep(self.chance.uniform(0, 4))
        if self.chance.random() < 0.3:
            self.cancelled.add(key)
            await stubborn(lambda: engine.cancel(self.ids[key]))
            return
        await stubborn(lambda: engine.pause(self.ids[key]))
        await asyncio.sleep(self.chance.uniform(0, 6))
        await stubborn(lambda: engine.resume(self.ids[key]))

    async def answer(self, engine: Engine) -> None:
        for name in ("go", "word"):
            if self.chance.random() < 0.7:
                await stubborn(partial(engine.signal, self.ids["sink"], name, 1))
        if self.chance.random() < 0.5:
            await asyncio.sleep(self.chance.uniform(0, 20))
            await stubborn(lambda: engine.decide(self.ids["sink"], "gate", "approve", by="ann"))

    def compare(self, simulation: Simulation) -> None:
        """S11: crashed or not, the end is the one of an uninterrupted run; unless too many workers were lost."""
        for key, run in self.ids.items():
            state = simulation.folded(run)
            if key in self.cancelled or _lost_too_many(simulation, run):
                continue
            if key == "sink":
                ended = (state.life, state.result, state.usage)
                _agree(ended, ("completed", SINK_RESULT, {"calls": 7}), "the sink")
                continue
            expected = referee(self.workflows[key])
            if timing_free(self.workflows[key], expected):
                visits = {name: step.visits for name, step in zip(expected["visits"], state.steps, strict=True)}
                _agree((state.life, visits), (expected["status"], expected["visits"]), key)


def _lost_too_many(simulation: Simulation, run: str) -> bool:
    """Whether a command of the run, or of a child of it, was given up because its workers kept dying."""
    marks = (b'"kind":"lost"', b"workers were lost while they ran it")
    return any(mark in entry.data for entry in simulation.store.logs[run] for mark in marks)


def _agree(ended: object, expected: object, who: str) -> None:
    if ended != expected:
        raise Violation(f"S11: {who} ended as {ended}; {expected} was expected")


def simulate(seed: int, rates: Rates | None = None) -> SimulationResult:
    """A few runs under the faults of this seed; some are paused, resumed or cancelled on the way."""
    stage, client = Stage(), Client(seed)
    simulation = stage.simulation = Simulation(seed, stage.tools(), Scripted(), rates)
    try:
        simulated = simulation.run(client.script)
        client.compare(simulation)
    finally:
        simulation.loop.close()
    return simulated
