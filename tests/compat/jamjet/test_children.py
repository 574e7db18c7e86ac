"""JamJet's contract about child runs and finalizers: each side tells its half once, and what must run always runs."""

from typing import Any

import pytest

from refold import Retry
from refold.core.commands import child_id
from refold.core.facts import CancelAsked, ChildEnded, RunEnded, RunPaused, RunStarted, StepIssued
from refold.core.outcomes import Awaited, Succeeded, Suspended
from refold.errors import InvalidPlan, NotFound
from refold.plan import Arc, Call, Child, Gate, Loop, Plan, Wait
from refold.ports import ToolCall
from tests.compat.stage import Stage, names, plan, step, work

BOOM = {"kind": "boom", "message": "it broke"}


def parent_of(stage: Stage, child: Plan, *arcs: Any, **more: Any) -> Plan:
    hash = stage.register(child)
    return plan(
        step("before", "sub", work=work(gives={"n": 4})),
        step("sub", "after", *arcs, work=Child(plan=hash), input={"n": {"path": ["before", "n"]}}, **more),
        step("after", input={"path": ["sub"]}),
        step("mend"),
        name="parent",
    )


def only_child(stage: Stage, run: str) -> str:
    [child] = [each for each in stage.store.logs if each != run]
    return child


CHILD = plan(
    step("a", "b", input={"path": ["input", "n"]}, work=Call(tool="double")),
    step("b", input={"path": ["a"]}, work=work(takes=10, usage={"tokens": 5})),
    name="child",
)


async def double(call: ToolCall) -> int:
    return 2 * int(call.input)


def test_a_child_gets_the_input_of_its_step_and_gives_its_result_back(stage: Stage) -> None:
    stage.tools["double"] = double
    run = stage.start(parent_of(stage, CHILD))
    stage.pass_time(5)
    child = only_child(stage, run)
    assert child == child_id(run, "sub/1")
    assert (stage.status(run), stage.status(child)) == ("waiting", "running")
    assert stage.show(run).waits == {"sub/1": f"waits for run {child}"}
    shown = stage.end(run)
    assert (shown.status, shown.result) == ("completed", 8)
    assert stage.show(child).state.input == {"n": 4}
    assert shown.usage == {"tokens": 5}, "what the child used up its parent used up"
    [started] = stage.facts(child, RunStarted)
    assert started.parent is not None and (started.parent.run, started.parent.command) == (run, "sub/1")
    assert stage.store.rows[child].parent == run
    [ended] = stage.facts(run, ChildEnded)
    assert (ended.child, ended.outcome) == (child, Succeeded(8))
    assert not any(stage.store.letters.values())
    assert stage.loop.time() == 10.0, "letters need no poll"


def test_the_failure_of_a_child_is_the_failure_of_its_step(stage: Stage) -> None:
    failing = plan(step("a", work=work(faults=[BOOM])), name="child")
    shown = stage.run(parent_of(stage, failing))
    assert shown.status == "failed" and shown.error is not None and shown.error.fault is not None
    assert (shown.error.step, shown.error.fault.kind) == ("sub", "child_failed")
    assert "it broke" in shown.error.fault.message
    handled = stage.run(parent_of(stage, failing, Arc(to="mend", on="failure")))
    assert handled.status == "completed" and names(stage.calls())[-1] == "mend"


def test_a_failed_child_is_tried_again_as_a_new_run(stage: Stage) -> None:
    failing = plan(step("a", work=work(faults=[BOOM])), name="child")
    run = stage.start(parent_of(stage, failing, retry=Retry(attempts=3)))
    assert stage.end(run).status == "failed"
    children = [fact.child for fact in stage.facts(run, StepIssued) if fact.child]
    assert children == [child_id(run, "sub/1", attempt) for attempt in (1, 2, 3)]
    assert [fact.child for fact in stage.facts(run, ChildEnded)] == children
    assert [stage.status(child) for child in children] == ["failed"] * 3


