"""Runkon's contract about foreach, continued: how a loop ends, is cancelled and is resumed, and items that are runs."""

from typing import Any

import pytest

from refold import Retry
from refold.core.commands import child_id
from refold.core.facts import ChildEnded, FanOutEntered, ItemsSettled, PageAsked, PageTaken, RunEnded, RunStarted
from refold.core.plan import Input, Source
from refold.plan import Arc, Child, Loop, Plan
from refold.ports import ToolCall
from tests.compat.runkon.foreach import alone, begun, do_item, each, item, restarted, states, told, why
from tests.compat.stage import Refusal, Stage, names, plan, step, work

BOOM = {"kind": "boom", "message": "it broke"}


@pytest.fixture
def stage(stage: Stage) -> Stage:
    stage.tools["item"] = do_item
    return stage


def test_any_failed_item_fails_the_loop_with_counts_of_all(stage: Stage) -> None:
    items = [item("a"), item("b", how="failing"), item("c", "b"), item("d")]
    shown = stage.run(each(items))
    assert shown.steps["each"]["status"] == "failed" and why(shown) == "1 of 4 items failed: b"
    assert told(stage)["stats"] == {"total": 4, "success": 2, "failed": 1, "skipped": 1}
    assert [each["status"] for each in told(stage)["items"]] == ["completed", "failed", "skipped", "completed"]


def test_a_loop_can_complete_although_some_items_failed(stage: Stage) -> None:
    items = [item("a"), item("b", how="failing"), item("c")]
    for bound in ({"min_success": 2}, {"tolerate": 1}, {"tolerate": "34%"}):
        assert stage.run(each(items, **bound)).steps["each"]["status"] == "completed"
        assert [(one["item"], one["key"]) for one in told(stage)["failed"]] == [(1, "b")]
    for bound in ({"min_success": 3}, {"tolerate": 0}, {"tolerate": "33%"}):
        assert stage.run(each(items, **bound)).steps["each"]["status"] == "failed"


def test_an_item_that_raises_fails_alone_and_hangs_nothing(stage: Stage) -> None:
    shown = stage.run(each([item("a", how="raising"), item("b")]))
    assert states(shown) == ["failed", "completed"]
    assert "nobody has thought of it" in told(stage)["failed"][0]["error"]["message"]


CHILD = plan(step("a", "b", work=work(usage={"tokens": 3})), step("b", work=work(takes=10, gives="made")), name="child")
INPUT = {"n": {"path": ["item", "n"]}}


def kids(stage: Stage, items: Any, child: Plan = CHILD, **loop: Any) -> Plan:
    """A loop whose items are runs."""
    more = {"ordered": False, "input": INPUT, **loop}
    return each(items, work=Child(plan=stage.register(child)), **more)


def runs_of(stage: Stage, run: str) -> list[str]:
    return [child_id(run, f"each/1/{number}") for number in range(len(stage.store.rows) - 1)]


def test_the_input_of_the_run_of_an_item_is_rendered_in_its_parent(stage: Stage) -> None:
    shape = kids(
        stage, [{"n": 1}, {"n": 2}], input={"ticket": {"path": ["input", "ticket"]}, "n": {"path": ["item", "n"]}}
    )
    run = stage.start(shape, {"ticket": "T-100", "other": 1})
    assert stage.end(run).status == "completed"
    assert [stage.show(child).state.input for child in runs_of(stage, run)] == [
        {"ticket": "T-100", "n": 1},
        {"ticket": "T-100", "n": 2},
    ]


def test_cancel_reaches_a_long_run_of_an_item_at_once(stage: Stage) -> None:
    long = plan(step("long", work=work(takes=1000)), name="child")
    run = stage.start(kids(stage, [{"n": 1}], long))
    stage.pass_time(5)
    stage.do(stage.engine.cancel(run, "enough"))
    shown = stage.end(run)
    assert shown.status == "cancelled" and stage.loop.time() < 6


def test_a_run_without_a_result_is_a_completed_item_with_nothing(stage: Stage) -> None:
    silent = plan(step("quiet", work=work(gives=None)), name="child")
    assert stage.run(kids(stage, [{"n": 1}], silent)).steps["each"]["status"] == "completed"
    assert told(stage)["items"] == [{"status": "completed", "result": None, "error": None}]


