"""What has changed between two looks at a run: a line each, for where there is no terminal to draw on."""

from collections.abc import Iterator
from typing import Any

from msgspec import to_builtins

from refold.cli import out, words
from refold.cli.source import Source
from refold.core.faults import said
from refold.core.outcomes import SECOND
from refold.core.progress import Progress, Row

MANY = 20  # lines at once; more are counted
PACE = 2 * SECOND  # between two lines about one loop
SILENT = ("pending",)


class Changes:
    """Remembers what was said, so that each change is said once."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._status = ""
        self._said: dict[str, tuple[object, ...]] = {}
        self._loops: dict[str, int] = {}  # step -> when its counts were last told

    def rows(self, progress: Progress) -> list[Row]:
        """The steps that stand otherwise than when they were last told."""
        changed = []
        for row in progress.rows:
            mark = _mark(row)
            paced = row.count and row.status == "issued" and row.step in self._loops
            if paced and progress.now - self._loops[row.step] < PACE:
                continue
            if self._said.get(row.step) != mark:
                self._said[row.step] = mark
                if row.count:
                    self._loops[row.step] = progress.now
                if row.status not in SILENT and not _only_leads(row):
                    changed.append(row)
        return changed

    def lines(self, progress: Progress) -> Iterator[str]:
        if not self._status:
            self._status = "running"
            yield f"run {progress.name or progress.run} ({progress.run[:8]})"
        changed = self.rows(progress)
        for row in changed[:MANY]:
            yield from self._line(row, progress)
        if len(changed) > MANY:
            yield f"… and {len(changed) - MANY} more steps changed"
        if progress.status != self._status:
            self._status = progress.status
            yield self._of_run(progress)

    def objects(self, progress: Progress) -> Iterator[dict[str, Any]]:
        """The same for machines."""
        where = {"at": words.stamp(progress.now), "run": progress.run}
        for row in self.rows(progress):
            shown = {**to_builtins(row), "reason": row.reason.kind if row.reason is not None else None}
            yield {**where, **{key: value for key, value in shown.items() if value not in (None, 0)}}
        if progress.status != self._status:
            self._status = progress.status
            yield {**where, "status": progress.status}

    def _line(self, row: Row, progress: Progress) -> Iterator[str]:
        visit = f" (visit {row.visits})" if row.visits > 1 else ""
        yield f"{out.printable(row.step)}: {_words(row, progress)}{visit}"
        if row.status == "failed":
            yield from ("    " + text for text in self.source.of_step(row.step))

    def _of_run(self, progress: Progress) -> str:
        name = progress.name or progress.run
        if not progress.ended_at:
            return f"run {name}: {progress.status}"
        return f"run {name}: {progress.status} after {words.took(progress.started_at, progress.ended_at)}"


def _only_leads(row: Row) -> bool:
    """A step that a block is made of, where nothing is ever done."""
    return "." in row.step and row.status in ("bypassed", "skipped")


def _mark(row: Row) -> tuple[object, ...]:
    waits = row.reason.kind if row.reason is not None else None
    return row.status, row.visits, waits, row.attempts if not row.count else None, row.done, row.failed


def _speed(row: Row) -> str:
    left = "" if row.left is None else f", {words.span(row.left)} left"
    return f", {row.rate:.3g} per second{left}" if row.rate else ""


def _words(row: Row, progress: Progress) -> str:
    over = row.done + row.failed + row.skipped + row.cancelled
    counts = f" {over}/{row.count}{'+' if row.more else ''} items" if row.count else ""
    counts += f", {row.failed} failed" if row.count and row.failed else ""
    match row.status:
        case "issued" | "entered" if row.reason is not None:
            return words.why(row.reason, progress.now) + counts
        case "issued" | "entered":
            again = row.attempts and row.visits == 1 and not row.count
            return (f"try {row.attempts + 1}" if again else "started") if not counts else counts.strip() + _speed(row)
        case "failed":
            fault = row.fault
            why = f": {out.printable(said(fault).strip())}" if fault is not None else ""
            return f"failed{counts}{why}"
        case _:
            return row.status + counts
