"""The tool `sqlite`: statements on a file, or on a database in memory that ends with the step."""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import apsw

from refold.errors import ToolFailed
from refold.ports import Call
from refold.tools.keys import Keys, refused
from refold.tools.sql_blocking import Blocking, Work
from refold.tools.sql_catalog import SQLITE
from refold.tools.sql_faults import failure, timed_out
from refold.tools.sql_request import Request, request_of
from refold.tools.sql_text import Statement
from refold.tools.sql_values import json_text

MEMORY = ":memory:"
PATIENCE = 5000  # milliseconds for another one's lock
TIMEOUT_CODE = "SQLITE_INTERRUPT"

KINDS: Mapping[int, str] = {
    apsw.SQLITE_CONSTRAINT: "db_constraint",
    apsw.SQLITE_BUSY: "db_deadlock",
    apsw.SQLITE_LOCKED: "db_deadlock",
    apsw.SQLITE_INTERRUPT: "db_timeout",
    apsw.SQLITE_FULL: "storage_quota",
    apsw.SQLITE_READONLY: "storage_access",
    apsw.SQLITE_PERM: "storage_access",
    apsw.SQLITE_AUTH: "storage_access",
    apsw.SQLITE_CANTOPEN: "storage_access",
    apsw.SQLITE_NOTADB: "storage_access",
    apsw.SQLITE_CORRUPT: "storage_access",
    apsw.SQLITE_IOERR: "db_connection",
    apsw.SQLITE_MISMATCH: "client_error",
    apsw.SQLITE_TOOBIG: "client_error",
    apsw.SQLITE_RANGE: "client_error",
}

Result = TypeVar("Result")


class SqliteTool:
    def __init__(self) -> None:
        self._keys = Keys(SQLITE)
        self._blocking = Blocking("sqlite")

    async def __call__(self, call: Call) -> Any:
        keys = self._keys.read(call).keys
        request = request_of(call, keys, "sqlite")
        path, work = keys.get("database", MEMORY), Work()
        try:
            return await self._blocking.run(work, lambda: _answer(path, request, work), request.timeout)
        except TimeoutError:
            raise timed_out(request.timeout, TIMEOUT_CODE) from None

    async def close(self) -> None:
        await self._blocking.close()


def _answer(path: str, request: Request, work: Work) -> dict[str, Any]:
    with opened(path, request.read_only) as db:
        work.stop = db.interrupt
        return in_transaction(db, request.as_one, lambda: _run(db, request))


class opened:
    """A connection, closed in any case. A name such as `file:x?mode=ro` is a name, and no address."""

    def __init__(self, path: str, read_only: bool) -> None:
        memory = path in ("", MEMORY)
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        if read_only and not memory:
            flags = apsw.SQLITE_OPEN_READONLY
        try:
            self.db = apsw.Connection(MEMORY if memory else path, flags=flags)
            self.db.set_busy_timeout(PATIENCE)
            self.db.pragma("foreign_keys", True)
            if read_only:
                self.db.pragma("query_only", True)
        except apsw.Error as error:
            raise fault_of(error, None, path) from None

    def __enter__(self) -> apsw.Connection:
        return self.db

    def __exit__(self, *_: object) -> None:
        self.db.close()


def in_transaction(db: apsw.Connection, as_one: bool, do: Callable[[], Result]) -> Result:
    """A commit that another one's lock holds up fails as a whole."""
    if not as_one:
        return do()
    try:
        db.execute("begin")
        result = do()
        db.execute("commit")
        return result
    except apsw.Error as error:
        raise fault_of(error, None) from None


def _run(db: apsw.Connection, request: Request) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for statement in request.statements:
        try:
            result = _one(db, request, statement)
        except apsw.Error as error:
            raise fault_of(error, statement) from None
        except OverflowError:
            raise refused("a number of `params` is too large for SQLite: it has 64 bits", "client_error") from None
        except UnicodeDecodeError:
            raise refused("a text of the result is no UTF-8; cast it to blob", "client_error") from None
    return result


def _one(db: apsw.Connection, request: Request, statement: Statement) -> dict[str, Any]:
    rows, before = request.rows(), db.total_changes()
    cursor = db.cursor()
    columns: list[str] = []

    def begin(at: apsw.Cursor, *_: Any) -> bool:
        columns.extend(each[0] for each in at.get_description())
        return True

    cursor.exec_trace = begin
    cursor.execute(statement.text, [bindable(each) for each in request.bound(statement)])
    if not columns:
        return {"affected_rows": db.total_changes() - before}
    rows.begin(columns)
    rows.add(cursor)
    return rows.result()


def bindable(value: Any) -> Any:
    return json_text(value) if isinstance(value, (list, Mapping)) else value


def fault_of(error: apsw.Error, statement: Statement | None, path: str = "") -> ToolFailed:
    result, extended = getattr(error, "result", 0), getattr(error, "extendedresult", 0)
    code = apsw.mapping_extended_result_codes.get(extended) or apsw.mapping_result_codes.get(result, "SQLITE_ERROR")
    kind = KINDS.get(result) or _kind_of_text(str(error))
    message = f"{path}: {error}" if path else str(error)
    return failure(kind, message, str(code), statement, _offset(error, statement))


def _kind_of_text(text: str) -> str:
    """SQLite has one code for whatever is wrong with a statement."""
    if re.search(r"syntax error|unrecognized token|incomplete input", text):
        return "parse"
    return "schema" if re.match(r"no such|.* has no column|table .* has|ambiguous", text) else "unknown"


def _offset(error: apsw.Error, statement: Statement | None) -> int | None:
    """SQLite counts bytes."""
    offset = getattr(error, "error_offset", -1)
    return len(statement.text.encode()[:offset].decode(errors="replace")) if statement and offset >= 0 else None
