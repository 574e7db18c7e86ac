"""Templates where runs use them: inputs, guards, values that are set, loops and arcs, in a working engine."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from refold import RunFailed, open_engine
from refold.core.facts import FanOutEntered, StepIssued
from refold.core.plan import plan_hash
from refold.errors import InvalidPlan
from refold.plan import Arc, Call, Child, Loop, Plan, Step, Wait
from refold.ports import Abilities, ToolCall
from refold.runtime.engine import Engine
from refold.runtime.rebuild import rebuild
from refold.stores.sqlite.store import SqliteStore
from refold.testing.core import Given, Scripted, started, succeeded
from refold.wiring import language


async def echo(call: ToolCall) -> Any:
    return call.input


async def big(call: ToolCall) -> Any:
    return {"text": "x" * 70_000, "n": 7}


async def fails(call: ToolCall) -> Any:
    raise ValueError("no luck")


TOOLS = {"echo": echo, "big": big, "fails": fails}


@asynccontextmanager
async def an_engine() -> AsyncIterator[Engine]:
    async with asyncio.timeout(60), open_engine(TOOLS) as engine:
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
    steps = (
        step("a", "b", input=1),
        step("b", "c", input=2, when="{{ a > 5 }}"),
        step("c", "d", input=3, when="{{ 'off' }}"),
        step("d", input=4, when="{{ a }}"),
    )
    assert await result_of(plan(*steps)) == 4


async def test_set_values_are_read_by_the_arcs_behind_them() -> None:
    high = Arc(to="b", when="{{ ctx.score > 5 }}", set={"path": "{{ 'high' }}"})
    steps = (
        step("a", high, "c", input="{{ n }}", set={"score": "{{ output.data }}"}),
        step("b", input="{{ path }} {{ score }}"),
        step("c", input="low"),
    )
    assert await result_of(plan(*steps), {"n": 7}) == "high 7"
    assert await result_of(plan(*steps), {"n": 3}) == "low"


async def test_an_arc_sees_how_the_step_has_ended() -> None:
    caught = Arc(to="b", on="failure", when="{{ output.status == 'error' and 'luck' in output.error.message }}")
    steps = (step("a", caught, tool="fails"), step("b", input="{{ steps.a.x | default('nothing') }}"))
    assert await result_of(plan(*steps)) == "nothing"


async def test_a_wait_is_as_long_as_its_template_says() -> None:
    waits = Step(name="a", work=Wait(seconds="{{ ms / 1000 }}"), arcs=(Arc(to="b"),))
    began = time.monotonic()
    assert await result_of(plan(waits, step("b", input="done")), {"ms": 50}) == "done"
    assert time.monotonic() - began >= 0.05


async def test_a_loop_goes_over_what_its_template_gives() -> None:
    item = "{{ row.n }}{{ a.rest }} {{ iter.index }}/{{ loop.count }}"
    steps = (
        step("a", "b", input={"rows": [{"n": 1}, {"n": 2}], "rest": "r", "other": "x"}),
        step("b", "c", loop=Loop(items="{{ a.rows }}", iterator="row"), input=item),
        step("c", input="{{ b.results | join(',') }}"),
    )
    assert await result_of(plan(*steps)) == "1r 0/2,2r 1/2"


async def test_a_sequential_loop_sees_what_was_set_meanwhile() -> None:
    steps = (
        step("a", "b", input=0, set={"n": "{{ output.data }}"}),
        step("b", loop=Loop(items="{{ range(3) }}", sequential=True), input="{{ item }} of {{ n }}"),
    )
    assert await result_of(plan(*steps)) == ["0 of 0", "1 of 0", "2 of 0"]


def test_a_loop_captures_the_paths_that_its_items_name_and_no_others() -> None:
    inside = {"x": "{{ t[id] }} {{ input.id }} {{ input.key }}"}
    form = {"$let": {"id": "{{ row.id }}", "t": "{{ a.table }}"}, "$in": inside}
    looped = plan(step("a", "b"), step("b", loop=Loop(items="{{ a.rows }}", iterator="row"), input=form))
    run = Given(looped, started(looped, key="k", other="o"))
    run.when_decided()
    then = run.when(succeeded("a", {"rows": [{"id": "p"}, {"id": "q"}], "table": {"p": 1, "q": 2}, "more": "m"}))
    entered = next(fact for fact in then.facts if isinstance(fact, FanOutEntered))
    assert entered.capture == {"a": {"table": {"p": 1, "q": 2}}, "input": {"key": "k"}}
    assert [command.input for command in then.commands] == [
        {"input": {"id": "p", "t": {"p": 1, "q": 2}}, "config": {"x": "1 p k"}},
        {"input": {"id": "q", "t": {"p": 1, "q": 2}}, "config": {"x": "2 q k"}},
    ]


def test_an_item_whose_input_has_no_value_fails_alone() -> None:
    looped = plan(step("a", loop=Loop(items=[{"n": 1}, {}]), input="{{ item.n }}"))
    run = Given(looped)
    then = run.when(started(looped))
    assert [command.input for command in then.commands] == [1]
    assert "'item.n' is not defined: 'item' has no 'n'" in str(then.facts)


def test_the_rendered_input_stands_in_the_log() -> None:
    one = plan(step("a", input={"n": "{{ n + 1 }}"}))
    then = Given(one).when(started(one, n=1))
    assert then.facts == (StepIssued("a", 1, input={"n": 2}),)


async def test_a_value_that_lives_elsewhere_is_fetched() -> None:
    completed = "{{ c.items | selectattr('status', 'eq', 'completed') | length }}"
    steps = (
        step("a", "b", tool="big"),
        step("b", "c", input={"n": "{{ a.n + 1 }}", "length": "{{ a.text | length }}", "same": "{{ steps.a.n }}"}),
        step("c", "d", loop=Loop(items="{{ range(3) }}"), input="{{ a.n * item }}"),
        step("d", input=["{{ c.results | sum }}", completed, "{{ b }}"]),
    )
    assert await result_of(plan(*steps)) == [21, 3, {"n": 8, "length": 70_000, "same": 7}]


async def test_what_a_tool_gives_is_data_through_three_steps() -> None:
    steps = (
        step("a", "b", input={"out": "{{ given }}", "{{ 7*7 }}": 1}, set={"kept": "{{ output.data.out }}"}),
        step("b", "c", input={"out": "{{ a.out }}", "text": "<{{ a.out }}>", "kept": "{{ kept }}"}),
        step("c", loop=Loop(items=["{{ b.out }}", "{{ b.text }}", "{{ b.kept }}"]), input="{{ item }} {{ b.text }}"),
    )
    hostile = "{{ 7*7 }}{% set x = 1 %}{# c #}"
    assert await result_of(plan(*steps), {"given": hostile}) == [
        f"{hostile} <{hostile}>",
        f"<{hostile}> <{hostile}>",
        f"{hostile} <{hostile}>",
    ]


async def test_an_expression_without_a_value_fails_its_step_and_says_where() -> None:
    with pytest.raises(RunFailed) as error:
        await result_of(plan(step("a", input={"url": "{{ input.hots }}/x"})), {"host": "h"})
    told = str(error.value)
    assert "url: 'input.hots' is not defined: 'input' has no 'hots'; did you mean 'input.host'?" in told
    assert "column 4 of" in told


async def test_a_failed_expression_can_be_caught() -> None:
    steps = (step("a", Arc(to="b", on="failure"), input="{{ nobody }}"), step("b", input="caught"))
    assert await result_of(plan(*steps)) == "caught"


async def test_in_a_noetl_plan_what_is_missing_is_nothing() -> None:
    steps = (step("a", "b", input="{{ nobody.x.y }}", when="{{ not nobody }}"), step("b", input="<{{ workload.q }}>"))
    assert await result_of(plan(*steps, language="noetl")) == "<>"


async def test_a_plan_without_a_language_has_no_templates() -> None:
    assert await result_of(plan(step("a", input="{{ n }}"), language="")) == "{{ n }}"


async def test_the_language_that_an_engine_is_given_is_for_plans_that_name_none() -> None:
    scripted = {"path": ["input", "n"]}
    async with open_engine(TOOLS, evaluate=Scripted()) as engine:
        assert await engine.run(plan(step("a", input=scripted), language=""), {"n": 1}) == 1
        assert await engine.run(plan(step("a", input=scripted)), {"n": 1}) == scripted
        assert await engine.run(plan(step("a", input="{{ n }}")), {"n": 1}) == 1


async def test_a_language_that_nobody_knows_concerns_only_its_runs() -> None:
    strange = plan(step("a"), language="klingon")
    async with an_engine() as engine:
        with pytest.raises(InvalidPlan, match="expressions in 'klingon' are not known here"):
            await engine.run(strange)
        assert await engine.run(plan(step("a", input="{{ 1 + 1 }}"))) == 2
        await engine.register(strange)
        parent = plan(Step(name="p", work=Child(plan=plan_hash(strange))))
        with pytest.raises(InvalidPlan, match="klingon"):
            await engine.run(parent)


async def test_a_child_speaks_its_own_language() -> None:
    child = plan(step("c", input="{{ who }}"))
    parent = plan(Step(name="p", work=Child(plan=plan_hash(child)), input={"who": "{{ n }}"}), language="")
    async with an_engine() as engine:
        await engine.register(child)
        assert await engine.run(parent, {}) == "{{ n }}"


def test_the_language_is_part_of_what_a_plan_is() -> None:
    bare = Plan(name="p", steps=(step("a"),))
    assert plan_hash(bare) == plan_hash(Plan(name="p", steps=(step("a"),), language=""))
    assert plan_hash(bare) != plan_hash(Plan(name="p", steps=(step("a"),), language="refold"))


async def test_commands_are_made_again_from_the_log_with_the_same_inputs(tmp_path: Any) -> None:
    looped = plan(step("a", tool="nobody", loop=Loop(items="{{ rows }}"), input="{{ item }}-{{ key }}"))
    file = tmp_path / "refold.db"
    async with asyncio.timeout(60), open_engine(TOOLS, db=file) as engine:
        run = (await engine.start(looped, {"rows": [1, 2], "key": "k"})).id
    store = SqliteStore(file, lambda: time.time_ns() // 1000)
    try:
        told = rebuild(store, Scripted(), language)
        assert told == {run: None}
        assert rebuild(store, Scripted())[run] is not None  # without the language its inputs cannot be made
        rebuild(store, Scripted(), language)
        with store.turn([run]) as turn:
            leases = turn.claim(Abilities(worker="w"), 10.0, 5)
    finally:
        store.close()
    assert [lease.command.input for lease in leases] == ["1-k", "2-k"]


def test_templates_are_loaded_when_a_plan_needs_them() -> None:
    code = """
import sys
from refold import options
from refold.plan import Plan, Step
from refold.core.plan import Call
async def echo(call): return call.input
step = Step(name="a", work=Call(tool="e"), input="{{ 1 + 1 }}")
run = lambda language: options(tools={"e": echo}).run_sync(Plan(name="p", steps=(step,), language=language))
assert run("") == "{{ 1 + 1 }}"
assert "refold.templates" not in sys.modules
assert run("refold") == 2
assert "refold.templates.language" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
