"""Runs: lists of them, one by what people call it, and everything about one as JSON."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from msgspec import to_builtins

from refold.core import times
from refold.core.facts import RunTimedOut, StepFault
from refold.core.faults import fault_text
from refold.core.graph import Graph
from refold.core.outcomes import SECOND, Fault, Instant
from refold.core.read.loaded import Loaded
from refold.core.read.summary import Summary, pace, shown_steps, status_of
from refold.core.read.template_scope import LISTED, step_value
from refold.core.state import CANCELLED, COMPLETED, CONTINUED, FAILED, ISSUED, TERMINAL, FanOut, RunState
from refold.errors import Conflict, InvalidValue, NotFound
from refold.names import meant
from refold.ports import ALL_RUNS, RunCursor, RunFilter, Views
from refold.queries.reading import with_values

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


def part_of_runs(views: Views, wanted: RunFilter, limit: int, after: RunCursor | None = None) -> RunList:
    """The newest runs first, at most `limit` of them, after a place in the list."""
    if limit < 1:
        raise InvalidValue("limit", f"{limit} is not a number of runs")
    rows = list(list_runs(views, wanted, limit + 1, after))
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
        why = f"{value!r} is neither a moment such as 2026-01-31T12:00:00Z nor a span such as 2h, for that long ago"
        raise InvalidValue("time", why) from None


def _some(limit: int | None) -> int:
    return PAGE if limit is None else min(limit, PAGE)


class AmbiguousRun(Conflict):
    """The text may mean several runs; `rows` are the newest of them."""

    def __init__(self, text: str, rows: list[Summary]) -> None:
        super().__init__(f"{text!r} may mean several runs: {', '.join(row.run for row in rows)}; type one of these ids")
        self.text, self.rows = text, rows


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
    raise AmbiguousRun(text, named or rows)


def newest_run(views: Views) -> Summary:
    """The newest run that is not a child of another; else the newest of all."""
    rows = list(list_runs(views, limit=NEWEST))
    row = next((row for row in rows if not row.parent), None) or next(iter(rows), None)
    if row is None:
        raise NotFound("there are no runs yet")
    return row


def unfinished_run(views: Views) -> Summary:
    """The newest run that is not over and not a child of another."""
    for row in list_runs(views, limit=NEWEST):
        if row.status not in TERMINAL and not row.parent:
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
            if row.ended_at <= before and not _is_wanted(views, row):
                yield row


def _is_wanted(views: Views, row: Summary) -> bool:
    """Whether a run that started it, or that continues it, is not over."""
    needed = [views.summary(run) for run in (row.parent, row.successor) if run]
    return any(other is not None and other.status not in TERMINAL for other in needed)


def is_over(views: Views, run: str) -> bool:
    row = views.summary(run)
    return row is None or row.status in TERMINAL


def run_object(views: Views, graph: Graph, state: RunState, now: Instant) -> dict[str, Any]:
    """Return everything about a run as JSON: its status, each step with its result, and what it has used."""
    claimed = _claimed(views, state.run) if state.open else frozenset()
    at_work = {graph.name(opened.step) for command, opened in state.open.items() if command in claimed}

    def computed(loaded: Loaded) -> dict[str, Any]:
        result = loaded.blob(state.blob) if state.blob is not None else state.result
        steps = shown_steps(graph, state)
        for s, step in enumerate(state.steps):
            shown = steps[graph.name(s)]
            shown["result"] = _result(state, loaded, s) if step.done_at else None
            shown["error"] = fault_object(shown["error"])
            if step.fan is not None and (step.life == ISSUED or step.fan.done < step.fan.count):
                shown["items"] = _items(step.fan, now if step.life == ISSUED else step.fan.since)
            if shown["status"] == ISSUED and graph.name(s) in at_work:
                shown["status"] = "claimed"
        return {
            "id": state.run,
            "name": state.name,
            "workflow": graph.plan.name,
            "status": status_of(graph, state, now),
            "key": state.key,
            "labels": dict(state.labels),
            "continued_by": state.successor or None,
            "continues": state.predecessor or None,
            "result": result,
            "error": error_object(state.error),
            "steps": steps,
            "usage": dict(state.usage),
            "created_at": stamp(state.started_at),
            "ended_at": stamp(state.ended_at),
        }

    return with_values(views, state.run, computed)


def _items(fan: FanOut, now: Instant) -> dict[str, Any]:
    """Count a loop's items by their states; of a loop that is running, estimate how fast and how long."""
    speed = pace(fan, now)
    counts = {"count": fan.count, "completed": fan.done, "failed": fan.failed, "running": fan.running}
    others = {"skipped": fan.skipped, "cancelled": fan.cancelled, "more": speed.more}
    left = None if speed.left is None else round(speed.left, 1)
    return {**counts, **others, "rate": round(speed.rate, 3), "left": left}


def row_object(row: Summary) -> dict[str, Any]:
    """Return a line of the list as JSON."""
    return {
        "id": row.run,
        "name": row.name,
        "workflow": row.workflow,
        "status": row.status,
        "key": row.key,
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


def _claimed(views: Views, run: str) -> frozenset[str]:
    return frozenset(lease.command for lease in views.leases(run))
