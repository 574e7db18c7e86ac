"""The tree, for terminals: a run that is over in a moment is drawn once, a longer one over and over."""

import sys
from time import perf_counter

from refold.cli import out
from refold.cli.drawers import Drawer, Silent, write
from refold.cli.rows import PLAIN, PRETTY, Canvas, Glyphs, Meter, drawn, painted
from refold.cli.source import Source
from refold.core.progress import Progress

QUICK = 1.0  # seconds: what it takes to load what draws is little beside that


class Tree(Silent):
    """Rows that are drawn over and over in one place."""

    def __init__(self, source: Source) -> None:
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
            canvas = Canvas(out.columns(sys.stderr), 0, glyphs(), self.source)
            write(painted(drawn(progress, self.meter, canvas), out.has_colour(sys.stderr)))

    def _begun(self) -> Drawer:
        from refold.cli.live import Live

        return Live(self.meter, self.source, glyphs())


def glyphs() -> Glyphs:
    encoding = (sys.stderr.encoding or "").lower().replace("-", "") if sys.stderr is not None else ""
    return PRETTY if encoding.startswith("utf") else PLAIN
