"""Typed events: who takes which, in what order, what is gathered, and how a run of events ends."""

from typing import Any

import pytest

from refold.core.decide.decision import Decision
from refold.core.decide.events import gather_no_longer
from refold.core.facts import CancelAsked, EventsTaken, Fact, RunEnded, RunPaused, RunResumed, StepSettled, VisitFailed
from refold.core.fold.reopen import reopening
from refold.core.outcomes import SECOND, Failed, Fault, Report, Sent, SetKey, Succeeded
from refold.core.plan import Arc, Collect, EventType, Plan, Retry, Step, problems_of
from refold.testing.core import NOON, failed, started
from tests.core.acts import Given, Then, plan, start

TYPES = tuple(EventType(name=name) for name in ("StartEvent", "StopEvent", "Page", "Done"))


def events(*steps: Step, types: tuple[EventType, ...] = TYPES, **more: Any) -> Plan:
    return plan(*steps, events=types, **more)


def takes(name: str, *types: str, **more: Any) -> Step:
    return Step(name=name, accepts=types, **more)


def sent(step: str, *given: Sent, visit: int = 1, **more: Any) -> Fact:
    return StepSettled(step, visit, Report(1, Succeeded(), events=given, **more))


def page(n: int, **more: Any) -> Sent:
    return Sent("Page", {"n": n, **more})


def stop(result: Any = None) -> Sent:
    return Sent("StopEvent", {"result": result})


def inputs(then: Then) -> list[tuple[str, Any]]:
    return [(command.id, [each["data"] for each in command.input["events"]]) for command in then.commands]


CRAWL = events(takes("begin", "StartEvent"), takes("fetch", "Page"))


def crawling(*pages: Sent, **more: Any) -> Given:
    run = start(events(takes("begin", "StartEvent"), takes("fetch", "Page", **more)))
    run.when(sent("begin", *pages))
    return run


def gathering(collect: Collect, *pages: Sent) -> tuple[Given, Then]:
    run = start(events(takes("begin", "StartEvent"), takes("join", "Page", collect=collect)))
    return run, run.when(sent("begin", *pages))


def test_a_run_begins_with_its_input_as_the_first_event() -> None:
    run = Given(CRAWL)
    then = run.when(started(CRAWL, url="x"))
    assert then.facts == (EventsTaken("begin", 1, (((1, 0),),)),)
    assert then.commands[0].input == {"events": [{"type": "StartEvent", "data": {"url": "x"}}]}


def test_each_event_is_a_command_of_every_step_that_takes_its_type() -> None:
    run = start(events(takes("begin", "StartEvent"), takes("fetch", "Page"), takes("count", "Page", "Done")))
    then = run.when(sent("begin", page(1), page(2)))
    assert inputs(then) == [
        ("fetch/1", [{"n": 1}]),
        ("fetch/2", [{"n": 2}]),
        ("count/1", [{"n": 1}]),
        ("count/2", [{"n": 2}]),
    ]


def test_who_takes_a_type_takes_those_above_which_it_stands() -> None:
    types = (*TYPES, EventType(name="Image", bases=("Page",)))
    run = start(events(takes("begin", "StartEvent"), takes("fetch", "Page"), types=types))
    assert inputs(run.when(sent("begin", Sent("Image", 1)))) == [("fetch/1", [1])]


def test_no_more_events_are_taken_at_a_time_than_allowed_and_the_rest_follow_in_order() -> None:
    run = crawling(*(page(n) for n in range(5)), workers=2)
    assert list(run.state.open) == ["fetch/1", "fetch/2"]
    then = run.when(sent("fetch", visit=2))
    assert inputs(then) == [("fetch/3", [{"n": 2}])]


def test_a_thousand_events_are_few_commands_at_a_time() -> None:
    run = crawling(*(page(n) for n in range(1000)))
    assert len(run.state.open) == 64


def test_the_first_event_that_stops_the_run_is_its_result() -> None:
    run = crawling(page(1), page(2))
    then = run.when(sent("fetch", stop(1)), sent("fetch", stop(2), visit=2))
    assert then.facts[-1] == RunEnded("completed", 1)


def test_whatever_else_is_at_work_is_taken_back_when_the_run_stops() -> None:
    run = crawling(page(1), page(2))
    assert run.when(sent("fetch", stop())).gone == ("fetch/1", "fetch/2")


