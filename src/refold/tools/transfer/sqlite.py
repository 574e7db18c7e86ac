"""SQLite as a source and as a target of transfers."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any

import apsw

from refold.tools.sql.driver import BlockingCalls, SharedConnection
from refold.tools.sql.request import distinct
from refold.tools.sql.sqlite import DRIVER, SqliteFile, executed
from refold.tools.sql.text import quoted
from refold.tools.sql.values import json_text, json_value
from refold.tools.transfer.columns import Column, chosen, columns_of_values, inserting, table_name
from refold.tools.transfer.request import Transfer
from refold.tools.transfer.sides import Into, Rows, Stream, Write, making, query_of, same_file


class SqliteSide:
    def __init__(self) -> None:
        self._blocking = BlockingCalls("transfer")

    async def close(self) -> None:
        """Each transfer has connections of its own."""

    async def moved_alone(self, transfer: Transfer) -> tuple[Sequence[Column], int] | None:
        """Within one file: a reader beside the writer would stand in its way."""
        path = transfer.target.keys["database"]
        if not same_file(path, transfer.source.keys["database"]):
            return None
        async with self._held(path) as held:
            moved = await held.run(lambda: _moved(held.db, transfer))
            await held.run(lambda: held.db.execute("commit"))
            return moved

    @asynccontextmanager
    async def reading(self, transfer: Transfer) -> AsyncIterator[Stream]:
        """The first rows are read at once: they tell the types, which SQLite has by value and not by column."""
        end = transfer.source
        statement, values = query_of(end, "sqlite", transfer.call.idempotency_key)
        async with self._held(end.keys["database"], read_only=True) as held:
            cursor, size = held.db.cursor(), transfer.chunk_size

            async def chunks(rows: Rows) -> AsyncIterator[Rows]:
                while rows:
                    yield rows
                    rows = await held.run(lambda: _some(cursor, size))

            names, rows = await held.run(lambda: _first(cursor, statement.text, values, size))
            yield Stream(columns_of_values(names, rows), chunks(rows))

    @asynccontextmanager
    async def writing(self, into: Into) -> AsyncIterator[Write]:
        transfer, columns = into.transfer, into.chosen.columns
        table = table_name(transfer.target.keys["table"], "sqlite")
        marks = f"values ({', '.join('?' * len(columns))})"
        insert = inserting(table, columns, transfer.key, marks)
        async with self._held(transfer.target.keys["database"]) as held:
            db = held.db

            async def write(rows: Rows) -> None:
                await held.run(lambda: db.executemany(insert, [list(map(_stored, row)) for row in rows]))

            await held.run(lambda: _begin(db, making(table, columns, transfer, "sqlite")))
            yield write
            await held.run(lambda: db.execute("commit"))

    def _held(self, path: str, read_only: bool = False) -> SharedConnection[apsw.Connection]:
        return SharedConnection(DRIVER, self._blocking, lambda: SqliteFile(path, read_only))


def _begin(db: apsw.Connection, making: Sequence[str]) -> None:
    """As a writer from the first moment: who only becomes one later may find that another is faster."""
    for text in ("begin immediate", *making):
        db.execute(text)


def _moved(db: apsw.Connection, transfer: Transfer) -> tuple[Sequence[Column], int]:
    """What it does waits for the commit."""
    statement, values = query_of(transfer.source, "sqlite", transfer.call.idempotency_key)
    db.execute("begin")
    names, rows = _first(db.cursor(), f"select * from ({statement.text}\n) limit {transfer.chunk_size}", values)
    choice = chosen(columns_of_values(names, rows), transfer.target.keys.get("mapping"))
    table = table_name(transfer.target.keys["table"], "sqlite")
    wanted = ", ".join(quoted(names[i]) for i in choice.places)
    given = f"with given({', '.join(map(quoted, names))}) as ({statement.text}\n) select {wanted} from given where true"
    for text in making(table, choice.columns, transfer, "sqlite"):
        db.execute(text)
    before = db.total_changes()
    executed(db.cursor(), inserting(table, choice.columns, transfer.key, given), values)
    return choice.columns, db.total_changes() - before


def _first(cursor: apsw.Cursor, query: str, values: Sequence[Any], most: int = -1) -> tuple[list[str], Rows]:
    """The names of the columns, and the first rows."""
    return distinct(executed(cursor, query, values)), _some(cursor, most)


def _some(cursor: apsw.Cursor, most: int) -> Rows:
    return list(islice(cursor, most if most >= 0 else None))


def _stored(value: Any) -> Any:
    match value:
        case None | int() | float() | str() | bytes():
            return value
        case list() | dict():
            return json_text(value)
        case bytearray() | memoryview():
            return bytes(value)
        case _:
            return json_value(value)
