"""Shows the progress of a run on stderr: as a tree on a terminal, or as a line or JSON object for each change."""

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any, Protocol

from msgspec import json, to_builtins

from refold.cli import output, words
from refold.cli.settings import loaded
from refold.cli.tree import PLAIN, PRETTY, Canvas, Glyphs, Meter, PlaybookLines, code_line, drawn, painted
from refold.core.faults import fault_text
from refold.core.outcomes import SECOND
from refold.core.read.summary import Progress, StepProgress
from refold.core.state import RUNNING, WAITING
from refold.queries.runs import error_text

MANY = 20  # lines shown together; further changes are only counted
PACE = 2 * SECOND  # between two lines about one loop
SILENT = ("pending",)
STATUSES = {"issued": "started", "entered": "started", "bypassed": "skipped"}  # what machines read of steps


class Changes:
    """Remembers what was shown, so that each change is shown once."""

    def __init__(self, source: PlaybookLines) -> None:
        self.source = source
        self._status = ""
        self._said: dict[str, tuple[object, ...]] = {}
        self._loops: dict[str, int] = {}  # step -> when its counts were last shown

    def rows(self, progress: Progress) -> list[StepProgress]:
        """Return the steps that have changed since they were last shown."""
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
            if not changed or progress.status not in (RUNNING, WAITING):  # the lines of the steps say it
                yield self._of_run(progress)

    def objects(self, progress: Progress) -> Iterator[dict[str, Any]]:
        """Yield the changes as JSON objects."""
        where = {"at": words.stamp(progress.now), "run": progress.run}
        for row in self.rows(progress):
            shown = {**to_builtins(row), "reason": row.reason.kind if row.reason is not None else None}
            shown |= {"status": STATUSES.get(row.status, row.status), "error": shown.pop("fault")}
            yield {**where, **{key: value for key, value in shown.items() if value not in (None, 0)}}
        if progress.status != self._status:
            self._status = progress.status
            yield {**where, "status": progress.status}

    def _line(self, row: StepProgress, progress: Progress) -> Iterator[str]:
        visit = f" (visit {row.visits})" if row.visits > 1 else ""
        yield f"{output.printable(row.step)}: {_words(row, progress)}{visit}"
        if row.status == "failed":
            if row.fault is not None and (code := code_line(row.fault)):
                yield f"    {code}"
            yield from ("    " + text for text in self.source.of_step(row.step))

    def _of_run(self, progress: Progress) -> str:
        name = progress.name or progress.run
        if not progress.ended_at:
            return f"run {name}: {progress.status}"
        took = words.took(progress.started_at, progress.ended_at)
        error = progress.error
        why = f": {output.printable(error_text(error))}" if error is not None and not error.step else ""
        return f"run {name}: {progress.status} after {took}{why}"


def _only_leads(row: StepProgress) -> bool:
    """Whether it is a generated step of a block that did no work."""
    return "." in row.step and row.status in ("bypassed", "skipped")


def _mark(row: StepProgress) -> tuple[object, ...]:
    waits = row.reason.kind if row.reason is not None else None
    return row.status, row.visits, waits, row.attempts if not row.count else None, row.done, row.failed


def _speed(row: StepProgress) -> str:
    left = "" if row.left is None else f", {words.span(row.left)} left"
    return f", {row.rate:.3g} per second{left}" if row.rate else ""


def _words(row: StepProgress, progress: Progress) -> str:
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
            why = f": {output.printable(fault_text(fault).strip())}" if fault is not None else ""
            return f"failed{counts}{why}"
        case _:
            return row.status + counts


class Drawer(Protocol):
    """Draws progress on stderr. Its methods raise OSError when stderr has been closed."""

    def draw(self, progress: Progress) -> None: ...

    def say(self, line: str) -> None: ...

    def end(self, progress: Progress | None) -> None:
        """Draw the last frame, which stays on the screen."""


class Silent:
    """Shows messages and no progress."""

    def __init__(self, source: PlaybookLines) -> None:
        self.source = source

    def draw(self, progress: Progress) -> None:
        pass

    def say(self, line: str) -> None:
        write(line)

    def end(self, progress: Progress | None) -> None:
        pass