def test_cancelled_runs_of_items_are_waited_for_and_the_loop_and_its_run_are_cancelled(stage: Stage) -> None:
    tidy = plan(step("long", work=work(takes=1000)), step("tidy", work=work(takes=5)), always=("tidy",), name="child")
    run = stage.start(kids(stage, [{"n": n} for n in range(5)], tidy, max_in_flight=2))
    stage.pass_time(5)
    stage.do(stage.engine.cancel(run, "enough"))
    shown = stage.end(run)
    assert (shown.status, shown.steps["each"]["status"]) == ("cancelled", "cancelled")
    assert 10.0 <= stage.loop.time() < 11.0, "their finalizers were waited for"
    assert [row.status for row in stage.store.rows.values()] == ["cancelled"] * 3, "and no more were begun"
    kinds = [type(fact) for fact in stage.history(run) if isinstance(fact, ChildEnded | RunEnded)]
    assert kinds == [ChildEnded, ChildEnded, RunEnded]
    assert "tell" not in names(stage.calls()) and stage.store.commands == {}


def test_a_loop_that_is_the_last_step_is_cancelled_and_not_completed(stage: Stage) -> None:
    run = stage.start(alone(each([item("a", how="slow")])))
    stage.pass_time(1)
    stage.do(stage.engine.cancel(run))
    assert stage.end(run).status == "cancelled"


def test_items_that_were_over_stay_so_and_are_in_the_result_after_a_restart(stage: Stage) -> None:
    items = [item("a"), item("b", how="failing"), item("c", "b"), item("d", how="slow"), item("e", "d")]
    run = stage.start(each(items, max_in_flight=2, tolerate=1))
    stage.pass_time(5)
    restarted(stage)
    assert stage.end(run).status == "completed"
    assert begun(stage) == [0, 1, 3, 3, 4], "only what was under way was begun again"
    assert [each["status"] for each in told(stage)["items"]] == [
        "completed",
        "failed",
        "skipped",
        "completed",
        "completed",
    ]
    assert [each["result"] and each["result"]["of"] for each in told(stage)["items"]] == ["a", None, None, "d", "e"]
    assert len(stage.facts(run, FanOutEntered)) == 1, "it is the same visit"


def test_a_child_run_that_ended_while_its_parent_was_not_running_is_adopted(stage: Stage) -> None:
    run = stage.start(kids(stage, [{"n": 1}, {"n": 2}]))
    stage.pass_time(5)
    restarted(stage)
    assert stage.end(run).status == "completed"
    assert [each["result"] for each in told(stage)["items"]] == ["made", "made"]
    assert len(stage.store.rows) == 3, "none was started twice"
    for child in runs_of(stage, run):
        assert [len(stage.facts(child, kind)) for kind in (RunStarted, RunEnded)] == [1, 1]
    assert [fact.child for fact in stage.facts(run, ChildEnded)] == runs_of(stage, run)


@pytest.mark.parametrize("steps", range(0, 90, 6))
def test_wherever_a_process_dies_each_item_has_one_run(steps: int) -> None:
    stage = Stage()
    stage.tools["item"] = do_item
    shape = kids(stage, [{"n": n} for n in range(3)], max_in_flight=2)
    run = stage.start(shape)
    stage.loop.run_until(lambda: False, limit_steps=steps)
    restarted(stage)
    assert stage.end(run).status == "completed"
    assert len(stage.store.rows) == 4
    assert [each["result"] for each in told(stage)["items"]] == ["made"] * 3
    assert sorted(fact.child for fact in stage.facts(run, ChildEnded)) == sorted(runs_of(stage, run))
    stage.close()


def test_only_items_that_did_not_finish_are_run_when_a_failed_run_is_resumed(stage: Stage) -> None:
    mended: list[bool] = []

    async def flaky(call: ToolCall) -> Any:
        if call.input["id"] == "b" and not mended:
            raise Refusal(**BOOM)
        return call.input["id"]

    stage.tools["item"] = flaky
    run = stage.start(alone(each([item("a"), item("b"), item("c", "a", "b")])))
    assert stage.end(run).status == "failed"
    mended.append(True)
    stage.do(stage.engine.retry(run))
    shown = stage.end(run)
    assert (shown.status, shown.result, begun(stage)) == ("completed", ["a", "b", "c"], [0, 1, 1, 2])


