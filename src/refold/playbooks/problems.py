"""Problems of a playbook: what is wrong and where, and how a problem is shown."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct

from refold.errors import InvalidPlan

WIDTH = 100  # columns of source that are shown
TAB = "    "
BREAK = re.compile(r"\r\n|[\n\r\x85\u2028\u2029]")  # what the YAML parser counts as the end of a line


Severity = Literal["error", "warning"]


class Place(NamedTuple):
    """A position in a file; lines and columns are counted from 1, columns in characters."""

    line: int
    column: int


class Problem(Struct, frozen=True):
    code: str  # stable, for tools and searches: `unknown-key`
    message: str
    place: Place
    hint: str = ""
    severity: Severity = "error"
    length: int = 1  # of what the caret underlines


class InvalidPlaybook(InvalidPlan):
    """`problems` has all errors and warnings in the order of the file; the text of the exception shows all of them."""

    problems: tuple[Problem, ...]

    def __init__(self, problems: Sequence[Problem], file: str, source: str) -> None:
        super().__init__([each.message for each in problems])
        self.problems, self.file, self.source = tuple(problems), file, source

    def __str__(self) -> str:
        return show_all(self.problems, self.file, self.source)


def in_order(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Each problem once, in the order of the file: the value of an alias may be read more than once."""
    return tuple(sorted(dict.fromkeys(problems), key=lambda each: each.place))


def show_all(problems: Iterable[Problem], file: str, source: str) -> str:
    lines = BREAK.split(source)
    return "\n".join(_shown(each, file, lines, WIDTH) for each in problems)


def show(problem: Problem, file: str, source: str, width: int = WIDTH) -> str:
    """Position, code and message; the line with a caret below; the hint."""
    return _shown(problem, file, BREAK.split(source), width)


def _shown(problem: Problem, file: str, lines: Sequence[str], width: int) -> str:
    line, column = problem.place
    said = [f"{file}:{line}:{column}: {problem.severity}[{problem.code}]: {_printable(problem.message)}"]
    if 0 < line <= len(lines):
        text, caret = _underlined(lines[line - 1], column - 1, problem.length, width)
        margin = " " * len(str(line))
        said += [f"  {line} | {text}".rstrip(), f"  {margin} | {caret}"]
    return "\n".join([*said, *([f"hint: {_printable(problem.hint)}"] if problem.hint else [])])


def _underlined(line: str, start: int, length: int, width: int) -> tuple[str, str]:
    """The part of a line around a place, and the caret below it, both as wide as a terminal shows them."""
    start = min(start, len(line))
    skipped = max(0, start - 2 * width)  # far from the place, and a line may be a megabyte long
    cells = [_cell(char) for char in line[skipped : start + 4 * width]]
    start -= skipped
    marked = max(1, min(length, len(cells) - start))
    first, last = _window([_width(cell) for cell in cells], start, width)
    before = ("…" if skipped + first else "") + "".join(cells[first:start])
    under = "".join(cells[start : min(start + marked, last)])
    after = "".join(cells[min(start + marked, last) : last]) + ("…" if skipped + last < len(line) else "")
    return before + under + after, " " * _width(before) + "^" * max(1, _width(under))


def _window(widths: list[int], start: int, width: int) -> tuple[int, int]:
    """The cells to show: the whole line if it is short enough, otherwise the part around the position."""
    if sum(widths) <= width:
        return 0, len(widths)
    first, room = start, width // 2
    while first > 0 and widths[first - 1] <= room:
        first -= 1
        room -= widths[first]
    last, room = first, width
    while last < len(widths) and widths[last] <= room:
        room -= widths[last]
        last += 1
    return first, last


def _printable(text: str) -> str:
    """Escape characters that a terminal would obey instead of showing them."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def _cell(char: str) -> str:
    if char == "\t":
        return TAB
    return char if char.isprintable() or unicodedata.combining(char) else "\N{REPLACEMENT CHARACTER}"


def _width(text: str) -> int:
    return sum(_widths(text))


def _widths(text: str) -> Iterator[int]:
    for char in text:
        if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
            yield 0
        else:
            yield 2 if unicodedata.east_asian_width(char) in "WF" else 1
