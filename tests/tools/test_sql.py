"""The SQL tools: what every database answers in the same way."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from refold.core.codec import check_value
from refold.tools.sql.text import Style
from tests.tools.databases import KINDS, Database, injections, opened

FOREVER = "with recursive r(n) as (select 1 union all select n + 1 from r) select count(*) from r"
MANY = "with recursive r(n) as (select 1 union all select n + 1 from r where n < 5000) select n from r"


@pytest.fixture(params=KINDS)
async def db(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    kind: Style = request.param
    url = request.getfixturevalue("postgres") if kind == "postgres" else ""
    async with opened(kind, {"url": url} if url else {"database": str(tmp_path / "x.db")}) as database:
        await database.run("drop table if exists t; create table t (i integer primary key, s text unique)")
        yield database


async def test_rows_come_as_maps_with_their_columns_and_their_number(db: Database) -> None:
    await db.run("insert into t values (1, 'a'), (2, null)")
    assert await db.run("select i, s from t order by i") == {
        "columns": ["i", "s"],
        "rows": [{"i": 1, "s": "a"}, {"i": 2, "s": None}],
        "row_count": 2,
    }


async def test_rows_come_as_lists_if_that_is_asked_for(db: Database) -> None:
    assert (await db.run("select 1 as a, 'x' as b", as_objects=False))["rows"] == [[1, "x"]]


async def test_a_result_without_rows_still_has_its_columns(db: Database) -> None:
    assert await db.run("select i, s from t") == {"columns": ["i", "s"], "rows": [], "row_count": 0}


async def test_columns_of_the_same_name_lose_nothing(db: Database) -> None:
    assert (await db.run("select 1 as id, 2 as id, 3 as id_1"))["rows"] == [{"id": 1, "id_1": 2, "id_1_1": 3}]


async def test_what_changes_rows_says_how_many(db: Database) -> None:
    assert await db.run("insert into t values (1, 'a'), (2, 'b'), (3, 'c')") == {"affected_rows": 3}
    assert await db.run("update t set s = s || '!' where i > 1") == {"affected_rows": 2}
    assert await db.run("create table if not exists t (i integer)") == {"affected_rows": 0}
    assert await db.run("delete from t") == {"affected_rows": 3}


async def test_rows_that_a_change_returns_are_rows(db: Database) -> None:
    assert (await db.run("insert into t values (1, 'a') returning i, s"))["rows"] == [{"i": 1, "s": "a"}]


async def test_of_several_statements_the_last_one_counts(db: Database) -> None:
    inserts = "insert into t values (1, 'a; b'); -- it's; a comment\ninsert into t values (2, $1);"
    assert await db.rows(f"{inserts} select s from t order by i;", ["c;d"]) == [["a; b"], ["c;d"]]
    commands = ["insert into t values ($1, $2)", "select count(*) as n from t"]
    assert (await db.tool_run(commands, [3, "x"]))["rows"] == [{"n": 3}]


async def test_all_statements_are_one_transaction(db: Database) -> None:
    fault = await db.fault("insert into t values (1, 'a'); insert into t values (1, 'b')")
    assert (fault.kind, fault.retryable) == ("db_constraint", False)
    assert await db.rows("select * from t") == []


async def test_a_result_that_is_too_large_changes_nothing_either(db: Database) -> None:
    fault = await db.fault("insert into t values (1, 'a'), (2, 'b'), (3, 'c') returning i", max_rows=2)
    assert fault.kind == "too_large"
    assert await db.rows("select * from t") == []


async def test_statements_that_speak_of_transactions_stand_for_themselves(db: Database) -> None:
    await db.run("begin; insert into t values (1, 'a'); commit; begin; insert into t values (2, 'b'); rollback")
    assert await db.rows("select i from t") == [[1]]


async def test_values_are_bound_by_place_and_by_name(db: Database) -> None:
    assert await db.rows("select $2, $1, $2", ["a", "b"]) == [["b", "a", "b"]]
    assert await db.rows("select $who, $what, $who", {"who": "x", "what": 7, "spare": 1}) == [["x", 7, "x"]]


async def test_a_name_in_a_text_or_a_comment_is_no_parameter(db: Database) -> None:
    assert await db.rows("select '$1 $who', $1 /* $2 */ -- $3", ["a"]) == [["$1 $who", "a"]]


async def test_the_idempotency_key_is_there_by_its_name(db: Database) -> None:
    assert await db.rows("select $idempotency_key") == [["run-1/a/1"]]
    assert await db.rows("select $idempotency_key", {"idempotency_key": "mine"}) == [["mine"]]


@pytest.mark.parametrize(
    ("query", "params", "why"),
    [
        ("select $2, $1", ["a"], "`params` has no value for $2; it has $1"),
        ("select $who", {"whom": 1}, "`params` has no value for $who; it has $whom"),
        ("select $1", ["a", "b"], "no statement uses $2, but `params` has 2 values"),
        ("select 1", 5, "`params` must be a list, for $1 and $2, or a map, for $name"),
        (" ; -- nothing", None, "`query` holds no statement"),
        ("select 'a", None, "`query` has a quote that is never closed"),
        ("select 1\x00", None, "`query` holds a NUL"),
    ],
)
async def test_what_cannot_be_meant_is_refused(db: Database, query: str, params: Any, why: str) -> None:
    fault = await db.fault(query, params)
    assert fault.retryable is False
    assert fault.message.startswith(why)


async def test_300_injections_are_data(db: Database) -> None:
    texts = list(dict.fromkeys(injections(320)))[:300]
    marks = ", ".join(f"({i}, ${i})" for i in range(1, 301))
    await db.run(f"insert into t values {marks}", texts)
    assert await db.rows("select s from t order by i") == [[text] for text in texts]
    for text in texts[:20]:
        assert await db.rows("select count(*) from t where s = $s", {"s": text}) == [[1]]


async def test_numbers_booleans_and_null_are_bound_as_they_are(db: Database) -> None:
    [[number, real, nothing, true]] = await db.rows("select $1 + 1, $2 * 2, $3, $4 = $4", [2**40, 1.25, None, True])
    assert (number, real, nothing, bool(true)) == (2**40 + 1, 2.5, None, True)


async def test_more_rows_than_allowed_are_a_failure_that_says_what_to_do(db: Database) -> None:
    fault = await db.fault(MANY, max_rows=100)
    assert (fault.kind, fault.retryable) == ("too_large", False)
    assert fault.message.startswith("the result has more than 100 rows; select less, raise `max_rows`, or move")
    assert (await db.run(MANY, max_rows=5000))["row_count"] == 5000


async def test_more_bytes_than_allowed_are_a_failure(db: Database) -> None:
    fault = await db.fault(MANY, max_bytes=1000)
    assert (fault.kind, fault.message.split(";")[0]) == ("too_large", "the result has more than 1000 bytes")


async def test_a_statement_that_takes_too_long_is_stopped(db: Database) -> None:
    fault = await asyncio.wait_for(db.fault(FOREVER, timeout=0.3), 60)  # it would go on for ever
    assert (fault.kind, fault.retryable) == ("db_timeout", True)
    assert fault.message == "not done within 0.3 s; the statement was stopped"
    assert await db.rows("select 1") == [[1]]


async def test_a_step_that_is_cancelled_stops_its_statement(db: Database) -> None:
    running = asyncio.create_task(db.run(FOREVER))
    await asyncio.sleep(0.3)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 60)
    assert await db.rows("select 1") == [[1]]


async def test_read_only_refuses_changes_and_allows_queries(db: Database) -> None:
    fault = await db.fault("insert into t values (1, 'a')", read_only=True)
    assert fault.retryable is False
    assert (await db.run("select count(*) as n from t", read_only=True))["rows"] == [{"n": 0}]


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("selec 1", "parse"),
        ("select * from nowhere", "schema"),
        ("select missing from t", "schema"),
        ("insert into t values (1, 'a'); insert into t values (2, 'a')", "db_constraint"),
    ],
)
async def test_what_is_wrong_with_a_statement_has_its_kind(db: Database, query: str, kind: str) -> None:
    fault = await db.fault(query)
    assert (fault.kind, fault.retryable) == (kind, False)
    assert isinstance(fault.code, str) and fault.code.startswith(("SQLITE_", "DUCKDB_", "PG_"))


async def test_a_failure_tells_the_line_and_the_column_in_the_whole_text(db: Database) -> None:
    fault = await db.fault("select 1;\n\nselect 1,\n  2 +* from;")
    assert fault.data["line"] == 4
    assert fault.data["column"] > 4
    assert fault.message.endswith(f"(line 4, column {fault.data['column']})")


async def test_many_steps_at_once_do_not_wait_for_each_other(db: Database) -> None:
    async def one(i: int) -> Any:
        return await db.rows("select $1", [i])

    assert await asyncio.gather(*(one(i) for i in range(40))) == [[[i]] for i in range(40)]


async def test_every_result_is_a_json_value(db: Database) -> None:
    check_value(await db.run("select 1 as a, 1.5 as b, null as c, 'x' as d, current_date as e, current_timestamp as f"))
