"""What one of the SQL tools does beyond the others: files, connections, faults, and the server's own part."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from refold.tool_api import ToolProblem
from refold.tools.catalog import CATALOG
from refold.tools.sql.duckdb import fault_of as fault_of_duckdb
from refold.tools.sql.faults import kind_of_sqlstate
from refold.tools.sql.postgres import fault_of as fault_of_psycopg
from refold.tools.sql.text import Style
from refold.wiring.tools import database_tools
from tests.tools.calls import call, engine, fault_of, fault_of_run, one_step
from tests.tools.databases import Database, no_http, opened


@pytest.fixture
async def pg(postgres: str) -> AsyncIterator[Database]:
    async with opened("postgres", {"url": postgres}) as database:
        yield database


async def test_a_database_in_memory_ends_with_the_step() -> None:
    for kind in ("sqlite", "duckdb"):
        async with opened(kind, {}) as database:
            assert (await database.run("create table t (i integer); select count(*) as n from t"))["rows"] == [{"n": 0}]
            assert (await database.fault("select * from t")).kind == "schema"


async def test_a_trigger_of_sqlite_keeps_its_semicolons(tmp_path: Path) -> None:
    async with opened("sqlite", {"database": str(tmp_path / "x.db")}) as database:
        query = (
            "create table t (i); create table log (i);"
            "create trigger after_t after insert on t begin insert into log values (new.i); select 1; end;"
            "insert into t values (7); select * from log"
        )
        assert await database.rows(query) == [[7]]


async def test_sqlite_takes_no_other_marks_than_those_it_would_bind() -> None:
    async with opened("sqlite", {}) as database:
        fault = await database.fault("select :name", {"name": 1})
        assert fault.message == "`:name`: a parameter is written $name"
        assert await database.rows("select ?, ?, '?'", [1, 2]) == [[1, 2, "?"]]
        assert await database.rows("select [a b], `c` from (select 1 as [a b], 2 as c)") == [[1, 2]]


async def test_a_map_or_a_list_is_json_in_sqlite() -> None:
    async with opened("sqlite", {}) as database:
        assert await database.rows("select $1 ->> '$.a', json_array_length($2)", [{"a": "ü'"}, [1, 2]]) == [["ü'", 2]]
        fault = await database.fault("select $1", [2**70])
        assert fault.message.startswith("a number of `params` is too large for SQLite")
        fault = await database.fault("select cast(x'ff' as text)")
        assert fault.message == "a text of the result is not UTF-8; cast it to blob"


async def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    for kind in ("sqlite", "duckdb"):
        async with opened(kind, {"database": str(tmp_path / "no" / "x.db")}) as database:
            fault = await database.fault("select 1")
            assert (fault.kind, fault.retryable) == ("storage_access", False)
            assert str(tmp_path / "no" / "x.db") in fault.message


async def test_read_only_does_not_make_the_file(tmp_path: Path) -> None:
    for kind in ("sqlite", "duckdb"):
        async with opened(kind, {"database": str(tmp_path / f"{kind}.db")}) as database:
            await database.fault("select 1", read_only=True)
            assert not (tmp_path / f"{kind}.db").exists()


async def test_read_only_lets_duckdb_write_no_file_either(tmp_path: Path) -> None:
    async with opened("duckdb", {}) as database:
        fault = await database.fault("copy (select 1) to $1", [str(tmp_path / "x.csv")], read_only=True)
        assert fault.message == "`read_only` allows no COPY: only queries"
        assert list(tmp_path.iterdir()) == []


async def test_steps_that_read_and_write_one_duckdb_file_at_once_share_it(tmp_path: Path) -> None:
    async with opened("duckdb", {"database": str(tmp_path / "x.db")}) as database:
        await database.run("create table t (i integer)")

        async def one(i: int) -> None:
            if i % 2:
                await database.run("insert into t values ($1)", [i])
            else:
                await database.run("select count(*) from t", read_only=True)

        await asyncio.gather(*(one(i) for i in range(20)))
        assert await database.rows("select count(*) from t") == [[10]]


async def test_a_duckdb_file_that_another_process_has_is_worth_another_try(tmp_path: Path) -> None:
    path = str(tmp_path / "x.db")
    code = "import duckdb, sys; db = duckdb.connect(sys.argv[1]); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code, path], stdin=-1, stdout=-1) as other:
        assert other.stdout is not None
        other.stdout.readline()
        async with opened("duckdb", {"database": path}) as database:
            fault = await database.fault("select 1")
            assert (fault.kind, fault.retryable) == ("db_connection", True)
            other.communicate()
            assert await database.rows("select 1") == [[1]]


async def test_duckdb_reads_files_and_attaches_others(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,x\n2,y\n")
    other = str(tmp_path / "it's.db")
    async with opened("duckdb", {"database": other}) as database:
        await database.run("create table t as select * from read_csv($1)", [str(tmp_path / "x.csv")])
    async with opened("duckdb", {"attach": {'na"me': other}}) as database:
        assert await database.rows('select a, b from "na""me".t order by a') == [[1, "x"], [2, "y"]]


async def test_duckdb_fetches_no_extension_by_itself() -> None:
    async with opened("duckdb", {}) as database:
        assert await database.rows("select current_setting('autoinstall_known_extensions')") == [[False]]


async def test_postgres_tells_all_that_the_server_tells(pg: Database) -> None:
    await pg.run("drop table if exists only_one; create table only_one (i integer primary key)")
    fault = await pg.fault("insert into only_one values ($1), ($1)", [1])
    assert (fault.kind, fault.code) == ("db_constraint", "PG_23505")
    assert fault.data["pg"] == {"code": "23505", "sqlstate": "23505"}
    assert (fault.data["table"], fault.data["constraint"]) == ("only_one", "only_one_pkey")
    assert "Key (i)=(1) already exists." in fault.message


async def test_the_timeout_of_postgres_is_that_of_a_cancelled_statement(pg: Database) -> None:
    fault = await pg.fault("select pg_sleep(30)", timeout=0.2)
    assert (fault.kind, fault.code, fault.data["pg"]["sqlstate"]) == ("db_timeout", "PG_57014", "57014")
    busy = "select count(*) from pg_stat_activity where query like 'select pg_sleep%' and state = 'active'"
    assert await pg.rows(busy) == [[0]]


async def test_the_server_knows_the_step_and_its_limit(pg: Database) -> None:
    query = "select current_setting('application_name'), current_setting('statement_timeout')"
    result = await pg.run(query, timeout=10, as_objects=False)
    assert result["rows"] == [["refold run-1/a/1", "11s"]]


async def test_a_session_leaves_nothing_to_the_next_step(pg: Database) -> None:
    await pg.run("set work_mem = '5MB'; create temporary table mine (i int); begin; select 1")
    for _ in range(3):
        assert (await pg.fault("select * from mine")).kind == "schema"
        assert await pg.rows("select current_setting('work_mem') = '5MB'") == [[False]]
    assert await pg.rows("select interval '1 month'") == [["P1M"]]


async def test_a_connection_that_the_server_closed_is_replaced(pg: Database) -> None:
    await pg.run("select 1")
    fault = await pg.fault("select pg_terminate_backend(pg_backend_pid())")
    assert (fault.kind, fault.retryable) == ("db_connection", True)
    assert await pg.rows("select 1") == [[1]]


async def test_lists_are_arrays_and_maps_are_json_in_postgres(pg: Database) -> None:
    row = await pg.rows("select 2 = any($1), $2 ->> 'a', $3 -> 0 ->> 'b'", [[1, 2], {"a": 1}, [{"b": "x"}]])
    assert row == [[True, "1", "x"]]


async def test_what_vacuums_is_no_part_of_a_transaction(pg: Database) -> None:
    assert await pg.run("vacuum") == {"affected_rows": 0}


async def test_names_are_looked_for_in_the_schema(pg: Database) -> None:
    await pg.run(
        'create schema if not exists "My Schema"; create table if not exists "My Schema".inside as select 7 as i'
    )
    assert (await pg.run("select i from inside", schema="My Schema"))["rows"] == [{"i": 7}]
    assert (await pg.fault("select i from inside")).kind == "schema"


async def test_a_deadlock_is_worth_another_try(pg: Database) -> None:
    await pg.run("drop table if exists two; create table two (i integer primary key); insert into two values (1), (2)")

    async def lock(first: int, second: int) -> str:
        take = (
            "select i from two where i = $1 for update; select pg_advisory_xact_lock_shared(4711, $1); "
            "do 'begin while (select count(distinct objid) from pg_locks where classid = 4711 and granted) < 2 "
            "loop perform pg_sleep(0.01); end loop; end'; select i from two where i = $2 for update"
        )
        try:
            await pg.run(take, [first, second])
        except Exception as error:
            fault = getattr(error, "fault", None)
            assert fault is not None and fault.retryable
            return f"{fault.kind} {fault.code}"
        return "done"

    assert sorted(await asyncio.gather(lock(1, 2), lock(2, 1))) == ["db_deadlock PG_40P01", "done"]


@pytest.mark.parametrize(
    ("where", "kind", "code"),
    [
        ({"url": "postgresql://ann:secret-word@127.0.0.1:1/x"}, "db_connection", "CONN_REFUSED"),
        (
            {"host": "127.0.0.1", "port": "1", "database": "x", "password": "secret-word"},
            "db_connection",
            "CONN_REFUSED",
        ),
        ({"auth": {"host": "127.0.0.1", "port": 1, "password": "secret-word"}}, "db_connection", "CONN_REFUSED"),
        ({"url": "postgresql://ann:secret-word@[::1/x"}, "invalid_settings", None),
        ({"auth": {"colour": "secret-word"}}, "invalid_settings", None),
        ({}, "invalid_settings", None),
    ],
)
async def test_no_connection_says_why_and_never_tells_the_password(where: Any, kind: str, code: str | None) -> None:
    async with opened("postgres", where) as database:
        fault = await database.fault("select 1")
    assert (fault.kind, fault.code) == (kind, code)
    assert "secret-word" not in repr(fault)


@pytest.mark.parametrize(
    ("said", "kind", "code"),
    [
        ("failed to resolve host 'x': [Errno -2] Name or service not known", "db_connection", "DNS_ERROR"),
        ("connection timeout expired", "db_connection", "CONN_TIMEOUT"),
        ("server closed the connection unexpectedly", "db_connection", "CONN_ERROR"),
        ('FATAL: password authentication failed for user "ann"', "auth", "PG_28000"),
    ],
)
def test_what_the_library_says_of_a_connection_has_a_kind(said: str, kind: str, code: str) -> None:
    fault = fault_of_psycopg(psycopg.OperationalError(said), None).fault
    assert (fault.kind, fault.code) == (kind, code)


async def test_a_database_that_is_not_there_is_no_matter_of_trying_again(postgres: str) -> None:
    async with opened("postgres", {"auth": {"url": postgres}, "database": "nowhere"}) as database:
        fault = await database.fault("select 1")
    assert (fault.kind, fault.code, fault.retryable) == ("schema", "PG_3D000", False)


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("08006", "db_connection"), ("23503", "db_constraint"), ("40001", "db_deadlock"), ("40P01", "db_deadlock"),
        ("57014", "db_timeout"), ("57P01", "db_connection"), ("53300", "db_connection"), ("53100", "storage_quota"),
        ("28P01", "auth"), ("42501", "auth"), ("42601", "parse"), ("42P01", "schema"), ("22012", "client_error"),
        ("P0001", "unknown"),
    ],
)  # fmt: skip
def test_a_sqlstate_has_a_kind(state: str, kind: str) -> None:
    assert kind_of_sqlstate(state) == kind


def test_a_value_in_the_text_of_a_statement_is_refused_before_the_run() -> None:
    check = CATALOG["postgres"].check
    assert check is not None
    assert check({"query": "select $1", "params": ["{{ ctx.x }}"]}) == []
    assert check({"query": "{{ workload.sql }}"}) == []
    hint = "write $1 or $name there, and give the value in `params`"
    spliced = "no value may be put into the text of a statement"
    assert check({"query": "select 1,\n '{{ ctx.x }}'"}) == [ToolProblem("query", spliced, hint, 2, 3)]
    assert check({"commands": ["select 1", "select {{ ctx.x }}"]}) == [ToolProblem("commands", spliced, hint, 1, 8)]
    assert [each.key for each in check({})] == [""]
    assert [each.key for each in check({"query": "select 1", "params": 5})] == ["params"]


async def test_an_engine_has_the_tools_and_loads_them_when_they_are_needed(tmp_path: Path) -> None:
    async with engine() as running:
        config = {"database": str(tmp_path / "x.db"), "query": "select $1 as a", "params": [5]}
        for kind in ("sqlite", "duckdb"):
            result = await running.run(one_step(kind, None, {**config, "database": str(tmp_path / kind)}))
            assert result["rows"] == [{"a": 5}]
        fault = await fault_of_run(running, one_step("sqlite", None, {"query": "selec"}))
        assert fault.kind == "parse"


async def test_a_library_that_is_not_installed_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, module, library in (("postgres", "sql.postgres", "psycopg"), ("duckdb", "sql.duckdb", "duckdb")):
        monkeypatch.delitem(sys.modules, f"refold.tools.{module}", raising=False)
        monkeypatch.setitem(sys.modules, library, None)
        fault = await fault_of(database_tools(lambda: no_http)[kind](), call(None, {"query": "select 1"}))
        assert fault.kind == "missing_package"
        assert fault.message == f"{library} is not installed: run `pip install 'refold[{kind}]'`"


async def test_statements_that_change_a_session_can_be_many(postgres: str) -> None:
    """Each is followed by `discard all`, which also drops what the library had the server prepare."""
    async with opened("postgres", {"url": postgres}) as database:
        for _ in range(12):
            await database.run("create table if not exists many (id int)")


async def test_a_transaction_of_duckdb_that_is_over_is_no_deadlock() -> None:
    """To try again would help nobody: nobody else holds anything."""
    with duckdb.connect() as db:
        db.execute("begin")
        with pytest.raises(duckdb.Error):
            db.execute("select cast('x' as integer)")
        with pytest.raises(duckdb.Error) as caught:
            db.execute("select 1")
    fault = fault_of_duckdb(caught.value, None).fault
    assert (fault.kind, fault.retryable) == ("client_error", False)


@pytest.mark.parametrize("text", ["select nowhere", "select * from 'nowhere.csv'", "insert into t values ('x')"])
async def test_an_error_in_a_second_statement_of_duckdb_is_the_error_of_that_statement(text: str) -> None:
    async with opened("duckdb", {}) as database:
        fault = await database.fault(f"create table t (i integer); {text}")
        assert fault.retryable is False and fault.kind != "db_deadlock"


@pytest.mark.parametrize("kind", ["postgres", "duckdb"])
async def test_dollar_quotes_without_a_tag_are_closed(kind: Style, request: pytest.FixtureRequest) -> None:
    where = {"url": request.getfixturevalue("postgres")} if kind == "postgres" else {}
    async with opened(kind, where) as database:
        assert await database.rows("select $$it's; $1$$ as a, $b$ $$ $b$ as b; ") == [["it's; $1", " $$ "]]
        if kind == "postgres":
            await database.run("DO $$ BEGIN NULL; END $$;")
