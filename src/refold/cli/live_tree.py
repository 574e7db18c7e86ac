"""The tree on a terminal, drawn over and over in one place; imported only when there is something to draw."""

import sys

from rich.console import Console
from rich.live import Live as RichLive
from rich.text import Text

from refold.cli import output
from refold.cli.tree import Canvas, Glyphs, Line, Meter, PlaybookLines, drawn
from refold.core.read.summary import Progress

ENDED = 60  # rows of the last frame, at most


class Terminal(Console):
    """Leaves the cursor visible: a process that is killed cannot bring it back."""

    def show_cursor(self, show: bool = True) -> bool:
        return False


class LiveTree:
    def __init__(self, meter: Meter, source: PlaybookLines, glyphs: Glyphs) -> None:
        self.meter, self.source, self.glyphs = meter, source, glyphs
        self.has_styles = output.has_colour(sys.stderr)
        self.console = Terminal(stderr=True, highlight=False, no_color=not self.has_styles, force_terminal=True)
        self.live = RichLive(
            console=self.console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        self.live.start()

    def draw(self, progress: Progress) -> None:
        self.meter.note(progress)
        self._update(progress, self.console.height)

    def say(self, line: str) -> None:
        self.console.print(Text(output.spelt_out(line)), soft_wrap=True)

    def end(self, progress: Progress | None) -> None:
        if progress is not None:
            self.live.vertical_overflow = "visible"
            self._update(progress, ENDED)
        self.live.stop()

    def _update(self, progress: Progress, height: int) -> None:
        canvas = Canvas(output.columns(sys.stderr), height, self.glyphs, self.source)  # COLUMNS may be long out of date
        rows = [self._text(line) for line in drawn(progress, self.meter, canvas)]
        self.live.update(Text("\n", no_wrap=True, overflow="crop").join(rows), refresh=True)

    def _text(self, line: Line) -> Text:
        pieces = [(output.spelt_out(text), style if self.has_styles else "") for text, style in line]
        return Text.assemble(*pieces, no_wrap=True, overflow="crop")
