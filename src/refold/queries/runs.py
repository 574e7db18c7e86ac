"""Runs: lists of them, one by what people call it, and everything about one as JSON."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from msgspec import to_builtins

from refold.core import times
from refold.core.facts import RunTimedOut, StepFault
from refold.core.faults import fault_text
from refold.core.fold.fanout import ITEMS_FAILED, failed_items
from refold.core.graph import Graph
from refold.core.outcomes import SECOND, Fault, Instant, fault_of_outcome
from refold.core.plan import WorkerWork
from refold.core.read.loaded import Loaded, key_of
from refold.core.read.step_times import StepTimes, step_times
from refold.core.read.summary import Summary, pace, shown_steps, status_of, waits
from refold.core.read.template_scope import LISTED, outcomes_of, step_value
from refold.core.state import (
    BYPASSED,
    CANCELLED,
    COMPLETED,
    CONTINUED,
    ENTERED,
    FAILED,
    ISSUED,
    RUNNING,
    TERMINAL,
    FanOut,
    RunState,
    shown_life,
)
from refold.errors import Conflict, InvalidValue, NotFound
from refold.names import meant
from refold.ports import ALL_RUNS, Leased, RunCursor, RunFilter, Views
from refold.queries.reading import with_values

STATUSES = ("running", "waiting", "paused", "ending", "completed", "failed", "cancelled", "continued")
CANDIDATES = 10  # that are named when a text may mean several runs
SHORTEST = 6  # characters of an id that are enough to change its run
NEWEST = 1000  # runs among which a mistyped name is looked for
PAGE = 1000  # rows read at once


def stamp(at: Instant) -> str | None:
    """Return a moment as text for machines; None for what has not happened."""
    return times.stamp(at) if at else None


def run_label(row: Summary) -> str:
    """What to type to mean this run."""
    return row.name or row.run


def list_runs(
    views: Views, wanted: RunFilter = ALL_RUNS, limit: int | None = None, after: RunCursor | None = None
) -> Iterator[Summary]:
    """The newest runs first, all of them without a limit, from the beginning or after a place in the list."""
    page, left = views.runs(wanted, after, _some(limit)), limit
    while True:
        yield from page.rows
        left = None if left is None else left - len(page.rows)
        if not page.more or left == 0:
            return
        page = views.runs(wanted, page.after, _some(left))


class RunList(list[Summary]):
    """A part of the list of runs. `cursor` is where the next part begins; empty: there are no more runs."""

    def __init__(self, rows: Iterable[Summary], cursor: str = "") -> None:
        super().__init__(rows)
        self.cursor = cursor


def part_of_runs(
    views: Views,
    wanted: RunFilter,
    limit: int,
    after: RunCursor | None = None,
    keep: Callable[[Summary], bool] | None = None,
) -> RunList:
    """The newest runs first, at most `limit` of them, after a place in the list; with `keep` only some of them."""
    if limit < 1:
        raise InvalidValue("limit", f"{limit} is not a number of runs")
    if keep is None:
        rows = list(list_runs(views, wanted, limit + 1, after))
    else:
        rows = list(islice(filter(keep, list_runs(views, wanted, after=after)), limit + 1))
    if len(rows) <= limit:
        return RunList(rows)
    last = rows[limit - 1]
    return RunList(rows[:limit], f"{last.created_at}-{last.run}")


def read_cursor(text: str) -> RunCursor | None:
    """Raises InvalidValue."""
    at, sign, run = text.partition("-")
    if text and not (sign and at.isascii() and at.isdigit()):
        raise InvalidValue("cursor", f"{text!r} is not the cursor of a list of runs")
    return (int(at), run) if text else None


Moment = datetime | str | int | float
"""A datetime with a zone, an ISO text with a zone, seconds since 1970, or a span such as "2h" for that long ago."""


def moment(value: Moment | None, now: Instant) -> Instant | None:
    """Raises InvalidValue."""
    if value is None:
        return None
    try:
        return times.instant(value.isoformat() if isinstance(value, datetime) else value)
    except (ValueError, OverflowError) as error:
        if not isinstance(value, str):
            raise InvalidValue("time", f"{value!r} is not a moment: {error}") from None
    try:
        return now - round(times.seconds(value) * SECOND)
    except InvalidValue:
        why = f"{value!r} is neither a moment such as 2026-01-31T12:00:00Z nor a span before now such as 2h"
        raise InvalidValue("time", why) from None


def _some(limit: int | None) -> int:
    return PAGE if limit is None else min(limit, PAGE)


class AmbiguousRun(Conflict):
    """The text may mean several runs; `rows` are the newest of them."""

    def __init__(self, text: str, rows: list[Summary], held: frozenset[str] = frozenset()) -> None:
        super().__init__(f"{text!r} may mean several runs: {', '.join(row.run for row in rows)}; type one of these ids")
        self.text, self.rows = text, rows
        self.statuses = [shown_status(row.status, row.run in held) for row in rows]  # as people read them


def find_run(views: Views, text: str | None, changes: bool = False) -> Summary:
    """Find a run by its id, its name, or the beginning of its id; without a text the newest.

    A name that several runs have means the newest of them, unless the caller `changes` the run: then it must be clear
    which one is meant, and the beginning of an id has at least SHORTEST characters.
    """
    if text is None:
        return newest_run(views)
    exact = views.summary(text) if text else None
    if exact is not None:
        return exact
    rows = list(views.called(text, limit=CANDIDATES + 1)) if text else []
    named = [row for row in rows if row.name == text]
    if named and (len(named) == 1 or not changes):
        return named[0]
    if changes and rows and not named and len(text) < SHORTEST:
        raise Conflict(
            f"{text!r} is too short to change a run by it: type its name, or {SHORTEST} characters of its id"
        )
    if len(rows) == 1:
        return rows[0]
    if not rows:
        raise NotFound(_no_such_run(views, text))
    raise AmbiguousRun(text, named or rows, held_runs(views))


def newest_run(views: Views) -> Summary:
    """The newest run that is not a child of another; else the newest of all."""
    row = next(list_runs(views, RunFilter(parent=""), 1), None) or next(list_runs(views, limit=1), None)
    if row is None:
        raise NotFound("there are no runs yet")
    return row


def unfinished_run(views: Views) -> Summary:
    """The newest run that is not over and not a child of another."""
    for row in list_runs(views, RunFilter(parent=""), NEWEST):
        if row.status not in TERMINAL:
            return row
    raise NotFound("every run is over")


def _no_such_run(views: Views, text: str) -> str:
    rows = list_runs(views, limit=NEWEST)
    guess = meant(text, (name for row in rows for name in (row.name, row.run) if name))
    hint = f"did you mean {guess}?" if guess else "`refold runs list` shows them"
    return f"there is no run {text!r}; {hint}"


def ancestors(views: Views, row: Summary) -> Iterator[Summary]:
    """The run that started this one, the run that started that one, and so on."""
    parent = views.summary(row.parent) if row.parent else None
    while parent is not None:
        yield parent
        parent = views.summary(parent.parent) if parent.parent else None


def with_started(views: Views, row: Summary) -> list[Summary]:
    """Return the run, the runs that it started, and the runs that those started, as far as they still exist.

    Reads the whole list of runs: the log of a run does not name the runs that it started and did not wait for.
    """
    children: dict[str, list[Summary]] = {}
    for each in list_runs(views):
        if each.parent:
            children.setdefault(each.parent, []).append(each)
    family = [row]
    for each in family:  # grows meanwhile
        family += children.get(each.run, [])
    return family


def removable_runs(views: Views, before: Instant) -> Iterator[Summary]:
    """Runs that ended before a moment and whose parent, if there is one, is over."""
    for status in (COMPLETED, FAILED, CANCELLED, CONTINUED):
        for row in list_runs(views, RunFilter(status)):
            if row.ended_at <= before and not is_wanted(views, row):
                yield row


def is_wanted(views: Views, row: Summary) -> bool:
    """Whether a run that started it, or that continues it, is not over."""
    needed = [views.summary(run) for run in (row.parent, row.successor) if run]
    return any(other is not None and other.status not in TERMINAL for other in needed)


def is_over(views: Views, run: str) -> bool:
    row = views.summary(run)
    return row is None or row.status in TERMINAL


QUEUED = "queued"  # the status of what a worker could execute and none does


def shown_status(status: str, is_held: bool) -> str:
    """Return the status of a run for people: it is running only while a worker executes a command of it."""
    return QUEUED if status == RUNNING and not is_held else status


def held_runs(views: Views) -> frozenset[str]:
    """Return the runs of which a live worker executes something."""
    return frozenset(lease.run for lease in views.leases() if lease.is_alive)


def run_object(views: Views, graph: Graph, state: RunState, now: Instant) -> dict[str, Any]:
    """Return everything about a run as JSON: its status, each step with its times and its result, the runs that its
    steps have started, and what it has used."""
    leases = {each.command: each for each in views.leases(state.run) if each.is_alive} if state.open else {}
    held, times = list(leases.values()), step_times(views.facts(state.run))
    statuses = _step_statuses(graph, state, leases, now)

    def computed(loaded: Loaded) -> dict[str, Any]:
        result = loaded.blob(state.blob) if state.blob is not None else state.result
        steps = shown_steps(graph, state)
        for s, step in enumerate(state.steps):
            name = graph.name(s)
            shown = steps[name]
            shown["status"] = statuses[s]
            shown["result"] = _result(state, loaded, s) if step.done_at else None
            shown["error"] = _error_of(graph, state, loaded, s, shown["error"])
            if step.fan is not None and (step.life == ISSUED or step.fan.done < step.fan.count):
                shown["items"] = _items(step.fan, now if step.life == ISSUED else step.fan.since)
                shown["items"] |= _at_work(graph, step.fan, s, leases)
            shown |= _lane(graph, state, s)
            shown |= _times(times.get(name), step.life, [each for each in held if _is_of(each.command, name)])
        return {
            "id": state.run,
            "name": state.name,
            "workflow": graph.plan.name,
            "status": shown_status(status_of(graph, state, now), bool(leases)),
            "key": state.key,
            "labels": dict(state.labels),
            "parent": state.parent.run if state.parent is not None else None,
            "cancel_reason": state.cancel_reason or None,
            "continued_by": state.successor or None,
            "continues": state.predecessor or None,
            "result": result,
            "error": error_object(state.error),
            "steps": steps,
            "usage": dict(state.usage),
            "queueing": to_builtins(state.queueing),
            "created_at": stamp(state.started_at),
            "ended_at": stamp(state.ended_at),
        }

    return with_values(views, state.run, computed)


def _lane(graph: Graph, state: RunState, s: int) -> dict[str, Any]:
    """What a step says of queue, priority, share and limit. An expression is shown as it is written, unless the step is
    open and has its value."""
    step, name = graph.step(s), graph.name(s)
    opened = state.open.get(f"{name}/{state.steps[s].visits}")
    said = {"queue": step.queue or None, "priority": step.priority, "share": step.share, "limit": step.limit}
    if opened is not None:
        said |= {"share": opened.share or step.share, "limit": opened.limit or step.limit}
    return {key: value for key, value in said.items() if value is not None}


SHOWN_LIVES = {ENTERED: "waiting", BYPASSED: "skipped"}  # words for people, where the engine has others


def _step_statuses(graph: Graph, state: RunState, leases: Mapping[str, Leased], now: Instant) -> list[str]:
    """Return the status of each step. One that is open is running if a worker executes it, queued if a worker could,
    and waiting otherwise."""
    statuses = [SHOWN_LIVES.get(life, life) for life in map(shown_life, state.steps)]
    ranks = ("waiting", QUEUED, "running")
    best: dict[int, int] = {}
    for command, opened in state.open.items():
        rank = 2 if command in leases else 0 if waits(graph, opened, now) else 1
        best[opened.step] = max(best.get(opened.step, 0), rank)
    for s, step in enumerate(state.steps):
        if step.life == ISSUED:
            statuses[s] = ranks[best.get(s, 0)]
    return statuses


def _error_of(graph: Graph, state: RunState, loaded: Loaded, s: int, fault: Fault | None) -> dict[str, Any] | None:
    """Return why a step failed; of a list loop with its first failed item. A step that completed, or that is visited
    again, has no error."""
    step = state.steps[s]
    if fault is None or shown_life(step) not in (FAILED, CANCELLED):
        return None
    found = fault_object(fault)
    if found is not None and fault.kind == ITEMS_FAILED and step.fan is not None and step.fan.failed:
        item = failed_items(step.fan)[0]
        outcome = outcomes_of(step.fan, loaded, [item])[item]
        first = fault_of_outcome(outcome) if outcome is not None else None
        found["first"] = {"item": item, "key": key_of(step.fan, loaded, item) or None, "error": fault_object(first)}
    return found


def _at_work(graph: Graph, fan: FanOut, s: int, leases: Mapping[str, Leased]) -> dict[str, int]:
    """Return how many items are running, and how many wait for a worker. Items that are runs of their own are all
    running."""
    if not isinstance(graph.step(s).work, WorkerWork):
        return {"running": fan.running, "queued": 0}
    claimed = sum(_is_of(command, graph.name(s)) for command in leases)
    return {"running": min(claimed, fan.running), "queued": max(fan.running - claimed, 0)}


def _is_of(command: str, step: str) -> bool:
    return command.partition("/")[0] == step


def _times(times: StepTimes | None, life: str, leases: Sequence[Leased]) -> dict[str, Any]:
    """Return when the last visit of a step began and ended, and how many seconds it took."""
    if times is None:
        return {"began_at": None, "ended_at": None, "seconds": None}
    if life in (ISSUED, ENTERED):
        claimed = min((each.claimed_at for each in leases), default=0)
        return {"began_at": stamp(times.began_at or claimed), "ended_at": None, "seconds": None}
    seconds = times.seconds()
    rounded = None if seconds is None else round(seconds, 3)
    return {"began_at": stamp(times.began_at), "ended_at": stamp(times.ended_at), "seconds": rounded}


def _items(fan: FanOut, now: Instant) -> dict[str, Any]:
    """Count a loop's items by their states; of a loop that is running, estimate how fast and how long."""
    speed = pace(fan, now)
    counts = {"count": fan.count, "completed": fan.done, "failed": fan.failed, "running": fan.running}
    others = {"skipped": fan.skipped, "cancelled": fan.cancelled, "more": speed.more}
    left = None if speed.left is None else round(speed.left, 1)
    return {**counts, **others, "rate": round(speed.rate, 3), "left": left}


