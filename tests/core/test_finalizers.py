"""Finalizers: which run after which end, in what order, and what their own failures do to it."""

import pytest

from refold.core.commands import LetterCancel, child_id
from refold.core.facts import (
    Bypassed,
    CancelAsked,
    ChildEnded,
    ItemsIssued,
    Routed,
    RunEnded,
    RunEnding,
    RunTimedOut,
    SignalReceived,
    StepFault,
    Took,
)
from refold.core.outcomes import Cancelled, Fault, Parked
from refold.core.plan import Arc, Child, Loop, Plan, Retry, Step, Wait
from refold.testing.core import failed, issued, reported, succeeded
from tests.core.acts import Given, plan, start, step

A_FAILED = StepFault("a", 1, "unhandled failure", Fault("error"))


def finished(**finalizers: object) -> Plan:
    """`last` is the final step, `oops` runs after a failure, `tidy` and `lock` always."""
    steps = (step("a"), step("last"), step("oops"), step("tidy"), step("lock"))
    named = {"final_step": "last", "on_fail": ("oops",), "always": ("tidy", "lock")}
    return plan(*steps, **{**named, **finalizers})


def finalized(*steps: Step, **named: object) -> Given:
    """A run whose step is done and whose finalizers are under way."""
    run = start(plan(step("a"), *steps, **named))
    run.when(succeeded("a", "done"))
    return run


def test_after_success_the_final_step_runs_and_then_those_that_always_run_one_by_one() -> None:
    run = start(finished())
    assert run.when(succeeded("a", 1)).facts == (
        RunEnding("completed", final=("last", "tidy", "lock")),
        issued("last"),
    )
    assert run.when(succeeded("last", 2)).facts == (issued("tidy"),)
    assert run.when(succeeded("tidy", 3)).facts == (issued("lock"),)
    assert run.when(succeeded("lock", 4)).facts == (RunEnded("completed", 1),)


def test_after_a_failure_those_for_failures_run_and_the_final_step_does_not() -> None:
    run = start(finished())
    then = run.when(failed("a"))
    assert then.facts[1:] == (RunEnding("failed", A_FAILED, final=("oops", "tidy", "lock")), issued("oops"))
    for name in ("oops", "tidy"):
        run.when(succeeded(name))
    assert run.when(succeeded("lock")).facts == (RunEnded("failed", error=A_FAILED),)


def test_after_a_cancellation_only_those_run_that_always_run() -> None:
    then = start(finished()).when(CancelAsked())
    assert then.facts == (RunEnding("cancelled", withdrawn=("a/1",), final=("tidy", "lock")), issued("tidy"))


def test_a_run_out_of_time_has_failed_and_runs_its_finalizers() -> None:
    then = start(finished(timeout=9.0)).when(RunTimedOut(9.0), after=9)
    assert then.state.final == ["oops", "tidy", "lock"]


def test_a_plan_without_finalizers_ends_without_an_ending_fact() -> None:
    assert start(plan(step("a"))).when(succeeded("a", 5)).facts == (RunEnded("completed", 5),)


def test_finalizers_wait_until_everything_else_is_over() -> None:
    fork = plan(step("s", "a", "b", mode="inclusive"), step("a"), step("b"), step("tidy"), always=("tidy",))
    run = start(fork)
    run.when(succeeded("s"))
    run.claimed = frozenset({"a/1", "b/1"})
    assert isinstance(run.when(failed("a")).facts[-1], RunEnding)
    assert run.when(succeeded("b")).facts == (issued("tidy"),)


def test_finalizers_wait_for_children_that_were_cancelled() -> None:
    run = start(plan(step("a", work=Child(plan="kid")), step("tidy"), always=("tidy",)))
    child = child_id("run", "a/1")
    then = run.when(CancelAsked())
    assert [letter.body for letter in then.letters] == [LetterCancel("its parent no longer waits for it")]
    assert then.facts == (RunEnding("cancelled", withdrawn=("a/1",), final=("tidy",)),)
    assert run.when(ChildEnded(child, "a/1", Cancelled())).facts == (issued("tidy"),)


