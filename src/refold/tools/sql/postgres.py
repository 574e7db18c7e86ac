"""The tool `postgres`: statements on a server, through a small pool of connections for each way to connect."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor, sql
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.raw_cursor import AsyncRawServerCursor
from psycopg.types.json import Jsonb, set_json_loads
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from refold.errors import ToolFailed
from refold.ports import ToolCall
from refold.time_limits import TimeLimit, waiting
from refold.tool_api import Keys, refused
from refold.tools.sql.faults import failure, kind_of_sqlstate, timed_out
from refold.tools.sql.info import POSTGRES
from refold.tools.sql.request import CONNECTION_KEYS, SqlRequest, request_of
from refold.tools.sql.text import Statement
from refold.tools.sql.values import parsed

CONNECTIONS = 8  # of a pool, at most
PATIENCE = 30.0  # seconds until there is a connection
IDLE = 60.0  # seconds after which a connection that nobody uses is closed
CANCELED = "57014"
NAMES = {"database": "dbname"}
READS = {"SELECT", "VALUES", "TABLE", "WITH"}
WRITES = {"INSERT", "UPDATE", "DELETE", "MERGE", "INTO"}
CURSOR = "refold"
DECLARED = f'DECLARE "{CURSOR}" CURSOR FOR '  # what stands before the statement, where the server counts from

Connection = AsyncConnection[Any]

logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())  # what it says comes as the fault of a step


class Moment(Loader):
    """Dates and times as the server writes them, which knows infinite ones and those before our era, made ISO."""

    def load(self, data: Any) -> str:
        text = bytes(data).decode().replace(" ", "T", 1) if b"-" in bytes(data)[:8] else bytes(data).decode()
        return f"{text}:00" if text[-3:-2] in ("+", "-") and ":" in text else text


class Exact(Loader):
    """As the server writes it."""

    def load(self, data: Any) -> str:
        return bytes(data).decode()


async def prepare(connection: Connection) -> None:
    """All that is exact: months stay months, and the texts of times do not depend on the server's settings."""
    for name in ("timestamp", "timestamptz", "timetz"):
        connection.adapters.register_loader(name, Moment)
    for name in ("date", "time", "interval", "inet", "cidr", "uuid"):
        connection.adapters.register_loader(name, Exact)
    set_json_loads(parsed, connection)
    await connection.execute(
        "set intervalstyle = 'iso_8601'; set datestyle = 'ISO'; set standard_conforming_strings = on"
    )


class PostgresTool:
    def __init__(self) -> None:
        self._keys = Keys(POSTGRES)
        self.pools = Pools()

    async def __call__(self, call: ToolCall) -> Any:
        keys = self._keys.read(call).keys
        request = request_of(call, keys, "postgres")
        conninfo = conninfo_of(keys)
        try:
            clean = _leaves_no_trace(request)
            async with TimeLimit(request.timeout), self.pools.connection(conninfo, clean) as connection:
                return await _answer(connection, request, call, keys.get("schema"))
        except TimeoutError:
            raise timed_out(request.timeout, f"PG_{CANCELED}", _pg(CANCELED)) from None

    async def close(self) -> None:
        await self.pools.close()


