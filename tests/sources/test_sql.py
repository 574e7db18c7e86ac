"""Rows of queries: which queries can be paged, by which keys, and what is told of those that cannot."""

from pathlib import Path
from typing import Any

import pytest

from tests.sources.pulls import Sources
from tests.tools.databases import KINDS, opened

WHEN = "timestamp '2024-01-0{} 10:00:00.000001'"


@pytest.fixture(params=KINDS)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    if request.param == "postgres":
        return {"driver": "postgres", "url": request.getfixturevalue("postgres")}
    return {"driver": request.param, "database": "x.db", "folder": str(tmp_path)}


async def run(where: dict[str, Any], *statements: str) -> None:
    keys = {name: value for name, value in where.items() if name == "url"}
    if not keys:
        keys = {"database": f"{where['folder']}/{where['database']}"}
    async with opened(where["driver"], keys) as database:
        await database.tool_run(list(statements), None)


async def test_pages_follow_each_other_by_keys_of_any_type(sources: Sources, where: dict[str, Any]) -> None:
    stamp = "'2024-01-0{} 10:00:00.000001'" if where["driver"] == "sqlite" else WHEN
    values = [(f"'k{i}'", stamp.format(i), f"{i}.5", str(9_000_000_000_000_000_000 + i)) for i in range(1, 8)]
    rows = ", ".join(f"({', '.join(row)})" for row in values)
    await run(
        where,
        "drop table if exists typed",
        "create table typed (word varchar(9), moment timestamp, part numeric(9, 1), many bigint)",
        f"insert into typed values {rows}",
    )
    for key in ("word", "moment", "part", "many"):
        settings = {**where, "query": "select * from typed", "key": key}
        found = await sources.all("sql", settings, 2)
        assert [row["word"] for row in found] == [f"k{i}" for i in range(1, 8)], key


async def test_a_key_must_be_unique_and_never_null(sources: Sources, where: dict[str, Any]) -> None:
    await run(
        where,
        "drop table if exists odd",
        "create table odd (id integer, twice integer, hole integer, part real)",
        "insert into odd values (1, 1, 1, 0.1), (2, 2, null, 0.2), (3, 2, 3, 0.3), (4, 4, 4, 0.4)",
    )
    settings = {**where, "query": "select * from odd"}
    for most in (1, 2, 3, 100):
        fault = await fault_of_all(sources, {**settings, "key": "twice"}, most)
        assert fault.kind == "bad_key" and "two rows have the same `twice`" in fault.message
        fault = await sources.fault("sql", {**settings, "key": "hole"}, None, most)
        assert fault.kind == "bad_key" and "`hole` is null in some rows" in fault.message
    assert (await sources.fault("sql", {**settings, "key": "nothing"})).kind == "schema"


async def fault_of_all(sources: Sources, settings: dict[str, Any], most: int) -> Any:
    cursor = None
    for _ in range(4):
        try:
            cursor = (await sources.pull("sql", settings, cursor, most))["cursor"]
        except Exception as error:
            return error.fault  # type: ignore[attr-defined]
    raise AssertionError("no page was refused")


async def test_without_a_key_the_query_must_state_an_order(sources: Sources, where: dict[str, Any]) -> None:
    await run(where, "drop table if exists t", "create table t (id integer)", "insert into t values (3), (1), (2)")
    for query in (
        "select id from t",
        "select id from (select id from t order by id) as x",
        "select id, 'order by' as \"order by\" from t -- order by id",
        "select row_number() over (order by id) as id from t",
    ):
        fault = await sources.fault("sql", {**where, "query": query})
        assert (fault.retryable, fault.message.partition(",")[0]) == (False, "the query has no ORDER BY"), query
    for query in ("with x as (select id from t) select id from x order by id;", "select id from t order by id limit 3"):
        assert await sources.all("sql", {**where, "query": query}, 2) == [{"id": 1}, {"id": 2}, {"id": 3}]