def test_each_item_has_its_own_tries_and_its_own_time(stage: Stage) -> None:
    items = [item("a", how="failing", tries=2), item("b", how="failing"), item("c", how="slow", takes=100)]
    run = stage.start(each(items, retry=Retry(attempts=3), timeout=20.0))
    shown = stage.end(run)
    assert states(shown) == ["completed", "failed", "failed"]
    assert [len([one for one in begun(stage) if one == number]) for number in range(3)] == [3, 3, 3]
    assert [one["error"]["kind"] for one in told(stage)["failed"]] == ["boom", "timeout"]


def test_what_came_of_a_loop_can_be_read_in_conditions(stage: Stage) -> None:
    loop = each([item("a"), item("b", how="failing")], tolerate=1).steps[0]
    few = Arc(to="few", when={"equal": [{"path": ["each", "stats", "failed"]}, 1]})
    shape = plan(step("each", few, "none", loop=loop.loop, work=loop.work, input=loop.input), step("few"), step("none"))
    assert stage.run(shape).status == "completed" and names(stage.calls())[-1] == "few"


def test_each_side_of_a_run_of_an_item_knows_the_other(stage: Stage) -> None:
    run = stage.start(kids(stage, [{"n": 1}]))
    stage.pass_time(5)
    [child] = runs_of(stage, run)
    assert stage.show(run).waits == {"each/1/0": f"waits for run {child}"}
    [begin] = stage.facts(child, RunStarted)
    assert begin.parent is not None and (begin.parent.run, begin.parent.command) == (run, "each/1/0")
    assert stage.store.rows[child].parent == run
    stage.end(run)
    assert [(fact.command, fact.child) for fact in stage.facts(run, ChildEnded)] == [("each/1/0", child)]


def test_inputs_are_rendered_for_each_item_and_checked_before_a_run_is_begun(stage: Stage) -> None:
    needs = (Input(name="n", schema={"type": "integer"}, required=True), Input(name="by", schema={"type": "string"}))
    child = plan(step("a", input={"path": ["input"]}), name="child", inputs=needs, defaults={"by": "default"})
    run = stage.start(kids(stage, [{"n": 1}, {"n": "x"}, {"m": 2}, {"n": 4}], child))
    shown = stage.end(run)
    assert states(shown) == ["completed", "failed", "failed", "completed"]
    assert [one["result"] for one in told(stage)["items"]] == [
        {"n": 1, "by": "default"},
        None,
        None,
        {"n": 4, "by": "default"},
    ]
    assert len(stage.store.rows) == 3, "those that do not fit were never begun"
    kinds = [one["error"]["kind"] for one in told(stage)["failed"]]
    assert kinds == ["schema", "expression"]


def test_what_runs_of_items_use_up_their_parent_uses_up(stage: Stage) -> None:
    shown = stage.run(kids(stage, [{"n": 1}, {"n": 2}, {"n": 3}]))
    assert shown.usage == {"tokens": 9}


def test_a_run_that_fails_fails_its_item_and_says_why(stage: Stage) -> None:
    broken = plan(step("a", work=work(faults=[BOOM])), name="child")
    shown = stage.run(kids(stage, [{"n": 1}, {"n": 2}], broken))
    assert states(shown) == ["failed", "failed"]
    [first, _] = told(stage)["failed"]
    assert first["error"]["kind"] == "child_failed" and "it broke" in first["error"]["message"]


def test_a_new_try_of_an_item_is_a_new_run_and_never_an_older_one(stage: Stage) -> None:
    broken = plan(step("a", work=work(faults=[BOOM])), name="child")
    run = stage.start(kids(stage, [{"n": 1}], broken, retry=Retry(attempts=2)))
    assert stage.end(run).steps["each"]["status"] == "failed"
    assert [fact.child for fact in stage.facts(run, ChildEnded)] == [
        child_id(run, "each/1/0"),
        child_id(run, "each/1/0", 2),
    ]
    other = stage.start(kids(stage, [{"n": 1}], broken))
    stage.end(other)
    assert child_id(other, "each/1/0") not in [fact.child for fact in stage.facts(run, ChildEnded)]