def test_an_event_no_step_takes_fails_the_run_and_names_what_each_step_takes() -> None:
    run = crawling(page(1))
    then = run.when(sent("fetch", Sent("Done", 1)))
    assert then.state.error is not None and then.state.error.fault is not None
    assert "no step takes the event 'Done' that fetch has sent" in then.state.error.fault.message
    assert "fetch takes Page" in then.state.error.fault.message


def test_nothing_left_to_do_without_a_stop_is_an_error_at_once() -> None:
    then = crawling(page(1)).when(sent("fetch"))
    assert then.state.life == "failed"
    assert then.state.error is not None and then.state.error.fault is not None
    assert then.state.error.fault.message.startswith("nothing is left to do, and no step has sent a StopEvent")


def test_the_error_of_a_run_that_came_to_nothing_says_what_waits() -> None:
    _, then = gathering(Collect(n=3), page(1), page(2))
    assert then.state.error is not None and then.state.error.fault is not None
    assert then.state.error.fault.message.endswith("join waits with 2 of 3 events")


def test_a_batch_is_one_command_with_all_its_events() -> None:
    _, then = gathering(Collect(n=2), page(1), page(2), page(3), page(4))
    assert inputs(then) == [("join/1", [{"n": 1}, {"n": 2}]), ("join/2", [{"n": 3}, {"n": 4}])]


def test_events_of_different_groups_are_never_mixed() -> None:
    pages = (page(1, of="a"), page(2, of="b"), page(3, of="b"), page(4, of="a"))
    _, then = gathering(Collect(n=2, by="of"), *pages)
    assert [[each["n"] for each in batch] for _, batch in inputs(then)] == [[1, 4], [2, 3]]


def test_how_many_make_a_batch_may_stand_in_the_context() -> None:
    run = start(events(takes("begin", "StartEvent"), takes("join", "Page", collect=Collect(n="wanted"))))
    then = run.when(sent("begin", page(1), page(2), writes=(SetKey("wanted", 2),)))
    assert inputs(then) == [("join/1", [{"n": 1}, {"n": 2}])]


def test_two_collectors_of_one_type_each_get_all_of_it() -> None:
    joins = [takes(name, "Page", collect=Collect(n=n)) for name, n in (("two", 2), ("three", 3))]
    run = start(events(takes("begin", "StartEvent"), *joins))
    then = run.when(sent("begin", page(1), page(2), page(3)))
    assert inputs(then) == [("two/1", [{"n": 1}, {"n": 2}]), ("three/1", [{"n": 1}, {"n": 2}, {"n": 3}])]


TIMED = events(
    takes("begin", "StartEvent"), takes("slow", "Done"), takes("join", "Page", collect=Collect(n=3, timeout=60.0))
)


def waiting_for_a_third() -> Given:
    run = start(TIMED)
    run.when(sent("begin", page(1), page(2), Sent("Done", 1)))
    return run


def timed_out(run: Given) -> Then:
    """What a turn does when the timer of the group rings."""
    d = Decision(run.graph, run.state, NOON + 60 * SECOND, run.evaluate, run.chance)
    d.loaded.facts.update({number: fact for number, _, fact in run.log})
    gather_no_longer(d, "join", "")
    run._note(d)
    return run.when(after=60)


def test_the_first_of_a_batch_sets_a_timer_and_the_last_takes_it_away() -> None:
    run = start(TIMED)
    first = run.when(sent("begin", page(1), page(2), Sent("Done", 1)))
    assert first.timers == {"join/collect#": NOON + 60 * SECOND}
    assert run.when(sent("slow", page(3))).timers == {"join/collect#": None}


def test_a_group_that_is_not_full_in_time_fails_its_collector() -> None:
    run = waiting_for_a_third()
    then = timed_out(run)
    assert then.state.error is not None and then.state.error.fault is not None
    assert then.state.error.fault.kind == "timeout"
    assert then.state.error.fault.message == "2 of 3 events came within 60 s"


def test_events_of_a_group_that_came_too_late_are_back_in_it_when_the_run_goes_on() -> None:
    run = waiting_for_a_third()
    timed_out(run)
    run.when(sent("slow", visit=1)) if run.state.open else None
    then = run.when(reopening(run.graph, run.state))
    assert then.timers["join/collect#"] == then.state.at + 60 * SECOND
    assert [list(inbox.groups.values()) for inbox in run.state.inboxes.values() if inbox.groups] == [[[(3, 0), (3, 1)]]]


