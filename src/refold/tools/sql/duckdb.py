"""The tool `duckdb`: runs statements on a file, or on a database in memory that ends with the step."""

import os
import re
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
from msgspec import Struct

from refold.errors import ToolFailed
from refold.tool_api import refused
from refold.tools.sql.driver import BlockingTool, Driver, Work
from refold.tools.sql.faults import failure
from refold.tools.sql.info import DUCKDB
from refold.tools.sql.request import SqlRequest
from refold.tools.sql.text import Statement, quoted
from refold.tools.sql.values import parsed

CONFIG: dict[str, Any] = {"autoinstall_known_extensions": "false"}  # nothing is fetched from anywhere unasked
PATIENCE = 5.0  # seconds, for those who read to let a writer in


class _Open(Struct):
    root: duckdb.DuckDBPyConnection
    read_only: bool
    users: int = 0


class Files:
    """Open database files. Each is closed with its last user, so that other processes can open it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open: dict[str, _Open] = {}

    def open(self, path: str, read_only: bool) -> duckdb.DuckDBPyConnection:
        """Who only reads takes part in what is open for writing; who writes waits for those who read. Raises what
        DuckDB raises."""
        until = time.monotonic() + PATIENCE
        with self._changed:
            while (found := self._open.get(path)) is not None and found.read_only and not read_only:
                if not self._changed.wait(until - time.monotonic()):
                    raise duckdb.ConnectionException(f"{path} is being read, and is not free for writing")
            if found is None:
                found = self._open[path] = _Open(duckdb.connect(path, read_only=read_only, config=CONFIG), read_only)
            found.users += 1
            return found.root.cursor()

    def close(self, path: str) -> None:
        with self._changed:
            found = self._open[path]
            found.users -= 1
            if not found.users:
                del self._open[path]
                found.root.close()
            self._changed.notify_all()


FILES = Files()

MEMORY = ":memory:"
ABORTED = "Current transaction is aborted"
TIMEOUT_CODE = "DUCKDB_INTERRUPT"
READING = {"SELECT", "EXPLAIN"}
CHANGING = {"INSERT", "UPDATE", "DELETE", "MERGE_INTO"}
DESCRIBED = {"SELECT", "WITH", "FROM", "VALUES", "TABLE"}
GIVING_ROWS = {*READING, "PRAGMA", "CALL", "EXECUTE", "RELATION", "LOGICAL_PLAN"}

# Types that Python has no equal of: months, nanoseconds, infinite days, places on the globe.
AS_TEXT = re.compile(r"TIMESTAMP|DATE|INTERVAL|TIME|BIT|UHUGEINT|VARIANT|BIGNUM|GEOMETRY")

KINDS: Sequence[tuple[type[Exception], str]] = (
    (duckdb.ConstraintException, "db_constraint"),
    (duckdb.TransactionException, "db_deadlock"),
    (duckdb.InterruptException, "db_timeout"),
    (duckdb.ParserException, "parse"),
    (duckdb.SyntaxException, "parse"),
    (duckdb.CatalogException, "schema"),
    (duckdb.BinderException, "schema"),
    (duckdb.ConnectionException, "db_connection"),
    (duckdb.HTTPException, "connection"),
    (duckdb.OutOfMemoryException, "storage_quota"),
    (duckdb.PermissionException, "storage_access"),
    (duckdb.IOException, "storage_access"),
    (duckdb.DataError, "client_error"),
    (duckdb.InvalidInputException, "client_error"),
    (duckdb.ProgrammingError, "client_error"),
)


def duckdb_tool() -> BlockingTool:
    return BlockingTool(DUCKDB, "duckdb", TIMEOUT_CODE, _answer)


def _answer(keys: Mapping[str, Any], request: SqlRequest, work: Work) -> dict[str, Any]:
    with DuckdbFile(keys.get("database", MEMORY), request.read_only) as db:
        work.stop = db.interrupt
        search_in(db, request.folder)
        for name, path in keys.get("attach", {}).items():
            attach(db, name, path, request.read_only)
        return DRIVER.answer(db, request, work, lambda statement: _one(db, request, statement))


def search_in(db: duckdb.DuckDBPyConnection, folder: str | None) -> None:
    """Let statements read files of the folder by their names. A name that is also in the folder of this process means
    the file there, and files are written there: DuckDB has no setting for that."""
    if folder is not None:
        text = folder.replace("'", "''")
        with DRIVER.faults():
            db.execute(f"set file_search_path = '{text}'")


def attach(db: duckdb.DuckDBPyConnection, name: str, path: Any, read_only: bool) -> None:
    if not isinstance(path, str):
        raise refused(f"`attach.{name}` must be the path of a database")
    with DRIVER.faults():
        db.execute(f"attach $1 as {quoted(name)}{' (read_only)' if read_only else ''}", [path])


class DuckdbFile:
    """Open a connection of its own, closed in any case."""

    def __init__(self, path: str, read_only: bool = False) -> None:
        self.path = "" if path in ("", MEMORY) else os.path.realpath(path)
        with DRIVER.faults():
            self.db = FILES.open(self.path, read_only) if self.path else duckdb.connect(MEMORY, config=CONFIG)

    def __enter__(self) -> duckdb.DuckDBPyConnection:
        return self.db

    def __exit__(self, *_: object) -> None:
        self.db.close()
        if self.path:
            FILES.close(self.path)


def _one(db: duckdb.DuckDBPyConnection, request: SqlRequest, statement: Statement) -> dict[str, Any]:
    kind = kind_of(db, statement.text)
    if request.read_only and kind not in READING:
        raise refused(f"`read_only` allows no {kind}: only queries", "client_error")
    values, rows = request.bound(statement), request.rows()
    asked = kind == "SELECT" and statement.words[:1] and statement.words[0] in DESCRIBED
    columns = described(db, statement.text, values) if asked else None
    db.execute(statement.text if columns is None else telling(statement.text, columns), values)
    if not (kind in GIVING_ROWS or (kind in CHANGING and db.rowcount == -1)):
        return {"affected_rows": max(db.rowcount, 0)}
    if columns is None:
        columns = [(each[0], str(each[1])) for each in db.description or ()]
        if any(AS_TEXT.search(each) for _, each in columns):
            raise refused("DuckDB has no exact form for a type of this result; cast it to VARCHAR", "client_error")
    rows.begin(name for name, _ in columns)
    is_json = [is_told_as_json(each) for _, each in columns]
    while some := db.fetchmany(rows.room):
        rows.add([_read(row, is_json) for row in some] if any(is_json) else some)
    return rows.result()


def _read(row: Sequence[Any], is_json: Sequence[bool]) -> list[Any]:
    return [parsed(each) if json and isinstance(each, str) else each for each, json in zip(row, is_json, strict=True)]


def kind_of(db: duckdb.DuckDBPyConnection, text: str) -> str:
    found = db.extract_statements(text)
    return str(found[0].type).rpartition(".")[2] if found else "NOTHING"


def described(db: duckdb.DuckDBPyConnection, text: str, values: Sequence[Any]) -> list[tuple[str, str]] | None:
    """Names and types of its columns, without running it; None if that is no question for this statement.

    Any other error is the statement's own, and is raised: it has ended the transaction, so that whatever is asked
    next would only be told that.
    """
    try:
        return [(row[0], row[1]) for row in db.execute(f"describe {text}", values).fetchall()]
    except duckdb.ParserException:
        return None


def telling(text: str, columns: Sequence[tuple[str, str]]) -> str:
    """Return the query with columns that have no Python type converted to text or JSON."""
    if not any(AS_TEXT.search(each) for _, each in columns):
        return text
    shown = ", ".join(_shown(f"c{i}", each) for i, (_, each) in enumerate(columns))
    names = ", ".join(f"c{i}" for i in range(len(columns)))
    return f"select {shown} from ({text}\n) as told({names})"


def is_told_as_json(kind: str) -> bool:
    return kind == "JSON" or (AS_TEXT.search(kind) is not None and re.search(r"[(\[]", kind) is not None)


def _shown(name: str, kind: str) -> str:
    if not AS_TEXT.search(kind):
        return name
    return f"to_json({name})" if is_told_as_json(kind) else _iso(name, kind)


def _iso(name: str, kind: str) -> str:
    text = f"cast({name} as varchar)"
    if not kind.startswith("TIMESTAMP"):
        return text
    dated = f"replace({text}, ' ', 'T')"
    return f"regexp_replace({dated}, '([+-]\\d\\d)$', '\\1:00')" if "ZONE" in kind else dated


def fault_of(error: duckdb.Error, statement: Statement | None) -> ToolFailed:
    text = str(error)
    kind = next((name for known, name in KINDS if isinstance(error, known)), "unknown")
    if "lock on file" in text or "file handle conflict" in text:
        kind = "db_connection"  # somebody else has it open, for now
    if ABORTED in text:
        kind = "client_error"  # an earlier statement has failed: nobody holds anything, and trying again helps nobody
    code = "DUCKDB_" + re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__.removesuffix("Exception")).upper()
    message, _, shown = text.partition("\n\nLINE ")
    found = re.match(r"(\d+): (.*)\n( *)\^", shown)
    return failure(kind, message.replace("\n", " "), code, statement, _offset(found, statement))


def _offset(found: re.Match[str] | None, statement: Statement | None) -> int | None:
    """Return the place of an error.

    DuckDB shows a line, shortened with dots if it is long, and an arrow under the place.
    """
    if found is None or statement is None:
        return None
    lines = statement.text.split("\n")[: int(found[1])]
    column = 0 if found[2].startswith("...") else len(found[3]) - len(f"LINE {found[1]}: ")
    return sum(len(line) + 1 for line in lines[:-1]) + max(column, 0)


DRIVER = Driver(duckdb.Error, fault_of)
