"""When visits waited and worked, read from recorded times alone."""

from refold.core.facts import (
    Entered,
    Routed,
    RunEnded,
    RunPaused,
    RunResumed,
    RunStarted,
    StepIssued,
    StepSettled,
    Took,
)
from refold.core.fold.apply import Record
from refold.core.graph import analyse
from refold.core.outcomes import SECOND, Failed, Fault, Report, Succeeded
from refold.core.plan import Arc, Call, Gate, Plan, Step, Wait
from refold.core.read.timeline import Segment, time_spent, timeline, window

PLAN = Plan(
    name="p",
    steps=(
        Step(name="fetch", work=Call(tool="http"), arcs=(Arc(to="ok"),)),
        Step(name="beside", work=Call(tool="http")),
        Step(name="ok", work=Gate(prompt="?")),
    ),
)
GRAPH = analyse(PLAN)


def log(*facts: tuple[float, object]) -> list[Record]:
    return [(n, round(at * SECOND) + 1, fact) for n, (at, fact) in enumerate(facts, 1)]  # type: ignore[misc]


def failed(at: float, started: float, attempt: int) -> tuple[float, StepSettled]:
    report = Report(attempt, Failed(Fault("odd", "x")), started_at=round(started * SECOND) + 1)
    return at, StepSettled("fetch", 1, report)


FACTS = log(
    (0, RunStarted("p")),
    (0, Routed((Entered("fetch", 1), Entered("beside", 1)))),
    (0, StepIssued("fetch", 1)),
    (0, StepIssued("beside", 1)),
    failed(3, started=1, attempt=1),
    (3, StepIssued("fetch", 1, attempt=2, not_before=5 * SECOND + 1)),
    (4, StepSettled("beside", 1, Report(1, Succeeded(), started_at=2 * SECOND + 1))),
    (8, StepSettled("fetch", 1, Report(2, Succeeded(), started_at=6 * SECOND + 1))),
    (8, Routed((Took("fetch", 1, (0,)), Entered("ok", 1)))),
    (8, StepIssued("ok", 1)),
    (9, RunPaused()),
    (10, RunResumed()),
)


def kinds(segments: list[Segment]) -> list[tuple[str, float, int]]:
    return [(each.kind, (each.end - each.begin) / SECOND, each.attempt) for each in segments]


def test_a_visit_waits_for_a_slot_works_and_waits_between_its_tries() -> None:
    found = timeline(GRAPH, FACTS, 12 * SECOND + 1)
    fetch = next(lane for lane in found.lanes if lane.step == "fetch")
    assert kinds(fetch.segments) == [
        ("slot", 1.0, 1),
        ("working", 2.0, 1),
        ("backoff", 2.0, 2),
        ("slot", 1.0, 2),
        ("working", 2.0, 2),
    ]
    assert (found.is_over, kinds(found.paused)) == (False, [("paused", 1.0, 0)])


def test_a_visit_that_is_open_waits_until_now_for_what_it_is() -> None:
    found = timeline(GRAPH, FACTS, 12 * SECOND + 1)
    gate = next(lane for lane in found.lanes if lane.step == "ok")
    [segment] = gate.segments
    assert (segment.kind, segment.is_open, (segment.end - segment.begin) / SECOND) == ("person", True, 4.0)
    ended = timeline(GRAPH, [*FACTS, *[(13, 11 * SECOND + 1, RunEnded("completed"))]], 99 * SECOND)
    assert (ended.is_over, (ended.end - ended.begin) / SECOND) == (True, 11.0)
    running = timeline(GRAPH, FACTS[:3], 5 * SECOND + 1, {"fetch/1": 2 * SECOND + 1})
    assert kinds(running.lanes[0].segments or running.lanes[1].segments) == [("slot", 2.0, 1), ("working", 3.0, 1)]


def test_the_critical_path_is_the_chain_that_ended_last() -> None:
    spent = time_spent(GRAPH, timeline(GRAPH, FACTS, 12 * SECOND + 1))
    assert spent.critical_path == [("fetch", 1), ("ok", 1)]
    assert spent.critical == {"slot": 2.0, "working": 4.0, "backoff": 2.0, "person": 4.0}
    assert spent.by_step["beside"] == {"slot": 2.0, "working": 2.0}
    assert spent.by_kind["working"] == 6.0
    assert spent.seconds == 12.0


def test_the_critical_path_goes_back_through_every_step_that_was_waited_for() -> None:
    names = ("first", "short", "long", "last")
    arcs = {"first": ("short", "long"), "short": ("last",), "long": ("last",), "last": ()}
    steps = tuple(
        Step(name=name, work=Call(tool="http"), arcs=tuple(Arc(to=to) for to in arcs[name])) for name in names
    )
    graph = analyse(Plan(name="p", steps=steps))

    def worked(step: str, begin: float, end: float) -> list[tuple[float, object]]:
        report = Report(1, Succeeded(), started_at=round(begin * SECOND) + 1)
        return [(begin, StepIssued(step, 1)), (end, StepSettled(step, 1, report))]

    facts = [
        (0.0, RunStarted("p")),
        *worked("first", 0, 2),
        *worked("short", 2, 3),
        *worked("long", 2, 6),
        *worked("last", 6, 7),
    ]
    spent = time_spent(graph, timeline(graph, log(*facts), 7 * SECOND + 1))
    assert [step for step, _ in spent.critical_path] == ["first", "long", "last"]
    assert spent.critical["working"] == 7.0


def test_a_wait_that_the_engine_ended_was_no_work_and_a_visit_whose_last_try_failed_has_failed() -> None:
    graph = analyse(
        Plan(name="p", steps=(Step(name="rest", work=Wait(seconds=2)), Step(name="fetch", work=Call(tool="http"))))
    )
    facts = log(
        (0, RunStarted("p")),
        (0, StepIssued("rest", 1, until=2 * SECOND + 1)),
        (2, StepSettled("rest", 1, Report(1, Succeeded()))),
        (2, StepIssued("fetch", 1)),
        failed(4, started=3, attempt=1),
    )
    rest, fetch = timeline(graph, facts, 5 * SECOND + 1).lanes
    assert (kinds(rest.segments), rest.failed) == ([("timer", 2.0, 1)], False)
    assert (kinds(fetch.segments), fetch.failed) == ([("slot", 1.0, 1), ("working", 1.0, 1)], True)


def test_a_window_shows_the_visits_in_it_and_joins_what_is_shorter_than_a_dot() -> None:
    found = timeline(GRAPH, FACTS, 12 * SECOND + 1)
    assert [lane.step for lane in window(found, 9 * SECOND, 12 * SECOND, 1)] == ["ok"]
    fetch = next(lane for lane in window(found, 0, 12 * SECOND, 4 * SECOND) if lane.step == "fetch")
    assert len(fetch.segments) < 5
    assert sum(each.end - each.begin for each in fetch.segments) == 8 * SECOND
