"""What failed items do to their loop: halt, tolerance, a least number of successes; items taken back or run again."""

from typing import Any

import pytest

from refold.core.commands import LetterCancel, child_id
from refold.core.facts import ItemsCancelled, ItemsGivenUp, ItemsIssued, ItemsReopened, RunReopened
from refold.core.fold.fanout import share
from refold.core.outcomes import Fault
from refold.core.plan import Arc, Child, Loop, Plan, Retry
from refold.core.read.loaded import Loaded
from refold.core.read.template_scope import LoopResult
from refold.testing.core import failed, started, succeeded
from tests.core.acts import Given, Then, plan, step


def looped(items: Any, retry: Retry | None = None, work: Any = None, **loop: Any) -> Plan:
    more = {} if work is None else {"work": work}
    return plan(step("a", loop=Loop(items=items, **loop), retry=retry or Retry(), **more))


def entered(loop: Plan) -> tuple[Given, Then]:
    run = Given(loop)
    return run, run.when(started(loop))


def through(run: Given, **told: bool) -> Then:
    """Each item comes to its end, well or not."""
    then = None
    for item, well in told.items():
        number = int(item[1:])
        then = run.when(succeeded("a", f"r{number}", item=number) if well else failed("a", item=number))
    assert then is not None
    return then


def why(then: Then) -> str:
    assert then.state.error is not None and then.state.error.fault is not None
    return then.state.error.fault.message


def test_a_loop_that_halts_cancels_what_else_it_has_begun_and_begins_no_more() -> None:
    run, _ = entered(looped([0, 1, 2, 3], max_in_flight=3, on_item_error="halt"))
    then = run.when(failed("a", item=1))
    assert then.facts[:2] == (ItemsGivenUp("a", 1, (1,)), ItemsCancelled("a", 1, (0, 2), halts="item 1 failed"))
    assert set(then.gone) >= {"a/1/0", "a/1/1", "a/1/2"}
    assert (then.state.life, why(then)) == ("failed", "1 of 4 items failed: 1")
    fan = then.state.steps[0].fan
    assert fan is not None and LoopResult(fan, Loaded())["stats"]["cancelled"] == 3  # also what was never begun


def test_failed_items_are_named_by_their_keys() -> None:
    run, _ = entered(looped(["x", "y"], key={"path": ["item"]}))
    run.when(succeeded("a", item=0))
    assert why(run.when(failed("a", item=1))) == "1 of 2 items failed: y"


def test_a_key_that_cannot_be_computed_says_of_which_item() -> None:
    _, then = entered(looped([{"id": 1}, {}], key={"path": ["item", "id"]}))
    assert "of item 1: " in why(then)


def test_children_of_a_loop_that_halts_are_told_and_waited_for() -> None:
    run, _ = entered(looped([0, 1], work=Child(plan="other"), on_item_error="halt"))
    letters = run.when(failed("a", item=0)).letters
    assert [(letter.to, type(letter.body)) for letter in letters] == [(child_id("run", "a/1/1"), LetterCancel)]
    assert run.state.life == "ending"


@pytest.mark.parametrize(
    ("tolerate", "ends"), [(None, "failed"), (0, "failed"), (1, "completed"), ("10%", "completed")]
)
def test_a_loop_goes_well_if_no_more_failed_than_it_tolerates(tolerate: Any, ends: str) -> None:
    run, _ = entered(looped(list(range(10)), tolerate=tolerate))
    then = through(run, **{f"i{item}": item != 3 for item in range(10)})
    assert then.state.life == ends
    if ends == "completed":
        assert then.state.result == [None if item == 3 else f"r{item}" for item in range(10)]


def test_a_loop_that_was_cut_fails_whatever_it_tolerates() -> None:
    run, _ = entered(looped([0, 1, 2], max_in_flight=1, on_item_error="stop", tolerate=2))
    then = through(run, i0=False)
    assert (then.state.life, why(then)) == ("failed", "1 of 3 items failed: 0")


def test_more_than_is_tolerated_fails_when_all_are_through() -> None:
    run, _ = entered(looped([0, 1, 2], tolerate=1))
    assert through(run, i0=False, i1=False).state.life == "running"
    then = through(run, i2=True)
    assert (then.state.life, why(then)) == ("failed", "2 of 3 items failed: 0, 1")


@pytest.mark.parametrize(("least", "ends"), [(2, "completed"), (3, "failed"), ("60%", "completed"), ("67%", "failed")])
def test_enough_successes_make_it_go_well_however_many_failed(least: Any, ends: str) -> None:
    run, _ = entered(looped([0, 1, 2], min_success=least))
    assert through(run, i0=True, i1=False, i2=True).state.life == ends


def test_a_list_that_is_too_short_for_its_least_number_of_successes_fails() -> None:
    run, _ = entered(looped([0], min_success=2))
    then = through(run, i0=True)
    assert (then.state.life, why(then)) == ("failed", "1 of 1 items completed, and 2 must")


