"""Shows progress from a thread of its own: a terminal or pipe that takes nothing more never holds up the work."""

import sys
import threading
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Protocol

from msgspec import json

from refold.cli import out
from refold.cli.changes import Changes
from refold.cli.rows import PLAIN, PRETTY, Canvas, Glyphs, Meter, drawn, painted
from refold.cli.source import Source
from refold.core.progress import Progress

EVERY = 0.125  # seconds between two frames, at least
SHARE = 40  # and so many times as long as a frame takes
SLOWEST = 0.25
PATIENCE = 2.0  # seconds for the last frame
QUICK = 0.2  # seconds; a run that is over by then is drawn once


class Drawer(Protocol):
    """Raises OSError when nobody looks any more."""

    def draw(self, progress: Progress) -> None: ...

    def say(self, line: str) -> None: ...

    def end(self, progress: Progress | None) -> None:
        """The last frame, which stays."""


class Screen:
    """`show`, `say` and `close` return at once, or nearly so."""

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
        """The last frame is drawn, unless that takes too long."""
        self._latest = final
        self._over.set()
        self._ring()
        self._thread.join(PATIENCE)

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
            return  # nobody looks any more; the work goes on

    def _frame(self) -> float:
        """Returns how long to leave it at that, so that drawing takes a small share of the time."""
        began = perf_counter()
        while self._lines:
            self.drawer.say(self._lines.popleft())
        latest = self._latest
        if latest is not None and not self._over.is_set():
            self.drawer.draw(latest)
        return min(max(EVERY, SHARE * (perf_counter() - began)), SLOWEST)


class Silent:
    """Messages, and nothing else."""

    def draw(self, progress: Progress) -> None:
        pass

    def say(self, line: str) -> None:
        _write(line)

    def end(self, progress: Progress | None) -> None:
        pass


class Lines(Silent):
    """One line for each change."""

    def __init__(self, source: Source) -> None:
        self.changes = Changes(source)

    def draw(self, progress: Progress) -> None:
        for line in self.changes.lines(progress):
            _write(line)

    def end(self, progress: Progress | None) -> None:
        if progress is not None:
            self.draw(progress)


class JsonLines(Lines):
    """One object for each change, on a line."""

    def draw(self, progress: Progress) -> None:
        for each in self.changes.objects(progress):
            _write(json.encode(each).decode())

    def say(self, line: str) -> None:
        _write(json.encode({"message": line}).decode())


class Tree(Silent):
    """Rows that are drawn over and over in one place."""

    def __init__(self, source: Source) -> None:
        self.source, self.meter, self.began = source, Meter(), perf_counter()
        self._live: Drawer | None = None

    def draw(self, progress: Progress) -> None:
        if self._live is None:
            if perf_counter() - self.began < QUICK:
                return
            self._live = self._begun()
        self._live.draw(progress)

    def say(self, line: str) -> None:
        if self._live is None:
            _write(line)
        else:
            self._live.say(line)

    def end(self, progress: Progress | None) -> None:
        if self._live is not None:
            self._live.end(progress)
        elif progress is not None:
            canvas = Canvas(out.columns(sys.stderr), 0, glyphs(), self.source)
            _write(painted(drawn(progress, self.meter, canvas), out.has_colour(sys.stderr)))

    def _begun(self) -> Drawer:
        from refold.cli.live import Live

        return Live(self.meter, self.source, glyphs())


def glyphs() -> Glyphs:
    encoding = (sys.stderr.encoding or "").lower().replace("-", "") if sys.stderr is not None else ""
    return PRETTY if encoding.startswith("utf") else PLAIN


def screen(kind: str, quiet: bool, source: Source) -> Screen:
    if kind == "auto":
        kind = "none" if quiet else "tree" if out.has_cursor(sys.stderr) else "lines"
    drawers: dict[str, Callable[[], Drawer]] = {
        "tree": lambda: Tree(source),
        "lines": lambda: Lines(source),
        "json": lambda: JsonLines(source),
    }
    return Screen(drawers.get(kind, Silent)())


def _write(line: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
