"""The text of SQL, taken apart as far as safety needs it: tokens, statements, and where values are bound.

Nothing is parsed here beyond that: what a statement means is the database's concern.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from refold.core.faults import short
from refold.tool_api import refused
from refold.tools.noetl_text import HOLE

Style = Literal["sqlite", "duckdb", "postgres"]
Kind = Literal["hole", "space", "comment", "text", "name", "dollar", "placeholder", "word", "number", "sign"]


class SqlToken(Struct, frozen=True, gc=False):
    """A piece of the text; `open`: it is not closed where the text ends."""

    kind: Kind
    text: str
    open: bool = False


class Statement(Struct, frozen=True, gc=False):
    """One statement, its placeholders numbered from 1; `names`: what is bound to each of them."""

    text: str
    names: tuple[str, ...]
    words: tuple[str, ...]  # in capitals, without those in quotes and comments
    line: int  # where it begins in the whole text


_SHARED = {
    "hole": HOLE,
    "space": r"[ \t\n\r\f\v]+",
    "comment": r"--[^\n]*|/\*.*?(?:\*/|\Z)",
    "text": r"'(?:[^']|'')*(?:'|\Z)",
    "name": r'"(?:[^"]|"")*(?:"|\Z)',
    "placeholder": r"\?(?:\d+)?|\$\w+",
    "word": r"[^\W\d][\w$]*",
    "number": r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?",
    "sign": r"::|.",
}
_ESCAPED = r"[eE]'(?:[^'\\]|''|\\.)*(?:'|\Z)|" + _SHARED["text"]
_LINE = r"--[^\n\r]*"  # to PostgreSQL and DuckDB a carriage return ends a line too; SQLite goes on
_DOLLAR = r"\$(?P<tag>(?:[^\W\d]\w*)?)\$.*?(?:\$(?P=tag)\$|\Z)"
_NUMBERED = r"\$\w+"
_RULES: Mapping[Style, Mapping[str, str]] = {
    "sqlite": {**_SHARED, "name": _SHARED["name"] + r"|`(?:[^`]|``)*(?:`|\Z)|\[[^\]]*(?:\]|\Z)"},
    "duckdb": {"dollar": _DOLLAR, **_SHARED, "comment": _LINE, "text": _ESCAPED},
    "postgres": {"dollar": _DOLLAR, **_SHARED, "comment": _LINE, "text": _ESCAPED, "placeholder": _NUMBERED},
}
_PATTERNS = {
    style: re.compile("|".join(f"(?P<{kind}>{rule})" for kind, rule in rules.items()), re.S)
    for style, rules in _RULES.items()
}


def tokens(text: str, style: Style) -> Iterator[SqlToken]:
    at = 0
    pattern = _PATTERNS[style]
    while at < len(text):
        if style != "sqlite" and text.startswith("/*", at):
            token = SqlToken("comment", *_nested(text, at))
        else:
            found = pattern.match(text, at)
            assert found is not None  # a sign is any character
            token = _token(found, len(text))
        yield token
        at += len(token.text)


def _token(found: re.Match[str], end: int) -> SqlToken:
    kind = found.lastgroup
    if kind == "tag" or kind is None:
        kind = "dollar"
    text = found.group()
    return SqlToken(kind, text, found.end() == end and _is_open(kind, text))  # type: ignore[arg-type]


def _is_open(kind: str, text: str) -> bool:
    match kind:
        case "comment":
            return text.startswith("--") or len(text) < 4 or not text.endswith("*/")
        case "text":
            return _is_open_text(text)
        case "name":
            close = {"[": "]"}.get(text[0], text[0])
            return len(text) < 2 or not text.endswith(close) or (close != "]" and text.count(close) % 2 == 1)
        case "dollar":
            tag = text[: text.index("$", 1) + 1]
            return len(text) < 2 * len(tag) or not text.endswith(tag)
        case _:
            return False


def _is_open_text(text: str) -> bool:
    if text[0] in "eE":
        return re.fullmatch(r"[eE]'(?:[^'\\]|''|\\.)*'", text, re.S) is None
    return len(text) < 2 or text.count("'") % 2 == 1


def _nested(text: str, start: int) -> tuple[str, bool]:
    """A comment of PostgreSQL or DuckDB may hold others."""
    depth = 0
    for found in re.compile(r"/\*|\*/").finditer(text, start):
        depth += 1 if found.group() == "/*" else -1
        if depth == 0:
            return text[start : found.end()], False
    return text[start:], True


def statements(text: str, style: Style) -> list[Statement]:
    """Raises ToolFailed where the text cannot be meant: a quote that is never closed, a placeholder of another kind."""
    found: list[Statement] = []
    parts: list[SqlToken] = []
    line = 1
    marks = _Marks(style)
    for token in tokens(text, style):
        if token.open and token.kind != "comment":
            raise refused(f"`query` has a quote that is never closed: {short(token.text, 40)!r}", "parse")
        if token.kind == "sign" and token.text == ";" and not _is_body(parts):
            found += _statement(parts, marks, line)
            line += sum(each.text.count("\n") for each in parts)
            parts = []
        else:
            parts.append(token)
    return [*found, *_statement(parts, marks, line)]


class _Marks:
    """How placeholders are written, and which is the next of those without a name."""

    def __init__(self, style: Style) -> None:
        self.sign = "?" if style == "sqlite" else "$"
        self.style = style
        self.count = 0

    def name(self, mark: str) -> str:
        if mark == "?":
            self.count += 1
            return str(self.count)
        return mark[1:]


def _statement(parts: Sequence[SqlToken], marks: _Marks, line: int) -> list[Statement]:
    kept = [token for token in parts if token.kind not in ("space", "comment")]
    if not kept:
        return []
    start, end = parts.index(kept[0]), len(parts) - parts[::-1].index(kept[-1])
    names: dict[str, int] = {}
    text: list[str] = []
    for i, token in enumerate(parts[start:end]):
        if token.kind == "placeholder":
            number = names.setdefault(marks.name(token.text), len(names) + 1)
            text.append(f"{marks.sign}{number}")
        else:
            _refuse_other_marks(marks.style, token, parts[start:end], i)
            text.append(token.text)
    words = tuple(token.text.upper() for token in kept if token.kind == "word")
    before = sum(token.text.count("\n") for token in parts[:start])
    return [Statement("".join(text), tuple(names), words, line + before)]


def _refuse_other_marks(style: Style, token: SqlToken, parts: Sequence[SqlToken], i: int) -> None:
    """SQLite would take `:name` for a parameter, and what is not bound for null."""
    if style == "sqlite" and token.kind == "sign" and token.text in ":@":
        name = parts[i + 1] if i + 1 < len(parts) else token
        if name.kind == "word":
            raise refused(f"`{token.text}{name.text}`: a parameter is written ${name.text}", "parse")


def _is_body(parts: Sequence[SqlToken]) -> bool:
    """Whether a statement goes on after a semicolon: it defines a trigger or a function, and its body is open."""
    words = [token.text.upper() for token in parts if token.kind == "word"]
    if words[:1] != ["CREATE"] or not {"TRIGGER", "FUNCTION", "PROCEDURE"} & set(words[1:6]) or "BEGIN" not in words:
        return False
    return sum(word in ("BEGIN", "CASE") for word in words) > words.count("END")


def bound(statement: Statement, values: Mapping[str, Any]) -> list[Any]:
    missing = [name for name in statement.names if name not in values]
    if missing:
        given = ", ".join(f"${name}" for name in values if name != IDEMPOTENCY_KEY) or "none"
        raise refused(f"`params` has no value for ${missing[0]}; it has {given}")
    return [values[name] for name in statement.names]


IDEMPOTENCY_KEY = "idempotency_key"


def values_of(params: Any, used: Sequence[Statement], idempotency_key: str) -> dict[str, Any]:
    """By name; those of a list are named 1, 2, and so on. The key that is the same in every try has a name too."""
    if params is None or isinstance(params, list):
        values = {str(i): value for i, value in enumerate(params or (), 1)}
        names = {name for statement in used for name in statement.names}
        if spare := [name for name in values if name not in names]:
            raise refused(f"no statement uses ${spare[0]}, but `params` has {len(values)} values")
    elif isinstance(params, Mapping):
        values = dict(params)
    else:
        raise refused("`params` must be a list, for $1 and $2, or a map, for $name")
    return {IDEMPOTENCY_KEY: idempotency_key, **values}


def quoted(name: str) -> str:
    """A name as it is, whatever is in it."""
    if "\x00" in name or not name:
        raise refused(f"{name!r} is not a name in a database")
    return '"' + name.replace('"', '""') + '"'
