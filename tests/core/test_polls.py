"""Polls: a look at once, another after each interval, with one fact for each; and calls that are made again."""

from collections.abc import Sequence
from typing import Any

from refold.core import codec
from refold.core.expressions import TemplateScope
from refold.core.facts import Entered, Routed, RunPaused, RunResumed, Took
from refold.core.fold.waits import outcome_of_timer
from refold.core.outcomes import SECOND, Failed, Fault, Succeeded
from refold.core.plan import Arc, Call, Plan, Poll, Retry, Wait
from refold.core.read.summary import status_of
from refold.core.read.why import Holder, WorkerView, reasons
from refold.testing.core import NOON, Scripted, failed, issued, reported, started, succeeded
from tests.core.acts import Given, plan, start, step

DATA = {"path": ["output", "data"]}


class Looks(Scripted):
    """What is seen at each look, one after the other."""

    def __init__(self, answers: Sequence[bool]) -> None:
        self.answers = list(answers)

    def truth(self, template: Any, view: TemplateScope) -> bool:
        return self.answers.pop(0) if template == "look" else super().truth(template, view)


def looks(plan: Plan, *answers: bool) -> Given:
    run = Given(plan, evaluate=Looks(answers))
    run.when(started(plan))
    return run


def waits(*answers: bool, **more: Any) -> Given:
    poll = Poll(until="look", every=30.0, **more)
    return looks(plan(step("p", "b", work=Wait(), poll=poll), step("b")), *answers)


def calls(until: Any = DATA, retry: Retry | None = None, **more: Any) -> Given:
    poll = Poll(until=until, every=30.0, **more)
    return start(plan(step("p", "b", work=Call(), poll=poll, retry=retry or Retry()), step("b")))


def test_the_first_look_is_taken_at_once() -> None:
    run = waits(True)
    assert [fact for _, _, fact in run.log[1:]] == [
        issued("p", until=NOON),
        reported("p", Succeeded({"by": "poll"})),
        issued("b"),
    ]


def test_each_further_look_costs_one_fact_and_moves_the_timer() -> None:
    run = waits(False, False, True)
    assert run.log[-1][2] == issued("p", until=NOON + 30 * SECOND)
    assert run.when_decided(after=29.9).facts == ()
    then = run.when_decided(after=31)
    assert then.facts == (issued("p", until=NOON + 61 * SECOND),)
    assert then.timers == {"p/1": NOON + 61 * SECOND} and then.commands == ()
    then = run.when_decided(after=61)
    assert then.facts[-1] == issued("b") and then.timers == {"p/1": None}
    assert run.state.polls == {}


def test_a_poll_that_came_true_last_gives_the_result_of_the_run() -> None:
    poll = Poll(until="look", every=30.0)
    both = plan(step("s", "p", "c", mode="inclusive"), step("p", work=Wait(), poll=poll), step("c"))
    run = looks(both, False, True)
    run.when(succeeded("s"))
    run.when(succeeded("c", "early"), after=5)
    assert run.when_decided(after=30).state.result == {"by": "poll"}


def test_the_timer_of_a_poll_says_nothing_but_that_somebody_has_to_look() -> None:
    run = waits(False, timeout=40.0)
    opened = run.state.open["p/1"]
    assert outcome_of_timer(run.graph.step(0), opened, NOON + 30 * SECOND) is None
    assert opened.deadline == NOON + 40 * SECOND


def test_a_poll_gives_up_when_its_time_is_over_however_often_it_has_looked() -> None:
    run = waits(False, False, timeout=40.0)
    then = run.when_decided(after=30)
    assert then.timers == {"p/1": NOON + 40 * SECOND}, "the deadline comes before the next look"
    outcome = outcome_of_timer(run.graph.step(0), run.state.open["p/1"], NOON + 40 * SECOND)
    assert outcome == Failed(Fault("timeout", "no end after 40 s", retryable=False))


def test_a_condition_that_has_no_value_fails_the_visit() -> None:
    run = start(
        plan(step("p", Arc(to="b", on="failure"), work=Wait(), poll=Poll(until={"path": ["nobody"]})), step("b"))
    )
    fault = run.state.steps[0].fault
    assert fault is not None and fault.kind == "expression" and "nobody" in fault.message
    assert run.state.steps[1].life == "issued" and run.state.polls == {}