def test_a_final_step_that_fails_fails_a_completed_run() -> None:
    run = finalized(step("last"), step("tidy"), final_step="last", always=("tidy",))
    run.when(failed("last"))
    broken = StepFault("last", 1, "finalizer failed", Fault("error"))
    assert run.when(succeeded("tidy")).facts == (RunEnded("failed", error=broken),)


@pytest.mark.parametrize("end", [succeeded("a", 1), failed("a"), CancelAsked()])
def test_any_other_finalizer_that_fails_is_only_listed(end: object) -> None:
    run = start(plan(step("a"), step("tidy"), always=("tidy",)))
    run.when(end)  # type: ignore[arg-type]
    then = run.when(failed("tidy", "full"))
    ended = then.facts[-1]
    assert isinstance(ended, RunEnded)
    assert ended.also_failed == (StepFault("tidy", 1, "finalizer failed", Fault("full")),)
    assert ended.status == run.state.outcome and ended.error == (A_FAILED if ended.status == "failed" else None)


def test_a_finalizer_that_failed_does_not_keep_the_next_from_running() -> None:
    run = finalized(step("tidy"), step("lock"), always=("tidy", "lock"))
    assert run.when(failed("tidy")).facts == (Routed((Took("tidy", 1),)), issued("lock"))


def test_finalizers_are_tried_again_by_their_own_policy() -> None:
    run = finalized(step("tidy", retry=Retry(attempts=2)), always=("tidy",))
    assert run.when(failed("tidy")).facts == (issued("tidy", attempt=2),)
    assert run.when(succeeded("tidy", attempt=2)).facts == (RunEnded("completed", "done"),)


def test_a_finalizer_may_park_and_wait_in_an_ending_run() -> None:
    run = finalized(step("tidy"), always=("tidy",))
    assert run.when(reported("tidy", Parked(signal="go"))).facts == ()
    assert run.when(SignalReceived("go")).commands[0].id == "tidy/1"
    run = finalized(step("tidy", work=Wait(signal="go")), always=("tidy",))
    assert run.when(SignalReceived("go")).state.life == "completed"


def test_a_finalizer_may_be_a_fan_out_with_a_window_and_tries() -> None:
    run = finalized(step("tidy", loop=Loop(items=[1, 2], max_in_flight=1), retry=Retry(attempts=2)), always=("tidy",))
    assert run.log[-1][2] == ItemsIssued("tidy", 1, 0, 1)
    run.when(failed("tidy", item=0))
    assert run.when(succeeded("tidy", item=0, attempt=2)).facts == (ItemsIssued("tidy", 1, 1, 1),)
    assert run.when(succeeded("tidy", item=1)).facts == (RunEnded("completed", "done"),)


def test_a_finalizer_may_be_a_child_run() -> None:
    run = finalized(step("tidy", work=Child(plan="kid")), always=("tidy",))
    assert run.when(ChildEnded(child_id("run", "tidy/1"), "tidy/1", Cancelled())).state.life == "completed"


def test_a_finalizer_whose_guard_is_false_is_bypassed() -> None:
    run = start(plan(step("a"), step("tidy", when=False), step("lock"), always=("tidy", "lock")))
    then = run.when(succeeded("a"))
    assert then.facts[1:] == (Routed((Bypassed("tidy", 1),)), issued("lock"))


def test_a_finalizer_whose_guard_has_no_value_has_failed_and_the_next_one_runs() -> None:
    run = start(plan(step("a"), step("tidy", when={"script": ["error"]}), step("lock"), always=("tidy", "lock")))
    assert run.when(succeeded("a")).facts[-1] == issued("lock")
    assert [each.step for each in run.when(succeeded("lock")).state.also_failed] == ["tidy"]


def test_a_finalizer_whose_input_has_no_value_has_failed() -> None:
    run = start(plan(step("a"), step("tidy", input={"path": ["nobody"]}), always=("tidy",)))
    then = run.when(succeeded("a", 1))
    assert (then.state.life, then.state.result, len(then.state.also_failed)) == ("completed", 1, 1)


def test_a_finalizer_sets_context_and_reads_results() -> None:
    run = start(plan(step("a"), step("tidy", input={"path": ["a"]}, set={"x": 1}), always=("tidy",)))
    assert run.when(succeeded("a", 5)).commands[0].input == 5
    assert run.when(succeeded("tidy")).state.ctx == {"x": 1}


