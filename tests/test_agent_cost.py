"""What a step costs that asks an agent which is a function, compared with a step that calls the function itself."""

import gc
import statistics
import time

import pytest

from refold import open_engine
from refold.core.pipeline import Task
from refold.plan import Arc, Call, Plan, Step
from refold.playbooks.bindings import bound_data
from refold.settings import Settings

STEPS, ROUNDS, MOST = 60, 11, 1.3
FUNCTION = {"entry": "tests.test_agent_cost:answer"}
BOUND = bound_data(Task(name="python", kind="python", settings=FUNCTION))


def answer(prompt: str) -> str:
    return "ok"


def chain(name: str, work: Call, given: dict[str, object]) -> Plan:
    arcs = [(Arc(to=f"s{n + 1}"),) if n + 1 < STEPS else () for n in range(STEPS)]
    steps = (Step(name=f"s{n}", work=work, input=given, arcs=arcs[n]) for n in range(STEPS))
    return Plan(name=name, steps=tuple(steps), language="refold")


@pytest.mark.proof
async def test_an_agent_that_is_a_warm_function_costs_little_more_than_the_function() -> None:
    plain = chain("plain", Call(tool="python", settings=FUNCTION), {"input": {"prompt": "hello"}, "config": {}})
    asked = chain("asked", Call(tool="agent", settings={"bound": BOUND}), {"input": {}, "config": {"prompt": "hello"}})
    async with open_engine(settings=Settings()) as engine:
        for plan in (plain, asked):
            await engine.run(plan)
        ratios = []
        for _ in range(ROUNDS):
            took = {}
            for plan in (plain, asked):
                gc.collect()
                began = time.perf_counter()
                await engine.run(plan)
                took[plan.name] = time.perf_counter() - began
            ratios.append(took["asked"] / took["plain"])
    ratio = statistics.median(ratios)
    print(f"an agent step costs {ratio:.2f} x a python step")
    assert ratio <= MOST, ratios
