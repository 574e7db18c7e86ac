"""One session of the server: opened when it is needed, opened again after an error, and counted by its round trips."""

import logging
import random
import re
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from threading import RLock
from typing import Any, TypeVar

import psycopg
from psycopg import errors as pg
from psycopg.pq import ExecStatus, TransactionStatus

from refold.errors import Ambiguous, Conflict, Corrupt, Outdated, RefoldError, Unavailable, Unreachable, Unusable
from refold.stores.postgres import arrays, queries
from refold.stores.postgres.address import Address
from refold.stores.postgres.pooler import is_shared

logging.getLogger("psycopg").addHandler(logging.NullHandler())  # it would print what store_error says already

T = TypeVar("T")
Row = tuple[Any, ...]
Statement = tuple[str, Sequence[Any]]

OLDEST = 140000
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds between two attempts to connect

CONNECT = {
    "connect_timeout": 5,
    "tcp_user_timeout": 10_000,
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "application_name": "refold",
    "target_session_attrs": "read-write",
}
"""A client must not wait for ever on a cable that is cut. The last setting finds the primary among several hosts."""

SETTINGS = {
    "statement_timeout": "10s",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "10s",
    "default_transaction_isolation": "read committed",
    "standard_conforming_strings": "on",
    "timezone": "UTC",
    "plan_cache_mode": "force_generic_plan",
}

OF_TRANSACTION: Statement = (
    "select " + ", ".join("set_config(%s, %s, true)" for _ in SETTINGS) + ", case when current_setting("
    "'synchronous_commit') in ('off', 'local') then set_config('synchronous_commit', 'on', true) end",
    [each for setting in SETTINGS.items() for each in setting],
)
"""Behind a pooler a session may be another one in the next transaction, and belongs to others afterwards."""

END_SESSION = "select pg_terminate_backend(pid, 5000) from pg_stat_activity where pid = %s and backend_start = %s"
"""Waits until it has ended."""

WRONG_VALUE = re.compile(r"invalid \w+ value|invalid integer value|invalid port number")
"""What libpq says about settings in an address before it connects."""

LOST_LEASE, LOST_RUN, NEW_FLOOR = "RF001", "RF002", "RF003"


