"""Shows progress from a thread of its own: a terminal or pipe that takes nothing more never holds up the work."""

import sys
import threading
from collections import deque
from collections.abc import Callable
from time import perf_counter

from refold.cli import out
from refold.cli.drawers import Drawer, JsonLines, Lines, Silent
from refold.cli.source import Source
from refold.core.progress import Progress

EVERY = 0.125  # seconds between two frames, at least
SHARE = 40  # and so many times as long as a frame takes
SLOWEST = 0.25
PATIENCE = 1.0  # seconds for the last frame


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
        """The last frame is drawn, unless that takes too long; then nothing more is said there at all."""
        if self._over.is_set():
            return
        self._latest = final
        self._over.set()
        self._ring()
        self._thread.join(PATIENCE)
        if self._thread.is_alive():
            sys.stderr = None  # whoever writes there would wait too

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


DRAWERS: dict[str, Callable[[Source], Drawer]] = {"lines": Lines, "json": JsonLines, "none": Silent}


def screen(kind: str, quiet: bool, source: Source) -> Screen:
    if kind == "auto":
        kind = "none" if quiet else "tree" if out.has_cursor(sys.stderr) else "lines"
    return Screen(_tree(source) if kind == "tree" else DRAWERS[kind](source))


def _tree(source: Source) -> Drawer:
    from refold.cli.tree import Tree

    return Tree(source)