def test_a_call_is_made_again_after_the_interval_until_its_output_is_right() -> None:
    run = calls()
    then = run.when(succeeded("p", 0))
    assert then.facts == (issued("p", not_before=NOON + 30 * SECOND),)
    assert [(each.id, each.attempt, each.not_before) for each in then.commands] == [("p/1", 1, NOON + 30 * SECOND)]
    assert run.state.steps[0].done_at == 0, "nobody reads what is not there yet"
    then = run.when(succeeded("p", 7), after=30)
    assert then.facts == (Routed((Took("p", 1, (0,)), Entered("b", 1))), issued("b"))
    assert (run.state.steps[0].result, run.state.steps[0].life) == (7, "completed")


def test_the_last_check_is_the_result_of_a_run_that_ends_with_it() -> None:
    run = start(plan(step("p", work=Call(), poll=Poll(until=DATA))))
    run.when(succeeded("p", 0))
    assert run.when(succeeded("p", {"done": True}), after=30).state.result == {"done": True}


def test_a_large_output_is_looked_at_too() -> None:
    run = calls({"path": ["output", "data", "done"]})
    large = {"done": True, "text": "x" * 70_000}
    found = codec.box(large)
    assert found is not None
    run.blobs[found[0].hash] = found[1]
    then = run.when(reported("p", Succeeded(blob=found[0])))
    assert then.facts[-1] == issued("b") and run.state.steps[0].blob == found[0]


def test_a_failed_check_is_tried_again_by_the_policy_of_the_step_and_each_look_anew() -> None:
    run = calls(retry=Retry(attempts=2))
    assert run.when(failed("p")).facts == (issued("p", attempt=2),)
    assert run.when(succeeded("p", 0, attempt=2)).facts == (issued("p", not_before=NOON + 30 * SECOND),)
    assert run.when(failed("p"), after=30).facts == (issued("p", attempt=2),)
    then = run.when(failed("p", attempt=2), after=31)
    assert then.state.life == "failed"


def test_a_call_that_is_made_again_gives_up_when_its_time_is_over() -> None:
    run = calls(timeout=100.0)
    then = run.when(succeeded("p", 0))
    assert then.timers == {"p/1": NOON + 100 * SECOND}
    outcome = outcome_of_timer(run.graph.step(0), run.state.open["p/1"], NOON + 100 * SECOND)
    assert outcome is not None
    then = run.when(reported("p", outcome), after=100)
    fault = run.state.steps[0].fault
    assert fault is not None and fault.kind == "timeout" and then.gone == ("p/1",)


def test_a_condition_that_fails_over_an_output_fails_the_visit_and_is_told() -> None:
    run = calls({"path": ["output", "data", "nothing"]})
    then = run.when(succeeded("p", {}))
    assert then.state.life == "failed" and then.state.error is not None and then.state.error.fault is not None
    assert then.state.error.fault.kind == "expression"


def test_a_run_that_ends_looks_no_more() -> None:
    poll = Poll(until="look", every=5.0)
    run = looks(plan(step("s", "p", "f", mode="inclusive"), step("p", work=Wait(), poll=poll), step("f")), False)
    run.when(succeeded("s"))
    then = run.when(failed("f"), after=4)
    assert then.state.life == "failed" and run.state.steps[1].life == "cancelled"
    assert then.timers == {"p/1": None} and run.state.polls == {}


def test_between_two_looks_the_run_waits_and_says_for_what() -> None:
    run = calls()
    run.when(succeeded("p", 0))
    assert status_of(run.graph, run.state, NOON + SECOND) == "waiting"
    [reason] = [each for each in reasons(run.graph, run.state, NOON + SECOND) if each.step == "p"]
    assert (reason.kind, reason.until, reason.note) == ("poll", NOON + 30 * SECOND, str(DATA))
    world = WorkerView({"p/1": Holder("w", NOON)})
    assert [each.kind for each in reasons(run.graph, run.state, NOON, world) if each.step == "p"] == ["running"]
    waiting = waits(False)
    assert [each.kind for each in reasons(waiting.graph, waiting.state, NOON) if each.step == "p"] == ["poll"]


def test_a_paused_run_looks_when_it_goes_on() -> None:
    run = waits(False, True)
    run.when(RunPaused())
    assert run.when_decided(after=100).facts == ()
    assert run.when(RunResumed(), after=101).facts[-1] == issued("b")
