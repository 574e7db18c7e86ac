"""Runkon's contract about foreach: collect, dispatch, the end of an item, the failure rule, nothing left waiting."""

import asyncio
from typing import Any

import pytest

from refold.core.facts import FanOutEntered, ItemsIssued, ItemsSettled
from refold.core.outcomes import Succeeded
from refold.errors import LeaseLost
from refold.ports import Done, ToolCall
from tests.compat.runkon.foreach import begun, do_item, each, item, restarted, states, told, why
from tests.compat.stage import Refusal, Stage, names


@pytest.fixture
def stage(stage: Stage) -> Stage:
    stage.tools["item"] = do_item
    return stage


def test_a_resumed_loop_counts_the_items_that_had_ended_before(stage: Stage) -> None:
    run = stage.start(each([item("a"), item("b"), item("c", how="failing"), item("d", "c"), item("e", how="slow")]))
    stage.pass_time(5)
    restarted(stage)
    fan = stage.show(run).state.steps[0].fan
    assert fan is not None and (fan.done, fan.failed, fan.skipped, fan.running) == (2, 1, 1, 1)
    stage.end(run)
    assert told(stage)["stats"] == {"total": 5, "success": 3, "failed": 1, "skipped": 1}


def test_without_an_order_all_items_begin_at_once(stage: Stage) -> None:
    stage.start(each([item(id, how="slow") for id in "abc"], ordered=False))
    stage.settle_down()
    assert begun(stage) == [0, 1, 2]


def test_in_a_chain_of_items_the_second_waits_for_the_first(stage: Stage) -> None:
    run = stage.start(each([item("b", "a"), item("a", how="slow")]))
    stage.pass_time(5)
    assert begun(stage) == [1]
    assert states(stage.show(run)) == ["waiting", "running"]
    assert stage.end(run).status == "completed" and begun(stage) == [1, 0]


def test_two_items_that_wait_for_one_item_begin_when_it_has_completed(stage: Stage) -> None:
    run = stage.start(each([item("a", how="slow"), item("c", "a", how="slow"), item("d", "a", how="slow")]))
    stage.pass_time(15)
    assert begun(stage) == [0, 1, 2] and {call.at for call in stage.began[1:]} == {10.0}
    assert stage.end(run).status == "completed" and stage.loop.time() == 20.0


def test_an_item_runs_when_what_it_waits_for_completed_before_a_crash(stage: Stage) -> None:
    run = stage.start(each([item("a"), item("b", "a", how="slow"), item("c", "b")]))
    stage.pass_time(1)
    stage.first.kill()
    assert states(stage.show(run)) == ["completed", "running", "waiting"]
    shown = stage.end(run)
    assert shown.status == "completed" and begun(stage) == [0, 1, 1, 2]
    assert [each["result"] for each in told(stage)["items"]] == [{"of": id} for id in "abc"]


def test_the_outcomes_of_all_items_are_in_the_order_of_the_items(stage: Stage) -> None:
    run = stage.start(each([item(id, how="slow", takes=takes) for id, takes in (("x", 9), ("a", 1), ("m", 5))]))
    assert stage.end(run).status == "completed"
    assert told(stage)["items"] == [{"status": "completed", "result": {"of": id}, "error": None} for id in "xam"]


def test_a_loop_that_fails_reports_all_its_items(stage: Stage) -> None:
    shown = stage.run(each([item("good"), item("bad", how="failing")]))
    assert shown.steps["each"]["status"] == "failed" and why(shown) == "1 of 2 items failed: bad"
    good, bad = told(stage)["items"]
    assert good == {"status": "completed", "result": {"of": "good"}, "error": None}
    assert (bad["status"], bad["result"], bad["error"]["message"]) == ("failed", None, "it broke")


def test_items_that_depend_on_a_failed_one_are_skipped_and_reported(stage: Stage) -> None:
    shown = stage.run(each([item("a", how="failing"), item("b", "a"), item("c", "b")]))
    assert states(shown) == ["failed", "skipped", "skipped"] and begun(stage) == [0]
    assert [each["result"] for each in told(stage)["items"]] == [None] * 3
    assert shown.steps["each"]["status"] == "failed"


