"""Values that stand in the text of SQL: each place has its own way to stay data."""

from typing import Any

import apsw
import duckdb
import psycopg
import pytest

from refold.errors import ToolFailed
from refold.tools.sql_splicing import Spliced, spliced, without_own_quoting
from refold.tools.sql_text import Style
from tests.tools.databases import KINDS, injections


def made(text: str, *values: Any, style: Style = "postgres", start: int = 1) -> tuple[str, list[Any]]:
    """The text with `@@` where a value stands."""
    pieces: list[str | Spliced] = []
    for i, part in enumerate(text.split("@@")):
        pieces += [part] if not i else [Spliced(values[i - 1]), part]
    return spliced(pieces, style, start)


@pytest.mark.parametrize(
    ("text", "values", "sql", "params"),
    [
        ("insert into t values ('@@', @@)", ["it's", 7], "insert into t values ($1, $2)", ["it's", 7]),
        ("select * from t where s like '%@@%'", ["50'%"], "select * from t where s like $1", ["%50'%%"]),
        ("select 'a ''@@'' b @@'", ["x", 1], "select $1", ["a 'x' b 1"]),
        ("select '@@'", [""], "select $1", [""]),
        ("select '@@', '@@'", ["'", "''"], "select $1, $2", ["'", "''"]),
        ("select '@@'::jsonb", [{"a": "it's"}], "select $1::jsonb", ['{"a":"it\'s"}']),
        ("select @@ + 1, -@@", [2, 1.5], "select $1 + 1, -$2", [2, 1.5]),
        (
            "delete from t where a = @@ and b in (@@, 2)",
            ["x", 1],
            "delete from t where a = $1 and b in ($2, 2)",
            ["x", 1],
        ),
        ("select * from t where i in (@@)", ["1, -2,3"], "select * from t where i in (1, -2,3)", []),
        ("select * from t where s in ('@@')", ["a','b'c"], "select * from t where s in ($1, $2)", ["a", "b'c"]),
        ("select * from t where s in (@@)", ["1,2) or (1=1"], "select * from t where s in ($1)", ["1,2) or (1=1"]),
        ("select '@@'", ["a','b"], "select $1", ["a','b"]),
        ("select @@, @@, @@", [None, True, False], "select NULL, TRUE, FALSE", []),
        ("select * from t limit @@ offset @@", [5, 10], "select * from t limit $1 offset $2", [5, 10]),
        ("select @@::jsonb", [[1, "a"]], "select $1::jsonb", ['[1,"a"]']),
        ("select a is distinct from @@ from t", ["x"], "select a is distinct from $1 from t", ["x"]),
        ("select * from @@ where i = 1", ["public.t"], "select * from public.t where i = 1", []),
        ("drop table if exists @@; select @@", ["t1", 2], "drop table if exists t1; select $1", [2]),
        ("insert into @@ (a) values ('@@')", ["t", "x"], "insert into t (a) values ($1)", ["x"]),
        ("update @@.t_@@ set @@ = 1", ["s", 7, "col"], "update s.t_7 set col = 1", []),
        ("select * from t order by @@", ["name"], "select * from t order by name", []),
        ('select "@@" from "x @@"', ['a"b', "y"], 'select "a""b" from "x y"', []),
        ("create index i on @@ (a)", ["t"], "create index i on t (a)", []),
        ("create table t (a text default '@@')", ["it's"], "create table t (a text default 'it''s')", []),
        ("create table t (b int default @@)", [3], "create table t (b int default 3)", []),
        ("select now() - interval '@@ days'", [5], "select now() - interval '5 days'", []),
        ("select date '@@'", ["2024-01-01'"], "select date '2024-01-01'''", []),
        ("copy t to '@@'", ["a'b.csv"], "copy t to 'a''b.csv'", []),
        ("select * from '@@'", ["a'b.csv"], "select * from 'a''b.csv'", []),
        ("set search_path to @@", ["a; b"], "set search_path to 'a; b'", []),
        ("select 1 -- for @@\n, @@", ["x\n; drop table t", 2], "select 1 -- for \n, $1", [2]),
        ("select /* @@ */ '@@'", ["*/ drop table t", "x"], "select /*  */ $1", ["x"]),
        ("do $$ begin perform '@@'; end $$", ["abc-1"], "do $$ begin perform 'abc-1'; end $$", []),
        ("select E'\\n@@'", ["abc"], "select E'\\nabc'", []),
        ("@@", ["select 1; select 2"], "select 1; select 2", []),
        (" @@\n", ["select 1"], "select 1", []),
    ],
)
def test_a_value_becomes_what_its_place_asks_for(text: str, values: list[Any], sql: str, params: list[Any]) -> None:
    assert made(text, *values) == (sql, params)


