"""The progress of a run, one row per step, cheap enough to be computed for every change on a screen."""

from msgspec import Struct

from refold.core.facts import StepFault
from refold.core.fold.fanout import settled
from refold.core.graph import Graph
from refold.core.outcomes import SECOND, Fault, Instant
from refold.core.read.summary import status_of
from refold.core.read.why import Reason, World, of_commands
from refold.core.state import AT_END, BROKEN, FAILED, ISSUED, FanOut, RunState, shown_life

MANY = 1000  # with more open commands, the reasons for waiting are not computed


class Row(Struct, frozen=True):
    """The progress of one step; `count` is above 0 if it is a list loop."""

    step: str
    status: str
    visits: int = 0
    attempts: int = 0
    count: int = 0
    done: int = 0
    failed: int = 0
    open: int = 0
    retried: int = 0
    skipped: int = 0
    cancelled: int = 0
    more: bool = False  # its source may have more items than are counted
    rate: float = 0.0  # items per second, on average
    left: float | None = None  # seconds that are left at this rate
    reason: Reason | None = None  # why it waits
    fault: Fault | None = None  # why it failed


class Progress(Struct, frozen=True):
    """The progress of a run at one moment."""

    run: str
    name: str
    workflow: str
    status: str
    seq: int  # grows with every change
    rows: tuple[Row, ...]
    started_at: Instant
    now: Instant
    ended_at: Instant = 0
    error: StepFault | None = None


def progress(graph: Graph, state: RunState, now: Instant) -> Progress:
    waits = _waits(graph, state, now)
    return Progress(
        run=state.run,
        name=state.name,
        workflow=graph.plan.name,
        status=status_of(graph, state, now),
        seq=state.seq,
        rows=tuple(_row(graph, state, s, waits.get(graph.name(s)), now) for s in range(len(state.steps))),
        started_at=state.started_at,
        now=max(now, state.at),
        ended_at=state.ended_at,
        error=state.error,
    )


def _row(graph: Graph, state: RunState, s: int, reason: Reason | None, now: Instant) -> Row:
    step = state.steps[s]
    status = shown_life(step)
    fault = step.fault if status == FAILED else None
    fan = step.fan if step.fan is not None else step.shown
    if fan is None:
        return Row(graph.name(s), status, step.visits, step.attempts, reason=reason, fault=fault)
    items = (fan.count, fan.done, fan.failed, fan.running, len(fan.retried), fan.skipped, fan.cancelled, has_more(fan))
    speed = pace(fan, now) if step.life == ISSUED else Pace()
    return Row(
        graph.name(s), status, step.visits, step.attempts, *items, speed.rate, speed.left, reason=reason, fault=fault
    )


class Pace(Struct, frozen=True):
    """The average speed of a loop: items per second, and how many seconds are left at this rate."""

    rate: float = 0.0
    left: float | None = None
    more: bool = False


def pace(fan: FanOut, now: Instant) -> Pace:
    done, took = fan.done - fan.before + fan.failed, (now - fan.since) / SECOND
    rate = done / took if done > 0 and took > 0 else 0.0
    more = has_more(fan)
    return Pace(rate, None if more or not rate else (fan.count - settled(fan)) / rate, more)


def has_more(fan: FanOut) -> bool:
    return fan.pulls is not None and fan.pulls.life not in (AT_END, BROKEN)


def _waits(graph: Graph, state: RunState, now: Instant) -> dict[str, Reason]:
    """Return why steps wait. A step with a command that a worker could run has no reason."""
    if len(state.open) > MANY:
        return {}
    reasons: dict[str, Reason] = {}
    busy: set[str] = set()
    for reason in of_commands(graph, state, now, World()):
        if reason.kind == "slot":
            busy.add(reason.step)
        else:
            reasons.setdefault(reason.step, reason)
    return {step: reason for step, reason in reasons.items() if step not in busy}