def test_a_second_item_of_the_same_key_is_left_out_and_reported(stage: Stage) -> None:
    run = stage.start(each([item("a"), item("b"), item("a", how="failing")]))
    assert stage.end(run).status == "completed" and begun(stage) == [0, 1]
    assert [(fact.count, fact.left_out) for fact in stage.facts(run, FanOutEntered)] == [(2, 1)]


def test_all_items_are_one_fact_however_many(stage: Stage) -> None:
    run = stage.start(each([item(f"i{n}", *([f"i{n - 1}"] if n else [])) for n in range(50)], max_in_flight=4))
    assert stage.end(run).status == "completed" and begun(stage) == list(range(50))
    [entered] = stage.facts(run, FanOutEntered)
    assert entered.count == len(entered.keys) == 50


def test_no_items_are_a_completed_loop_with_no_results(stage: Stage) -> None:
    shown = stage.run(each([]))
    assert shown.steps["each"]["status"] == "completed"
    assert told(stage) == {"items": [], "failed": [], "stats": {"total": 0, "success": 0, "failed": 0}}


def test_an_item_that_depends_on_an_unknown_item_is_refused_by_name_before_anything_begins(stage: Stage) -> None:
    shown = stage.run(each([item("a"), item("b", "x")]))
    assert begun(stage) == [] and shown.steps["each"]["status"] == "failed"
    assert why(shown) == "item 'b' waits for 'x', which is not an item of this loop"


def test_a_circle_of_items_is_refused_by_name_before_anything_begins(stage: Stage) -> None:
    shown = stage.run(each([item("z"), item("a", "b"), item("b", "a")]))
    assert begun(stage) == [] and why(shown) == "items wait for each other: a -> b -> a"


def test_a_dependency_that_closes_a_circle_can_be_dropped_and_is_reported(stage: Stage) -> None:
    run = stage.start(each([item("a", "b"), item("b", "a")], on_cycle="drop"))
    assert stage.end(run).status == "completed" and begun(stage) == [1, 0]
    fan = stage.show(run).state.steps[0].shown
    assert fan is not None and fan.order is not None and fan.order.dropped == [(1, 0)]


def test_free_slots_are_filled_in_the_order_of_the_items(stage: Stage) -> None:
    shapes = [item(id, *needs, how="slow", takes=takes) for id, takes, needs in SHAPES]
    run = stage.start(each(shapes, max_in_flight=2))
    assert stage.end(run).status == "completed"
    assert begun(stage) == [0, 2, 3, 1, 4]


SHAPES: list[tuple[str, float, tuple[str, ...]]] = [
    ("a", 10, ()),
    ("b", 1, ("a",)),
    ("c", 3, ()),
    ("d", 7, ()),
    ("e", 1, ()),
]


def test_an_item_waits_for_all_and_for_their_completion(stage: Stage) -> None:
    items = [item("a", how="slow", takes=1), item("b", how="slow", takes=20), item("c", "a", "b")]
    run = stage.start(each(items))
    stage.pass_time(15)
    assert begun(stage) == [0, 1]
    assert stage.end(run).status == "completed" and stage.loop.time() == 20.0


def test_the_window_is_never_exceeded_also_not_by_a_process_that_follows(stage: Stage) -> None:
    run = stage.start(each([item(f"i{n}", how="slow") for n in range(9)], max_in_flight=3))
    stage.pass_time(15)
    restarted(stage)
    stage.settle_down()
    fan = stage.show(run).state.steps[0].fan
    assert fan is not None and fan.running == 3
    assert stage.end(run).status == "completed"
    assert max(len(fact.items) or fact.count for fact in stage.facts(run, ItemsIssued)) == 3


