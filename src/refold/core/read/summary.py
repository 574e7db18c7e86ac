"""The summary of a run, which lists show and stores keep in a row, and its progress: one row per step.

Progress is cheap enough to be computed for every change on a screen.
"""

from typing import Any

from msgspec import Struct

from refold.core.facts import StepFault
from refold.core.fold.fanout import settled
from refold.core.graph import Graph
from refold.core.outcomes import SECOND, Fault, Instant
from refold.core.plan import WorkerWork
from refold.core.read.why import Reason, WorkerView, of_commands
from refold.core.state import (
    AT_END,
    BROKEN,
    FAILED,
    ISSUED,
    PAUSED,
    RUNNING,
    WAITING,
    FanOut,
    OpenCommand,
    RunState,
    shown_life,
)


class Summary(Struct, frozen=True, omit_defaults=True, gc=False):
    """A row of a list of runs."""

    run: str  # its id, which is also called `id`, as that of a handle
    workflow: str  # the name of its workflow
    plan: str  # the hash of its workflow
    status: str  # running, waiting, paused, ending, completed, failed, cancelled or continued
    name: str = ""
    key: str = ""
    parent: str = ""  # the run that has started it and waits for it
    created_at: Instant = 0  # microseconds since 1970, UTC
    ended_at: Instant = 0  # 0: it has not ended
    seq: int = 0  # how many facts it has
    error: StepFault | None = None  # why it has failed: `step`, `visit`, `why`, and the `fault`
    gates: tuple[str, ...] = ()  # commands that wait for a person
    stuck: str = ""  # the internal error because of which nothing is decided; reports are kept meanwhile
    labels: dict[str, str] = {}
    successor: str = ""  # the run that continues this one

    @property
    def id(self) -> str:
        return self.run


def summarize(graph: Graph, state: RunState) -> Summary:
    return Summary(
        run=state.run,
        workflow=graph.plan.name,
        plan=state.plan,
        status=status_of(graph, state, state.at),
        name=state.name,
        key=state.key,
        parent=state.parent.run if state.parent is not None else "",
        created_at=state.started_at,
        ended_at=state.ended_at,
        seq=state.seq,
        error=state.error,
        gates=tuple(command for command, each in state.open.items() if each.step in graph.gates) if graph.gates else (),
        labels=state.labels,
        successor=state.successor,
    )


def status_of(graph: Graph, state: RunState, now: Instant) -> str:
    """Return the status of a run. It is waiting if something is open and no worker could run any of it now."""
    if state.paused:
        return PAUSED
    if state.life != RUNNING or not (state.open or state.requests):
        return state.life
    for each in reversed(state.open.values()):  # from the newest: the oldest end first and leave slow gaps
        if not waits(graph, each, now):
            return RUNNING
    return WAITING


def waits(graph: Graph, opened: OpenCommand, now: Instant) -> bool:
    """Whether no worker could execute a command now."""
    if not isinstance(graph.step(opened.step).work, WorkerWork) and not opened.page:
        return True
    return opened.held or opened.not_before > now


def shown_steps(graph: Graph, state: RunState) -> dict[str, dict[str, Any]]:
    """Return state, visits, attempts, result and error of each step."""
    shown = {}
    for s, step in enumerate(state.steps):
        shown[graph.name(s)] = {
            "status": shown_life(step),
            "visits": step.visits,
            "attempts": step.attempts,
            "result": step.result,
            "error": step.fault,
        }
    return shown


MANY = 1000  # with more open commands, the reasons for waiting are not computed


class StepProgress(Struct, frozen=True):
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
    rows: tuple[StepProgress, ...]
    started_at: Instant
    now: Instant
    ended_at: Instant = 0
    error: StepFault | None = None


def progress(graph: Graph, state: RunState, now: Instant) -> Progress:
    reasons = _waiting_steps(graph, state, now)
    return Progress(
        run=state.run,
        name=state.name,
        workflow=graph.plan.name,
        status=status_of(graph, state, now),
        seq=state.seq,
        rows=tuple(_row(graph, state, s, reasons.get(graph.name(s)), now) for s in range(len(state.steps))),
        started_at=state.started_at,
        now=max(now, state.at),
        ended_at=state.ended_at,
        error=state.error,
    )


def _row(graph: Graph, state: RunState, s: int, reason: Reason | None, now: Instant) -> StepProgress:
    step = state.steps[s]
    status = shown_life(step)
    fault = step.fault if status == FAILED else None
    fan = step.fan if step.fan is not None else step.shown
    if fan is None:
        return StepProgress(graph.name(s), status, step.visits, step.attempts, reason=reason, fault=fault)
    items = (fan.count, fan.done, fan.failed, fan.running, len(fan.retried), fan.skipped, fan.cancelled, has_more(fan))
    speed = pace(fan, now) if step.life == ISSUED else Pace()
    return StepProgress(
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


def _waiting_steps(graph: Graph, state: RunState, now: Instant) -> dict[str, Reason]:
    """Return why steps wait. A step with a command that a worker could run has no reason."""
    if len(state.open) > MANY:
        return {}
    reasons: dict[str, Reason] = {}
    busy: set[str] = set()
    for reason in of_commands(graph, state, now, WorkerView()):
        if reason.kind == "slot":
            busy.add(reason.step)
        else:
            reasons.setdefault(reason.step, reason)
    return {step: reason for step, reason in reasons.items() if step not in busy}
