"""What a step asks of a database: its statements with their values, and how much may come back."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from refold.ports import Call
from refold.tools.keys import refused
from refold.tools.sql_rows import MAX_BYTES, MAX_ROWS, Rows
from refold.tools.sql_text import Statement, Style, bound, statements, values_of

CONNECTION_KEYS = ("url", "host", "port", "database", "user", "password", "sslmode")  # of a PostgreSQL server
ALONE = {  # what speaks of transactions itself, or cannot be part of one
    *("BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE", "PREPARE"),
    *("VACUUM", "ATTACH", "DETACH", "PRAGMA", "CHECKPOINT", "REINDEX", "CLUSTER", "INSTALL", "FORCE", "LOAD"),
}
ALONE_TOO = {("CREATE", "DATABASE"), ("DROP", "DATABASE"), ("ALTER", "SYSTEM"), ("CREATE", "TABLESPACE")}


class Request(Struct, frozen=True):
    statements: tuple[Statement, ...]
    values: Mapping[str, Any]
    max_rows: int
    max_bytes: int
    as_objects: bool
    read_only: bool
    timeout: float | None

    @property
    def as_one(self) -> bool:
        """Whether all is one transaction: everything is done, or nothing."""
        return not any(map(_stands_alone, self.statements))

    def rows(self) -> Rows:
        return Rows(self.max_rows, self.max_bytes, self.as_objects)

    def bound(self, statement: Statement) -> list[Any]:
        return bound(statement, self.values)


def _stands_alone(statement: Statement) -> bool:
    words = statement.words
    return words[:1] != () and (words[0] in ALONE or words[:2] in ALONE_TOO or "CONCURRENTLY" in words[:5])


def request_of(call: Call, keys: Mapping[str, Any], style: Style) -> Request:
    found = _statements(keys, style)
    values = values_of(keys.get("params"), found, call.idempotency_key)
    for statement in found:
        bound(statement, values)
    return Request(
        statements=found,
        values=values,
        max_rows=_count(keys, "max_rows", MAX_ROWS),
        max_bytes=_count(keys, "max_bytes", MAX_BYTES),
        as_objects=keys.get("as_objects", True),
        read_only=keys.get("read_only", False),
        timeout=keys.get("timeout"),
    )


def _statements(keys: Mapping[str, Any], style: Style) -> tuple[Statement, ...]:
    query, commands = keys.get("query"), keys.get("commands")
    if (query is None) == (commands is None):
        raise refused("exactly one of `query` and `commands` is needed")
    texts: list[Any] = [query] if commands is None else list(commands)
    for text in texts:
        if not isinstance(text, str):
            raise refused("`query` is text, and `commands` a list of texts")
        if "\x00" in text:
            raise refused("`query` holds a NUL, which no statement can")
    found = tuple(statement for text in texts for statement in statements(text, style))
    if not found:
        raise refused("`query` holds no statement")
    return found


def _count(keys: Mapping[str, Any], name: str, default: int) -> int:
    count = keys.get(name, default)
    if count < 0:
        raise refused(f"`{name}` must not be below 0")
    return int(count)