def test_a_workflow_that_loops_over_itself_ends(stage: Stage) -> None:
    shape = plan(step("each", loop=Loop(items=[1]), work=Child()), name="endless")
    shown = stage.end(stage.start(shape))
    assert shown.status == "failed" and len(stage.store.rows) < 200


def test_a_halted_loop_cancels_the_runs_of_its_items(stage: Stage) -> None:
    is_one = {"equal": [{"path": ["input", "n"]}, 1]}
    mixed = plan(
        step("a", Arc(to="bad", when=is_one), "long"),
        step("bad", work=work(takes=1, faults=[BOOM])),
        step("long", work=work(takes=1000)),
        name="child",
    )
    inputs = [{"n": n} for n in range(4)]
    run = stage.start(kids(stage, inputs, mixed, max_in_flight=3, on_item_error="halt"))
    shown = stage.end(run)
    assert shown.steps["each"]["status"] == "failed" and stage.loop.time() < 5
    assert [stage.status(child) for child in runs_of(stage, run)] == ["cancelled", "failed", "cancelled"]


async def pages(call: ToolCall) -> Any:
    """The tool `source`: pages of two, out of what its settings say."""
    keys, first = call.input["settings"], call.input["cursor"] or 0
    if keys.get("fails_at") == first:
        raise OSError("the source is gone")
    some = keys["items"][first : first + 2]
    return {"items": some, "cursor": first + 2 if first + 2 < len(keys["items"]) else None}


def pulled(items: list[Any], **loop: Any) -> Plan:
    settings = {"items": items, **loop.pop("settings", {})}
    source = Source(kind="pages", settings=settings, page=2, retry=loop.pop("again", Retry()))
    return each(None, source=source, **loop)


def test_an_exception_in_a_source_fails_its_loop_and_hangs_nothing(stage: Stage) -> None:
    stage.tools["source"] = pages
    shown = stage.run(pulled([item("a"), item("b"), item("c")], settings={"fails_at": 2}, ordered=False))
    assert shown.steps["each"]["status"] == "failed" and "the source is gone" in why(shown)
    assert states(shown) == ["completed", "completed"], "what had come was done"
    shown = stage.run(pulled([item("a"), item("b", "a"), item("c")], settings={"fails_at": 2}))
    assert states(shown) == ["waiting", "waiting"] and shown.steps["each"]["status"] == "failed"


def test_settings_of_a_source_are_rendered(stage: Stage) -> None:
    stage.tools["source"] = pages
    source = Source(kind="pages", settings={"items": {"path": ["input", "tickets"]}}, page=2)
    run = stage.start(each(None, source=source, ordered=False), {"tickets": [item("a"), item("b"), item("c")]})
    assert stage.end(run).status == "completed" and begun(stage) == [0, 1, 2]


def test_an_ordered_stream_continues_after_a_crash(stage: Stage) -> None:
    stage.tools["source"] = pages
    items = [item("c", "b"), item("b", "a"), item("x", how="slow"), item("a"), item("y", "x")]
    run = stage.start(pulled(items, max_in_flight=2))
    stage.pass_time(5)
    assert states(stage.show(run)) == ["completed", "completed", "running", "completed", "waiting"]
    restarted(stage)
    assert stage.end(run).status == "completed"
    assert begun(stage) == [2, 3, 1, 0, 2, 4]
    assert [len(stage.facts(run, kind)) for kind in (PageAsked, PageTaken)] == [3, 3], "no page was fetched again"


def test_reports_of_several_items_are_recorded_once(stage: Stage) -> None:
    run = stage.start(each([item(f"i{n}", how="slow", takes=n % 3) for n in range(30)], max_in_flight=8))
    stage.pass_time(3)
    restarted(stage)
    assert stage.end(run).status == "completed"
    reported = [report.item for fact in stage.facts(run, ItemsSettled) for report in fact.reports]
    assert sorted(number for number in reported if number is not None) == list(range(30))