def row_object(row: Summary, status: str = "") -> dict[str, Any]:
    """Return a line of the list as JSON. `status`: that for people."""
    return {
        "id": row.run,
        "name": row.name,
        "workflow": row.workflow,
        "status": status or row.status,
        "key": row.key,
        "parent": row.parent or None,
        "labels": dict(row.labels),
        "continued_by": row.successor or None,
        "created_at": stamp(row.created_at),
        "ended_at": stamp(row.ended_at),
    }


def error_object(error: StepFault | None) -> dict[str, Any] | None:
    """Return where a run failed, and what was wrong there."""
    if error is None:
        return None
    where = {"step": error.step or None, "visit": error.visit, "why": error.why}
    return {**where, **(fault_object(error.fault) or {"kind": "run", "message": error.why})}


def fault_object(fault: Fault | None) -> dict[str, Any] | None:
    if fault is None:
        return None
    return {"kind": fault.kind, "message": fault.message, **to_builtins(fault)}


def error_text(error: StepFault) -> str:
    """Return on one line what failed, and where."""
    why = fault_text(error.fault) if error.fault is not None else error.why
    return f"step {error.step}: {why}" if error.step else why


def is_timed_out(views: Views, state: RunState) -> bool:
    """Whether the run failed because its own time limit passed."""
    if state.error is None or state.error.step:
        return False
    return any(isinstance(fact, RunTimedOut) for _, _, fact in views.facts(state.run))


def _result(state: RunState, loaded: Loaded, s: int) -> Any:
    """Return the result of a step; that of a loop is the list of its items' results."""
    value, fan = step_value(state, loaded, s), state.steps[s].shown
    if fan is None:
        return value
    return value["results"] if fan.count <= LISTED else {"stats": value["stats"]}
