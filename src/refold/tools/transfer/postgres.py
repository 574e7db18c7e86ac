"""PostgreSQL as a source and as a target of transfers: read through a cursor, written by COPY in one transaction."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor
from psycopg.raw_cursor import AsyncRawServerCursor

from refold.tools.sql.postgres import PATIENCE, Connection, Exact, Moment, adapted, conninfo_of, fault_of
from refold.tools.sql.request import distinct
from refold.tools.sql.text import quoted
from refold.tools.sql.values import json_text
from refold.tools.transfer.columns import Column, inserting, newest, table_name
from refold.tools.transfer.request import End, Transfer
from refold.tools.transfer.sides import Into, Rows, Stream, Write, making, query_of

BY_NAME = {
    **dict.fromkeys(("int2", "int4", "int8", "oid"), "BIGINT"),
    **dict.fromkeys(("float4", "float8"), "DOUBLE"),
    **dict.fromkeys(("json", "jsonb"), "JSON"),
    "bool": "BOOLEAN",
    "date": "DATE",
    "time": "TIME",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMPTZ",
    "interval": "INTERVAL",
    "uuid": "UUID",
    "bytea": "BLOB",
}
AS_WRITTEN = (
    *("date", "time", "timetz", "timestamp", "timestamptz", "interval", "uuid", "json", "jsonb", "numeric"),
    *("inet", "cidr"),
)


class PostgresSide:
    async def close(self) -> None:
        """Each transfer has connections of its own."""

    async def moved_alone(self, transfer: Transfer) -> None:
        """Two servers do not know each other."""

    @asynccontextmanager
    async def reading(self, transfer: Transfer) -> AsyncIterator[Stream]:
        statement, values = query_of(transfer.source, "postgres", transfer.call.idempotency_key)
        async with _connected(transfer.source) as connection, connection.transaction():
            await connection.execute("set transaction read only")
            async with AsyncRawServerCursor(connection, "refold") as cursor:
                await cursor.execute(statement.text, [adapted(value) for value in values] or None)

                async def chunks() -> AsyncIterator[Rows]:
                    while rows := await cursor.fetchmany(transfer.chunk_size):
                        yield rows

                yield Stream(_columns(cursor.description or ()), chunks())

    @asynccontextmanager
    async def writing(self, into: Into) -> AsyncIterator[Write]:
        transfer, columns = into.transfer, into.chosen.columns
        table = table_name(transfer.target.keys["table"], "postgres")
        names = ", ".join(quoted(column.name) for column in columns)
        async with _connected(transfer.target) as connection, connection.transaction():
            for text in making(table, columns, transfer, "postgres"):
                await connection.execute(text)
            into_table = f"{WAITING} ({names})" if transfer.key else f"{table} ({names})"
            if transfer.key:
                await connection.execute(
                    f"create temporary table {WAITING} on commit drop as select {names} from {table} limit 0;"
                    f"alter table {WAITING} add n bigint generated always as identity"
                )
            async with connection.cursor().copy(f"copy {into_table} from stdin") as copy:

                async def write(rows: Rows) -> None:
                    for row in rows:
                        await copy.write_row([_written(value) for value in row])

                yield write
            if transfer.key:
                rows = newest(columns, transfer.key, WAITING, "n")
                await connection.execute(inserting(table, columns, transfer.key, rows))


WAITING = "refold_waiting"


@asynccontextmanager
async def _connected(end: End) -> AsyncIterator[Connection]:
    try:
        async with await AsyncConnection.connect(
            conninfo_of(end.keys), autocommit=True, cursor_factory=AsyncRawCursor, connect_timeout=int(PATIENCE)
        ) as connection:
            for name in AS_WRITTEN:
                connection.adapters.register_loader(name, Moment if name.startswith("timestamp") else Exact)
            yield connection
    except psycopg.Error as error:
        raise fault_of(error, None) from None


def _columns(description: Sequence[psycopg.Column]) -> list[Column]:
    names = distinct(each.name for each in description)
    return [Column(name, _type(each)) for name, each in zip(names, description, strict=True)]


def _type(column: psycopg.Column) -> str:
    known = psycopg.adapters.types.get(column.type_code)
    if known is not None and known.array_oid == column.type_code:
        return "JSON"
    name = known.name if known is not None else ""
    if name == "numeric":
        sized = column.precision is not None and column.precision <= 38
        return f"DECIMAL({column.precision},{column.scale})" if sized else "DECIMAL"
    return BY_NAME.get(name, "TEXT")


def _written(value: Any) -> Any:
    return json_text(value) if isinstance(value, (dict, list)) else value