class Pools:
    """One for each way to connect; a connection that broke is replaced.

    Who waits until another gives its connection back has not started; to connect is part of a step and of its time.
    """

    def __init__(self) -> None:
        self._pools: dict[str, AsyncConnectionPool[Connection]] = {}
        self._rooms: dict[str, asyncio.Semaphore] = {}

    @asynccontextmanager
    async def connection(self, conninfo: str, clean: bool) -> AsyncIterator[Connection]:
        """`clean`: whether the session is afterwards what it was; if not, it is made anew for the next."""
        room = self._rooms.setdefault(conninfo, asyncio.Semaphore(CONNECTIONS))
        with waiting():
            await room.acquire()
        try:
            pool = await self._pool(conninfo)
            try:
                connection = await pool.getconn()
            except PoolTimeout:
                await _tried(conninfo)
                raise failure("db_connection", f"no connection within {PATIENCE:g} s", "CONN_TIMEOUT") from None
            try:
                yield connection
            except psycopg.Error as error:
                raise fault_of(error, None) from None
            finally:
                await asyncio.shield(_returned(pool, connection, clean))
        finally:
            room.release()

    async def _pool(self, conninfo: str) -> AsyncConnectionPool[Connection]:
        if conninfo not in self._pools:
            await _tried(conninfo)
        if conninfo not in self._pools:  # another call may have been faster
            pool = self._pools[conninfo] = AsyncConnectionPool(
                conninfo,
                # `discard all` drops what the server has prepared, and the library would not hear of it
                kwargs={"autocommit": True, "cursor_factory": AsyncRawCursor, "prepare_threshold": None},
                min_size=0,
                max_size=CONNECTIONS,
                timeout=PATIENCE,
                max_idle=IDLE,
                configure=prepare,
                check=AsyncConnectionPool.check_connection,
                open=False,
            )
            await pool.open()
        return self._pools[conninfo]

    async def close(self) -> None:
        pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            await pool.close()


async def _returned(pool: AsyncConnectionPool[Connection], connection: Connection, clean: bool) -> None:
    try:
        if not clean and not connection.closed:
            await connection.rollback()  # what its statements began and did not end
            await connection.execute("discard all")
            await prepare(connection)
    except psycopg.Error:  # the pool opens another one; what went wrong with the statements was told
        await connection.close()
    finally:
        await pool.putconn(connection)


async def _tried(conninfo: str) -> None:
    """A pool tries in the background and only says that it took too long; the first connection says why."""
    try:
        connection = await AsyncConnection.connect(conninfo, connect_timeout=int(PATIENCE))
        await connection.close()
    except psycopg.Error as error:
        raise fault_of(error, None) from None


def conninfo_of(keys: Mapping[str, Any]) -> str:
    """`auth` gives what the step does not. Messages never tell the address: it may hold the password."""
    auth = keys.get("auth", {})
    if unknown := [name for name in auth if name not in CONNECTION_KEYS]:
        raise refused(f"`auth` has no {unknown[0]!r}; it has {', '.join(CONNECTION_KEYS)}")
    given = {**auth, **{name: keys[name] for name in CONNECTION_KEYS if name in keys}}
    given = {name: value for name, value in given.items() if value is not None}
    url = given.pop("url", "")
    if not url and "host" not in given and "database" not in given:
        raise refused("postgres needs `url`, or `host`, `database`, `user` and `password`, or `auth` with them")
    try:
        parts = conninfo_to_dict(url) if url else {}
        named = {NAMES.get(name, name): str(value) for name, value in given.items()}
        return make_conninfo("", **{"application_name": "refold", **parts, **named})
    except psycopg.Error:
        raise refused(
            "`url` is not an address of a PostgreSQL server; write postgresql://USER@HOST:PORT/DATABASE"
        ) from None


def _leaves_no_trace(request: SqlRequest) -> bool:
    """No settings, no temporary tables."""
    return request.as_one and all(set(each.words[:1]) <= {*READS, *WRITES} for each in request.statements)


async def _answer(connection: Connection, request: SqlRequest, call: ToolCall, schema: str | None) -> dict[str, Any]:
    if not request.as_one:
        if request.read_only:
            raise refused("`read_only` allows no statement about transactions", "client_error")
        await _set_up(connection, request, call, schema, local=False)
        return await _run(connection, request)
    async with connection.transaction():
        if request.read_only:
            await connection.execute("set transaction read only")
        await _set_up(connection, request, call, schema, local=True)
        return await _run(connection, request)


