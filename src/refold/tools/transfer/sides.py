"""What a transfer needs of the databases between which it copies rows."""

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from msgspec import Struct

from refold.tool_api import refused
from refold.tools.sql.text import Statement, Style, bound, statements, values_of
from refold.tools.transfer.columns import Chosen, Column, creating, table_name
from refold.tools.transfer.request import End, Transfer

Rows = Sequence[Sequence[Any]]


class Stream(Struct, frozen=True):
    """Rows of a source, in chunks."""

    columns: Sequence[Column]
    chunks: AsyncIterator[Rows]


class Into(Struct, frozen=True):
    """What the target will contain."""

    transfer: Transfer
    chosen: Chosen


Write = Callable[[Rows], Any]
"""Takes rows of the target's columns; awaited."""


class Side(Protocol):
    """One kind of database, as a source and as a target."""

    async def moved_alone(self, transfer: Transfer) -> tuple[Sequence[Column], int] | None:
        """Copy rows inside one database, and return the columns and the number of rows; None if it cannot."""

    def reading(self, transfer: Transfer) -> AbstractAsyncContextManager[Stream]: ...

    def writing(self, into: Into) -> AbstractAsyncContextManager[Write]:
        """Write rows. Leaving the context without an error commits; any error leaves the target as it was."""

    async def close(self) -> None: ...


def same_file(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def query_of(end: End, style: Style, idempotency_key: str) -> tuple[Statement, list[Any]]:
    """Return the one statement of a source, and its bound values."""
    keys: Mapping[str, Any] = end.keys
    text = keys.get("query") or f"select * from {table_name(keys['table'], style)}"
    found = statements(text, style)
    if len(found) != 1:
        raise refused("`source.query` must be one statement")
    return found[0], bound(found[0], values_of(keys.get("params"), found, idempotency_key))


def making(table: str, columns: Sequence[Column], transfer: Transfer, style: Style) -> list[str]:
    """Return the statements that create the table, and empty it if it is to be replaced."""
    emptying = f"truncate table {table}" if style == "postgres" else f"delete from {table}"
    return [creating(table, columns, transfer.key, style), *([emptying] if transfer.mode == "replace" else [])]
