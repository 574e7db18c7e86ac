"""Texts of NoETL tools into which values are put: each value is quoted for the place where it stands."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from refold.core.pipelines import Task
from refold.templates import Piece
from refold.tools.keys import refused
from refold.tools.shell_quoting import Unquotable, Value, quoted
from refold.tools.sql_splicing import Spliced, spliced, without_own_quoting
from refold.tools.sql_text import Style

Pieces = Callable[[str], Sequence[str | Piece]]
STYLES: Mapping[str, Style] = {"sqlite": "sqlite", "duckdb": "duckdb", "postgres": "postgres"}
EXPRESSION = re.compile(r"\{\{(.*?)\}\}", re.S)
Quote = Callable[[Task, str, Pieces, Mapping[str, Any]], dict[str, Any]]


def _shell(task: Task, name: str, pieces: Pieces, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Text for a shell; a list is a program and its arguments."""
    command = task.keys[name]
    if not isinstance(command, dict):
        return {name: command}
    try:
        lines = [_line(pieces(line)) if isinstance(line, str) else str(line) for line in command["lines"]]
    except Unquotable as error:
        raise refused(f"`{name}`: {error}") from None
    stops = ["-e"] if len(lines) > 1 else []
    return {name: [str(command["shell"]), *stops, "-c", "\n".join(lines)]}


def _line(pieces: Sequence[str | Piece]) -> str:
    return quoted([piece if isinstance(piece, str) else Value(piece.value) for piece in pieces])


def _sql(task: Task, name: str, pieces: Pieces, keys: Mapping[str, Any]) -> dict[str, Any]:
    """One statement or several; values that are spliced become parameters."""
    text = task.keys[name]
    if not isinstance(text, str):
        return {name: text}
    end = text.rfind("}}") + 2  # behind it no expression is closed, and to look for its end would take long
    text = EXPRESSION.sub(lambda found: f"{{{{{without_own_quoting(found[1])}}}}}", text[:end]) + text[end:]
    found = [piece if isinstance(piece, str) else Spliced(piece.value) for piece in pieces(text)]
    given = keys.get("params")
    statement, values = spliced(found, STYLES[task.kind], 1 + (len(given) if isinstance(given, list) else 0))
    if not values:
        return {name: statement}
    if isinstance(given, dict):
        return {name: statement, "params": {**given, **{str(n): value for n, value in enumerate(values, 1)}}}
    return {name: statement, "params": [*(given or ()), *values]}


QUOTED: dict[str, Quote] = {"shell": _shell, "sql": _sql}