@pytest.mark.parametrize("steps", range(0, 60, 4))
def test_a_crash_of_the_parent_leaves_one_child(steps: int) -> None:
    stage = Stage()
    stage.tools["double"] = double
    shape = parent_of(stage, CHILD)
    run = stage.start(shape)
    stage.loop.run_until(lambda: False, limit_steps=steps)
    stage.first.kill()
    stage.house()
    assert stage.end(run).result == 8
    child = only_child(stage, run)
    assert len(stage.facts(child, RunStarted)) == len(stage.facts(child, RunEnded)) == 1
    assert len(stage.facts(run, ChildEnded)) == 1
    stage.close()


def test_cancel_reaches_the_child_and_its_child_and_the_parent_ends_last(stage: Stage) -> None:
    grandchild = plan(
        step("long", work=work(takes=1000)), step("clean_deep"), always=("clean_deep",), name="grandchild"
    )
    child = plan(
        step("sub", work=Child(plan=stage.register(grandchild))), step("clean"), always=("clean",), name="child"
    )
    run = stage.start(parent_of(stage, child))
    stage.pass_time(5)
    stage.do(stage.engine.cancel(run, "enough"))
    shown = stage.end(run)
    assert shown.status == "cancelled"
    runs = list(stage.store.rows.values())
    assert [row.status for row in runs] == ["cancelled"] * 3
    assert names(stage.calls())[-2:] == ["clean_deep", "clean"]
    assert shown.steps["sub"]["status"] == "cancelled"
    [ended] = stage.facts(run, RunEnded)
    assert ended.also_failed == (), "to be cancelled is not a failure"
    for row in runs:
        assert len(stage.facts(row.run, CancelAsked)) == 1
        kinds = [type(fact) for fact in stage.history(row.run) if isinstance(fact, ChildEnded | RunEnded)]
        assert kinds == ([RunEnded] if row.workflow == "grandchild" else [ChildEnded, RunEnded])
    assert stage.store.commands == {}


def test_a_failing_parent_that_drains_lets_its_child_finish(stage: Stage) -> None:
    child = stage.register(plan(step("slow", work=work(takes=20, gives="fine")), name="child"))
    shape = plan(
        step("fork", "bad", "sub", mode="inclusive"),
        step("bad", work=work(takes=1, faults=[BOOM])),
        step("sub", work=Child(plan=child)),
    )
    drained = stage.run(shape)
    assert (drained.status, drained.steps["sub"]["status"]) == ("failed", "completed")
    stopped = stage.run(Plan(name="stops", steps=shape.steps, on_failure="cancel"))
    assert (stopped.status, stopped.steps["sub"]["status"]) == ("failed", "cancelled")
    assert stopped.state.also_failed == ()
    assert stage.status(only_child_of(stage, stopped.id)) == "cancelled"


def only_child_of(stage: Stage, run: str) -> str:
    [row] = [row for row in stage.store.rows.values() if row.parent == run]
    return row.run


def test_a_child_that_loses_a_race_is_cancelled(stage: Stage) -> None:
    tidy = step("tidy", work=work(takes=10))
    child = stage.register(plan(step("slow", work=work(takes=1000)), tidy, always=("tidy",), name="child"))
    shape = plan(
        step("fork", "sub", "quick", mode="inclusive"),
        step("sub", "join", work=Child(plan=child)),
        step("quick", "join", work=work(takes=5)),
        step("join", join="race"),
    )
    run = stage.start(shape)
    shown = stage.end(run)
    assert shown.status == "completed" and stage.loop.time() == 15.0
    assert stage.status(only_child_of(stage, run)) == "cancelled"
    kinds = [type(fact) for fact in stage.history(run) if isinstance(fact, ChildEnded | RunEnded)]
    assert kinds == [ChildEnded, RunEnded], "the parent has waited to hear of it"


def test_pause_and_resume_travel_to_the_child(stage: Stage) -> None:
    stage.tools["double"] = double
    run = stage.start(parent_of(stage, CHILD))
    stage.pass_time(1)
    stage.do(stage.engine.pause(run))
    stage.settle_down()
    child = only_child(stage, run)
    assert stage.status(child) == "paused"
    stage.pass_time(100)
    assert stage.status(child) == "paused"
    stage.do(stage.engine.resume(run))
    assert stage.end(run).status == "completed"
    assert len(stage.facts(child, RunPaused)) == 1


