"""Whether a run can continue now, or only people, signals, a later time or other workers can continue it."""

from collections.abc import Collection, Iterator, Sequence

from refold.core.read.summary import Summary
from refold.core.read.why import Reason, reasons
from refold.core.state import ENDING, PAUSED, RUNNING, TERMINAL, WAITING
from refold.errors import Corrupt, NotFound
from refold.ports import Abilities, RunFilter, Views
from refold.queries.reading import RunReader
from refold.queries.workers import world_of

MOVING = frozenset({"running", "slot", "backoff", "no_worker"})
"""Reasons that end without people, signals and timers: a body runs, or a worker takes the command, now or for its next
try. A command that only other workers could take (no_code, no_tool, no_queue) does not move here."""

PAGE = 200  # runs that are read together


def is_moving(reasons: Sequence[Reason]) -> bool:
    """Return whether a run with these reasons continues by itself. A run without reasons is about to."""
    return not reasons or any(each.kind in MOVING for each in reasons)


def moving_run(views: Views, here: Sequence[Abilities] = (), runs: Collection[str] | None = None) -> Summary | None:
    """Return a run that continues by itself, or None if every run has ended, is paused or waits.

    `here` are the workers of this process; `runs` are the runs to look at, None: all of the store. A run whose rows
    cannot be read does not count as moving: no worker can continue it.
    """
    for lease in views.leases():  # also of a paused run: what is running finishes
        if lease.is_alive and (runs is None or lease.run in runs):
            return views.summary(lease.run)
    rows = _unfinished(views) if runs is None else filter(None, map(views.summary, sorted(runs)))
    for row in rows:
        if row.stuck or row.status == PAUSED or row.status in TERMINAL:
            continue
        try:
            graph, state = RunReader(views, row.run).read()
        except (Corrupt, NotFound) as error:
            if isinstance(error, Corrupt):
                views.report(error)
            continue
        if is_moving(reasons(graph, state, views.now(), world_of(views, row, here))):
            return row
    return None


def _unfinished(views: Views) -> Iterator[Summary]:
    """Return the runs that may be moving. A run that waits is read only while commands wait for their next try."""
    statuses = [RUNNING, ENDING]
    if any(queue.waiting for queue in views.queues()):
        statuses.append(WAITING)
    for status in statuses:
        after, more = None, True
        while more:
            page = views.runs(RunFilter(status=status), after, PAGE)
            yield from page.rows
            after, more = page.after, page.more
