"""A text with holes: what an author wrote around the values of a NoETL tool, before any value is known.

Where a value may stand is decided by the author's text alone. The reader of each language sees a NUL in the place of
every value, which no program text can hold otherwise, and says for each hole what kind of place it is, or raises
Misplaced. So `refold validate` and the run refuse the same texts, and no value can change how its text is read.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from refold.templates import Piece
from refold.templates.text import pieces_of

HOLE = "\0"


class Misplaced(ValueError):
    """A value stands where it could be code. `hole` is its number in the text, counted from 0."""

    def __init__(self, hole: int, why: str, remedy: str) -> None:
        self.hole, self.why, self.remedy = hole, why, remedy
        super().__init__(f"{why}; {remedy}")


class Holed(Struct, frozen=True):
    """`places`: for each hole its line and column in the text as it was written."""

    text: str
    places: tuple[tuple[int, int], ...]
    values: tuple[Any, ...] = ()

    @property
    def is_one_value(self) -> bool:
        return self.text.strip() == HOLE


def holed(written: str, pieces: Sequence[str | Piece]) -> Holed:
    """Raises Misplaced if the author's text has a NUL of its own."""
    texts: list[str] = []
    places: list[tuple[int, int]] = []
    values: list[Any] = []
    for piece in pieces:
        if isinstance(piece, str):
            if HOLE in piece:
                raise Misplaced(0, "the text has a NUL character", "take it away")
            texts.append(piece)
        else:
            texts.append(HOLE)
            places.append((written.count("\n", 0, piece.at) + 1, piece.at - written.rfind("\n", 0, piece.at)))
            values.append(piece.value)
    return Holed("".join(texts), tuple(places), tuple(values))


def holes_of(written: str) -> Holed | None:
    """The same before the run; None where that is not known: the text has statements, or is no template."""
    pieces = pieces_of(written)
    return None if pieces is None else holed(written, pieces)
