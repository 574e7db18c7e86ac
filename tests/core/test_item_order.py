"""Order between items: who waits for whom, circles, and what a failed item does to those that wait for it."""

from typing import Any

from refold.core.facts import FanOutEntered, ItemsCancelled, ItemsReopened, RunReopened
from refold.core.plan import Loop, Plan
from refold.core.read.why import reasons
from refold.testing.core import NOON, failed, started, succeeded
from tests.core.acts import Given, Then, plan, step


def ordered(items: dict[str, list[str]], **loop: Any) -> Plan:
    listed = [{"id": key, "needs": needs} for key, needs in items.items()]
    key, after = {"path": ["item", "id"]}, {"path": ["item", "needs"]}
    return plan(step("a", loop=Loop(items=listed, key=key, after=after, **loop)))


def entered(loop: Plan) -> tuple[Given, Then]:
    run = Given(loop)
    return run, run.when(started(loop))


def begun(then: Then) -> list[int]:
    return [command.item for command in then.commands if command.item is not None]


def why(then: Then) -> str:
    assert then.state.error is not None and then.state.error.fault is not None
    return then.state.error.fault.message


def test_an_item_is_begun_when_all_that_it_waits_for_have_completed() -> None:
    run, then = entered(ordered({"d": ["b", "c"], "b": ["a"], "c": ["a"], "a": []}))
    assert begun(then) == [3]
    assert begun(run.when(succeeded("a", item=3))) == [1, 2]
    assert begun(run.when(succeeded("a", item=2))) == []
    assert begun(run.when(succeeded("a", item=1))) == [0]
    then = run.when(succeeded("a", item=0))
    assert then.state.life == "completed" and run.replayed() == run.state


def test_free_items_are_begun_in_their_order_within_the_window() -> None:
    run, then = entered(ordered({"a": [], "b": ["a"], "c": [], "d": []}, max_in_flight=2))
    assert begun(then) == [0, 2]
    assert begun(run.when(succeeded("a", item=0))) == [1]
    assert begun(run.when(succeeded("a", item=2))) == [3]


def test_what_waits_for_a_failed_item_never_runs_nor_does_what_waits_for_that() -> None:
    run, _ = entered(ordered({"a": [], "b": ["a"], "c": ["b"], "d": []}))
    then = run.when(failed("a", item=0))
    assert begun(then) == [] and then.state.life == "running"
    then = run.when(succeeded("a", item=3))
    fan = then.state.steps[0].fan
    assert fan is not None and (then.state.life, fan.failed, fan.skipped, fan.done) == ("failed", 1, 2, 1)
    assert why(then) == "1 of 4 items failed: a"


def test_an_order_in_a_circle_fails_before_anything_is_begun_and_names_it() -> None:
    _, then = entered(ordered({"a": ["c"], "b": ["a"], "c": ["b"], "d": []}))
    assert (begun(then), then.state.life) == ([], "failed")
    assert why(then) == "items wait for each other: a -> c -> b -> a"
    _, then = entered(ordered({"a": ["a"]}))
    assert why(then) == "items wait for each other: a -> a"


def test_a_circle_can_be_cut_instead() -> None:
    run, then = entered(ordered({"a": ["b"], "b": ["a"]}, on_cycle="drop"))
    assert begun(then) == [1]
    fan = run.state.steps[0].fan
    assert fan is not None and fan.order is not None and fan.order.dropped == [(1, 0)]
    assert begun(run.when(succeeded("a", item=1))) == [0]


def test_who_waits_for_what_is_not_there_is_refused_by_name() -> None:
    _, then = entered(ordered({"a": [], "b": ["x"]}))
    assert (then.state.life, why(then)) == ("failed", "item 'b' waits for 'x', which is not an item of this loop")


def test_a_second_item_of_the_same_key_is_left_out() -> None:
    doubled = plan(step("a", loop=Loop(items=["x", "y", "x"], key={"path": ["item"]})))
    _, then = entered(doubled)
    assert then.facts[0] == FanOutEntered("a", 1, 2, ["x", "y"], keys=("x", "y"), left_out=1)
    assert begun(then) == [0, 1]


def test_an_item_without_a_key_fails_the_step_and_names_it() -> None:
    _, then = entered(plan(step("a", loop=Loop(items=["x", ""], key={"path": ["item"]}))))
    assert why(then) == "the key of item 1 is '': it must be a text or a whole number"


def test_one_key_alone_is_enough_to_wait_for() -> None:
    one = plan(step("a", loop=Loop(items=[{"id": 1}, {"id": 2}], key={"path": ["item", "id"]}, after=1)))
    _, then = entered(one)
    assert why(then) == "items wait for each other: 1 -> 1"


def test_what_waits_for_a_cancelled_item_is_passed_over() -> None:
    run, _ = entered(ordered({"a": [], "b": ["a"], "c": []}))
    run.when(ItemsCancelled("a", 1, (0,)))
    then = run.when(succeeded("a", item=2))
    fan = then.state.steps[0].fan
    assert fan is not None and (fan.cancelled, fan.skipped, then.state.life) == (1, 1, "completed")


def test_an_item_that_is_run_again_takes_those_that_wait_for_it_along() -> None:
    run, _ = entered(ordered({"a": [], "b": ["a"], "c": []}))
    run.when(failed("a", item=0))
    assert begun(run.when(ItemsReopened("a", 1, (0,)))) == [0]
    assert begun(run.when(succeeded("a", item=0))) == [1]
    run.when(succeeded("a", item=1))
    then = run.when(succeeded("a", item=2))
    assert then.state.life == "completed" and run.replayed() == run.state


def test_a_failed_run_goes_on_in_the_same_order_and_repeats_nothing_that_was_done() -> None:
    run, _ = entered(ordered({"a": [], "b": ["a"], "c": ["b"], "d": []}))
    run.when(succeeded("a", item=3), succeeded("a", item=0))
    assert run.when(failed("a", item=1)).state.life == "failed"
    then = run.when(RunReopened(again=("a",)))
    assert begun(then) == [1]
    assert begun(run.when(succeeded("a", item=1, visit=2))) == [2]
    then = run.when(succeeded("a", item=2, visit=2))
    assert then.state.life == "completed" and run.replayed() == run.state


def test_it_says_how_many_items_wait_for_others_and_how_many_for_room() -> None:
    run, _ = entered(ordered({"a": [], "b": ["a"], "c": ["b"], "d": [], "e": []}, max_in_flight=2))
    told = {reason.kind: reason.count for reason in reasons(run.graph, run.state, NOON) if reason.item is None}
    assert told == {"window": 1, "order": 2}


def test_a_dependency_on_an_item_that_is_not_there_can_be_ignored() -> None:
    _, then = entered(ordered({"a": ["elsewhere"], "b": ["a", "elsewhere"]}, on_unknown="drop"))
    fan = then.state.steps[0].fan
    assert fan is not None and fan.fault is None and fan.order is not None
    assert fan.order.after == {0: (), 1: ("a",)}
    assert fan.order.left == {0: 0, 1: 1}
