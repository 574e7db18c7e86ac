"""What a step asks of a database: its statements with their values, and the limits of the result."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from refold.core.outcomes import Fault
from refold.errors import ToolFailed
from refold.ports import ToolCall
from refold.tool_api import folder_of, path_of, refused
from refold.tools.sql.text import Statement, Style, bound, statements, values_of
from refold.tools.sql.values import json_value

MAX_ROWS = 100_000
MAX_BYTES = 10 * 1024 * 1024
AT_ONCE = 1000  # rows that are asked for at a time

_encode = msgspec.json.Encoder().encode


class RowCollector:
    """Collects rows, and refuses the first that is too much."""

    def __init__(self, max_rows: int, max_bytes: int, as_objects: bool) -> None:
        self.max_rows, self.max_bytes, self.as_objects = max_rows, max_bytes, as_objects
        self.columns: list[str] = []
        self.rows: list[Any] = []
        self.size = 0

    def begin(self, columns: Iterable[str]) -> None:
        self.columns = distinct(columns)

    @property
    def room(self) -> int:
        """Return how many rows to fetch next: one more than fits is enough to know."""
        return min(AT_ONCE, self.max_rows - len(self.rows) + 1)

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        for row in rows:
            values = [json_value(each) for each in row]
            self.size += len(_encode(values))
            if len(self.rows) >= self.max_rows:
                raise _too_large(f"more than {self.max_rows} rows", "max_rows")
            if self.size > self.max_bytes:
                raise _too_large(f"more than {self.max_bytes} bytes", "max_bytes")
            self.rows.append(dict(zip(self.columns, values, strict=True)) if self.as_objects else values)

    def result(self) -> dict[str, Any]:
        return {"columns": self.columns, "rows": self.rows, "row_count": len(self.rows)}


def distinct(columns: Iterable[str]) -> list[str]:
    """Return column names without duplicates: a second `id` becomes `id_1`, so that rows that are maps lose nothing."""
    names: list[str] = []
    for column in columns:
        name, number = column, 0
        while name in names:
            number += 1
            name = f"{column}_{number}"
        names.append(name)
    return names


def _too_large(what: str, key: str) -> ToolFailed:
    hint = f"select less, raise `{key}`, or move the rows with the tool transfer"
    return ToolFailed(Fault("too_large", f"the result has {what}; {hint}", retryable=False))


CONNECTION_KEYS = ("url", "host", "port", "database", "user", "password", "sslmode")  # of a PostgreSQL server
ALONE = {  # what speaks of transactions itself, or cannot be part of one
    *("BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE", "PREPARE"),
    *("VACUUM", "ATTACH", "DETACH", "PRAGMA", "CHECKPOINT", "REINDEX", "CLUSTER", "INSTALL", "FORCE", "LOAD"),
}
ALONE_TOO = {("CREATE", "DATABASE"), ("DROP", "DATABASE"), ("ALTER", "SYSTEM"), ("CREATE", "TABLESPACE")}


class SqlRequest(Struct, frozen=True):
    statements: tuple[Statement, ...]
    values: Mapping[str, Any]
    max_rows: int
    max_bytes: int
    as_objects: bool
    read_only: bool
    timeout: float | None
    folder: str | None = None  # to which names of files are relative; None: the folder of this process

    @property
    def as_one(self) -> bool:
        """Whether all statements are one transaction."""
        return not any(map(_stands_alone, self.statements))

    def rows(self) -> RowCollector:
        return RowCollector(self.max_rows, self.max_bytes, self.as_objects)

    def bound(self, statement: Statement) -> list[Any]:
        return bound(statement, self.values)


def _stands_alone(statement: Statement) -> bool:
    words = statement.words
    return words[:1] != () and (words[0] in ALONE or words[:2] in ALONE_TOO or "CONCURRENTLY" in words[:5])


def request_of(call: ToolCall, keys: Mapping[str, Any], style: Style) -> SqlRequest:
    found = _statements(keys, style)
    values = values_of(keys.get("params"), found, call.idempotency_key)
    for statement in found:
        bound(statement, values)
    return SqlRequest(
        statements=found,
        values=values,
        max_rows=_count(keys, "max_rows", MAX_ROWS),
        max_bytes=_count(keys, "max_bytes", MAX_BYTES),
        as_objects=keys.get("as_objects", True),
        read_only=keys.get("read_only", False),
        timeout=keys.get("timeout"),
        folder=folder_of(call),
    )


def file_of(call: ToolCall, name: str) -> str:
    """Return the file of a database. A name in colons, such as `:memory:`, is not a file."""
    return name if not name or name.startswith(":") else path_of(call, name)


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