def test_a_child_inside_a_body_is_started_once_however_often_the_body_starts_over(stage: Stage) -> None:
    stage.tools["double"] = double
    child = stage.register(CHILD)

    async def body(call: ToolCall) -> Any:
        done = call.command.recorded
        if "sub" in done and "nap" in done:
            return done["sub"].result  # type: ignore[union-attr]
        return Suspended((Awaited("sub", child=child, input={"n": 21}), Awaited("nap", signal="wake")))

    stage.tools["body"] = body
    run = stage.start(plan(step("a", work=Call(tool="body"))))
    stage.pass_time(3)
    stage.do(stage.engine.signal(run, "wake"))
    stage.pass_time(3)
    stage.first.kill()
    stage.house()
    assert stage.end(run).result == 42
    assert len([row for row in stage.store.rows.values() if row.parent == run]) == 1
    assert [fact.call for fact in stage.facts(run, ChildEnded)] == ["sub"]


@pytest.mark.parametrize("ending", ["succeeds", "fails"])
def test_a_body_that_ends_without_its_child_lets_it_go(stage: Stage, ending: str) -> None:
    child = stage.register(plan(step("slow", work=work(takes=1000)), name="child"))

    async def impatient(call: ToolCall) -> Any:
        if "nap" not in call.command.recorded:
            return Suspended((Awaited("sub", child=child), Awaited("nap", signal="wake")))
        if ending == "fails":
            raise ValueError("no patience")
        return "without it"

    stage.tools["impatient"] = impatient
    run = stage.start(plan(step("a", "b", Arc(to="b", on="failure"), work=Call(tool="impatient")), step("b")))
    stage.pass_time(3)
    stage.do(stage.engine.signal(run, "wake"))
    shown = stage.end(run)
    assert shown.status == "completed" and stage.loop.time() < 20
    assert stage.status(only_child_of(stage, run)) == "cancelled"
    assert names(stage.calls())[-1] == "b"


def test_a_child_whose_workflow_is_unknown_is_refused_at_the_start(stage: Stage) -> None:
    with pytest.raises(NotFound, match="feed"):
        stage.start(plan(step("sub", work=Child(plan="feed"))))
    assert not stage.store.rows and not stage.store.plans


def test_a_loop_over_what_has_no_items_is_refused_by_name(stage: Stage) -> None:
    for each in (Wait(seconds=1), Gate()):
        with pytest.raises(InvalidPlan, match="'each'"):
            stage.start(plan(step("each", loop=Loop(items=[1]), work=each)))


FINAL: dict[str, Any] = {"always": ("clean", "report"), "on_fail": ("sorry",), "final_step": "crown"}
FINALIZERS = tuple(step(name) for name in ("clean", "report", "sorry", "crown"))


@pytest.mark.parametrize(
    "end, expected",
    [
        ("success", ["crown", "clean", "report"]),
        ("failure", ["sorry", "clean", "report"]),
        ("cancel", ["clean", "report"]),
        ("timeout", ["sorry", "clean", "report"]),
    ],
)
def test_finalizers_run_for_each_way_to_end(stage: Stage, end: str, expected: list[str]) -> None:
    faults = [BOOM] if end == "failure" else []
    timeout = 50.0 if end == "timeout" else None
    body = step("a", work=work(takes=100 if end in ("cancel", "timeout") else 1, faults=faults))
    run = stage.start(plan(body, *FINALIZERS, **FINAL, timeout=timeout))
    stage.pass_time(5)
    if end == "cancel":
        stage.do(stage.engine.cancel(run))
    shown = stage.end(run)
    assert names(stage.calls()) == ["a", *expected]
    assert shown.status == {"success": "completed", "cancel": "cancelled"}.get(end, "failed")
    begun = [each.at for each in stage.began[1:]]
    assert begun == sorted(begun), "one after the other"
    assert isinstance(stage.history(run)[-1], RunEnded)
    if end == "success":
        assert shown.result is None, "a finalizer's result is not the run's"