def test_a_pause_does_not_count_for_a_group_that_is_not_full() -> None:
    run = waiting_for_a_third()
    run.when(RunPaused(), after=10)
    then = run.when(RunResumed(), after=40)
    assert then.timers == {"join/collect#": NOON + 90 * SECOND}


def test_the_timer_of_a_group_goes_with_the_run() -> None:
    run = waiting_for_a_third()
    assert run.when(sent("slow", stop())).timers == {"join/collect#": None}


def test_a_failed_step_fails_the_run_unless_it_says_otherwise() -> None:
    then = crawling(page(1)).when(failed("fetch"))
    assert then.facts[0] == VisitFailed("fetch", 1, Fault("error"))
    assert then.state.life == "failed"


def test_a_failure_may_become_an_event_with_what_the_step_was_run_for() -> None:
    run = start(events(takes("begin", "StartEvent"), takes("fetch", "Page", on_error="Done"), takes("mend", "Done")))
    run.when(sent("begin", page(7), page(8)))
    then = run.when(failed("fetch", "boom", visit=1))
    (command, (data,)) = inputs(then)[0]
    assert (command, data["step"], data["visit"], data["error"]["kind"]) == ("mend/1", "fetch", 1, "boom")
    assert data["events"] == [{"type": "Page", "data": {"n": 7}}]
    assert "fetch/2" in then.state.open


def test_a_step_is_tried_again_as_its_policy_says() -> None:
    run = crawling(page(1), retry=Retry(attempts=2))
    then = run.when(failed("fetch"))
    assert [(command.id, command.attempt) for command in then.commands] == [("fetch/1", 2)]
    assert inputs(then) == [("fetch/1", [{"n": 1}])]
    assert run.when(failed("fetch", attempt=2)).state.life == "failed"


def test_a_failed_try_sends_nothing_and_writes_nothing() -> None:
    run = crawling(page(1), retry=Retry(attempts=2))
    bad = StepSettled("fetch", 1, Report(1, Failed(Fault("x")), events=(stop(1),), writes=(SetKey("k", 1),)))
    then = run.when(bad)
    assert (then.state.life, then.state.ctx) == ("running", {})


def test_a_failed_run_goes_on_with_what_failed_and_what_was_stopped() -> None:
    run = crawling(page(1), page(2), page(3), workers=2)
    run.claimed = frozenset()
    run.when(failed("fetch", visit=1))
    assert run.state.life == "failed"
    then = run.when(reopening(run.graph, run.state))
    assert inputs(then) == [("fetch/3", [{"n": 1}]), ("fetch/4", [{"n": 2}])]
    assert inputs(run.when(sent("fetch", visit=3))) == [("fetch/5", [{"n": 3}])]


def test_a_cancelled_run_of_events_goes_on_where_it_was() -> None:
    run = crawling(page(1), page(2))
    assert run.when(CancelAsked()).state.life == "cancelled"
    then = run.when(reopening(run.graph, run.state))
    assert [data for _, data in inputs(then)] == [[{"n": 1}], [{"n": 2}]]


def test_a_paused_run_takes_reports_and_issues_nothing() -> None:
    run = crawling(page(1))
    run.when(RunPaused())
    assert run.when(sent("fetch", page(2))).commands == ()
    assert inputs(run.when(RunResumed())) == [("fetch/2", [{"n": 2}])]


BAD = {
    "names the event 'Nope'": events(takes("begin", "StartEvent", "Nope")),
    "no step takes StartEvent": events(takes("fetch", "Page")),
    "'b' takes no event": events(takes("begin", "StartEvent"), Step(name="b")),
    "takes events, and there are none": plan(takes("begin", "StartEvent")),
    "without arcs": events(takes("begin", "StartEvent", arcs=(Arc(to="begin"),))),
    "it has no finalizer such as 'begin'": events(takes("a", "StartEvent"), takes("begin", "Page"), always=("begin",)),
    "gathers 0 events": events(takes("begin", "StartEvent", collect=Collect(n=0))),
    "has -1 workers": events(takes("begin", "StartEvent", workers=-1)),
    "'Lost', which is not among": events(takes("begin", "StartEvent", on_error="Lost")),
    "the collect timeout of step 'begin' is -1 s": events(
        takes("begin", "StartEvent", collect=Collect(n=1, timeout=-1.0))
    ),
}


@pytest.mark.parametrize("why", BAD)
def test_a_plan_of_events_that_cannot_work_is_refused(why: str) -> None:
    assert any(why in problem for problem in problems_of(BAD[why])), list(problems_of(BAD[why]))
