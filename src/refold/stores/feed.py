"""Cursors of feeds as text: what kind of store they belong to, and numbers."""

from collections.abc import Sequence

from refold.errors import InvalidValue

LONGEST = 1000  # characters


def write_cursor(kind: str, numbers: Sequence[int]) -> str:
    return ".".join([kind, *map(str, numbers)])


def read_cursor(kind: str, cursor: str, least: int) -> list[int]:
    """Return the numbers, zeros for an empty cursor. Raises InvalidValue."""
    if not cursor:
        return [0] * least
    found, *parts = cursor[:LONGEST].split(".")
    if found != kind or len(parts) < least or not all(part.isascii() and part.isdigit() for part in parts):
        raise no_cursor(cursor)
    return [int(part) for part in parts]


def no_cursor(cursor: str) -> InvalidValue:
    return InvalidValue("cursor", f"{cursor[:100]!r} is not a cursor of this database; an empty one is its beginning")


def ahead_of(cursor: str) -> InvalidValue:
    why = "is ahead of this database, which was restored from a backup, or is another one"
    return InvalidValue("cursor", f"{cursor[:100]!r} {why}; read again from an empty cursor")