@pytest.mark.parametrize(
    ("text", "values", "why"),
    [
        ("select * from @@", ["t; drop table t"], "'t; drop table t' cannot stand where a name stands"),
        ("select * from @@", ["t where 1=1"], "'t where 1=1' cannot stand where a name stands"),
        ("select * from public.@@", ["t--"], "'t--' cannot stand where a name stands"),
        ("select * from t @@", ["where 1=1"], "no value can stand after 'select * from t '"),
        ("select * from t where a @@ 1", ["="], "no value can stand after"),
        ("select (1) @@", ["x"], "no value can stand after"),
        ("select 'a'@@", ["x"], "no value can stand after"),
        ("select '@@'@@", ["x", "y"], "no value can stand after"),
        ("select @@@@", ["x y", "y"], "'x y' cannot stand where a name stands"),
        ("select X'@@'", ["41"], "no value can stand after 'select X'"),
        ("@@ * from t", ["select"], "no value can stand after ''"),
        ("@@ @@", ["select", 1], "no value can stand after ''"),
        ("do $$ begin perform '@@'; end $$", ["x$$; drop table t"], "'x$$; drop table t' cannot stand between dollar"),
        ("select E'@@'", ["\\"], "'\\\\' cannot stand between dollar quotes, or in quotes with escapes"),
        ("create table t (a text default '@@')", ["\x00"], "a text with a NUL"),
        ('select "@@"', ["\x00"], "'\\x00' is no name"),
        ("select '@@", ["x"], "the statement has a quote that is never closed"),
    ],
)
def test_a_value_that_its_place_cannot_hold_is_refused(text: str, values: list[Any], why: str) -> None:
    with pytest.raises(ToolFailed) as caught:
        made(text, *values)
    assert caught.value.fault.message.startswith(why)
    assert caught.value.fault.retryable is False


def test_parameters_go_on_after_those_that_are_there() -> None:
    assert made("select $1, '@@', @@", "a", 2, start=2) == ("select $1, $2, $3", ["a", 2])


def test_a_language_may_have_its_own_text_for_a_value() -> None:
    assert spliced(["select '", Spliced(True, "True"), "', ", Spliced(True, "True")], "sqlite") == (
        "select $1, TRUE",
        ["True"],
    )


@pytest.mark.parametrize(
    ("expression", "bare"),
    [
        ('x | replace("\'", "\'\'")', "x"),
        ('x | tojson | replace("\'","\'\'") ', "x | tojson"),
        ("x | replace('\\'', '\\'\\'')", "x"),
        ("x | replace('a', 'b')", "x | replace('a', 'b')"),
    ],
)
def test_quotes_that_the_author_doubled_are_not_doubled_again(expression: str, bare: str) -> None:
    assert without_own_quoting(expression) == bare


PLACES = [
    "select '@@'",
    "select 'a @@ b'",
    "select @@",
    "select '@@' as a, @@ as b",
    "select 1 as a where '@@' = @@",
    "select coalesce(null, '@@')",
    "select case when 1 = 1 then '@@' else @@ end",
    "select 1 -- @@\n, '@@'",
    'select 1 as "a @@"',
    "select 1 from @@",
    "select 1 from t_@@",
    "select i from t order by @@",
    "create table if not exists u (a text default '@@')",
    "select 1 @@",
    "select (1)@@",
]


def run(kind: Style, connection: Any, sql: str, params: list[Any]) -> list[Any] | None:
    """The rows, or None if the database refused."""
    try:
        if kind == "sqlite":
            return list(connection.execute(sql.replace("$", "?"), params))
        cursor = connection.execute(sql, params or None)
        return list(cursor.fetchall()) if kind == "duckdb" or cursor.description else []
    except (apsw.Error, duckdb.Error, psycopg.Error):
        return None


def connected(kind: Style, url: str) -> Any:
    if kind == "sqlite":
        return apsw.Connection(":memory:")
    if kind == "duckdb":
        return duckdb.connect()
    return psycopg.connect(url, autocommit=True, cursor_factory=psycopg.RawCursor)


@pytest.mark.parametrize("kind", KINDS)
def test_300_injections_in_every_place_are_data_or_are_refused(kind: Style, request: pytest.FixtureRequest) -> None:
    """Whatever stands there, the table is as it was, and what comes back is the value."""
    url = request.getfixturevalue("postgres") if kind == "postgres" else ""
    connection = connected(kind, url)
    connection.execute("drop table if exists t")
    connection.execute("create table t (i integer)")
    connection.execute("insert into t values (42)")
    told = 0
    for place in PLACES:
        for text in injections():
            try:
                sql, params = made(place, *[text] * place.count("@@"), style=kind)
            except ToolFailed:
                continue
            if "\x00" in sql:
                continue
            rows = run(kind, connection, sql, params)
            if place == "select '@@'":
                assert rows is not None and [tuple(row) for row in rows] == [(text,)], (place, text)
                told += 1
            if place == "select 'a @@ b'":
                assert rows is not None and rows[0][0] == f"a {text} b"
    assert told == 300
    assert [tuple(row) for row in connection.execute("select * from t").fetchall()] == [(42,)]
    connection.close()
