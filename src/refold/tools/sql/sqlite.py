"""The tool `sqlite`: statements on a file, or on a database in memory that ends with the step."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import apsw

from refold.errors import ToolFailed
from refold.tool_api import refused
from refold.tools.sql.driver import BlockingTool, Driver, Work
from refold.tools.sql.faults import failure
from refold.tools.sql.info import SQLITE
from refold.tools.sql.request import SqlRequest
from refold.tools.sql.text import Statement
from refold.tools.sql.values import json_text

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


def sqlite_tool() -> BlockingTool:
    return BlockingTool(SQLITE, "sqlite", TIMEOUT_CODE, _answer)


def _answer(keys: Mapping[str, Any], request: SqlRequest, work: Work) -> dict[str, Any]:
    with SqliteFile(keys.get("database", MEMORY), request.read_only) as db:
        work.stop = db.interrupt
        return DRIVER.answer(db, request, work, lambda statement: _one(db, request, statement))


class SqliteFile:
    """Open a connection that is closed in any case. A name such as `file:x?mode=ro` is a file name, not an address."""

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


def _one(db: apsw.Connection, request: SqlRequest, statement: Statement) -> dict[str, Any]:
    try:
        return _run(db, request, statement)
    except OverflowError:
        raise refused("a number of `params` is too large for SQLite: it has 64 bits", "client_error") from None
    except UnicodeDecodeError:
        raise refused("a text of the result is not UTF-8; cast it to blob", "client_error") from None


def _run(db: apsw.Connection, request: SqlRequest, statement: Statement) -> dict[str, Any]:
    rows, before = request.rows(), db.total_changes()
    cursor = db.cursor()
    columns = executed(cursor, statement.text, request.bound(statement))
    if not columns:
        return {"affected_rows": db.total_changes() - before}
    rows.begin(columns)
    rows.add(cursor)
    return rows.result()


def executed(cursor: apsw.Cursor, text: str, values: Sequence[Any]) -> list[str]:
    """The names of its columns, which SQLite tells of a result without rows only while it begins."""
    columns: list[str] = []

    def begin(at: apsw.Cursor, *_: Any) -> bool:
        columns.extend(each[0] for each in at.get_description())
        return True

    cursor.exec_trace = begin
    cursor.execute(text, [_bindable(value) for value in values])
    return columns


def _bindable(value: Any) -> Any:
    return json_text(value) if isinstance(value, (list, Mapping)) else value


def fault_of(error: apsw.Error, statement: Statement | None, path: str = "") -> ToolFailed:
    result, extended = getattr(error, "result", 0), getattr(error, "extendedresult", 0)
    code = apsw.mapping_extended_result_codes.get(extended) or apsw.mapping_result_codes.get(result, "SQLITE_ERROR")
    kind = KINDS.get(result) or _kind_of_text(str(error))
    message = f"{path}: {error}" if path else str(error)
    return failure(kind, message, str(code), statement, _offset(error, statement))


def _kind_of_text(text: str) -> str:
    """Return the kind of an error from its text, because SQLite has one code for all errors in a statement."""
    if re.search(r"syntax error|unrecognized token|incomplete input", text):
        return "parse"
    return "schema" if re.match(r"no such|.* has no column|table .* has|ambiguous", text) else "unknown"


def _offset(error: apsw.Error, statement: Statement | None) -> int | None:
    """Return the place of an error in characters; SQLite counts bytes."""
    offset = getattr(error, "error_offset", -1)
    return len(statement.text.encode()[:offset].decode(errors="replace")) if statement and offset >= 0 else None


DRIVER = Driver(apsw.Error, fault_of)