def test_status_and_result_of_an_item_are_one_fact_and_those_behind_it_follow(stage: Stage) -> None:
    run = stage.start(each([item("a"), item("b", "a")], max_in_flight=1))
    assert stage.end(run).status == "completed"
    kinds = [type(fact) for fact in stage.history(run) if isinstance(fact, ItemsIssued | ItemsSettled)]
    assert kinds == [ItemsIssued, ItemsSettled] * 2
    assert [report.outcome for fact in stage.facts(run, ItemsSettled) for report in fact.reports] == [
        Succeeded({"of": "a"}),
        Succeeded({"of": "b"}),
    ]


def test_a_late_report_of_an_item_is_refused_and_changes_nothing(stage: Stage) -> None:
    stage.tools.pop("item")
    run = stage.start(each([item("a")]))
    old = stage.claim("sleeper", lease_for=5.0)
    assert old is not None and old.command.id == "each/1/0"
    stage.pass_time(60)
    new = stage.claim("awake", lease_for=500.0)
    assert new is not None and new.command.id == "each/1/0"
    before = stage.history(run)
    with pytest.raises(LeaseLost):
        stage.settle(old, Done(Succeeded("late")))
    assert stage.history(run) == before
    stage.settle(new, Done(Succeeded("in time")))
    stage.settle_down()
    with pytest.raises(LeaseLost):
        stage.settle(new, Done(Succeeded("once more")))
    assert stage.end(run).steps["each"]["status"] == "completed"
    assert [len(fact.reports) for fact in stage.facts(run, ItemsSettled)] == [1]


def test_the_other_items_continue_when_one_fails_and_the_loop_fails_at_the_end(stage: Stage) -> None:
    shown = stage.run(each([item("a", how="failing"), item("b", how="slow"), item("c")], max_in_flight=1))
    assert states(shown) == ["failed", "completed", "completed"] and shown.steps["each"]["status"] == "failed"


def test_a_loop_that_halts_cancels_the_others_and_fails(stage: Stage) -> None:
    stopped: list[str] = []

    async def long(call: ToolCall) -> Any:
        if call.input["id"] == "bad":
            await asyncio.sleep(1)
            raise Refusal(kind="boom", message="it broke")
        try:
            await asyncio.sleep(1000)
        finally:
            stopped.append(call.input["id"])

    stage.tools["item"] = long
    shown = stage.run(
        each([item("a"), item("bad"), item("b"), item("c"), item("d", "c")], max_in_flight=3, on_item_error="halt")
    )
    stage.pass_time(30)
    assert stopped == ["a", "b"], "those that ran were told"
    assert shown.steps["each"]["status"] == "failed" and names(stage.calls())[-1] == "tell"
    assert [each["status"] for each in told(stage)["items"]] == [
        "cancelled",
        "failed",
        *["cancelled"] * 3,
    ]
    assert begun(stage) == [0, 1, 2] and stage.loop.time() < 100


def test_all_items_that_depend_on_a_failed_item_are_skipped_and_no_others(stage: Stage) -> None:
    items = [item("a", how="failing"), item("b", "a"), item("c", "b", "x"), item("x"), item("y", "x")]
    shown = stage.run(each(items))
    assert states(shown) == ["failed", "skipped", "skipped", "completed", "completed"]


def test_a_failed_blocker_blocks_also_after_a_crash(stage: Stage) -> None:
    run = stage.start(each([item("a", how="failing"), item("b", "a", "s"), item("s", how="slow")]))
    stage.pass_time(5)
    restarted(stage)
    assert states(stage.end(run)) == ["failed", "skipped", "completed"]


@pytest.mark.parametrize("cut", [False, True])
def test_no_loop_ends_with_items_that_wait(stage: Stage, cut: bool) -> None:
    """What would make one stall is refused or dropped, and what failed skips those behind it, by name and reason."""
    items = [item("a", "c"), item("b", "a", how="failing"), item("c", "b"), item("d", "c"), item("e")]
    shown = stage.run(each(items, on_cycle="drop" if cut else "fail"))
    if cut:
        assert "waiting" not in states(shown) and states(shown).count("failed") == 1
    else:
        assert why(shown) == "items wait for each other: a -> c -> b -> a"
    assert shown.steps["each"]["status"] == "failed", "never silently complete"
