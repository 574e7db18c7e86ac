"""Requests to people in the core: they are open until their answer comes, and the answer is an event."""

from typing import Any

import pytest

from refold.core.facts import EventsTaken, Fact, RequestAnswered, RunPaused, RunResumed, SignalReceived, StepSettled
from refold.core.fold.reopen import reopening
from refold.core.outcomes import ANSWER, Awaited, Question, Report, Sent, Succeeded, Suspended
from refold.core.plan import Collect, EventType, Plan, Step
from refold.core.read.gates import open_questions, why_no_answer
from refold.core.read.summary import status_of
from refold.core.read.why import reasons
from refold.testing.core import NOON, failed
from tests.core.acts import Given, Then, plan, start

TYPES = tuple(EventType(name=name) for name in ("StartEvent", "StopEvent", "Page", "Said"))
SLOW = Step(name="slow", accepts=("Page",))
PLAN: Plan = plan(Step(name="ask", accepts=("StartEvent",)), SLOW, Step(name="got", accepts=("Said",)), events=TYPES)


def asks(id: str, **fields: bool) -> Sent:
    return Sent("Ask", {"prompt": f"{id}?", "request_id": id}, asks=Question(id, "Said", fields))


def sent(*events: Sent, step: str = "ask", visit: int = 1) -> Fact:
    return StepSettled(step, visit, Report(1, Succeeded(), events=events))


def answer(id: str, value: Any = "yes") -> Fact:
    return SignalReceived(f"{ANSWER}{id}", value)


def asking(*events: Sent) -> Given:
    run = start(PLAN)
    run.when(sent(*events))
    return run


def inputs(then: Then) -> list[Any]:
    return [event["data"] for command in then.commands for event in command.input["events"]]


def ids(run: Given) -> list[str]:
    return [question.id for question in open_questions(run.graph, run.state)]


def test_a_request_keeps_its_run_waiting_and_its_step_is_completed() -> None:
    run = asking(asks("a"))
    assert (run.state.life, run.state.open, run.state.steps[0].life) == ("running", {}, "completed")
    assert status_of(run.graph, run.state, NOON) == "waiting"
    assert [(each.step, each.kind, each.signal) for each in reasons(run.graph, run.state, NOON)] == [
        ("ask", "signal", "answer:a")
    ]


def test_an_answer_becomes_an_event_and_the_request_is_closed() -> None:
    run = asking(asks("a"), asks("b"))
    then = run.when(answer("b"))
    said = Sent("Said", {"response": "yes", "request_id": "b"})
    assert then.facts == (RequestAnswered("b", said), EventsTaken("got", 1, (((5, 0),),)))
    assert inputs(then) == [said.data] and ids(run) == ["a"]


def test_the_fields_of_an_answer_are_those_of_its_event() -> None:
    run = asking(asks("a", yes=True, why=False))
    assert inputs(run.when(answer("a", {"yes": True}))) == [{"yes": True, "request_id": "a"}]


def test_an_answer_that_came_early_is_delivered_when_the_request_is_sent() -> None:
    run = start(PLAN)
    run.when(answer("a", 1))
    run.when(answer("a", 2))
    assert inputs(run.when(sent(asks("a")))) == [{"response": 1, "request_id": "a"}]
    assert run.state.signals == {"answer:a": [2]} and run.state.answered == {}


def test_requests_with_one_id_get_one_answer_each_the_oldest_first() -> None:
    run = start(plan(*PLAN.steps, Step(name="again", accepts=("Page",)), events=TYPES))
    run.when(sent(asks("a"), Sent("Page", 1)))
    run.when(sent(asks("a"), step="slow"))
    run.when(sent(step="again"))
    assert ids(run) == ["a", "a"]
    assert len(run.when(answer("a", 1)).commands) == 1 and ids(run) == ["a"]
    assert len(run.when(answer("a", 2)).commands) == 1 and ids(run) == []


def test_a_question_of_a_body_with_the_same_id_takes_one_answer_only() -> None:
    run = asking(asks("a"), Sent("Page", 1))
    run.when(StepSettled("slow", 1, Report(1, Suspended((Awaited("ask:a", signal="answer:a", input={}),)))))
    run.when(answer("a", 1))
    assert list(run.state.open["slow/1"].recorded) == ["ask:a"]
    assert run.state.answered == {} and len(run.state.requests["a"]) == 1
    assert inputs(run.when(answer("a", 2))) == [{"response": 2, "request_id": "a"}]


def test_a_paused_run_keeps_an_answer_until_it_resumes() -> None:
    run = asking(asks("a"))
    run.when(RunPaused())
    assert run.when(answer("a")).commands == () and ids(run) == ["a"]
    assert inputs(run.when(RunResumed())) == [{"response": "yes", "request_id": "a"}]


def test_an_ending_run_delivers_no_answer_and_a_reopened_one_does() -> None:
    run = start(plan(*PLAN.steps, Step(name="other", accepts=("Page",)), events=TYPES))
    run.when(sent(asks("a"), Sent("Page", 1)))
    run.claimed = frozenset({"other/1"})
    run.when(failed("slow"))
    assert run.state.life == "ending" and ids(run) == []
    assert not [fact for fact in run.when(answer("a")).facts if isinstance(fact, RequestAnswered)]
    run.claimed = frozenset()
    run.when(sent(step="other"))
    assert run.state.life == "failed"
    then = run.when(reopening(run.graph, run.state))
    assert {"response": "yes", "request_id": "a"} in inputs(then)


def test_an_answer_starts_the_time_limit_of_the_step_that_collects_it() -> None:
    collects = Step(name="got", accepts=("Said",), collect=Collect(n=2, timeout=5.0))
    run = start(plan(PLAN.steps[0], collects, events=TYPES))
    run.when(sent(asks("a"), asks("b")))
    assert list(run.when(answer("a")).timers) == ["got/collect#"]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"yes": 1}, ""),
        ({"yes": 1, "why": 2, "request_id": "a"}, ""),
        ("yes", "request 'a' is answered with a map of the fields of Said: yes, why (optional)"),
        ({"no": 1}, "the answer to request 'a' lacks 'yes' and has 'no'; Said has yes, why (optional)"),
    ],
)
def test_an_answer_is_checked_by_the_names_of_its_fields(value: Any, why: str) -> None:
    assert why_no_answer(Question("a", "Said", {"yes": True, "why": False}), value) == why
    assert why_no_answer(Question("a", "Said"), value) == ""


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        ("boolean", True, ""),
        ("boolean", "maybe", "'maybe' is not a boolean"),
        ("boolean", 1, "1 is not a boolean"),
        ("integer", 5, ""),
        ("integer", True, "True is not an integer"),
        ("integer", 5.5, "5.5 is not an integer"),
        ("number", 5, ""),
        ("string", 5, "5 is not a string"),
        ("", "anything", ""),
    ],
)
def test_an_answer_is_checked_by_the_kinds_of_plain_fields(kind: str, value: Any, why: str) -> None:
    fields = why_no_answer(Question("a", "Said", {"yes": True}, {"yes": kind}), {"yes": value})
    assert fields == (f"the answer to request 'a': yes: {why}" if why else "")
    alone = why_no_answer(Question("a", "Said", kinds={"response": kind}), value)
    assert alone == (f"the answer to request 'a': {why}" if why else "")
