"""DuckDB, and the files it reads and writes, as sources and targets of transfers.

Between two of its own it moves rows by itself, in one statement. Rows from elsewhere wait in a file of its own until
they are a file of theirs, so that no more than a chunk is ever in memory.
"""

import os
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

import duckdb

from refold.tool_api import folder_of, refused
from refold.tools.sql.driver import BlockingCalls, SharedConnection
from refold.tools.sql.duckdb import DRIVER, DuckdbFile, described, search_in, telling
from refold.tools.sql.faults import failure
from refold.tools.sql.request import distinct
from refold.tools.sql.text import quoted
from refold.tools.sql.values import json_text, json_value
from refold.tools.transfer.columns import Chosen, Column, chosen, inserting, newest, table_name
from refold.tools.transfer.request import End, Transfer
from refold.tools.transfer.sides import Into, Rows, Stream, Write, making, query_of, same_file

Db = duckdb.DuckDBPyConnection

READERS = {"csv": "read_csv", "json": "read_json", "jsonl": "read_json", "parquet": "read_parquet"}
WRITING = {
    "csv": "format csv, header true",
    "json": "format json, array true",
    "jsonl": "format json",
    "parquet": "format parquet",
}
WAITING = '"waiting"'
WHOLE = re.compile(r"U?(TINY|SMALL|BIG)?INT(EGER)?")
SAME = {"BOOLEAN", "DOUBLE", "DATE", "TIME", "TIMESTAMP", "INTERVAL", "UUID", "BLOB", "JSON"}


class DuckdbSide:
    def __init__(self) -> None:
        self._blocking = BlockingCalls("transfer")

    async def close(self) -> None:
        """Each transfer has connections of its own."""

    async def moved_alone(self, transfer: Transfer) -> tuple[Sequence[Column], int] | None:
        """From one of its own to another, unless another step has the source's file open: that is not opened twice."""
        database = transfer.target.keys.get("database") or transfer.source.keys.get("database", "")
        only_reads = transfer.target.is_file and "database" in transfer.source.keys
        async with self._held(lambda: DuckdbFile(database, only_reads)) as held:
            search_in(held.db, folder_of(transfer.call))
            moved = await held.run(lambda: _moved(held, transfer))
            if moved is not None and not transfer.target.is_file:
                await held.run(lambda: held.db.execute("commit"))
            return moved

    @asynccontextmanager
    async def reading(self, transfer: Transfer) -> AsyncIterator[Stream]:
        async with self._held(lambda: DuckdbFile(transfer.source.keys.get("database", ""), read_only=True)) as held:
            db = held.db
            search_in(db, folder_of(transfer.call))
            text, values = _query(transfer.source, transfer)

            def begin() -> Sequence[Column]:
                found = described(db, text, values)
                db.execute(text if found is None else telling(text, found), values)
                return _columns(found or [(each[0], str(each[1])) for each in db.description or ()])

            async def chunks() -> AsyncIterator[Rows]:
                while rows := await held.run(lambda: db.fetchmany(transfer.chunk_size)):
                    yield rows

            yield Stream(await held.run(begin), chunks())

    @asynccontextmanager
    async def writing(self, into: Into) -> AsyncIterator[Write]:
        transfer, columns = into.transfer, into.chosen.columns
        async with self._held(lambda: _room_for(transfer.target)) as held:
            db = held.db
            table = WAITING if transfer.target.is_file else table_name(transfer.target.keys["table"], "duckdb")
            typed = [f"{_cast(f'c{i}', column)} as {quoted(column.name)}" for i, column in enumerate(columns)]
            lists = [f"unnest(${i}::varchar[]) as c{i - 1}" for i in range(1, len(columns) + 1)]
            rows_ = f"(select {', '.join(typed)}, n from (select {', '.join(lists)}, generate_subscripts($1, 1) as n))"
            insert = inserting(table, columns, transfer.key, _rows(columns, transfer.key, rows_, "n"))

            async def write(rows: Rows) -> None:
                values = [[_text(value) for value in column] for column in zip(*rows, strict=True)]
                await held.run(lambda: db.execute(insert, values))

            await held.run(lambda: _begin(db, table, columns, transfer))
            yield write
            await held.run(lambda: db.execute("commit"))
            if transfer.target.is_file:
                await held.run(lambda: _copied(held, f"select * from {WAITING}", [], transfer.target))

    def _held(self, connect: Callable[[], AbstractContextManager[Db]]) -> SharedConnection[Db]:
        return SharedConnection(DRIVER, self._blocking, connect)


def _moved(held: SharedConnection[Db], transfer: Transfer) -> tuple[Sequence[Column], int] | None:
    """What it does to a table waits for the commit."""
    db, target = held.db, transfer.target
    main = db.execute("select current_database()").fetchone()
    assert main is not None
    if not _attach_source(db, transfer):
        return None
    text, values = _query(transfer.source, transfer)
    found = described(db, text, values)
    if found is None:
        db.execute(text, values)  # raises what is wrong with it
        raise refused("`source.query` must give rows")
    choice = chosen(_columns(found), target.keys.get("mapping"))
    selected = _selected(text, choice, found)
    if target.is_file:
        return choice.columns, _copied(held, selected, values, target)
    table = f"{quoted(main[0])}.{_in_schema(table_name(target.keys['table'], 'duckdb'))}"
    _begin(db, table, choice.columns, transfer)
    rows = _rows(choice.columns, transfer.key, f"({selected})", "rowid_")
    count = db.execute(inserting(table, choice.columns, transfer.key, rows), values).fetchone()
    return choice.columns, int(count[0]) if count else 0


