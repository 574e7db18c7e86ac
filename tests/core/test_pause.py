"""Paused: outcomes are folded, nothing is issued, and the time does not count towards the run's own timeout."""

import pytest

from refold.core.commands import LetterPause, LetterResume, child_id
from refold.core.decide.decision import RUN_TIMER
from refold.core.facts import (
    CancelAsked,
    FanOutEntered,
    ItemsIssued,
    RunEnding,
    RunPaused,
    RunResumed,
    SignalReceived,
    SignalTaken,
)
from refold.core.outcomes import SECOND
from refold.core.plan import Child, Loop, Retry, Wait
from refold.errors import Corrupt
from refold.testing.core import NOON, failed, issued, started, succeeded
from tests.core.acts import Given, chain, plan, start, step


def test_a_paused_run_folds_outcomes_and_issues_nothing() -> None:
    run = start(chain("a", "b"))
    assert run.when(RunPaused("ada")).facts == ()
    then = run.when(succeeded("a", 1))
    assert (then.facts, then.commands, then.state.steps[0].result) == ((), (), 1)


def test_a_resumed_run_goes_on_where_it_stopped() -> None:
    run = start(chain("a", "b"))
    run.when(RunPaused())
    run.when(succeeded("a"))
    assert run.when(RunResumed("ada")).facts == (issued("b"),)


def test_a_failure_of_a_paused_run_is_judged_when_it_is_resumed() -> None:
    run = start(plan(step("a", retry=Retry(attempts=2, delay=5.0))))
    run.when(RunPaused())
    assert run.when(failed("a")).held == ("a/1",)
    then = run.when(RunResumed(), after=60)
    assert then.facts == (issued("a", attempt=2, not_before=NOON + 65 * SECOND),)


def test_a_paused_run_fills_no_window() -> None:
    run = start(plan(step("a", loop=Loop(items=[1, 2, 3], max_in_flight=1))))
    run.when(RunPaused())
    assert run.when(succeeded("a", item=0)).facts == ()
    assert run.when(RunResumed()).facts == (ItemsIssued("a", 1, 1, 1),)


def test_a_paused_run_keeps_signals_and_delivers_them_when_it_is_resumed() -> None:
    run = start(plan(step("w", work=Wait(signal="go"))))
    run.when(RunPaused())
    assert run.when(SignalReceived("go")).facts == ()
    assert run.when(RunResumed()).facts[0] == SignalTaken("go", "w/1")


def test_a_run_may_be_paused_before_its_first_step() -> None:
    looped = plan(step("a", loop=Loop(items=[])))
    run = Given(looped)
    assert run.when(started(looped), RunPaused()).facts == ()
    assert run.when(RunResumed()).facts[0] == FanOutEntered("a", 1, 0, [])


def test_paused_time_does_not_count_towards_the_timeout_of_the_run() -> None:
    timed = plan(step("a"), timeout=100.0)
    run = Given(timed)
    assert run.when(started(timed)).timers == {RUN_TIMER: NOON + 100 * SECOND}
    assert run.when(RunPaused(), after=30).timers == {RUN_TIMER: None}
    assert run.when(RunResumed(), after=90).timers == {RUN_TIMER: NOON + 160 * SECOND}


def test_children_are_paused_and_resumed_by_letter_each_time_anew() -> None:
    run = start(plan(step("a", work=Child(plan="kid"))))
    child = child_id("run", "a/1")
    letters = [run.when(fact).letters[0] for fact in (RunPaused(), RunResumed(), RunPaused(), RunResumed())]
    assert [(letter.to, letter.body) for letter in letters] == [(child, LetterPause()), (child, LetterResume())] * 2
    assert len({letter.key for letter in letters}) == 4


def test_pausing_what_is_paused_is_no_fact_the_log_can_hold() -> None:
    run = start(chain("a"))
    run.when(RunPaused())
    with pytest.raises(Corrupt, match="RunPaused of the run, which is paused"):
        run.when(RunPaused())


def test_a_paused_run_that_is_cancelled_ends_without_being_resumed() -> None:
    run = start(chain("a"))
    run.when(RunPaused())
    then = run.when(CancelAsked("enough"))
    assert then.facts[0] == RunEnding("cancelled", withdrawn=("a/1",))
    assert (then.state.life, then.state.paused) == ("cancelled", False)


def test_a_run_that_is_ending_may_be_paused_and_its_finalizers_wait() -> None:
    run = start(plan(step("a"), step("z"), always=("z",)))
    run.when(succeeded("a"))
    run.when(RunPaused())
    assert run.when(failed("z")).facts == ()
    assert run.when(RunResumed()).state.life == "completed"
