"""Texts of NoETL tools with values in them: the part that does not depend on the language of the text.

The author's text alone decides where a value may be. The reader of each language sees a NUL in place of every value,
which no program text can contain otherwise. It returns for each of these holes what kind of place it is, or raises
Misplaced. So `refold validate` and the run refuse the same texts, and no value can change how its text is read.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from refold.core.pipeline import Task
from refold.templates import EmbeddedValue
from refold.templates.text import pieces_of
from refold.tool_api import ToolProblem, refused

Pieces = Callable[[str], Sequence[str | EmbeddedValue]]
Quote = Callable[[Task, str, Pieces, Mapping[str, Any]], dict[str, Any]]
"""Puts values into one key of a task. Raises ToolFailed for a value in a place where it could be code."""

EXPRESSION = re.compile(r"\{\{(.*?)\}\}", re.S)

HOLE = "\0"


class Misplaced(ValueError):
    """A value is in a place where it could be code. `hole` is its number in the text, counted from 0."""

    def __init__(self, hole: int, why: str, remedy: str) -> None:
        self.hole, self.why, self.remedy = hole, why, remedy
        super().__init__(f"{why}; {remedy}")


class Holed(Struct, frozen=True):
    """A text with a NUL for each value; `places` has the line and column of each hole in the text as written."""

    text: str
    places: tuple[tuple[int, int], ...]
    values: tuple[Any, ...] = ()

    @property
    def is_one_value(self) -> bool:
        return self.text.strip() == HOLE


def holed(written: str, pieces: Sequence[str | EmbeddedValue]) -> Holed:
    """Return the text with its values. Raises Misplaced if the author's text has a NUL of its own."""
    texts: list[str] = []
    places: list[tuple[int, int]] = []
    values: list[Any] = []
    for piece in pieces:
        if isinstance(piece, str):
            if HOLE in piece:
                raise Misplaced(0, "the text has a NUL character", "remove it")
            texts.append(piece)
        else:
            texts.append(HOLE)
            places.append((written.count("\n", 0, piece.at) + 1, piece.at - written.rfind("\n", 0, piece.at)))
            values.append(piece.value)
    return Holed("".join(texts), tuple(places), tuple(values))


def holes_of(written: str) -> Holed | None:
    """Return the text before its values are known, or None if it has statements or is not a template."""
    pieces = pieces_of(written)
    return None if pieces is None else holed(written, pieces)


def has_values(text: str) -> bool:
    return "{{" in text


def end_of_values(text: str) -> int:
    """Return an index after which there is no value.

    Without this bound, a search for `}}` would go from each unclosed `{{` to the end of the text.
    """
    return text.rfind("}}") + 2 if "}}" in text else 0


class refusing_misplaced:
    """Turns Misplaced into a ToolFailed that names the key, the line and the column."""

    def __init__(self, key: str, texts: Sequence[Holed]) -> None:
        self.key, self.texts = key, texts

    def __enter__(self) -> None: ...

    def __exit__(self, _: Any, error: BaseException | None, __: Any) -> None:
        if isinstance(error, Misplaced):
            item, line, column = _place(self.texts, error.hole)
            where = f"line {line + sum(text.text.count(chr(10)) + 1 for text in self.texts[:item])}, column {column}"
            raise refused(f"`{self.key}`: {error.why} ({where}); {error.remedy}", "parse") from None
        if isinstance(error, ValueError):
            raise refused(f"`{self.key}`: {error}", "parse") from None


def problems_in(key: str, written: Sequence[str], read: Callable[[Sequence[str]], Any]) -> Iterator[ToolProblem]:
    """Yield what `read`, the reader of the language, would refuse in these texts whatever the values are."""
    texts = [text for text in map(holes_of, written) if text is not None]
    if len(texts) < len(written):
        return  # a text has statements: what they result in is known only in the run
    try:
        read([text.text for text in texts])
    except Misplaced as error:
        item, line, column = _place(texts, error.hole)
        yield ToolProblem(key, error.why, error.remedy, line, column, "bad-value", item if len(texts) > 1 else None)


def _place(texts: Sequence[Holed], hole: int) -> tuple[int, int, int]:
    """Return which of the texts has the hole, and its line and column there."""
    for item, text in enumerate(texts):
        if hole < len(text.places):
            return item, *text.places[hole]
        hole -= len(text.places)
    return 0, 1, 1
