"""When each visit of a run waited and worked, from recorded times alone, and where the time of the run went."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from refold.core.commands import command_id
from refold.core.facts import (
    ChildEnded,
    Dropped,
    Entered,
    EventsTaken,
    FanOutEntered,
    GateDecided,
    ItemsSettled,
    Routed,
    RunEnded,
    RunPaused,
    RunReopened,
    RunResumed,
    SignalTaken,
    StepIssued,
    StepSettled,
    Took,
    VisitFailed,
)
from refold.core.fold.apply import Record
from refold.core.graph import Graph
from refold.core.outcomes import SECOND, Instant, fault_of_outcome
from refold.core.plan import Child, Gate, Wait

SegmentKind = Literal["slot", "working", "backoff", "person", "signal", "timer", "child", "loop", "paused"]


class Segment(Struct, frozen=True, omit_defaults=True):
    kind: SegmentKind
    begin: Instant
    end: Instant  # of one that is not over: now
    attempt: int = 0
    is_open: bool = False


class Lane(Struct, omit_defaults=True):
    """One visit of a step."""

    step: str
    visit: int
    begin: Instant
    end: Instant = 0  # 0: it is not over
    segments: list[Segment] = []
    failed: bool = False


class Timeline(Struct):
    begin: Instant
    end: Instant
    is_over: bool
    lanes: list[Lane]
    paused: list[Segment]  # spans in which the run as a whole was paused


class _Attempt(Struct):
    """The last try of a visit, which may still be under way."""

    number: int
    issued_at: Instant
    not_before: Instant = 0


def timeline(
    graph: Graph,
    records: Iterable[Record],
    now: Instant,
    began: Mapping[str, Instant] = {},
    running: Container[str] | None = None,
) -> Timeline:
    """Read the visits of a run from its log. `began` says when workers took the commands that they execute now, and
    `running` names the steps that are not over; without it, each whose end is not in the log."""
    reading = _Reading(graph)
    for _, at, fact in records:
        reading.read(at, fact)
    return reading.ended(now, began, running)


class _Reading:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.lanes: dict[tuple[str, int], Lane] = {}
        self.open: dict[tuple[str, int], _Attempt] = {}
        self.settled: dict[tuple[str, int], Instant] = {}  # when the last item of a loop ended so far
        self.votes: dict[tuple[str, int], Counter[str]] = {}
        self.paused: list[Segment] = []
        self.paused_at: Instant = 0
        self.begin: Instant = 0
        self.last: Instant = 0
        self.is_over = False

    def read(self, at: Instant, fact: object) -> None:
        self.begin, self.last = self.begin or at, at
        match fact:
            case StepIssued(step=step, visit=visit):
                lane = self._lane(step, visit, at)
                lane.end = 0
                self.open[step, visit] = _Attempt(fact.attempt, at, max(fact.not_before, at) if fact.not_before else 0)
            case StepSettled(step=step, visit=visit, report=report):
                self._tried(step, visit, report.attempt, report.started_at or report.claimed_at, at)
                self.lanes[step, visit].failed = fault_of_outcome(report.outcome) is not None
            case FanOutEntered(step=step, visit=visit):
                self._lane(step, visit, at).end = 0
                self.open[step, visit] = _Attempt(1, at)
            case EventsTaken(step=step, first=first, batches=batches):
                for visit in range(first, first + len(batches)):
                    self._lane(step, visit, at)
            case ItemsSettled(step=step, visit=visit):
                self.settled[step, visit] = at
            case GateDecided(step=step, visit=visit, option=option):
                if self._is_decided(step, visit, option):
                    self._ended(step, visit, at)
            case ChildEnded(command=command) | SignalTaken(command=command):
                step, visit_text, item = (*command.split("/"), "", "")[:3]
                if item:
                    self.settled[step, int(visit_text)] = at
                elif visit_text.isdecimal() and self._kind(step) in ("child", "signal", "timer"):
                    self._ended(step, int(visit_text), at)
            case VisitFailed(step=step, visit=visit):
                self._ended(step, visit, at, failed=True)
            case Routed(moves=moves):
                for move in moves:
                    self._moved(move, at)
            case RunPaused():
                self.paused_at = self.paused_at or at
            case RunResumed():
                self._resumed(at)
            case RunReopened():
                self.is_over = False
            case RunEnded():
                self.is_over = True
                for step, visit in list(self.open):
                    self._ended(step, visit, self.settled.get((step, visit), at))
            case _:
                pass

    def _is_decided(self, step: str, visit: int, option: str) -> bool:
        """Whether this vote was the last one that the gate needed."""
        work = self.graph.plan.steps[self.graph.index[step]].work if step in self.graph.index else None
        if not isinstance(work, Gate) or option in work.refuse:
            return True
        votes = self.votes.setdefault((step, visit), Counter())
        votes[option] += 1
        return votes[option] >= work.min_approvals

    def _lane(self, step: str, visit: int, at: Instant) -> Lane:
        return self.lanes.setdefault((step, visit), Lane(step, visit, at))

    def _moved(self, move: object, at: Instant) -> None:
        match move:
            case Entered(step=step, visit=visit):
                self._lane(step, visit, at)
            case Took(step=step, visit=visit, fault=fault):
                self._ended(step, visit, at, failed=fault is not None)
            case Dropped(steps=steps):
                for step, visit in [key for key in self.open if key[0] in steps]:
                    self._ended(step, visit, at)
            case _:
                pass

    def _tried(self, step: str, visit: int, attempt: int, started: Instant, at: Instant) -> None:
        lane, opened = self._lane(step, visit, at), self.open.pop((step, visit), None)
        begin = opened.issued_at if opened is not None else lane.begin
        kind = self._kind(step)
        if not started and kind != "slot":  # no worker had it
            lane.segments.append(Segment(kind, begin, at, attempt))
            lane.end = at
            return
        lane.segments += _try(opened or _Attempt(attempt, begin), started or begin, at)
        lane.end = at

    def _ended(self, step: str, visit: int, at: Instant, failed: bool = False) -> None:
        lane = self.lanes.get((step, visit))
        if lane is None:
            return
        opened = self.open.pop((step, visit), None)
        if opened is not None:
            lane.segments.append(Segment(self._kind(step), opened.issued_at, at, opened.number))
        lane.end, lane.failed = lane.end or at, lane.failed or failed

    def _resumed(self, at: Instant) -> None:
        if self.paused_at:
            self.paused.append(Segment("paused", self.paused_at, at))
            self.paused_at = 0

    def _kind(self, step: str) -> SegmentKind:
        """What a visit waits for that no worker has."""
        index = self.graph.index.get(step)
        if index is None:
            return "working"
        known = self.graph.plan.steps[index]
        if known.loop is not None:
            return "loop"
        match known.work:
            case Gate():
                return "person"
            case Wait(signal=signal):
                return "signal" if signal is not None else "timer"
            case Child():
                return "child"
            case _:
                return "slot"

    def ended(self, now: Instant, began: Mapping[str, Instant], running: Container[str] | None) -> Timeline:
        end = self.last if self.is_over else max(now, self.last)
        for step, visit in [key for key in self.open if running is not None and key[0] not in running]:
            self._ended(step, visit, self.settled.get((step, visit), self.last))
        for (step, visit), attempt in self.open.items():
            lane, kind = self.lanes[step, visit], self._kind(step)
            started = began.get(command_id(step, visit), 0)
            found = _try(attempt, started or end, end) if kind == "slot" else [Segment(kind, attempt.issued_at, end)]
            lane.segments += [*found[:-1], _left_open(found[-1])] if found else []
        if self.paused_at:
            self.paused.append(Segment("paused", self.paused_at, end, is_open=True))
        lanes = sorted(self.lanes.values(), key=lambda lane: (lane.begin, lane.step, lane.visit))
        return Timeline(self.begin, end, self.is_over, lanes, self.paused)


def _left_open(segment: Segment) -> Segment:
    return Segment(segment.kind, segment.begin, segment.end, segment.attempt, True)


def _try(attempt: _Attempt, started: Instant, at: Instant) -> list[Segment]:
    """The segments of one try: until it may begin, until a worker began it, and its work."""
    free = min(max(attempt.not_before, attempt.issued_at), at)
    begun = min(max(started, free), at)
    spans: tuple[tuple[SegmentKind, Instant, Instant], ...] = (
        ("backoff", attempt.issued_at, free),
        ("slot", free, begun),
        ("working", begun, at),
    )
    return [Segment(kind, begin, end, attempt.number) for kind, begin, end in spans if end > begin]


def window(found: Timeline, begin: Instant, end: Instant, shortest: Instant) -> list[Lane]:
    """Return the lanes that a picture of a span shows. Segments that are shorter than a dot are joined with the one
    before them, if it is of the same kind or as short."""
    return [
        Lane(
            lane.step, lane.visit, lane.begin, lane.end, list(_joined(lane.segments, begin, end, shortest)), lane.failed
        )
        for lane in found.lanes
        if lane.begin < end and (not lane.end or lane.end >= begin)
    ]


def _joined(segments: Sequence[Segment], begin: Instant, end: Instant, shortest: Instant) -> Iterator[Segment]:
    last: Segment | None = None
    for each in segments:
        if each.end < begin or each.begin >= end:
            continue
        if last is not None and each.end - last.begin < shortest:
            last = Segment(each.kind, last.begin, each.end, each.attempt, each.is_open)
            continue
        if last is not None:
            yield last
        last = each
    if last is not None:
        yield last


class TimeSpent(Struct):
    """Where the time of a run went: seconds by kind, over all visits, by step, and along the critical path."""

    seconds: float  # from the start to the end, or until now
    by_kind: dict[str, float]
    by_step: dict[str, dict[str, float]]
    critical_path: list[tuple[str, int]]  # visits, the first one first
    critical: dict[str, float]  # seconds by kind along the critical path


def time_spent(graph: Graph, found: Timeline) -> TimeSpent:
    by_kind: dict[str, float] = {}
    by_step: dict[str, dict[str, float]] = {}
    for lane in found.lanes:
        _add(by_kind, lane.segments)
        _add(by_step.setdefault(lane.step, {}), lane.segments)
    _add(by_kind, found.paused)
    path = _critical(graph, found)
    critical: dict[str, float] = {}
    for lane in path:
        _add(critical, lane.segments)
    visits = [(lane.step, lane.visit) for lane in path]
    return TimeSpent((found.end - found.begin) / SECOND, by_kind, by_step, visits, critical)


def _add(sums: dict[str, float], segments: Iterable[Segment]) -> None:
    for each in segments:
        sums[each.kind] = round(sums.get(each.kind, 0.0) + (each.end - each.begin) / SECOND, 6)


def _critical(graph: Graph, found: Timeline) -> list[Lane]:
    """The chain of visits that ended last: before each visit, the one that leads to it and ended last."""
    leads: dict[str, set[str]] = {}
    for step in graph.plan.steps:
        for arc in step.arcs:
            leads.setdefault(arc.to, set()).add(step.name)
    left = sorted(found.lanes, key=lambda lane: (lane.end or found.end, lane.begin))
    path: list[Lane] = []
    last = left[-1] if left else None
    while last is not None:
        path.append(last)
        leading, begin = leads.get(last.step, set()), last.begin
        left = [lane for lane in left if lane is not last and lane.end and lane.end <= begin]
        last = next((lane for lane in reversed(left) if lane.step in leading), None)
    return path[::-1]
