"""Ending: what goes on, what is taken back, which failure is named, and that nothing is entered any more."""

from typing import Any

from refold.core.decide.decision import RUN_TIMER
from refold.core.facts import (
    CancelAsked,
    Dropped,
    Entered,
    GateDecided,
    Routed,
    RunEnded,
    RunEnding,
    RunTimedOut,
    SignalReceived,
    StepFault,
    Took,
)
from refold.core.outcomes import SECOND, Fault, Parked
from refold.core.plan import Arc, Gate, Loop, Plan, Retry, Wait
from refold.testing.core import NOON, failed, issued, reported, started, succeeded
from tests.core.acts import Given, plan, start, step


def fork(on_failure: str = "drain", **b: Any) -> Plan:
    steps = step("s", "a", "b", mode="inclusive"), step("a"), step("b", "c", **b), step("c")
    return plan(*steps, on_failure=on_failure)


def forked(workflow: Plan, *claimed: str) -> Given:
    run = start(workflow)
    run.when(succeeded("s"))
    run.claimed = frozenset(claimed)
    return run


A_FAILED = StepFault("a", 1, "unhandled failure", Fault("error"))


def test_an_unhandled_failure_lets_what_runs_finish_and_enters_nothing_after_it() -> None:
    run = forked(fork(), "a/1", "b/1")
    then = run.when(failed("a"))
    assert then.facts == (Routed((Took("a", 1),)), RunEnding("failed", A_FAILED))
    assert then.state.life == "ending"
    then = run.when(succeeded("b"))
    assert then.facts == (RunEnded("failed", error=A_FAILED),)
    assert then.state.steps[2].life == "completed" and then.state.steps[3].visits == 0


def test_what_no_worker_holds_is_withdrawn_at_once() -> None:
    then = forked(fork(), "a/1").when(failed("a"))
    assert then.facts[1:] == (RunEnding("failed", A_FAILED, ("b/1",)), RunEnded("failed", error=A_FAILED))
    assert "b/1" in then.gone and then.state.steps[2].life == "cancelled"


def test_where_a_failure_cancels_what_runs_is_withdrawn_too() -> None:
    then = forked(fork("cancel"), "a/1", "b/1").when(failed("a"))
    assert then.facts[1:] == (RunEnding("failed", A_FAILED, ("b/1",)), RunEnded("failed", error=A_FAILED))


def test_a_draining_run_tries_nothing_again() -> None:
    run = forked(fork(retry=Retry(attempts=9)), "a/1", "b/1")
    run.when(failed("a"))
    then = run.when(failed("b", "other"))
    also = StepFault("b", 1, "unhandled failure", Fault("other"))
    assert then.facts == (Routed((Took("b", 1),)), RunEnded("failed", error=A_FAILED, also_failed=(also,)))


def test_a_try_that_waits_for_its_time_is_withdrawn() -> None:
    run = forked(fork(retry=Retry(attempts=9, delay=60.0)), "a/1", "b/1")
    run.when(failed("b"))
    run.claimed = frozenset({"a/1"})
    assert run.when(failed("a")).facts[1] == RunEnding("failed", A_FAILED, ("b/1",))


def test_waits_and_gates_are_withdrawn_with_their_timers() -> None:
    for work in (Wait(seconds=60, signal="go"), Gate(timeout=60.0)):
        run = forked(fork(work=work), "a/1")
        then = run.when(failed("a"))
        assert then.facts[1] == RunEnding("failed", A_FAILED, ("b/1",))
        assert (then.timers, then.state.waiting) == ({"b/1": None}, {})


def test_a_command_that_parks_while_the_run_drains_is_taken_back() -> None:
    for parked in (Parked(until=NOON + 60 * SECOND), Parked(signal="go")):
        run = forked(fork(), "a/1", "b/1")
        run.when(failed("a"))
        then = run.when(reported("b", parked))
        assert then.facts == (RunEnding("failed", A_FAILED, ("b/1",)), RunEnded("failed", error=A_FAILED))


def test_items_that_run_are_drained_and_no_further_item_is_issued() -> None:
    run = forked(fork(loop=Loop(items=[0, 1, 2, 3], max_in_flight=2)), "a/1", "b/1/0")
    then = run.when(failed("a"))
    assert then.facts[1] == RunEnding("failed", A_FAILED, ("b/1/1",))
    then = run.when(succeeded("b", item=0))
    assert then.facts == (Routed((Dropped(("b",)),)), RunEnded("failed", error=A_FAILED))


def test_items_that_failed_while_the_run_drained_are_listed_as_the_failure_they_are() -> None:
    run = forked(fork(loop=Loop(items=[0, 1], max_in_flight=2), retry=Retry(attempts=9)), "a/1", "b/1/0")
    run.when(failed("a"))
    fault = Fault("items_failed", "1 of 2 items failed: 0", data=[0])
    assert run.when(failed("b", item=0)).state.also_failed == (StepFault("b", 1, "unhandled failure", fault),)


def test_a_step_that_was_entered_in_the_turn_and_not_issued_is_dropped() -> None:
    loop = plan(
        step("s", "b", "c", mode="inclusive"), step("b", "j"), step("c", "j", visit_limit=1), step("j", Arc(to="s"))
    )
    run = start(loop)
    for fact in (succeeded("s"), succeeded("b"), succeeded("c"), succeeded("j")):
        run.when(fact)
    then = run.when(succeeded("s", visit=2))
    limit = StepFault("c", 2, "visit limit")
    assert then.facts == (
        Routed((Entered("b", 2),)),
        RunEnding("failed", limit),
        Routed((Dropped(("b",)),)),
        RunEnded("failed", error=limit),
    )
    assert then.commands == ()


