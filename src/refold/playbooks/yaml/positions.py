"""Maps a position inside a text value to its position in the file, across quotes, escapes, folds and indentation."""

import re

from refold.playbooks.problems import BREAK, Place
from refold.playbooks.yaml.text import Node, place_in

_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|(?:\r\n|[\n\r])[ \t]*|.)", re.S)
_HEADER = re.compile(r"[|>][^\n\r]*(?:\r\n|[\n\r]|\Z)")  # of a block: its indicators, and perhaps a comment
_BLANK = " \t\n\r\x85\u2028\u2029"


def place_inside(source: str, node: Node, line: int, column: int) -> Place:
    """The position in the file of a line and column (from 1) of a node's text; at most the end of the text."""
    if not isinstance(node.value, str):
        return node.place
    return place_at(source, node, _offset(node.value, line, column))


def place_at(source: str, node: Node, offset: int) -> Place:
    """The position in the file of a character of a node's text."""
    if node.style == "*":
        return node.place  # an alias: the text stands elsewhere
    start, end = node.start.index, node.end.index
    if node.style == "|":
        return _in_literal(source[start:end], node, offset)
    return place_in(source, start + _raw_offset(source[start:end], node.style, node.value, offset))


def _in_literal(raw: str, node: Node, offset: int) -> Place:
    """In a literal block each line is preceded only by the indentation."""
    line, column = place_in(node.value, offset)
    written, meant = BREAK.split(raw), BREAK.split(node.value)
    if line >= len(written) or not meant[line - 1]:
        return Place(node.place.line + line, max(1, column))
    return Place(node.place.line + line, column + len(written[line]) - len(meant[line - 1]))


def _offset(text: str, line: int, column: int) -> int:
    lines = BREAK.split(text)
    if line > len(lines):
        return len(text)
    ends = [found.end() for found in BREAK.finditer(text)]
    start = ends[line - 2] if line > 1 else 0
    return start + min(max(column, 1) - 1, len(lines[line - 1]))


def _raw_offset(raw: str, style: str, text: str, offset: int) -> int:
    """Walk through the text as written and as parsed in parallel, until the position is reached.

    Only blanks are written otherwise than they are meant (folded, indented), and what a quote escapes.
    """
    at = _begin(raw, style, text)
    done = 0
    while done < offset and at < len(raw):
        if text[done] in _BLANK and raw[at] in _BLANK:
            written = _run(raw, at)
            blanks = _run(text, done) if style == ">" else _folded(raw[at : at + written])
            if offset < done + blanks:
                return at + min(offset - done, written)
            done, at = done + blanks, at + written
        else:
            done, at = done + 1, at + _width(raw, at, style)
        at = _past_empty(raw, at, style)
    return at


def _begin(raw: str, style: str, text: str) -> int:
    if style == ">":
        header = _HEADER.match(raw)
        at = header.end() if header else 0
        return at if text[:1] in _BLANK else at + _run(raw, at)
    return 1 if style in ("'", '"') else 0


def _run(text: str, at: int) -> int:
    """The number of blanks at this position."""
    end = at
    while end < len(text) and text[end] in _BLANK:
        end += 1
    return end - at


def _folded(blanks: str) -> int:
    """The number of characters that blanks become: one line end becomes a space, several lose one."""
    breaks = len(BREAK.findall(blanks))
    return len(blanks) if not breaks else max(1, breaks - 1)


def _escaped(raw: str, at: int, style: str) -> bool:
    return style == '"' and raw[at] == "\\"


def _width(raw: str, at: int, style: str) -> int:
    """How many characters in the file this one takes."""
    if style == "'" and raw.startswith("''", at):
        return 2
    found = _ESCAPE.match(raw, at) if _escaped(raw, at, style) else None
    return len(found.group()) if found else 1


def _past_empty(raw: str, at: int, style: str) -> int:
    """A backslash at the end of a line adds no character."""
    while style == '"' and raw.startswith(("\\\n", "\\\r"), at):
        at += _width(raw, at, style)
    return at
