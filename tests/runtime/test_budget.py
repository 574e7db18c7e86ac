"""Budgets in a running engine."""

import asyncio
from typing import Any

import pytest

from refold.core.outcomes import Failed, Fault, Succeeded
from refold.core.plan import plan_hash
from refold.errors import Conflict, InvalidValue
from refold.plan import Arc, Call, Child, Loop, Plan, Step
from refold.ports import Done
from refold.runtime.engine import Engine
from refold.wiring import open_engine

STEPS = (
    Step(name="a", work=Call(tool="uses"), arcs=(Arc(to="b"),)),
    Step(name="b", work=Call(tool="uses"), arcs=(Arc(to="c"),)),
    Step(name="c", work=Call(tool="uses")),
)


async def uses(call: Any) -> Done:
    return Done(Succeeded(call.command.step), usage={"tokens": 5})


async def until(opened: Engine, run: str, status: str) -> None:
    async def look() -> None:
        while (await opened.show(run)).status != status:
            await asyncio.sleep(0.01)

    await asyncio.wait_for(look(), 60)


async def test_a_run_that_its_budget_paused_is_not_resumed_without_more() -> None:
    async with open_engine({"uses": uses}) as opened:
        run = (await opened.start(Plan(name="dear", steps=STEPS, budget={"tokens": 7}))).id
        await until(opened, run, "paused")
        assert (await opened.show(run)).usage == {"tokens": 10}
        with pytest.raises(Conflict, match="10 tokens are used up, and the budget is 7"):
            await opened.resume(run)
        with pytest.raises(Conflict, match="the budget is 9"):
            await opened.resume(run, budget={"tokens": 9})
        with pytest.raises(InvalidValue, match="not a limit"):
            await opened.resume(run, budget={"tokens": -1})
        await opened.resume(run, budget={"tokens": 10})
        assert await asyncio.wait_for(opened.result(run), 60) == "c"


async def test_what_a_tree_uses_up_counts_towards_the_budget_of_its_root() -> None:
    kid = Plan(name="kid", steps=STEPS)
    root = Plan(
        name="root",
        steps=(
            Step(name="kids", work=Child(plan=plan_hash(kid)), loop=Loop(items=[1, 2, 3], sequential=True)),
            Step(name="sum_up", work=Call(tool="uses")),
        ),
        budget={"tokens": 29},
        on_budget="sum_up",
    )
    async with open_engine({"uses": uses}) as opened:
        await opened.register(kid)
        run = (await opened.start(root)).id
        shown = await asyncio.wait_for(opened.wait(run), 60)
        assert (shown.status, shown.result, shown.usage) == ("completed", "sum_up", {"tokens": 35})
        assert len(await opened.runs()) == 3, "two children, and the third was never started"


async def test_a_failed_run_gets_more_with_its_retry() -> None:
    async with open_engine({"uses": uses}) as opened:
        run = (await opened.start(Plan(name="dear", steps=STEPS, budget={"tokens": 7}, on_budget="fail"))).id
        assert (await asyncio.wait_for(opened.wait(run), 60)).status == "failed"
        await opened.retry(run, budget={"tokens": 70})
        assert await asyncio.wait_for(opened.result(run), 60) == "c"


@pytest.mark.parametrize("on_budget", ["fail", "pause"])
async def test_what_a_child_uses_counts_while_it_runs(on_budget: str) -> None:
    arcs = [(Arc(to=f"s{n + 1}"),) if n < 20 else () for n in range(21)]
    steps = tuple(Step(name=f"s{n}", work=Call(tool="uses"), arcs=each) for n, each in enumerate(arcs))
    grandchild = Plan(name="grandchild", steps=steps)
    child = Plan(name="child", steps=(Step(name="deep", work=Child(plan=plan_hash(grandchild))),))
    root = Plan(
        name="root",
        steps=(Step(name="kid", work=Child(plan=plan_hash(child))),),
        budget={"tokens": 12},
        on_budget=on_budget,
    )
    runs: list[str] = []

    async def uses_when_counted(call: Any) -> Done:
        """Begin when the root has counted the steps before this one, so that the letters have had their time."""
        before = 5 * int(call.command.step.removeprefix("s"))
        while not runs or (await opened.show(runs[0])).usage.get("tokens", 0) < before:
            await asyncio.sleep(0.01)
        return await uses(call)

    async with open_engine({"uses": uses_when_counted}) as opened:
        await opened.register(grandchild)
        await opened.register(child)
        run = (await opened.start(root)).id
        runs.append(run)
        await until(opened, run, {"fail": "failed", "pause": "paused"}[on_budget])
        assert 12 < (await opened.show(run)).usage["tokens"] <= 25, "a step or two had begun before it was noticed"
        if on_budget == "pause":
            await opened.resume(run, budget={"tokens": 1000})
            await until(opened, run, "completed")
            assert (await opened.show(run)).usage == {"tokens": 105}, "nothing is counted twice"


async def test_a_retry_counts_what_each_child_has_used_once() -> None:
    children: list[str] = []

    async def fails(call: Any) -> Done:
        children.append(call.run)
        outcome = Failed(Fault("no_luck", retryable=False)) if len(children) in (1, 4) else Succeeded(None)
        return Done(outcome, usage={"tokens": 5})

    kid = Plan(
        name="kid",
        steps=(
            Step(name="a", work=Call(tool="uses"), arcs=(Arc(to="b"),)),
            Step(name="b", work=Call(tool="fails"), arcs=(Arc(to="c"),)),
            Step(name="c", work=Call(tool="uses")),
        ),
    )
    root = Plan(
        name="root",
        steps=(
            Step(name="one", work=Child(plan=plan_hash(kid)), arcs=(Arc(to="two"),)),
            Step(name="two", work=Child(plan=plan_hash(kid)), loop=Loop(items=[1, 2], sequential=True)),
        ),
        budget={"tokens": 1000},
    )
    async with open_engine({"uses": uses, "fails": fails}) as opened:
        await opened.register(kid)
        run = (await opened.start(root)).id
        for tokens in (10, 10 + 15 + 15 + 10):
            await until(opened, run, "failed")
            assert (await opened.show(run)).usage == {"tokens": tokens}
            with pytest.raises(Conflict, match="was started by run"):
                await opened.retry(children[-1])
            await opened.retry(run)
        await until(opened, run, "completed")
        assert (await opened.show(run)).usage == {"tokens": 10 + 15 + 15 + 10 + 15}
