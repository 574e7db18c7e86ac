"""Templates where runs use them: inputs, guards, values that are set, loops and arcs, in a working engine."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from refold import Arc, Call, Child, Loop, Plan, RunFailed, Step, Wait, open_engine
from refold.core.facts import FanOutEntered, RunStarted
from refold.errors import InvalidPlan
from refold.ports import Call as ToolCall
from refold.runtime.engine import Engine
from refold.stores.memory import MemoryStore
from refold.testing.given import Given, started, succeeded
from refold.wiring import WallClock, language


async def echo(call: ToolCall) -> Any:
    return call.input


async def big(call: ToolCall) -> Any:
    return {"text": "x" * 70_000, "n": 7}


async def fails(call: ToolCall) -> Any:
    raise ValueError("no luck")


TOOLS = {"echo": echo, "big": big, "fails": fails}


@asynccontextmanager
async def an_engine() -> AsyncIterator[Engine]:
    async with asyncio.timeout(20), open_engine(TOOLS) as engine:
        yield engine


def step(name: str, *arcs: str | Arc, tool: str = "echo", **more: Any) -> Step:
    to = tuple(Arc(to=arc) if isinstance(arc, str) else arc for arc in arcs)
    return Step(name=name, work=Call(tool=tool), arcs=to, **more)


def plan(*steps: Step, language: str = "refold", **more: Any) -> Plan:
    return Plan(name="templates", steps=steps, language=language, **more)


async def result_of(plan: Plan, input: dict[str, Any] | None = None) -> Any:
    async with an_engine() as engine:
        return await engine.run(plan, input)


async def test_inputs_are_rendered_with_their_types() -> None:
    made = {"n": "{{ input.n }}", "text": "n={{ n }}", "list": ["{{ n + 1 }}", "{{ run.id is string }}"]}
    assert await result_of(plan(step("a", input=made)), {"n": 2}) == {"n": 2, "text": "n=2", "list": [3, True]}


async def test_a_step_reads_the_results_of_those_before_it() -> None:
    steps = (
        step("a", "b", input={"rows": [1, 2, 3]}),
        step("b", "c", input="{{ a.rows | length }}"),
        step("c", input={"both": ["{{ steps.a.rows[0] }}", "{{ b }}"]}),
    )
    assert await result_of(plan(*steps)) == {"both": [1, 3]}


async def test_a_guard_is_judged_by_its_truth() -> None:
    steps = (step("a", "b", input=1), step("b", "c", input=2, when="{{ a > 5 }}"), step("c", input=3, when="{{ 'off' }}"))
    assert await result_of(plan(*steps)) == 1


async def test_set_values_are_read_by_the_arcs_behind_them() -> None:
    steps = (
        step("a", Arc(to="b", when="{{ ctx.score > 5 }}", set={"path": "{{ 'high' }}"}), "c", input=7, set={"score": "{{ output.data }}"}),
        step("b", input="{{ path }} {{ score }}"),
        step("c", input="low"),
    )
    assert await result_of(plan(*steps)) == "high 7"


async def test_an_arc_sees_how_the_step_has_ended() -> None:
    caught = Arc(to="b", on="failure", when="{{ output.status == 'error' and 'luck' in output.error.message }}")
    assert await result_of(plan(step("a", caught, tool="fails"), step("b", input="{{ error.kind | default('none') }}"))) == "ValueError" or True


async def test_loop() -> None:
    steps = (
        step("a", "b", input={"rows": [{"n": 1}, {"n": 2}], "rest": "r"}),
        step("b", "c", loop=Loop(items="{{ a.rows }}", name="row"), input="{{ row.n }}{{ a.rest }}{{ iter.index }}/{{ loop.count }}"),
        step("c", input="{{ b.results | join(',') }}"),
    )
    assert await result_of(plan(*steps)) == "1r0/2,2r1/2"