@pytest.mark.parametrize("params", [[2, "x"], {"least": 2, "word": "x"}])
@pytest.mark.parametrize("key", ["id", None])
async def test_values_are_bound_as_the_tools_bind_them(
    sources: Sources, where: dict[str, Any], params: Any, key: str | None
) -> None:
    await run(where, "drop table if exists t", "create table t (id integer)", "insert into t values (3), (1), (2)")
    names = ("$1", "$2") if isinstance(params, list) else ("$least", "$word")
    query = f"select id, cast({names[1]} as varchar(9)) as word from t where id >= {names[0]}"
    settings = {**where, "query": query if key else f"{query} order by id", "params": params, "key": key}
    assert await sources.all("sql", settings, 1) == [{"id": 2, "word": "x"}, {"id": 3, "word": "x"}]
    fault = await sources.fault("sql", {**settings, "params": None})
    assert "`params` has no value for" in fault.message


async def test_a_source_changes_nothing_and_asks_one_question(sources: Sources, where: dict[str, Any]) -> None:
    await run(where, "drop table if exists t", "create table t (id integer)", "insert into t values (1)")
    two = await sources.fault("sql", {**where, "query": "select 1 order by 1; delete from t"})
    assert "is one statement, and here is another" in two.message
    assert "holds no statement" in (await sources.fault("sql", {**where, "query": " -- nothing\n"})).message
    for query in ("delete from t returning id", "delete from t"):
        assert await sources.fault("sql", {**where, "query": f"{query} order by id"})
        assert await sources.fault("sql", {**where, "query": query, "key": "id"})
    assert await sources.all("sql", {**where, "query": "select id from t", "key": "id"}) == [{"id": 1}]


async def test_keys_of_another_driver_are_refused(sources: Sources, tmp_path: Path) -> None:
    query = {"query": "select 1 order by 1"}
    missing = await sources.fault("sql", {**query, "driver": "sqlite"})
    assert missing.message == "sqlite needs `database`, its file"
    wrong = await sources.fault("sql", {**query, "driver": "duckdb", "host": "x"})
    assert wrong.message == "duckdb has no `host`; `driver` decides which keys there are"
    unknown = await sources.fault("sql", {**query, "driver": "oracle"})
    assert unknown.message == "`driver` must be one of sqlite, duckdb, postgres, not 'oracle'"
    params = await sources.fault("sql", {**query, "driver": "duckdb", "params": 3})
    assert params.message.startswith("`params` is a list or a map")
    gone = await sources.fault("sql", {**query, "driver": "sqlite", "database": "no.db", "folder": str(tmp_path)})
    assert gone.kind == "storage_access" and not (tmp_path / "no.db").exists()


async def test_duckdb_needs_no_database_of_its_own(sources: Sources) -> None:
    settings = {"driver": "duckdb", "query": "select i from range(5) as r(i)", "key": "i"}
    assert await sources.all("sql", settings, 2) == [{"i": i} for i in range(5)]


async def test_a_key_that_is_no_exact_value_is_told_and_nothing_is_given_twice(sources: Sources, postgres: str) -> None:
    settings = {"driver": "postgres", "url": postgres, "key": "part"}
    query = "select part::real from (values (0.1), (0.2), (0.3)) as v(part)"
    page = await sources.pull("sql", {**settings, "query": query}, None, 1)
    fault = await sources.fault("sql", {**settings, "query": query}, page["cursor"], 1)
    assert fault.kind == "bad_key"


async def test_the_password_may_be_a_secret(sources: Sources, postgres: str) -> None:
    settings = {
        "driver": "postgres",
        "url": postgres,
        "password": {"secret": "api"},
        "query": "select 1 as x order by x",
    }
    assert await sources.all("sql", settings) == [{"x": 1}]
    fault = await sources.fault("sql", {**settings, "password": {"secret": "no_such"}})
    assert fault.kind == "auth" and "no_such" in fault.message
