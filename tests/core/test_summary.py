"""The row that lists show, why a run waits, and how each step stands."""

import pytest

from refold.core.commands import child_id
from refold.core.facts import Fact, Parent, RunPaused, RunStarted, StepFault
from refold.core.outcomes import SECOND, Awaited, Fault, Parked, Suspended
from refold.core.plan import Arc, Call, Child, Gate, Plan, Retry, Wait, Work
from refold.core.read.summary import Summary, shown_steps, status_of, summarize
from refold.core.read.why import briefly
from refold.testing.core import NOON, failed, reported, succeeded
from tests.core.acts import Given, chain, plan, start, step


def one(work: Work, *facts: Fact, retry: Retry | None = None) -> Given:
    run = start(plan(step("a", work=work, retry=retry or Retry())))
    for fact in facts:
        run.when(fact)
    return run


def status(run: Given, after: int = 0) -> str:
    return status_of(run.graph, run.state, run.state.at + after)


def steps(run: Given) -> dict[str, str]:
    return {name: str(shown["status"]) for name, shown in shown_steps(run.graph, run.state).items()}


def test_a_summary_tells_who_the_run_is_and_how_it_stands() -> None:
    pair: Plan = chain("a")
    run = Given(pair, run="r1")
    run.when(RunStarted("hash", {}, "named", "key", Parent("boss", "a/1")), after=1)
    run.when(failed("a"), after=2)
    assert summarize(run.graph, run.state) == Summary(
        run="r1",
        workflow="plan",
        plan="hash",
        status="failed",
        name="named",
        key="key",
        parent="boss",
        created_at=NOON + SECOND,
        ended_at=NOON + 2 * SECOND,
        seq=run.state.seq,
        error=StepFault("a", 1, "unhandled failure", Fault("error")),
    )


def test_a_run_that_a_worker_could_do_something_about_is_running() -> None:
    assert status(one(Call())) == "running"
    both = start(plan(step("s", "a", "w", mode="inclusive"), step("a"), step("w", work=Wait(signal="go"))))
    both.when(succeeded("s"))
    assert status(both) == "running"
    both.when(succeeded("a"))
    assert status(both) == "waiting"


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (one(Wait(seconds=60)), f"waits for time {NOON + 60 * SECOND}"),
        (one(Wait(signal="go")), "waits for signal 'go'"),
        (one(Wait(signal="go", seconds=1)), f"waits for signal 'go' or time {NOON + SECOND}"),
        (one(Gate()), "waits for a decision"),
        (one(Child(plan="kid")), f"waits for run {child_id('run', 'a/1')}"),
        (one(Call(), reported("a", Parked(signal="go"))), "parked until signal 'go'"),
        (one(Call(), reported("a", Parked(until=NOON + 9))), f"try 1, not before {NOON + 9}"),
        (
            one(Call(), reported("a", Suspended((Awaited("z", until=NOON), Awaited("b", signal="go"))))),
            "suspended until b, z",
        ),
        (
            one(Call(), failed("a"), retry=Retry(attempts=2, delay=5.0)),
            f"try 2, not before {NOON + 5 * SECOND}",
        ),
    ],
)
def test_a_run_that_no_worker_can_help_waits_and_says_why(run: Given, reason: str) -> None:
    assert status(run) == "waiting"
    assert briefly(run.graph, run.state) == {"a/1": reason}


def test_a_try_whose_time_has_come_is_no_longer_waited_for() -> None:
    run = one(Call(), failed("a"), retry=Retry(attempts=2, delay=5.0))
    assert (status(run, after=5 * SECOND - 1), status(run, after=5 * SECOND)) == ("waiting", "running")


def test_a_command_that_is_out_says_which_try_it_is() -> None:
    run = one(Call(), failed("a"), retry=Retry(attempts=2))
    assert briefly(run.graph, run.state) == {"a/1": "try 2 is with the workers"}


def test_a_paused_run_is_paused_whatever_it_waits_for() -> None:
    assert status(one(Gate(), RunPaused())) == "paused"


def test_an_ending_run_is_ending_even_if_its_finalizer_waits() -> None:
    run = start(plan(step("a"), step("tidy", work=Gate()), always=("tidy",)))
    run.when(succeeded("a"))
    assert status(run) == "ending"


@pytest.mark.parametrize(("fact", "end"), [(succeeded("a"), "completed"), (failed("a"), "failed")])
def test_an_ended_run_is_what_it_ended_as(fact: Fact, end: str) -> None:
    assert status(one(Call(), fact)) == end


def test_steps_are_shown_with_visits_tries_result_and_error() -> None:
    run = start(plan(step("a", "b", retry=Retry(attempts=2)), step("b")))
    run.when(failed("a"))
    run.when(succeeded("a", 7, attempt=2))
    run.when(failed("b"))
    assert shown_steps(run.graph, run.state) == {
        "a": {"status": "completed", "visits": 1, "attempts": 2, "result": 7, "error": None},
        "b": {"status": "failed", "visits": 1, "attempts": 1, "result": None, "error": Fault("error")},
    }


LOOP = plan(
    step("a", Arc(to="b", when={"script": [True, False]}), Arc(to="c", when=True)),
    step("b", "d", Arc(to="d", on="failure")),
    step("c", "d"),
    step("d", Arc(to="a", when={"script": [True, False]})),
    step("far"),
)


def test_a_step_is_shown_as_skipped_only_if_it_was_never_entered() -> None:
    run = start(LOOP)
    run.when(succeeded("a"))
    assert steps(run) == {"a": "completed", "b": "issued", "c": "skipped", "d": "pending", "far": "skipped"}
    run.when(succeeded("b"))
    run.when(succeeded("d"))
    assert steps(run) == {"a": "issued", "b": "completed", "c": "pending", "d": "completed", "far": "skipped"}
    run.when(succeeded("a", visit=2))
    assert steps(run) == {"a": "completed", "b": "completed", "c": "issued", "d": "completed", "far": "skipped"}


def test_a_step_that_failed_and_was_skipped_in_a_later_pass_is_shown_as_failed() -> None:
    run = start(LOOP)
    for fact in (succeeded("a"), failed("b"), succeeded("d"), succeeded("a", visit=2)):
        run.when(fact)
    assert run.state.steps[1].life == "skipped"
    assert steps(run)["b"] == "failed"