class TextProgress(Silent):
    """Prints a line for each change."""

    def __init__(self, source: PlaybookLines) -> None:
        super().__init__(source)
        self.changes = Changes(source)

    def draw(self, progress: Progress) -> None:
        for line in self.changes.lines(progress):
            write(line)

    def end(self, progress: Progress | None) -> None:
        if progress is not None:
            self.draw(progress)


class JsonProgress(TextProgress):
    """Prints a JSON object for each change, each on one line."""

    def draw(self, progress: Progress) -> None:
        for each in self.changes.objects(progress):
            _write(output.spelt_out_json(json.encode(each).decode()))

    def say(self, line: str) -> None:
        _write(output.spelt_out_json(json.encode({"message": line}).decode()))


def write(line: str) -> None:
    _write(output.spelt_out(line))


def _write(line: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


QUICK = 1.0  # seconds: shorter runs are drawn once, without loading rich


class Tree(Silent):
    """Draws the rows again and again in one place of the terminal."""

    def __init__(self, source: PlaybookLines) -> None:
        super().__init__(source)
        self.meter, self.began = Meter(), perf_counter()
        self._live: Drawer | None = None

    def draw(self, progress: Progress) -> None:
        if self._live is None:
            if perf_counter() - self.began < QUICK:
                return
            self._live = self._begun()
        self._live.draw(progress)

    def say(self, line: str) -> None:
        if self._live is None:
            write(line)
        else:
            self._live.say(line)

    def end(self, progress: Progress | None) -> None:
        if self._live is not None:
            self._live.end(progress)
        elif progress is not None:
            canvas = Canvas(output.columns(sys.stderr), 0, glyphs(), self.source)
            write(painted(drawn(progress, self.meter, canvas), output.has_colour(sys.stderr)))

    def _begun(self) -> Drawer:
        from refold.cli.live_tree import LiveTree

        return LiveTree(self.meter, self.source, glyphs())


def glyphs() -> Glyphs:
    encoding = (sys.stderr.encoding or "").lower().replace("-", "") if sys.stderr is not None else ""
    return PRETTY if encoding.startswith("utf") else PLAIN


EVERY = 0.125  # seconds between two frames, at least
SHARE = 40  # and at least this many times as long as drawing a frame took
SLOWEST = 0.25
PATIENCE = 1.0  # seconds for the last frame


class Screen:
    """Draws in a thread of its own. `show` and `say` return immediately; `close` waits at most PATIENCE seconds."""

    def __init__(self, drawer: Drawer) -> None:
        self.drawer = drawer
        self._latest: Progress | None = None
        self._lines: deque[str] = deque()
        self._wake, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="refold-progress", daemon=True)

    def show(self, progress: Progress) -> None:
        self._latest = progress
        self._ring()

    def say(self, line: str) -> None:
        self._lines.append(line)
        self._ring()

    def close(self, final: Progress | None = None) -> None:
        """Draw the last frame. If that takes too long, nothing more is written to stderr."""
        if self._over.is_set():
            return
        self._latest = final
        self._over.set()
        self._ring()
        self._thread.join(PATIENCE)
        if self._thread.is_alive():
            sys.stderr = None  # any other write to it would block too

    def _ring(self) -> None:
        self._wake.set()
        if self._thread.ident is None:
            self._thread.start()

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self._wake.wait()
                self._wake.clear()
                self._over.wait(self._frame())
            self._frame()
            self.drawer.end(self._latest)
        except OSError:
            return  # stderr is closed; the run continues

    def _frame(self) -> float:
        """Draw, and return how long to wait until the next frame, so that drawing takes a small share of the time."""
        began = perf_counter()
        while self._lines:
            self.drawer.say(self._lines.popleft())
        latest = self._latest
        if latest is not None and not self._over.is_set():
            self.drawer.draw(latest)
        return min(max(EVERY, SHARE * (perf_counter() - began)), SLOWEST)


DRAWERS: dict[str, Callable[[PlaybookLines], Drawer]] = {"lines": TextProgress, "json": JsonProgress, "none": Silent}


def screen(kind: str, quiet: bool, source: PlaybookLines) -> Screen:
    if kind == "auto":
        whole = output.has_cursor(sys.stderr) and not loaded().prints_log  # log lines would break the tree
        kind = "none" if quiet else "tree" if whole else "lines"
    return Screen(_tree(source) if kind == "tree" else DRAWERS[kind](source))


def _tree(source: PlaybookLines) -> Drawer:

    return Tree(source)
