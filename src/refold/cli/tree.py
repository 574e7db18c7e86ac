"""Progress as rows of a tree: one per step, with bar and counts of a loop, the reason of a wait, a failure's error."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from refold.cli import output, words
from refold.core.faults import fault_text
from refold.core.outcomes import SECOND, Fault, Instant
from refold.core.read.summary import Progress, StepProgress

Line = list[tuple[str, str]]
"""Pieces of text with their styles."""


class PlaybookLines(Struct, frozen=True):
    """The text of a playbook, to show a line of it next to an error; `places` has paths such as `steps.fetch`."""

    file: str = ""
    lines: Sequence[str] = ()
    places: Mapping[str, tuple[int, int]] = {}

    def of_step(self, step: str) -> list[str]:
        """Return the position of a step and its line; nothing if the playbook is not at hand."""
        place = self.places.get(f"steps.{step}")
        if place is None:
            return []
        line, column = place
        shown = [f"{self.file}:{line}:{column}"]
        if 0 < line <= len(self.lines):
            shown.append(f"{line} | {output.printable(self.lines[line - 1].rstrip())}")
        return shown


NO_PLAYBOOK = PlaybookLines()


def code_line(fault: Fault) -> str:
    """Return the line of a step's code that failed, if the fault says it."""
    if isinstance(fault.data, dict) and "source" in fault.data and "line" in fault.data:
        return f"line {fault.data['line']}: {output.printable(str(fault.data['source']))}"
    return ""


class Glyphs(NamedTuple):
    completed: str
    failed: str
    waiting: str
    pending: str
    skipped: str
    busy: str
    full: str
    empty: str
    dot: str


