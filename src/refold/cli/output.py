"""Where words go: data to stdout, everything else to stderr; a reader who has left is not an error.

This is the border to the terminal. Names, results and messages come from playbooks, from services and from database
files of other people, so control codes in them are spelt out, and only the colours of `painted` pass. Data (results,
lines of steps, JSON) is exact where it goes into a pipe or a file; on a terminal it is spelt out too.
"""

import errno
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO
from unicodedata import combining, east_asian_width

from msgspec import json

GONE = (errno.EPIPE, errno.EIO, errno.EBADF)  # the pipe was closed, the terminal was

SGR = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


COLOUR = f"\x1b{os.urandom(4).hex()}"  # begins a colour of `painted`; nothing from outside can look like it

OBEYED = "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069"
"""Characters that a terminal obeys instead of showing them: control codes, and marks that turn text around."""

_HARMFUL = re.compile(f"{COLOUR}([0-9]+)m|[{OBEYED}]")
_HARMFUL_IN_JSON = re.compile(f"[{OBEYED}]")


class ReaderGone(Exception):
    """The reader has left: what follows a stream may end."""


class Unwritable(Exception):
    """What was to be printed could not be written, for example because the disk is full."""


def spelt_out(text: str) -> str:
    """Text of several lines without what a terminal would obey, except colours of our own."""
    return text if text.isprintable() else _HARMFUL.sub(_spelt, text)


def _spelt(found: re.Match[str]) -> str:
    return f"\x1b[{found[1]}m" if found[1] else f"\\x{ord(found[0]):02x}"


def spelt_out_json(text: str) -> str:
    """The same of a JSON document, which stays the same document."""
    return text if text.isprintable() else _HARMFUL_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def print_data(text: str) -> None:
    """A line, or several, for people."""
    _write(spelt_out(text))


def print_exact(text: str) -> None:
    """Text that is a result: exactly as it is, unless a terminal would obey it."""
    _write(spelt_out(text) if is_terminal(sys.stdout) else text)


def print_json(value: Any, output: str) -> None:
    """`json`: one document for people and machines; `jsonl`: a line, or one for each element of a list."""
    documents = value if isinstance(value, list) and output == "jsonl" else [value]
    for each in documents:
        data = json.encode(each)
        text = (data if output == "jsonl" else json.format(data, indent=2)).decode()
        _write(spelt_out_json(text) if is_terminal(sys.stdout) else text)


def _write(text: str) -> None:
    if sys.stdout is None:
        return
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except OSError as error:
        if error.errno not in GONE:
            raise Unwritable(f"stdout: {error.strerror or error}") from error
        detach(sys.stdout)
        raise ReaderGone from None


def print_message(text: str) -> None:
    """A message; it can get lost."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(spelt_out(text) + "\n")
        sys.stderr.flush()
    except OSError:
        detach(sys.stderr)


def detach(stream: TextIO) -> None:
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
            detach(stream)


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


def styled(text: str, style: str, colour: bool) -> str:
    """In a style, once it has gone through `put` or `tell`."""
    return f"{COLOUR}{SGR[style]}m{text}{COLOUR}0m" if colour and style and text else text


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


def truncated(text: str, width: int) -> str:
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
    shown = [styled(_joined(heads, widths, width), "bold", colour)]
    return "\n".join(shown + [_joined(line, widths, width) for line in lines])


def _joined(row: Sequence[str], widths: Sequence[int], width: int) -> str:
    padded = [cell + " " * (size - cells(cell)) for cell, size in zip(row, widths, strict=True)]
    line = "  ".join(padded).rstrip()
    return truncated(line, width) if width else line


def has_cursor(stream: TextIO | None) -> bool:
    """Whether lines can be drawn over."""
    return is_terminal(stream) and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def terminal_width() -> int:
    """Of stdout; 0 if it is not a terminal, and nothing needs to be cut off."""
    return columns(sys.stdout) if is_terminal(sys.stdout) else 0


def columns(stream: TextIO | None, otherwise: int = 80) -> int:
    try:
        return (os.get_terminal_size(stream.fileno()).columns if stream is not None else 0) or otherwise
    except (OSError, ValueError):
        return otherwise
