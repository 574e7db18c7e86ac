"""When the last visit of each step began and ended, read from the log."""

from collections.abc import Iterable

from msgspec import Struct

from refold.core.facts import (
    ChildEnded,
    Entered,
    EventsTaken,
    FanOutEntered,
    GateDecided,
    ItemsSettled,
    Routed,
    StepIssued,
    StepSettled,
    Took,
    VisitFailed,
)
from refold.core.fold.apply import Record
from refold.core.outcomes import SECOND, Instant


class StepTimes(Struct):
    """A visit begins when its body starts, or when it is issued if no worker has to start one (a wait, a gate, a child
    run). 0: not yet."""

    issued_at: Instant = 0
    began_at: Instant = 0
    ended_at: Instant = 0

    def seconds(self) -> float | None:
        """Return how long the visit took, without the time in which it waited for a worker."""
        return (self.ended_at - self.began_at) / SECOND if self.began_at and self.ended_at else None


def step_times(records: Iterable[Record]) -> dict[str, StepTimes]:
    """Return the times of each step that was entered. A step that is running has an end if an item or a try of it has
    ended: the caller knows whether it is over."""
    times: dict[str, StepTimes] = {}
    for _, at, fact in records:
        match fact:
            case StepIssued(step=step, attempt=attempt):
                if attempt == 1:
                    times[step] = StepTimes(at, at if fact.until is not None or fact.signal else 0)
            case FanOutEntered(step=step) | EventsTaken(step=step):
                times[step] = StepTimes(at)
            case StepSettled(step=step, report=report):
                _settled(times.setdefault(step, StepTimes(at)), report.started_at, at)
            case ItemsSettled(step=step, reports=reports):
                started = min((report.started_at for report in reports if report.started_at), default=0)
                _settled(times.setdefault(step, StepTimes(at)), started, at)
            case ChildEnded(command=command):
                _ended(times.setdefault(command.partition("/")[0], StepTimes(at)), at)
            case GateDecided(step=step) | VisitFailed(step=step):
                _ended(times.setdefault(step, StepTimes(at)), at)
            case Routed(moves=moves):
                for move in moves:
                    if isinstance(move, Entered):
                        times[move.step] = StepTimes(at)
                    elif isinstance(move, Took):
                        _ended(times.setdefault(move.step, StepTimes(at)), at)
            case _:
                pass
    return times


def _settled(times: StepTimes, started: Instant, at: Instant) -> None:
    if not times.began_at and started:
        times.began_at = min(started, at)
    times.ended_at = at


def _ended(times: StepTimes, at: Instant) -> None:
    times.began_at = times.began_at or times.issued_at
    times.ended_at = times.ended_at or at