def test_the_first_failure_is_named_and_the_others_of_the_turn_are_listed() -> None:
    then = forked(fork(), "a/1", "b/1").when(failed("b", "two"), failed("a", "one"))
    first = StepFault("b", 1, "unhandled failure", Fault("two"))
    second = StepFault("a", 1, "unhandled failure", Fault("one"))
    assert then.facts[-1] == RunEnded("failed", error=first, also_failed=(second,))


def test_a_failure_that_is_handled_while_the_run_drains_is_not_listed_and_its_arc_leads_nowhere() -> None:
    handled = plan(
        step("s", "a", "b", mode="inclusive"), step("a"), step("b", Arc(to="c", on="failure", set={"x": 1})), step("c")
    )
    run = forked(handled, "a/1", "b/1")
    run.when(failed("a"))
    then = run.when(failed("b"))
    assert then.facts == (Routed((Took("b", 1, (0,), {"x": 1}),)), RunEnded("failed", error=A_FAILED))
    assert then.state.ctx == {"x": 1}


def test_the_visit_limit_ends_the_run_by_name_and_no_arc_can_handle_it() -> None:
    loop = plan(step("a", "a", Arc(to="b", on="failure"), visit_limit=2), step("b"))
    run = start(loop)
    run.when(succeeded("a"))
    then = run.when(succeeded("a", visit=2))
    assert then.facts[-2:] == (
        RunEnding("failed", StepFault("a", 3, "visit limit")),
        RunEnded("failed", error=StepFault("a", 3, "visit limit")),
    )
    assert then.state.steps[0].visits == 2


def test_bypassed_visits_count_towards_the_visit_limit() -> None:
    loop = plan(step("s", "a"), step("a", "a", when=False, visit_limit=3))
    assert start(loop).when(succeeded("s")).state.error == StepFault("a", 4, "visit limit")


def test_a_run_out_of_time_fails_and_nothing_of_it_goes_on() -> None:
    timed = plan(*fork().steps, timeout=60.0)
    run = forked(timed, "a/1", "b/1")
    then = run.when(RunTimedOut(60.0), after=60)
    error = StepFault("", 0, "no end after 60 s")
    assert then.facts == (RunEnding("failed", error, ("a/1", "b/1")), RunEnded("failed", error=error))
    assert then.timers == {RUN_TIMER: None}


def test_the_timer_of_the_run_counts_from_its_start_and_goes_when_it_is_ending() -> None:
    timed = plan(*fork().steps, timeout=60.0)
    run = Given(timed)
    assert run.when(started(timed), after=5).timers == {RUN_TIMER: NOON + 65 * SECOND}
    run.when(succeeded("s"))
    run.claimed = frozenset({"b/1"})
    assert run.when(failed("a")).timers == {RUN_TIMER: None}


def test_cancelling_a_run_withdraws_everything_and_is_no_failure() -> None:
    run = forked(fork(retry=Retry(attempts=9)), "a/1", "b/1")
    then = run.when(CancelAsked("enough", "ada"))
    assert then.facts == (RunEnding("cancelled", withdrawn=("a/1", "b/1")), RunEnded("cancelled"))
    assert then.gone == ("a/1", "b/1")


def test_what_was_reported_in_the_turn_of_the_cancellation_still_counts() -> None:
    run = forked(fork(set={"x": 1}), "a/1", "b/1")
    then = run.when(succeeded("b", 5), CancelAsked())
    assert (then.state.life, then.state.ctx, then.state.steps[2].result) == ("cancelled", {"x": 1}, 5)
    assert then.state.steps[3].visits == 0


def test_cancelling_a_run_that_drains_takes_back_what_still_runs_and_leaves_it_failed() -> None:
    run = forked(fork(), "a/1", "b/1")
    run.when(failed("a"))
    then = run.when(CancelAsked())
    assert then.facts == (RunEnding("failed", A_FAILED, ("b/1",)), RunEnded("failed", error=A_FAILED))


def test_an_ending_run_keeps_signals_for_nobody() -> None:
    run = forked(fork(), "a/1", "b/1")
    run.when(failed("a"))
    assert run.when(SignalReceived("go", 1)).facts == ()
    assert run.state.signals == {"go": [1]}


def test_all_that_came_in_the_turn_of_a_failure_is_folded_before_the_run_is_ending() -> None:
    run = forked(fork(work=Gate()), "a/1")
    assert run.when(failed("a"), GateDecided("b", 1, "approve")).state.steps[2].life == "completed"
    run = forked(fork(work=Wait(signal="go")), "a/1")
    assert run.when(failed("a"), SignalReceived("go")).state.steps[2].life == "completed"


def test_a_race_stops_those_who_can_only_still_lead_into_it() -> None:
    race = plan(
        step("s", "a", "b", mode="inclusive"), step("a", "j"), step("b", "x"), step("x", "j"), step("j", join="race")
    )
    run = forked(race, "a/1", "b/1")
    then = run.when(succeeded("a"))
    assert then.facts[-1] == issued("j")
    assert then.gone == ("a/1", "b/1")
    assert [each.life for each in then.state.steps] == ["completed", "completed", "cancelled", "cancelled", "issued"]
    assert run.when(succeeded("j", "won")).facts == (RunEnded("completed", "won"),)
