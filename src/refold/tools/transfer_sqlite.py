"""SQLite as a source and as a target of transfers."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any, TypeVar

import apsw

from refold.tools.sql_blocking import Blocking, Work
from refold.tools.sql_rows import distinct
from refold.tools.sql_sqlite import bindable, fault_of, in_transaction, opened
from refold.tools.sql_values import json_text, json_value
from refold.tools.transfer_columns import (
    Column,
    chosen,
    columns_of_values,
    creating,
    inserting,
    quoted,
    table_name,
)
from refold.tools.transfer_ends import Into, Rows, Stream, Write, query_of, same_file
from refold.tools.transfer_request import Transfer

Result = TypeVar("Result")


class SqliteSide:
    def __init__(self) -> None:
        self._blocking = Blocking("transfer")

    async def close(self) -> None:
        await self._blocking.close()

    async def moved_alone(self, transfer: Transfer) -> tuple[Sequence[Column], int] | None:
        """Within one file: a reader beside the writer would stand in its way."""
        path = transfer.target.keys["database"]
        if not same_file(path, transfer.source.keys["database"]):
            return None
        with opened(path, read_only=False) as db:
            return await self._run(db, lambda: in_transaction(db, True, lambda: _moved(db, transfer)))

    @asynccontextmanager
    async def reading(self, transfer: Transfer) -> AsyncIterator[Stream]:
        """The first rows are read at once: they tell the types, which SQLite has by value and not by column."""
        end = transfer.source
        statement, values = query_of(end, "sqlite", transfer.call.idempotency_key)
        with opened(end.keys["database"], read_only=True) as db:
            cursor, size = db.cursor(), transfer.chunk_size

            async def chunks(rows: Rows) -> AsyncIterator[Rows]:
                while rows:
                    yield rows
                    rows = await self._run(db, lambda: _some(cursor, size))

            names, rows = await self._run(db, lambda: _first(cursor, statement.text, values, size))
            yield Stream(columns_of_values(names, rows), chunks(rows))

    @asynccontextmanager
    async def writing(self, into: Into) -> AsyncIterator[Write]:
        transfer, columns = into.transfer, into.chosen.columns
        table = table_name(transfer.target.keys["table"], "sqlite")
        marks = f"values ({', '.join('?' * len(columns))})"
        insert = inserting(table, columns, transfer.key, marks)
        with opened(transfer.target.keys["database"], read_only=False) as db:

            def begin() -> None:
                db.execute("begin immediate")
                db.execute(creating(table, columns, transfer.key, "sqlite"))
                if transfer.mode == "replace":
                    db.execute(f"delete from {table}")

            async def write(rows: Rows) -> None:
                await self._run(db, lambda: db.executemany(insert, [list(map(_stored, row)) for row in rows]))

            await self._run(db, begin)
            yield write
            await self._run(db, lambda: db.execute("commit"))

    async def _run(self, db: apsw.Connection, do: Callable[[], Result]) -> Result:
        work = Work()
        work.stop = db.interrupt
        try:
            return await self._blocking.run(work, do, None)
        except apsw.Error as error:
            raise fault_of(error, None) from None


def _moved(db: apsw.Connection, transfer: Transfer) -> tuple[Sequence[Column], int]:
    statement, values = query_of(transfer.source, "sqlite", transfer.call.idempotency_key)
    names, rows = _first(db.cursor(), f"select * from ({statement.text}\n) limit {transfer.chunk_size}", values)
    choice = chosen(columns_of_values(names, rows), transfer.target.keys.get("mapping"))
    table = table_name(transfer.target.keys["table"], "sqlite")
    wanted = ", ".join(quoted(names[i]) for i in choice.places)
    given = f"with given({', '.join(map(quoted, names))}) as ({statement.text}\n) select {wanted} from given where true"
    db.execute(creating(table, choice.columns, transfer.key, "sqlite"))
    if transfer.mode == "replace":
        db.execute(f"delete from {table}")
    before = db.total_changes()
    db.execute(inserting(table, choice.columns, transfer.key, given), values)
    return choice.columns, db.total_changes() - before


def _first(cursor: apsw.Cursor, query: str, values: Sequence[Any], most: int = -1) -> tuple[list[str], Rows]:
    """The names of the columns, and the first rows."""
    columns: list[str] = []

    def begin(at: apsw.Cursor, *_: Any) -> bool:
        columns.extend(each[0] for each in at.get_description())
        return True

    cursor.exec_trace = begin
    cursor.execute(query, [bindable(value) for value in values])
    return distinct(columns), _some(cursor, most)


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
