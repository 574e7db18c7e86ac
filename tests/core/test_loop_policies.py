"""List loops that take other things than lists, compute their window, or go on after failures."""

from typing import Any

import pytest

from refold.core.expressions import CannotEvaluate
from refold.core.facts import FanOutEntered
from refold.core.fold.fanout import MOST_NUMBERS, listed, window
from refold.core.plan import Arc, Loop
from refold.testing.core import failed, succeeded
from tests.core.acts import plan, start, step

LOOSE = step("a", loop=Loop(items=None, loose=True))
STRICT = step("a", loop=Loop(items=None))


@pytest.mark.parametrize(
    ("value", "items"),
    [
        ([1, 2], [1, 2]),
        ({"a": 1, "b": 2}, [{"key": "a", "value": 1}, {"key": "b", "value": 2}]),
        (3, [0, 1, 2]),
        (0, []),
        ("a, b,c", ["a", "b", "c"]),
        ("a\nb\n\n", ["a", "b"]),
        ("", []),
    ],
)
def test_a_loose_loop_makes_a_list_of_it(value: Any, items: list[Any]) -> None:
    assert listed(value, LOOSE) == items


@pytest.mark.parametrize("value", [None, True, 1.5, MOST_NUMBERS + 1])
def test_even_a_loose_loop_refuses_what_is_none(value: Any) -> None:
    with pytest.raises(CannotEvaluate):
        listed(value, LOOSE)


def test_a_strict_loop_takes_lists_alone() -> None:
    for value in ({"a": 1}, 3, "a,b"):
        with pytest.raises(CannotEvaluate, match="is not a list that step 'a' could loop over"):
            listed(value, STRICT)


def test_a_window_is_computed_when_the_loop_is_entered_and_kept() -> None:
    shape = plan(
        step("a", loop=Loop(items=[0] * 5, max_in_flight=16, computed_max_in_flight={"path": ["input", "most"]}))
    )
    run = start(shape, most=2)
    (entered,) = [fact for _, _, fact in run.log if isinstance(fact, FanOutEntered)]
    assert entered.window == 2 and len(run.state.open) == 2
    run.when(succeeded("a", item=0))
    assert sorted(run.state.open) == ["a/1/1", "a/1/2"]


@pytest.mark.parametrize(("value", "number"), [(3, 3), ("4", 4), (2.0, 2)])
def test_a_window_is_a_number(value: Any, number: int) -> None:
    assert window(value) == number


@pytest.mark.parametrize("value", [0, -1, None, "x", True, [1]])
def test_what_is_no_window_fails_the_visit(value: Any) -> None:
    run = start(plan(step("a", loop=Loop(items=[1], computed_max_in_flight={"path": ["input", "w"]}))), w=value)
    assert run.state.life == "failed" and run.state.error is not None and run.state.error.fault is not None
    assert "may run at a time" in run.state.error.fault.message


def test_no_item_is_begun_after_a_failure_if_the_loop_says_so() -> None:
    run = start(plan(step("a", loop=Loop(items=[0, 1, 2, 3], max_in_flight=2, on_item_error="stop"))))
    run.when(failed("a", "odd", item=0))
    assert list(run.state.open) == ["a/1/1"]
    then = run.when(succeeded("a", item=1))
    assert then.state.life == "failed"
    assert then.state.error is not None and then.state.error.fault is not None
    assert then.state.error.fault.message == "1 of 4 items failed: 0"


def test_failures_are_only_counted_if_the_loop_says_so() -> None:
    last = step("b", input={"path": ["a"]})
    run = start(plan(step("a", "b", loop=Loop(items=[0, 1], on_item_error="ignore")), last))
    run.when(failed("a", "odd", item=0))
    then = run.when(succeeded("a", "x", item=1))
    assert then.commands[0].input["results"] == [None, "x"]
    assert then.commands[0].input["stats"] == {"total": 2, "success": 1, "failed": 1}


def test_otherwise_all_items_run_and_then_the_step_has_failed() -> None:
    run = start(plan(step("a", Arc(to="b", on="failure"), loop=Loop(items=[0, 1, 2], max_in_flight=1)), step("b")))
    for item in range(3):
        then = run.when(failed("a", "odd", item=item))
    assert [command.id for command in then.commands] == ["b/1"]


def test_a_loose_loop_gives_its_whole_value_as_the_result_of_the_run() -> None:
    run = start(plan(step("a", loop=Loop(items="x", loose=True))))
    then = run.when(succeeded("a", 1, item=0))
    assert then.state.result["results"] == [1] and then.state.result["stats"]["success"] == 1
