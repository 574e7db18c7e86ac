"""Turns errors of databases into kinds and codes that rules can read, the same for every database."""

from collections.abc import Mapping
from typing import Any

from refold.core.outcomes import Fault
from refold.errors import ToolFailed
from refold.tools.sql.text import Statement

RETRYABLE = {"db_connection", "db_deadlock", "db_timeout", "connection", "server_error"}

BY_SQLSTATE: Mapping[str, str] = {  # the longest beginning that fits
    "08": "db_connection",
    "22": "client_error",
    "23": "db_constraint",
    "25": "client_error",
    "28": "auth",
    "3D": "schema",
    "3F": "schema",
    "40": "db_deadlock",
    "42": "schema",
    "42501": "auth",
    "42601": "parse",
    "53": "server_error",
    "53100": "storage_quota",
    "53300": "db_connection",
    "55P03": "db_deadlock",
    "57014": "db_timeout",
    "57P": "db_connection",
    "58": "server_error",
    "XX": "server_error",
}


def kind_of_sqlstate(state: str) -> str:
    fitting = [start for start in BY_SQLSTATE if state.startswith(start)]
    return BY_SQLSTATE[max(fitting, key=len)] if fitting else "unknown"


def failure(
    kind: str,
    message: str,
    code: str,
    statement: Statement | None = None,
    offset: int | None = None,
    data: Mapping[str, Any] | None = None,
) -> ToolFailed:
    """Return the failure; `offset` is the number of characters of the statement before the error."""
    place = _place(statement, offset)
    where = f" ({', '.join(f'{name} {number}' for name, number in place.items())})" if place else ""
    told = {**place, **(data or {})}
    return ToolFailed(Fault(kind, message + where, code=code, retryable=kind in RETRYABLE, data=told or None))


def _place(statement: Statement | None, offset: int | None) -> dict[str, int]:
    """Return line and column in the whole text; a bound name is shorter in the statement that the database gets."""
    if statement is None:
        return {}
    if offset is None or offset < 0:
        return {"line": statement.line} if statement.line > 1 else {}
    before = statement.text[:offset]
    line = {"line": statement.line + before.count("\n")}
    return line if statement.names else {**line, "column": offset - before.rfind("\n")}


def timed_out(
    seconds: float | None, code: str, data: Mapping[str, Any] | None = None, stopped: bool = True
) -> ToolFailed:
    what = "the statement was stopped" if stopped else "the statement could not be stopped, and nobody waits for it"
    return failure("db_timeout", f"not done within {seconds:g} s; {what}", code, data=data)