PRETTY = Glyphs("✓", "✗", "◌", "·", "-", "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "█", "░", "·")
PLAIN = Glyphs("+", "x", "~", ".", "-", "|/-\\", "#", "-", ",")

STYLES = {"completed": "green", "failed": "red", "cancelled": "red", "paused": "yellow", "waiting": "yellow"}
WINDOW = 5 * SECOND  # the rate of a loop is measured over this time
NAMES = 28  # columns for the names of steps, at most
BAR = 20  # columns
FRAMES = 8  # frames of a spinner per second


class Meter:
    """Measures the speed of each loop from the progress that was shown."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], deque[tuple[Instant, int]]] = {}

    def note(self, progress: Progress) -> None:
        for row in progress.rows:
            if row.count and row.status == "issued":
                samples = self._seen.setdefault((row.step, row.visits), deque())
                samples.append((progress.now, row.done + row.failed + row.skipped + row.cancelled))
                while samples[-1][0] - samples[0][0] > WINDOW and len(samples) > 2:
                    samples.popleft()

    def rate(self, row: StepProgress) -> float | None:
        """Return the items per second; None if there are too few measurements."""
        samples = self._seen.get((row.step, row.visits))
        if not samples or samples[-1][0] - samples[0][0] < SECOND // 2:
            return None
        return (samples[-1][1] - samples[0][1]) * SECOND / (samples[-1][0] - samples[0][0])


class Canvas(Struct, frozen=True):
    """Size and style of a drawing; a height of 0 means no limit."""

    width: int = 80
    height: int = 0
    glyphs: Glyphs = PRETTY
    source: PlaybookLines = NO_PLAYBOOK


def drawn(progress: Progress, meter: Meter, canvas: Canvas) -> list[Line]:
    """Return all lines, each at most as wide as the canvas."""
    names = min(max((output.cells(row.step) for row in progress.rows), default=0), NAMES, max(canvas.width // 2, 6))
    chosen, left_out = _chosen(progress.rows, canvas.height - 2 if canvas.height else 0)
    lines = [_head(progress)]
    for row in chosen:
        lines.extend(_lines_of(row, progress, meter, canvas, names))
    if left_out:
        lines.append([(_counted(left_out), "dim")])
    if canvas.height:
        lines = lines[: canvas.height - 1]
    return [_cut(line, canvas.width) for line in lines]


def _head(progress: Progress) -> Line:
    name = output.printable(progress.name or progress.run)
    passed = words.took(progress.started_at, progress.ended_at or progress.now)
    return [(name, "bold"), ("  ", ""), (progress.status, STYLES.get(progress.status, "cyan")), (f"  {passed}", "dim")]


def _chosen(rows: Sequence[StepProgress], height: int) -> tuple[list[StepProgress], list[StepProgress]]:
    """Choose the rows if there is no room for all: failed and running ones first, then finished, then pending ones."""
    if not height or len(rows) <= height:
        return list(rows), []
    ranked = sorted(range(len(rows)), key=lambda n: (_rank(rows[n]), -n if rows[n].status == "completed" else n))
    kept = set(ranked[: max(height - 1, 1)])
    return [rows[n] for n in sorted(kept)], [row for n, row in enumerate(rows) if n not in kept]


def _rank(row: StepProgress) -> int:
    return {"failed": 0, "issued": 1, "entered": 1, "cancelled": 2, "completed": 3, "pending": 4}.get(row.status, 5)


def _counted(rows: Iterable[StepProgress]) -> str:
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.status] = counts.get(row.status, 0) + 1
    return "  … " + ", ".join(f"{count} {status}" for status, count in counts.items())


def _lines_of(row: StepProgress, progress: Progress, meter: Meter, canvas: Canvas, names: int) -> Iterable[Line]:
    glyph, style = _glyph(row, progress.now, canvas.glyphs)
    name = output.truncated(output.printable(row.step), names)
    line: Line = [(glyph, style), (" " + name + " " * (names - output.cells(name)), "dim" if style == "dim" else "")]
    room = canvas.width - names - 4
    if row.count:
        line += [("  ", ""), *_loop(row, meter, canvas.glyphs, room)]
    elif row.visits > 1:
        line.append((f"  visit {row.visits}", "dim"))
    if row.reason is not None:
        line.append(("  " + output.printable(words.why(row.reason, progress.now)), "yellow"))
    elif row.status in ("skipped", "bypassed", "cancelled"):
        line.append((f"  {row.status}", "dim"))
    elif row.status == "issued" and row.attempts and row.visits == 1 and not row.count:
        line.append((f"  try {row.attempts + 1}", "yellow"))
    yield line
    if row.status == "failed":
        yield from _failure(row, canvas)


def _glyph(row: StepProgress, now: Instant, glyphs: Glyphs) -> tuple[str, str]:
    match row.status:
        case "completed":
            return glyphs.completed, "green"
        case "failed":
            return glyphs.failed, "red"
        case "issued" | "entered" if row.reason is not None:
            return glyphs.waiting, "yellow"
        case "issued" | "entered":
            return glyphs.busy[now * FRAMES // SECOND % len(glyphs.busy)], "cyan"
        case "pending":
            return glyphs.pending, "dim"
        case _:
            return glyphs.skipped, "dim"


def _loop(row: StepProgress, meter: Meter, glyphs: Glyphs, room: int) -> Line:
    """Bar, counts, rate and the time that is left; where there is little room, the counts come first."""
    over = row.done + row.failed + row.skipped + row.cancelled
    pieces: Line = [(f"{over}/{row.count}{'+' if row.more else ''}", "")]
    size = min(BAR, room - len(pieces[0][0]) - 1)
    if size >= 6:
        full = size * over // row.count
        pieces[:0] = [(glyphs.full * full, "green"), (glyphs.empty * (size - full), "dim"), (" ", "")]
    counts = [("running", row.open, "cyan"), ("retried", row.retried, "yellow"), ("failed", row.failed, "red")]
    counts += [("skipped", row.skipped, "dim"), ("cancelled", row.cancelled, "dim")]
    pieces += [(f" {glyphs.dot} {count} {what}", style) for what, count, style in counts if count]
    rate = meter.rate(row) if row.status == "issued" else None
    if rate:
        left = "" if row.more else f" {glyphs.dot} eta {words.span((row.count - over) / rate)}"
        pieces.append((f" {glyphs.dot} {rate:.0f}/s{left}", "dim"))
    return pieces


def _failure(row: StepProgress, canvas: Canvas) -> Iterable[Line]:
    fault = row.fault
    if fault is not None:
        for text in fault_text(fault).strip().splitlines()[:5]:
            yield [("    " + output.printable(text), "red")]
        if code := code_line(fault):
            yield [(f"    {code}", "dim")]
    for text in canvas.source.of_step(row.step):
        yield [("    " + text, "dim")]


def _cut(line: Line, width: int) -> Line:
    kept: Line = []
    for text, style in line:
        if output.cells(text) > width:
            return [*kept, (output.truncated(text, width), style)] if width > 0 else kept
        kept.append((text, style))
        width -= output.cells(text)
    return kept


def painted(lines: Iterable[Line], colour: bool) -> str:
    return "\n".join("".join(output.styled(text, style, colour) for text, style in line).rstrip() for line in lines)
