"""JamJet's contract about what stops work from outside: timeouts, cancel, pause."""

import asyncio

import pytest

from refold import Retry
from refold.core.facts import RunEnding, RunPaused, RunResumed, StepIssued, StepSettled
from refold.core.outcomes import Cancelled, Succeeded, TimedOut
from refold.plan import Arc, Call, Gate, Wait
from refold.ports import ToolCall
from tests.compat.stage import Stage, names, plan, step, tables, work


def test_a_hanging_tool_whose_worker_is_alive_is_timed_out_and_tried_again(stage: Stage) -> None:
    release = asyncio.Event()

    async def stubborn(call: ToolCall) -> str:
        while call.command.attempt == 1 and not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue  # it will not be told
        return f"try {call.command.attempt}"

    stage.tools["stubborn"] = stubborn
    shape = plan(step("a", work=Call(tool="stubborn"), timeout=15.0, retry=Retry(attempts=2, on=("timeout",))))
    run = stage.start(shape)
    shown = stage.end(run)
    assert (shown.status, shown.result) == ("completed", "try 2")
    assert [fact.report.outcome for fact in stage.facts(run, StepSettled)] == [TimedOut(15.0), Succeeded("try 2")]
    assert 15 < stage.loop.time() <= 15 + 10 + 1, "at the first sweep after the first heartbeat after the deadline"
    before = tables(stage.store)
    release.set()  # the first try comes back after all
    stage.pass_time(5)
    assert tables(stage.store) == before


def test_a_timeout_that_the_tool_respects_comes_on_the_second(stage: Stage) -> None:
    run = stage.start(plan(step("a", work=work(takes=1000), timeout=7.5)))
    shown = stage.end(run)
    assert stage.loop.time() == 7.5
    assert shown.error is not None and shown.error.fault is not None
    assert (shown.error.step, shown.error.fault.kind) == ("a", "timeout")


def test_a_workflow_that_takes_too_long_is_stopped_and_cleaned_up(stage: Stage) -> None:
    shape = plan(
        step("a", "b", work=work(takes=30)),
        step("b", work=work(takes=1000)),
        step("clean"),
        timeout=45.0,
        always=("clean",),
    )
    run = stage.start(shape)
    shown = stage.end(run)
    assert stage.loop.time() == 45.0
    assert shown.status == "failed" and shown.error is not None
    assert "45 s" in shown.error.why
    assert shown.steps["b"]["status"] == "cancelled" and shown.steps["clean"]["status"] == "completed"
    assert stage.store.commands == {}


def test_cancel_takes_pending_commands_away_and_reaches_a_worker_at_its_next_heartbeat(stage: Stage) -> None:
    stopped: list[float] = []

    async def hold(call: ToolCall) -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            stopped.append(stage.loop.time())
            raise

    stage.tools["hold"] = hold
    stage.house(slots=2)
    elsewhere = stage.house(serves=False)
    branches = [f"b{i}" for i in range(5)]
    shape = plan(
        step("fork", *branches, mode="inclusive"),
        *(step(b, "after", work=Call(tool="hold")) for b in branches),
        step("after"),
    )
    run = stage.start(shape)
    stage.pass_time(3)
    assert len(stage.store.commands) == 5
    stage.do(elsewhere.engine.cancel(run, "no longer wanted", by="ann"), elsewhere)
    assert stage.store.commands == {}, "pending commands vanish with the commit"
    shown = stage.show(run)
    assert shown.status == "cancelled"
    [ending] = stage.facts(run, RunEnding)
    assert set(ending.withdrawn) == {f"b{i}/1" for i in range(5)}
    assert {shown.steps[b]["status"] for b in branches} == {"cancelled"}
    assert stopped == []
    stage.pass_time(10)
    assert stopped == [10.0, 10.0], "a heartbeat comes three times in a lease of 30 s"
    assert stage.run(plan(step("a"))).status == "completed", "the slots are free again"


def test_one_open_command_can_be_cancelled_and_is_routed_as_a_failure(stage: Stage) -> None:
    shape = plan(step("a", "fine", Arc(to="mend", on="failure"), work=work(takes=1000)), step("fine"), step("mend"))
    run = stage.start(shape)
    stage.pass_time(1)
    stage.do(stage.engine.cancel(run, "stuck", command="a/1"))
    shown = stage.end(run)
    assert (shown.status, names(stage.calls())) == ("completed", ["a", "mend"])
    [settled, _] = stage.facts(run, StepSettled)
    assert settled.report.outcome == Cancelled("stuck")


def test_a_paused_run_folds_outcomes_and_hands_out_nothing_until_it_is_resumed(stage: Stage) -> None:
    shape = plan(
        step("fork", "a", "b", "nap", mode="inclusive"),
        step("a", "after_a", work=work(takes=5)),
        step("b", "after_b", work=work(takes=5, faults=[{"kind": "io"}]), retry=Retry(attempts=2)),
        step("nap", "after_nap", work=Wait(seconds=10)),
        *(step(f"after_{name}") for name in ("a", "b", "nap")),
    )
    run = stage.start(shape)
    stage.pass_time(2)
    stage.do(stage.engine.pause(run, by="ann"))
    stage.pass_time(100)
    assert stage.status(run) == "paused"
    assert sorted(names(stage.calls())) == ["a", "b", "fork"]
    assert sorted(fact.step for fact in stage.facts(run, StepSettled)) == ["a", "b", "fork"], "reports are still taken"
    issued = [fact.step for fact in stage.facts(run, StepIssued)]
    assert sorted(issued) == ["a", "b", "fork", "nap"], "and nothing is issued"
    stage.first.kill()
    stage.house()
    stage.pass_time(50)
    assert stage.status(run) == "paused" and len(stage.began) == 3, "also after a restart"
    stage.do(stage.engine.resume(run, by="ann"))
    assert stage.end(run).status == "completed"
    assert sorted(names(stage.calls())[3:]) == ["after_a", "after_b", "after_nap", "b"]
    [paused], [resumed] = stage.facts(run, RunPaused), stage.facts(run, RunResumed)
    assert (paused.by, resumed.by) == ("ann", "ann")
    assert stage.loop.time() == pytest.approx(157, abs=0.1), "the timer that came due meanwhile rang at once, b takes 5"


def test_an_unclaimed_command_of_a_paused_run_is_not_claimed(stage: Stage) -> None:
    stage.house(serves=False)
    run = stage.start(plan(step("a")))
    stage.do(stage.engine.pause(run))
    assert stage.claim() is None
    stage.do(stage.engine.resume(run))
    assert stage.claim() is not None


def test_paused_time_does_not_count_towards_the_run_timeout(stage: Stage) -> None:
    run = stage.start(plan(step("ask", work=Gate()), timeout=100.0))
    stage.pass_time(60)
    stage.do(stage.engine.pause(run))
    stage.pass_time(500)
    assert stage.status(run) == "paused"
    stage.do(stage.engine.resume(run))
    stage.pass_time(39)
    assert stage.status(run) == "waiting"
    assert stage.end(run).status == "failed"
    assert stage.loop.time() == pytest.approx(600, abs=0.1)


def test_a_paused_run_can_be_cancelled(stage: Stage) -> None:
    run = stage.start(plan(step("a", work=work(takes=100)), step("clean"), always=("clean",)))
    stage.pass_time(1)
    stage.do(stage.engine.pause(run))
    stage.do(stage.engine.cancel(run))
    assert stage.end(run).status == "cancelled"
    assert names(stage.calls()) == ["a", "clean"]
