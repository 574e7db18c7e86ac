"""Where words go: data to stdout, everything else to stderr; a reader who has left is no error."""

import errno
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO
from unicodedata import combining, east_asian_width

from msgspec import json

GONE = (errno.EPIPE, errno.EIO, errno.EBADF)  # the pipe was closed, the terminal was

SGR = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Closed(Exception):
    """Nobody reads any more: what follows a stream may end."""


def put(text: str) -> None:
    """A line, or several, of data."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except OSError as error:
        if error.errno not in GONE:
            raise
        leave(sys.stdout)
        raise Closed from None


def put_json(value: Any, output: str) -> None:
    """`json`: one document for people and machines; `jsonl`: a line, or one for each element of a list."""
    if output == "jsonl":
        for each in value if isinstance(value, list) else [value]:
            put(json.encode(each).decode())
    else:
        put(json.format(json.encode(value), indent=2).decode())


def tell(text: str) -> None:
    """A message; it can get lost."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except OSError:
        leave(sys.stderr)


def leave(stream: TextIO) -> None:
    """What is still in its buffer goes nowhere, instead of failing once more at the end."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        return


def flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            leave(stream)


def forgive_encodings() -> None:
    """A terminal that cannot show a character gets its number."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


def has_colour(stream: TextIO | None) -> bool:
    """NO_COLOR wins over FORCE_COLOR, and both over what the stream is."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return os.environ["FORCE_COLOR"] != "0"
    return is_terminal(stream) and os.environ.get("TERM") != "dumb"


def painted(text: str, style: str, colour: bool) -> str:
    return f"\x1b[{SGR[style]}m{text}\x1b[0m" if colour and style and text else text


def printable(text: str) -> str:
    """On one line, and without what a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " if char.isspace() else f"\\x{ord(char):02x}" for char in text)


def cells(text: str) -> int:
    """How wide a terminal shows it."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def fitted(text: str, width: int) -> str:
    """As much of it as fits."""
    if cells(text) <= width:
        return text
    kept, room = [], width - 1
    for char in text:
        room -= cells(char)
        if room < 0:
            break
        kept.append(char)
    return "".join(kept) + "…" if width > 0 else ""


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], colour: bool = False, width: int = 0) -> str:
    """Columns; the last one is cut off at the width, if there is one."""
    lines = [[printable(cell) for cell in row] for row in rows]
    widths = [max(cells(row[n]) for row in ([*heads], *lines)) for n in range(len(heads))]
    shown = [painted(_joined(heads, widths, width), "bold", colour)]
    return "\n".join(shown + [_joined(line, widths, width) for line in lines])


def _joined(row: Sequence[str], widths: Sequence[int], width: int) -> str:
    padded = [cell + " " * (size - cells(cell)) for cell, size in zip(row, widths, strict=True)]
    line = "  ".join(padded).rstrip()
    return fitted(line, width) if width else line


def has_cursor(stream: TextIO | None) -> bool:
    """Whether lines can be drawn over."""
    return is_terminal(stream) and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def terminal_width() -> int:
    """Of stdout; 0 if it is no terminal, and nothing needs to be cut off."""
    return columns(sys.stdout) if is_terminal(sys.stdout) else 0


def columns(stream: TextIO | None, otherwise: int = 80) -> int:
    try:
        return (os.get_terminal_size(stream.fileno()).columns if stream is not None else 0) or otherwise
    except (OSError, ValueError):
        return otherwise