def test_cancelling_a_run_that_is_ending_leaves_it_what_always_runs() -> None:
    run = start(finished())
    run.when(succeeded("a", 1))
    then = run.when(CancelAsked())
    assert then.facts == (RunEnding("cancelled", withdrawn=("last/1",), final=("tidy", "lock")), issued("tidy"))
    assert run.when(succeeded("tidy")).facts == (issued("lock"),)
    assert run.when(succeeded("lock")).facts == (RunEnded("cancelled"),)


def test_cancelling_a_run_twice_gives_up_its_finalizers() -> None:
    run = start(finished())
    run.when(succeeded("a", 1))
    run.when(CancelAsked())
    then = run.when(CancelAsked())
    assert then.facts == (RunEnding("cancelled", withdrawn=("tidy/1",)), RunEnded("cancelled"))
    assert [each.life for each in then.state.steps] == ["completed", "cancelled", "pending", "cancelled", "pending"]


def test_a_draining_run_that_is_cancelled_stops_its_work_and_runs_what_follows_a_failure() -> None:
    steps = step("s", "a", "b", mode="inclusive"), step("a"), step("b"), step("oops"), step("tidy")
    run = start(plan(*steps, on_fail=("oops",), always=("tidy",)))
    run.when(succeeded("s"))
    run.claimed = frozenset({"a/1", "b/1"})
    run.when(failed("a"))
    then = run.when(CancelAsked())
    assert then.facts == (RunEnding("failed", A_FAILED, ("b/1",), ("oops", "tidy")), issued("oops"))


def test_children_that_were_cancelled_learn_of_the_second_cancellation() -> None:
    run = start(plan(step("a", work=Child(plan="kid")), step("tidy"), always=("tidy",)))
    run.when(CancelAsked())
    then = run.when(CancelAsked())
    assert [letter.body for letter in then.letters] == [LetterCancel("its parent gives up", again=True)]
    child = ChildEnded(child_id("run", "a/1"), "a/1", Cancelled())
    assert (then.facts, run.when(child).facts) == ((RunEnding("cancelled"),), (RunEnded("cancelled"),))


def test_a_final_step_that_fails_is_followed_by_what_follows_a_failure() -> None:
    run = finalized(step("last"), step("oops"), step("tidy"), final_step="last", on_fail=("oops",), always=("tidy",))
    then = run.when(failed("last"))
    broken = StepFault("last", 1, "finalizer failed", Fault("error"))
    assert then.facts[1:] == (RunEnding("failed", broken, (), ("oops", "tidy")), issued("oops"))
    run.when(failed("oops", "worse"))
    also = (StepFault("oops", 1, "finalizer failed", Fault("worse")),)
    assert run.when(succeeded("tidy")).facts == (RunEnded("failed", error=broken, also_failed=also),)


def test_cancelling_twice_while_a_fan_out_is_the_finalizer_stops_all_its_items() -> None:
    run = finalized(step("tidy", loop=Loop(items=[1, 2, 3], max_in_flight=2)), always=("tidy",))
    assert run.when(CancelAsked()).facts == (RunEnding("cancelled", final=("tidy",)),)
    assert run.when(succeeded("tidy", item=0)).facts == (ItemsIssued("tidy", 1, 2, 1),)
    then = run.when(CancelAsked())
    assert then.facts[0] == RunEnding("cancelled", withdrawn=("tidy/1/1", "tidy/1/2"))
    assert then.state.life == "cancelled"


def test_a_finalizer_that_was_given_up_is_not_tried_again() -> None:
    run = finalized(step("tidy", retry=Retry(attempts=9)), always=("tidy",))
    run.when(CancelAsked())
    then = run.when(failed("tidy"), CancelAsked())
    assert then.state.life == "cancelled"
    assert [each.step for each in then.state.also_failed] == ["tidy"]


def test_a_run_that_fails_keeps_its_own_error_whatever_its_finalizers_do() -> None:
    run = start(plan(step("a", Arc(to="b")), step("b"), step("oops"), on_fail=("oops",)))
    run.when(failed("a"))
    then = run.when(failed("oops"))
    assert then.state.error == A_FAILED
    assert [each.why for each in then.state.also_failed] == ["finalizer failed"]