def test_both_bounds_must_hold() -> None:
    run, _ = entered(looped([0, 1, 2], min_success=1, tolerate=1))
    assert through(run, i0=True, i1=False, i2=False).state.life == "failed"


def test_a_share_is_a_number_or_a_part_of_a_hundred() -> None:
    from math import ceil, floor

    assert [share(each, 1000, floor) for each in (3, "1%", "0.3%", "0.29%")] == [3, 10, 3, 2]
    assert [share(each, 3, ceil) for each in ("66%", "100%", "0%")] == [2, 3, 0]


def test_those_after_it_read_which_items_failed() -> None:
    run = Given(
        plan(
            step("a", Arc(to="b"), loop=Loop(items=["x", "y"], key={"path": ["item"]}, tolerate=1)),
            step("b", input={"path": ["a", "failed"]}),
        )
    )
    run.when(started(run.plan))
    run.when(failed("a", "odd", item=1))
    then = run.when(succeeded("a", item=0))
    assert then.commands[0].input == [
        {"item": 1, "key": "y", "status": "failed", "result": None, "error": {"kind": "odd"}}
    ]


def test_one_item_can_be_cancelled_and_the_others_go_on() -> None:
    run, _ = entered(looped([0, 1, 2, 3], max_in_flight=2))
    then = run.when(ItemsCancelled("a", 1, (0, 3), "ada"))
    assert then.gone == ("a/1/0", "a/1/3") and then.facts == (ItemsIssued("a", 1, 2, 1, items=(2,)),)
    then = through(run, i1=True, i2=True)
    assert (then.state.life, then.state.result) == ("completed", [None, "r1", "r2", None])


def test_a_failed_item_can_be_run_again_while_the_loop_goes_on() -> None:
    run, _ = entered(looped([0, 1, 2], max_in_flight=2))
    through(run, i0=False)
    then = run.when(ItemsReopened("a", 1, (0,), "ada"))
    assert then.facts == ()  # the window is full
    then = run.when(succeeded("a", "r1", item=1))
    assert then.facts == (ItemsIssued("a", 1, 0, 1, items=(0,)),)
    then = through(run, i0=True, i2=True)
    assert (then.state.life, then.state.result) == ("completed", ["r0", "r1", "r2"])
    assert run.replayed() == run.state


def test_a_run_that_went_well_goes_on_with_the_items_that_failed_and_with_nothing_else() -> None:
    two = plan(step("a", "b", loop=Loop(items=[0, 1, 2], tolerate=2)), step("b"))
    run = Given(two)
    run.when(started(two))
    through(run, i0=False, i1=True, i2=False)
    assert run.when(succeeded("b")).state.life == "completed"
    then = run.when(RunReopened(again=("a",), items={"a": (2,)}))
    assert [command.id for command in then.commands] == ["a/2/2"]
    then = run.when(succeeded("a", "now", visit=2, item=2))
    assert then.commands == () and then.state.life == "completed"
    assert then.state.result == [None, "r1", "now"]
    assert then.state.steps[0].fan is not None and then.state.steps[0].fan.failed == 1
    assert run.replayed() == run.state


def test_a_chosen_item_of_a_loop_that_stopped_is_followed_by_those_that_were_never_begun() -> None:
    run, _ = entered(looped([0, 1, 2], max_in_flight=1, on_item_error="stop"))
    assert run.when(failed("a", item=0)).state.life == "failed"
    then = run.when(RunReopened(again=("a",), items={"a": (0,)}))
    assert [command.id for command in then.commands] == ["a/2/0"]
    for item in range(3):
        then = run.when(succeeded("a", visit=2, item=item))
    assert then.state.life == "completed"


@pytest.mark.parametrize("order", [{}, {"key": {"path": ["item"]}, "after": []}])
def test_a_chosen_item_takes_along_those_that_were_stopped_with_the_run(order: dict[str, Any]) -> None:
    loop = Loop(items=["x", "y", "z"], max_in_flight=2, **order)
    two = plan(step("z", "a", "b", mode="inclusive"), step("a", loop=loop), step("b"), on_failure="cancel")
    run = Given(two)
    run.when(started(two))
    run.when(succeeded("z"))
    assert run.when(failed("b")).state.life == "failed"
    then = run.when(RunReopened(again=("a", "b"), items={"a": (0,)}))
    assert [command.id for command in then.commands] == ["b/2", "a/2/0", "a/2/1"]


def test_an_item_whose_run_could_not_begin_fails_without_one() -> None:
    run = Given(looped([{"n": 1}, {"n": "x"}], work=Child(plan="other")))
    run.misfit = lambda plan, input: Fault("schema", "n is not a number") if input["n"] == "x" else None
    then = run.when(started(run.plan))
    assert [letter.to for letter in then.letters] == [child_id("run", "a/1/0")]
    fan = then.state.steps[0].fan
    assert fan is not None and (fan.failed, fan.running) == (1, 1)
