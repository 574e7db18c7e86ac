"""Budgets: looked at before the next command is issued; they pause a run, fail it, or send it to a step."""

from typing import Any

import pytest

from refold.core.commands import LetterPause, child_id
from refold.core.facts import (
    BudgetExceeded,
    ChildEnded,
    ItemsIssued,
    RunEnded,
    RunEnding,
    RunPaused,
    RunReopened,
    RunResumed,
    StepFault,
)
from refold.core.graph import analyse
from refold.core.outcomes import Fault, Succeeded
from refold.core.plan import Child, Loop, Plan, Retry
from refold.core.read.fact_text import fact_text
from refold.errors import InvalidPlan
from refold.testing.core import failed, issued, reported, succeeded
from tests.core.acts import Given, Then, plan, start, step

OVER = BudgetExceeded("tokens", 12, 10)


def used(run: Given, name: str, tokens: float, **more: Any) -> Then:
    return run.when(reported(name, Succeeded(name), usage={"tokens": tokens}, **more))


def spending(*to: str, **more: Any) -> Plan:
    steps = (step("a", "b"), step("b", *to), *(step(each) for each in to))
    return plan(*steps, **{"budget": {"tokens": 10}, **more})


def test_a_run_within_its_budget_goes_on_and_the_limit_itself_may_be_used_up() -> None:
    assert used(start(spending()), "a", 10).facts == (issued("b"),)


def test_a_run_beyond_its_budget_is_paused_before_the_next_command() -> None:
    run = start(spending())
    then = used(run, "a", 12)
    assert then.facts[-2:] == (OVER, RunPaused("budget")) and then.commands == ()
    assert (run.state.paused, run.state.paused_by) == (True, "budget")


def test_a_run_that_gets_more_goes_on_where_it_stopped() -> None:
    run = start(spending())
    used(run, "a", 12)
    assert run.when(RunResumed("ada", {"tokens": 20})).facts == (issued("b"),)
    assert used(run, "b", 9).facts == (RunEnded("completed", "b"),), "nothing more is issued, so nothing is stopped"


def test_one_that_still_has_too_little_is_paused_again() -> None:
    run = start(spending())
    used(run, "a", 12)
    assert run.when(RunResumed("ada", {"tokens": 11})).facts == (
        BudgetExceeded("tokens", 12, 11),
        RunPaused("budget"),
    )


def test_a_run_beyond_its_budget_fails_and_runs_what_follows_a_failure() -> None:
    run = start(
        plan(step("a", "b"), step("b"), step("oops"), on_fail=("oops",), budget={"tokens": 10}, on_budget="fail")
    )
    then = used(run, "a", 12)
    error = StepFault("", 0, "budget", Fault("budget", "12 tokens are used up, and the budget is 10", retryable=False))
    assert OVER in then.facts and RunEnding("failed", error, (), ("oops",)) in then.facts
    assert then.facts[-1] == issued("oops")
    assert run.when(succeeded("oops")).facts == (RunEnded("failed", error=error),)


def test_a_failed_run_that_gets_more_goes_on() -> None:
    run = start(spending(on_budget="fail"))
    used(run, "a", 12)
    assert run.state.life == "failed"
    assert run.when(RunReopened(("b",), budget={"tokens": 50})).facts == (issued("b", 2),)


def diverted(**more: Any) -> Given:
    steps = (step("a", "b"), step("b"), step("sum_up"), step("tidy"))
    return start(plan(*steps, budget={"tokens": 10}, on_budget="sum_up", always=("tidy",), **more))


def test_a_run_beyond_its_budget_goes_to_the_step_that_is_there_for_it() -> None:
    run = diverted()
    then = used(run, "a", 12)
    assert RunEnding("completed", None, (), ("sum_up", "tidy")) in then.facts and then.facts[-1] == issued("sum_up")
    assert run.when(succeeded("sum_up", "so far")).facts == (issued("tidy"),)
    assert run.when(succeeded("tidy")).facts == (RunEnded("completed", "so far"),)
    assert run.state.steps[1].life == "cancelled"


def test_if_that_step_fails_the_run_fails() -> None:
    run = diverted()
    used(run, "a", 12)
    run.when(failed("sum_up"))
    error = StepFault("sum_up", 1, "finalizer failed", Fault("error"))
    assert run.when(succeeded("tidy")).facts == (RunEnded("failed", error=error),)


def test_a_run_within_its_budget_never_comes_to_that_step() -> None:
    run = diverted()
    used(run, "a", 1)
    run.when(succeeded("b", 5))
    assert run.when(succeeded("tidy")).facts == (RunEnded("completed", 5),)
    assert run.state.steps[2].life == "pending"


def test_tries_and_items_are_not_issued_beyond_the_budget() -> None:
    run = start(plan(step("a", retry=Retry(attempts=3)), budget={"tokens": 10}))
    then = run.when(reported("a", failed("a").report.outcome, usage={"tokens": 12}))  # type: ignore[union-attr]
    assert then.facts == (OVER, RunPaused("budget"))
    assert run.when(RunResumed(budget={"tokens": 99})).facts == (issued("a", attempt=2),)
    run = start(plan(step("a", loop=Loop(items=[1, 2], sequential=True)), budget={"tokens": 10}))
    assert used(run, "a", 12, item=0).facts == (OVER, RunPaused("budget"))
    assert run.when(RunResumed(budget={"tokens": 99})).facts == (ItemsIssued("a", 1, 1, 1, {}),)


def test_what_children_use_up_counts_and_children_are_paused_too() -> None:
    kids = plan(
        step("a", "c", "d", mode="inclusive"),
        step("c", "e", work=Child(plan="kid")),
        step("d", work=Child(plan="kid")),
        step("e"),
        budget={"tokens": 10},
    )
    run = start(kids)
    run.when(succeeded("a"))
    then = run.when(ChildEnded(child_id("run", "c/1"), "c/1", Succeeded(), usage={"tokens": 12}))
    assert OVER in then.facts
    assert [(letter.to, letter.body) for letter in then.letters] == [(child_id("run", "d/1"), LetterPause())]


def test_any_unit_has_its_own_limit() -> None:
    run = start(spending(budget={"tokens": 10, "usd": 2.5}))
    then = run.when(reported("a", Succeeded(), usage={"usd": 2.75, "tokens": 3}))
    assert BudgetExceeded("usd", 2.75, 2.5) in then.facts
    assert fact_text(BudgetExceeded("usd", 2.75, 2.5)) == "budget exceeded: 2.75 of 2.5 usd are used up"


def test_a_budget_that_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidPlan, match="the budget of tokens is -1"):
        analyse(spending(budget={"tokens": -1}))
    with pytest.raises(InvalidPlan, match="there is no step 'nobody'"):
        analyse(spending(on_budget="nobody"))
    with pytest.raises(InvalidPlan, match="a finalizer has no arcs"):
        analyse(spending(on_budget="b"))