async def _set_up(connection: Connection, request: SqlRequest, call: ToolCall, schema: str | None, local: bool) -> None:
    """The server stops a statement by itself, should this process be gone; its activity names the step."""
    limit = round(request.timeout * 1000) + 1000 if request.timeout is not None else 0
    await connection.execute(
        "select set_config('application_name', $1, $4), set_config('statement_timeout', $2, $4),"
        " set_config('search_path', coalesce($3, current_setting('search_path')), $4)",
        [f"refold {call.idempotency_key}"[:63], str(limit), schema and _path(schema), local],
    )


def _path(schema: str) -> str:
    return ", ".join(sql.Identifier(each.strip()).as_string() for each in schema.split(","))


async def _run(connection: Connection, request: SqlRequest) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for statement in request.statements:
        try:
            result = await _one(connection, request, statement)
        except psycopg.Error as error:
            raise fault_of(error, statement) from None
    return result


async def _one(connection: Connection, request: SqlRequest, statement: Statement) -> dict[str, Any]:
    values, rows = [adapted(each) for each in request.bound(statement)], request.rows()
    async with _cursor(connection, statement) as cursor:
        await cursor.execute(statement.text, values or None)
        if cursor.description is None:
            return {"affected_rows": max(cursor.rowcount, 0)}
        rows.begin(each.name for each in cursor.description)
        while some := await cursor.fetchmany(rows.room):
            rows.add(some)
        return rows.result()


def _cursor(connection: Connection, statement: Statement) -> Any:
    """What only reads is fetched part by part, so that a result that is too large does not fill the memory first."""
    return AsyncRawServerCursor(connection, CURSOR) if _only_reads(statement) else connection.cursor()


def _only_reads(statement: Statement) -> bool:
    return not READS.isdisjoint(statement.words[:1]) and WRITES.isdisjoint(statement.words)


def adapted(value: Any) -> Any:
    """A list of scalars is an array; any other list, and a map, is JSON."""
    if isinstance(value, Mapping):
        return Jsonb(value)
    if isinstance(value, list) and (any(isinstance(each, (list, Mapping)) for each in value) or _is_mixed(value)):
        return Jsonb(value)
    return value


def _is_mixed(values: list[Any]) -> bool:
    kinds = {type(each) for each in values if each is not None}
    return len(kinds) > 1 and not kinds <= {int, float}


def fault_of(error: psycopg.Error, statement: Statement | None) -> ToolFailed:
    state = error.sqlstate
    if state is None:
        return _without_state(error)
    told = error.diag
    found = {name: getattr(told, f"{name}_name") for name in ("schema", "table", "column", "constraint")}
    more = {**found, "detail": told.message_detail, "hint": told.message_hint}
    data = {name: value for name, value in more.items() if value} | _pg(state)
    message = "; ".join(filter(None, (told.message_primary or str(error), told.message_detail, told.message_hint)))
    return failure(kind_of_sqlstate(state), message, f"PG_{state}", statement, _offset(error, statement), data)


def _offset(error: psycopg.Error, statement: Statement | None) -> int | None:
    position = error.diag.statement_position
    if position is None or statement is None:
        return None
    return int(position) - 1 - (len(DECLARED) if _only_reads(statement) else 0)


def _pg(state: str) -> dict[str, Any]:
    return {"pg": {"code": state, "sqlstate": state}}


def _without_state(error: psycopg.Error) -> ToolFailed:
    """There was no answer of a server, or its value could not be taken."""
    text = str(error).strip().replace("\n", " ")
    if not isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
        return failure("client_error", text, "PG_CLIENT")
    if "password authentication" in text or "no pg_hba.conf" in text or "role " in text:
        return failure("auth", text, "PG_28000", data=_pg("28000"))
    if "does not exist" in text:
        return failure("schema", text, "PG_3D000", data=_pg("3D000"))
    refused_ = "refused" in text or "No such file" in text
    dns = "could not translate" in text or "resolve" in text or "Name or service" in text
    code = "CONN_TIMEOUT" if "timeout" in text else "CONN_REFUSED" if refused_ else "DNS_ERROR" if dns else "CONN_ERROR"
    return failure("db_connection", text, code)
