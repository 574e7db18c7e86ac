"""Checks of results and inputs that take long: within bounds, off the event loop, before the lock is taken."""

import asyncio
from typing import Any

import pytest

from refold import RunFailed, open_engine
from refold.core.plan import Input
from refold.errors import OverBound
from refold.plan import Call, Plan, Step
from refold.ports import ToolCall as Called
from refold.runtime.children import check_inputs
from refold.schemas import WORK, WORK_UNDER_LOCK

TWICE = {"properties": {"x": {"$ref": "#/$defs/a"}}}
DOUBLING = {"$defs": {"a": {"allOf": [TWICE, TWICE]}}, "$ref": "#/$defs/a"}
ROWS = {"items": {"type": "object", "properties": {"n": {"type": "integer"}}}}


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"x": value}
    return value


def rows(work: int) -> list[dict[str, int]]:
    """As many as take at least this work: three keywords each, and one around them."""
    return [{"n": n} for n in range(work // 3)]


async def test_a_result_that_takes_too_much_work_to_check_fails_its_step_once() -> None:
    bodies = 0

    async def deep(call: Called) -> Any:
        nonlocal bodies
        bodies += 1
        return nested(60)

    plan = Plan(name="deep", steps=(Step(name="a", work=Call(tool="deep"), result=DOUBLING),))
    async with open_engine({"deep": deep}) as engine:
        with pytest.raises(RunFailed) as caught:
            await engine.run(plan)
    fault = caught.value.error.fault
    assert (fault.kind, fault.retryable, bodies) == ("schema", False, 1)
    assert f"more than {WORK} units of work" in fault.message


async def test_a_check_that_takes_long_lets_the_event_loop_go_on() -> None:
    turns = 0

    async def many(call: Called) -> Any:
        asyncio.get_running_loop().call_soon(count)
        return rows(60_000)

    def count() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_later(0.001, count)

    async def turns_of(plan: Plan) -> int:
        nonlocal turns
        async with open_engine({"many": many}) as engine:
            turns = 0
            await engine.run(plan)
            return turns

    plain = Plan(name="many", steps=(Step(name="a", work=Call(tool="many")),))
    checked = Plan(name="many", steps=(Step(name="a", work=Call(tool="many"), result=ROWS),))
    assert await turns_of(checked) > await turns_of(plain) + 10


async def test_large_inputs_are_checked_before_the_lock_is_taken() -> None:
    plan = Plan(name="rows", inputs=(Input(name="rows", schema=ROWS),), steps=(Step(name="a", work=Call(tool="a")),))

    async def tool(call: Called) -> Any:
        return 1

    async with open_engine({"a": tool}) as engine:
        assert await engine.run(plan, {"rows": rows(WORK_UNDER_LOCK + 20_000)}) == 1
    with pytest.raises(OverBound, match="input `rows`: it cannot be checked for `rows`"):
        check_inputs(plan, {"rows": rows(10_000)}, 1_000)