def _attach_source(db: Db, transfer: Transfer) -> bool:
    """The query of a source is asked in its own database."""
    path = transfer.source.keys.get("database")
    if path is None or transfer.target.is_file or same_file(path, transfer.target.keys["database"]):
        return True
    try:
        db.execute("attach $1 as source (read_only)", [path])
    except duckdb.Error as error:
        if "file handle conflict" in str(error):
            return False
        raise
    db.execute("use source")
    return True


def _in_schema(table: str) -> str:
    return table if '"."' in table else f"main.{table}"


def _selected(text: str, choice: Chosen, found: Sequence[tuple[str, str]]) -> str:
    names = ", ".join(f"c{i}" for i in range(len(found)))
    wanted = [f"c{i} as {quoted(column.name)}" for i, column in zip(choice.places, choice.columns, strict=True)]
    return f"select {', '.join(wanted)} from ({text}\n) as given({names})"


def _rows(columns: Sequence[Column], key: Sequence[str], rows: str, order: str) -> str:
    names = ", ".join(quoted(column.name) for column in columns)
    if not key:
        return f"select {names} from {rows}"
    numbered = rows if order == "n" else f"(select *, row_number() over () as {order} from {rows})"
    return newest(columns, key, numbered, order)


def _begin(db: Db, table: str, columns: Sequence[Column], transfer: Transfer) -> None:
    for text in ("begin", *making(table, columns, transfer, "duckdb")):
        db.execute(text)


def _room_for(target: End) -> AbstractContextManager[Db]:
    return _waiting_room() if target.is_file else DuckdbFile(target.keys["database"])


@contextmanager
def _waiting_room() -> Iterator[Db]:
    with tempfile.TemporaryDirectory(prefix="refold-") as folder, DuckdbFile(os.path.join(folder, "rows.duckdb")) as db:
        yield db


def _copied(held: SharedConnection[Db], query: str, values: Sequence[Any], target: End) -> int:
    """A file that is there is as it was until the new one is whole."""
    db, path = held.db, target.keys["path"]
    beside = f"{path}.{os.urandom(4).hex()}.part"
    form = ", ".join([WRITING[target.type], *_options(target)])
    rows = f"refold_{os.urandom(4).hex()}"
    try:
        # A query that fails while a file is being written may never return, so that it is made before.
        db.execute(f"create temp table {rows} as {query}", list(values))
        found = db.execute(f"copy {rows} to {_literal(beside)} ({form})").fetchone()
        db.execute(f"drop table {rows}")
        held.check()
        os.replace(beside, path)
    except OSError as error:
        raise failure("storage_access", str(error), "FILE_ERROR") from None
    finally:
        if os.path.exists(beside):
            os.remove(beside)
    return int(found[0]) if found else 0


def _query(end: End, transfer: Transfer) -> tuple[str, list[Any]]:
    if not end.is_file:
        statement, values = query_of(end, "duckdb", transfer.call.idempotency_key)
        return statement.text, values
    more = ["format = 'newline_delimited'"] if end.type == "jsonl" else []
    named = [f"{name} = {_literal(value)}" for name, value in _named(end).items()]
    return f"select * from {READERS[end.type]}({', '.join(['$1', *more, *named])})", [end.keys["path"]]


def _options(end: End) -> list[str]:
    return [f"{name} {_literal(value)}" for name, value in _named(end).items()]


def _named(end: End) -> Mapping[str, Any]:
    options = end.keys.get("options", {})
    if not isinstance(options, Mapping) or not all(re.fullmatch(r"[a-z_]+", str(name)) for name in options):
        raise refused("`options` is a map of DuckDB's options for such files, such as {delim: ';'}")
    return options


def _literal(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case list():
            return f"[{', '.join(map(_literal, value))}]"
        case dict():
            return "{" + ", ".join(f"{_literal(str(name))}: {_literal(each)}" for name, each in value.items()) + "}"
        case _:
            return "'" + str(value).replace("'", "''") + "'"


def _columns(found: Sequence[tuple[str, str]]) -> list[Column]:
    names = distinct(name for name, _ in found)
    return [Column(name, _type(kind)) for name, (_, kind) in zip(names, found, strict=True)]


def _type(kind: str) -> str:
    if WHOLE.fullmatch(kind) and kind != "UBIGINT":
        return "BIGINT"
    if kind in SAME or re.fullmatch(r"DECIMAL\(\d+,\s*\d+\)", kind):
        return kind
    if re.search(r"[(\[]", kind) and not kind.startswith("ENUM"):
        return "JSON"
    return OTHERS.get(kind, "TEXT")


OTHERS = {
    "HUGEINT": "DECIMAL(38,0)",
    "UBIGINT": "DECIMAL(20,0)",
    "FLOAT": "DOUBLE",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMPTZ",
    "TIMESTAMP_S": "TIMESTAMP",
    "TIMESTAMP_MS": "TIMESTAMP",
    "TIMESTAMP_NS": "TIMESTAMP",
}


def _cast(name: str, column: Column) -> str:
    kind = column.type_in("duckdb")
    return f"unhex({name})" if kind == "BLOB" else f"cast({name} as {kind})"


def _text(value: Any) -> str | None:
    match value:
        case None | str():
            return value
        case bytes() | bytearray() | memoryview():
            return bytes(value).hex()
        case list() | dict():
            return json_text(value)
        case bool() | int() | float():
            return str(value)
        case _:
            return str(json_value(value))