class Session:
    """Used by one thread at a time; others wait for `guard`."""

    def __init__(self, address: Address, *, reading: bool = False) -> None:
        self.address, self.reading = address, reading
        self.guard = RLock()
        self.trips = 0
        self.is_pinned = False  # a turn needs this connection and no other
        self._connection: psycopg.Connection[Any] | None = None
        self._failures, self._not_before = 0, 0.0
        self._away_since = 0.0  # when the first of these attempts failed
        self._is_closed = False
        self.is_shared = False  # a pooler gives each transaction of this connection to any session
        self.pid = 0
        self.started: Any = None  # when the backend began: a pid may be used again
        self.lost: list[tuple[int, Any]] = []  # sessions that broke, and may still commit
        self.on_connect: Callable[[psycopg.Connection[Any]], None] | None = None

    @property
    def raw(self) -> psycopg.Connection[Any]:
        connection = self._connection
        if connection is None or connection.closed:
            if self.is_pinned:
                raise Unreachable(f"{self.address.shown}: the connection was lost in the middle of a turn")
            connection = self._connect()
        return connection

    def is_open(self) -> bool:
        return self._connection is not None and not self._connection.closed

    def _connect(self) -> psycopg.Connection[Any]:
        if self._is_closed:
            raise Unusable(f"{self.address.shown} was closed")
        wait = self._not_before - time.monotonic()
        if wait > 0:
            time.sleep(min(wait, LONGEST_PAUSE))
        try:
            self._connection = connection = self._opened()
        except psycopg.Error as error:
            self._failures += 1
            self._away_since = self._away_since or time.monotonic()
            away = time.monotonic() - self._away_since  # a server that was away shortly is asked again soon
            longest = min(FIRST_PAUSE * 2 ** min(self._failures, 10), max(FIRST_PAUSE, away), LONGEST_PAUSE)
            self._not_before = time.monotonic() + random.uniform(0, longest)
            raise connection_error(error, self.address) from error
        self._failures, self._away_since = 0, 0.0
        return connection

    def _opened(self) -> psycopg.Connection[Any]:
        settings = {**CONNECT}
        if self.reading:
            del settings["target_session_attrs"]
        url = self.address.url
        for key in list(settings):
            if f"{key}=" in url:
                del settings[key]  # what the URL says counts
        connection = psycopg.connect(url, autocommit=True, **settings)  # type: ignore[arg-type]
        try:
            if connection.info.server_version < OLDEST:
                version = connection.info.server_version // 10000
                raise Unusable(f"{self.address.shown} is PostgreSQL {version}; Refold needs 14 or newer")
            arrays.register(connection)
            self.is_shared = is_shared(url, connection, settings)
            connection.prepare_threshold = None if self.is_shared else 0
            connection.prepared_max = 500
            if not self.is_shared:
                self._set_up(connection)
            if self.on_connect is not None:
                self.on_connect(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _set_up(self, connection: psycopg.Connection[Any]) -> None:
        names = ", ".join("set_config(%s, %s, false)" for _ in SETTINGS)
        values = [each for setting in SETTINGS.items() for each in setting]
        row = connection.execute(
            f"select pg_backend_pid(), (select backend_start from pg_stat_activity where pid = pg_backend_pid()),"
            f" current_setting('synchronous_commit'), {names}",
            values,
            prepare=False,
        ).fetchone()
        assert row is not None
        self.pid, self.started = int(row[0]), row[1]
        if row[2] in ("off", "local"):
            connection.execute("set synchronous_commit = on", prepare=False)

    def text(self, sql: str) -> str:
        return in_schema(sql, self.address.schema)

    def rows(self, sql: str, *values: Any) -> list[Row]:
        """One statement, one round trip."""
        with self.guard:
            return self.run([(sql, values)])[0]

    def run(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """All statements in one round trip, in one transaction unless one is open already; the rows of each."""
        with self.guard:
            connection = self.raw
            self.trips += 1
            try:
                if self.is_shared and connection.info.transaction_status == TransactionStatus.IDLE:
                    return self._run_shared(connection, statements)
                if len(statements) == 1:
                    sql, values = statements[0]
                    cursor = connection.cursor(binary=True)
                    cursor.execute(self.text(sql), values, prepare=True)
                    return [_fetched(cursor)]
                return self._run_together(connection, statements)
            except psycopg.Error as error:
                if connection.closed:
                    self._note_lost()
                raise store_error(error, self.address) from error

    def _run_together(self, connection: psycopg.Connection[Any], statements: Sequence[Statement]) -> list[list[Row]]:
        with connection.pipeline():
            cursors = []
            for sql, values in statements:
                cursor = connection.cursor(binary=True)
                cursor.execute(self.text(sql), values, prepare=True)
                cursors.append(cursor)
        return [_fetched(cursor) for cursor in cursors]

    def _run_shared(self, connection: psycopg.Connection[Any], statements: Sequence[Statement]) -> list[list[Row]]:
        """With the settings of the transaction that begins."""
        at = 1 if statements[0][0] == queries.BEGIN else 0
        results = self._run_together(connection, [*statements[:at], OF_TRANSACTION, *statements[at:]])
        return results[:at] + results[at + 1 :]

    def _note_lost(self) -> None:
        self.lost = [*self.lost[-9:], (self.pid, self.started)]

    def end_lost(self) -> None:
        """End the sessions that broke, so that none of them commits from now on. Raises Ambiguous. Behind a pooler
        nobody knows which ones they were."""
        while self.lost and not self.is_shared:
            pid, started = self.lost[-1]
            try:
                rows = self.run([(END_SESSION, (pid, started))])[0]
            except Unusable as error:
                raise Ambiguous(f"a session that broke cannot be ended: {error}") from error
            if rows and not rows[0][0]:
                raise Ambiguous(f"the session {pid} that broke is still there, and may commit")
            self.lost.pop()

    def script(self, sql: str) -> None:
        """Statements without values, as in a migration."""
        with self.guard:
            try:
                self.raw.execute(self.text(sql), prepare=False)
            except psycopg.Error as error:
                raise store_error(error, self.address) from error

    def roll_back(self) -> None:
        """End an open transaction; a session that cannot do that is dropped."""
        connection = self._connection
        if connection is None or connection.closed:
            return
        try:
            if connection.info.transaction_status != TransactionStatus.IDLE:
                self.trips += 1
                connection.execute("rollback", prepare=False)
        except psycopg.Error:
            self.drop()

    def drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        with self.guard:
            self._is_closed = True
            self.drop()


def _fetched(cursor: psycopg.Cursor[Any]) -> list[Row]:
    result = cursor.pgresult
    return cursor.fetchall() if result is not None and result.status == ExecStatus.TUPLES_OK else []


@lru_cache(maxsize=500)
def in_schema(sql: str, schema: str) -> str:
    return sql if schema == "refold" else sql.replace("refold.", f"{schema}.")


def store_error(error: psycopg.Error, address: Address) -> Exception:
    """What the caller should do about an error of the server; a defect of this store is what it is."""
    state = error.sqlstate or ""
    if not state and isinstance(error, psycopg.ProgrammingError):
        return error
    text = _text(error)
    if isinstance(error, pg.UniqueViolation) or state in (LOST_LEASE, LOST_RUN, NEW_FLOOR):
        return Outdated(f"another process was first: {text}")
    if state in ("3F000", "42P01", "42883", "42703"):
        return Unusable(f"{address.shown} has not the tables that this release needs ({text}): run `refold db migrate`")
    if state == "25006":
        return Unreachable(f"{address.shown} is read-only: {text}")
    if state == "42501":
        return Unusable(f"{address.shown} does not allow it: {text}")
    if state in ("3D000", "57P04"):
        return Unusable(f"{address.shown}: the database is gone: {text}")
    if state in ("XX001", "XX002"):
        return Corrupt(f"{address.shown}: {text}")
    if state[:2] in ("22", "42"):
        return Conflict(f"{address.shown} refuses a statement: {text}")
    if state[:2] in ("08", "57", "53", "58") or not state:
        return Unreachable(f"{address.shown}: {text}")
    return Unavailable(f"{address.shown}: {text}")


def connection_error(error: psycopg.Error, address: Address) -> RefoldError:
    text = _text(error)
    low = text.lower()
    if "password authentication failed" in low or "no password supplied" in low:
        return Unusable(f"{address.shown} does not accept the user or the password: {text}")
    if "does not exist" in low and "database" in low:
        return Unusable(f"{address.shown}: there is no such database: {text}")
    if "role" in low and "does not exist" in low:
        return Unusable(f"{address.shown}: there is no such user: {text}")
    if "no pg_hba.conf entry" in low or ("ssl" in low and "required" in low):
        return Unusable(f"{address.shown} does not accept connections from here: {text}")
    if "could not translate host name" in low or "name or service not known" in low:
        return Unusable(f"{address.shown}: the host is not known: {text}")
    if "read-only" in low or "session is not read-write" in low:
        return Unreachable(f"{address.shown} is read-only, or a replica: {text}")
    if isinstance(error, psycopg.ProgrammingError) or WRONG_VALUE.search(low) is not None:
        return Unusable(f"{address.shown} is not an address of PostgreSQL: {text}")
    return Unreachable(f"{address.shown} does not answer: {text}")


def _text(error: psycopg.Error) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("CONTEXT")]
    return lines[0] if lines else type(error).__name__