def test_finalizers_run_once_although_the_process_dies_among_them(stage: Stage) -> None:
    slow = tuple(step(name, work=work(takes=10)) for name in ("clean", "report", "sorry", "crown"))
    run = stage.start(plan(step("a", work=work(gives="kept")), *slow, **FINAL))
    stage.pass_time(15)
    stage.first.kill()
    stage.house()
    shown = stage.end(run)
    assert (shown.status, shown.result) == ("completed", "kept")
    assert {name: shown.steps[name]["visits"] for name in ("crown", "clean", "report", "sorry")} == {
        "crown": 1,
        "clean": 1,
        "report": 1,
        "sorry": 0,
    }
    assert names(stage.calls()) == ["a", "crown", "clean", "clean", "report"]


def test_a_failing_finalizer_stops_no_other_and_is_listed(stage: Stage) -> None:
    steps = (step("a"), step("clean", work=work(faults=[BOOM])), step("report"), step("sorry"), step("crown"))
    shown = stage.run(plan(*steps, **FINAL))
    assert names(stage.calls()) == ["a", "crown", "clean", "report"]
    assert shown.status == "completed"
    assert [(each.step, each.why) for each in shown.state.also_failed] == [("clean", "finalizer failed")]


def test_a_failing_final_step_fails_a_run_that_had_completed(stage: Stage) -> None:
    steps = (step("a"), step("clean"), step("report"), step("sorry"), step("crown", work=work(faults=[BOOM])))
    shown = stage.run(plan(*steps, **FINAL))
    assert shown.status == "failed" and shown.error is not None and shown.error.step == "crown"
    assert names(stage.calls()) == ["a", "crown", "sorry", "clean", "report"]


def test_a_finalizer_is_tried_again_by_its_policy_also_while_the_run_is_ending(stage: Stage) -> None:
    clean = step("clean", work=work(faults=[BOOM, BOOM]), retry=Retry(attempts=3, delay=5.0))
    run = stage.start(plan(step("a", work=work(faults=[BOOM])), clean, always=("clean",)))
    shown = stage.end(run)
    assert shown.status == "failed" and shown.steps["clean"]["status"] == "completed"
    assert [each.at for each in stage.began] == [0.0, 0.0, 5.0, 10.0]


def test_cancel_stops_a_run_that_is_draining(stage: Stage) -> None:
    shape = plan(
        step("fork", "bad", "long", mode="inclusive"),
        step("bad", work=work(takes=1, faults=[BOOM])),
        step("long", work=work(takes=1000)),
        step("clean"),
        always=("clean",),
    )
    run = stage.start(shape)
    stage.pass_time(5)
    assert stage.status(run) == "ending"
    stage.do(stage.engine.cancel(run))
    shown = stage.end(run)
    assert stage.loop.time() < 6
    assert shown.status == "failed" and shown.error is not None and shown.error.step == "bad"
    assert shown.steps["long"]["status"] == "cancelled"


def test_signals_and_waits_inside_finalizers_work(stage: Stage) -> None:
    tell = step("tell", work=Wait(signal="read", seconds=60))
    run = stage.start(plan(step("a"), tell, always=("tell",)))
    stage.pass_time(10)
    assert stage.status(run) == "ending"
    stage.do(stage.engine.signal(run, "read"))
    assert stage.end(run).status == "completed"
    assert stage.loop.time() < 11


def test_a_list_is_fanned_out_over_child_runs(stage: Stage) -> None:
    stage.tools["double"] = double
    hash = stage.register(CHILD)
    each = step(
        "each", loop=Loop(items=[1, 2, 3], max_in_flight=2), work=Child(plan=hash), input={"n": {"path": ["item"]}}
    )
    run = stage.start(plan(each))
    stage.pass_time(5)
    assert sum(row.parent == run for row in stage.store.rows.values()) == 2, "no more than the window holds"
    stage.first.kill()
    stage.house()
    shown = stage.end(run)
    assert shown.result == [2, 4, 6]
    assert sorted(fact.command for fact in stage.facts(run, ChildEnded)) == ["each/1/0", "each/1/1", "each/1/2"]
    assert sum(row.parent == run for row in stage.store.rows.values()) == 3
