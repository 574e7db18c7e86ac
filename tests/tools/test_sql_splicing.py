"""Values that stand in the text of SQL: each becomes a literal of its database, or is refused."""

from typing import Any

import apsw
import duckdb
import psycopg
import pytest

from refold.tools.noetl_text import HOLE, Misplaced
from refold.tools.sql.noetl_text import parts_of, without_own_quoting, written
from refold.tools.sql.text import Style
from tests.tools.databases import KINDS, injections


def made(text: str, *values: Any, style: Style = "postgres") -> str:
    """The text with `@@` where a value stands."""
    return written(parts_of(text.replace("@@", HOLE), style), values, style)


@pytest.mark.parametrize(
    ("text", "values", "sql"),
    [
        ("insert into t values ('@@', @@)", ["it's", 7], "insert into t values ('it''s', 7)"),
        ("select * from t where s like '%@@%'", ["50'%"], "select * from t where s like '%50''%%'"),
        ("select 'a ''@@'' b @@'", ["x", 1], "select 'a ''x'' b 1'"),
        ("select '@@'", [""], "select ''"),
        ("select '@@', '@@'", ["'", "''"], "select '''', ''''''"),
        ("select '@@'::jsonb", [{"a": "it's"}], "select '{\"a\":\"it''s\"}'::jsonb"),
        ("select @@ + 1, -@@, 5-@@", [2, 1.5, -3], "select 2 + 1, -1.5, 5-(-3)"),
        ("delete from t where a = @@ and b in (@@, 2)", ["x", 1], "delete from t where a = 'x' and b in (1, 2)"),
        ("select * from t where i in (@@)", ["1, -2,3"], "select * from t where i in (1, -2,3)"),
        ("select * from t where i in (@@)", [[1, -2, "a'"]], "select * from t where i in (1, (-2), 'a''')"),
        ("select * from t where s in ('@@')", [["a", "b'c"]], "select * from t where s in ('a', 'b''c')"),
        ("select * from t where s in ('@@')", ["a','b"], "select * from t where s in ('a'',''b')"),
        ("select * from t where s in (@@)", ["1,2) or (1=1"], "select * from t where s in ('1,2) or (1=1')"),
        ("select @@, @@, @@", [None, True, False], "select NULL, TRUE, FALSE"),
        ("select * from t limit @@ offset @@", [5, 10], "select * from t limit 5 offset 10"),
        ("select @@::jsonb", [[1, "a"]], "select '[1,\"a\"]'::jsonb"),
        ("select a is distinct from @@ from t", ["x"], "select a is distinct from 'x' from t"),
        ("select x % @@ from t group by x % @@", [3, 3], "select x % 3 from t group by x % 3"),
        ("select jsonb_build_object('a', '@@')", ["x"], "select jsonb_build_object('a', 'x')"),
        ("select round(@@, 1)", [1.5], "select round(1.5, 1)"),
        ("select $json$@@$json$", ["it's"], "select 'it''s'"),
        ("select E'\\n@@'", ["a'\\"], "select E'\\na''\\\\'"),
        ("select '@@'", ["a\\"], "select  E'a\\\\'"),
        ("select * from @@ where i = 1", ["public.t"], "select * from public.t where i = 1"),
        ("drop table if exists @@; select @@", ["t1", 2], "drop table if exists t1; select 2"),
        ("insert into @@ (a) values ('@@')", ["t", "x"], "insert into t (a) values ('x')"),
        ("update @@.t_@@ set @@ = 1", ["s", 7, "col"], "update s.t_7 set col = 1"),
        ("select * from t order by @@", ["name"], "select * from t order by name"),
        ('select "@@" from "x @@"', ['a"b', "y"], 'select "a""b" from "x y"'),
        ("create index i_@@_x on public.@@ (a)", ["t", "t"], "create index i_t_x on public.t (a)"),
        ("create table t (a text default '@@')", ["it's"], "create table t (a text default 'it''s')"),
        ("create table t (b int default @@)", [3], "create table t (b int default 3)"),
        ("select now() - interval '@@ days'", [5], "select now() - interval '5 days'"),
        ("select date '@@'", ["2024-01-01'"], "select date '2024-01-01'''"),
        ("copy t to '@@'", ["a'b.csv"], "copy t to 'a''b.csv'"),
        ("select * from '@@'", ["a'b.csv"], "select * from 'a''b.csv'"),
        ("set search_path to @@", ["a; b"], "set search_path to 'a; b'"),
        ("-- it's\nselect /* /* */ ' */ @@", ["x"], "-- it's\nselect /* /* */ ' */ 'x'"),
        ("select 1, -- it's\r '@@'", ["x"], "select 1, -- it's\r 'x'"),
        ("do $$ begin null; end $$; select @@", ["x"], "do $$ begin null; end $$; select 'x'"),
        ("insert into query (a) values ('@@')", ["x"], "insert into query (a) values ('x')"),
    ],
)
def test_a_value_becomes_what_its_place_asks_for(text: str, values: list[Any], sql: str) -> None:
    assert made(text, *values) == sql


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("select * from t @@", "after 'select * from t ', where no value can stand"),
        ("select * from t where a @@ 1", "where no value can stand"),
        ("select (1) @@", "where no value can stand"),
        ("select 'a'@@", "where no value can stand"),
        ("select '@@'@@", "where no value can stand"),
        ("select 1 as a, @@ 'b'", "where no value can stand"),
        ("select @@'b'", "just before a quote"),
        ("select @@e'\\''", "just before a quoted text"),
        ("select 'a'\n'@@'", "two quoted texts side by side"),
        ("select E'a' -- b\n'@@'", "two quoted texts side by side"),
        ("select '@@'\n'a\\'", "two quoted texts side by side"),
        ("select X'@@'", "a letter before them"),
        ("select U&'@@'", "a letter before them"),
        ('select U&"@@"', "escapes of its own"),
        ("select $@@", "behind a `$`"),
        ("select $1@@", "part of a number or a parameter"),
        ("select 1@@", "part of a number or a parameter"),
        ("@@ * from t", "where no value can stand"),
        ("@@_x * from t", "where a statement begins"),
        ("select 1 -- @@", "in a comment"),
        ("select /* @@ */ 1", "in a comment"),
        ("select /* /* */ '@@' */ 1", "in a comment"),
        ("do $$ begin perform '@@'; end $$", "between dollar quotes"),
        ("select $$a @@$$", "between dollar quotes"),
        ("do '@@'", "runs a text"),
        ("execute @@", "where no value can stand"),
        ("create function f() returns int as '@@' language sql", "runs a text"),
        ("copy t to program '@@'", "runs a text"),
        ("select * from query('@@')", "runs a text"),
        ("select dblink('x', '@@')", "runs a text"),
        ("load '@@'", "runs a text"),
        ("select E'\\@@'", "behind a backslash"),
        ("select E'\\x4@@'", "behind a backslash"),
        ("set standard_conforming_strings = off; select '@@'", "changes how quotes are read"),
        ("select '@@", "never closed"),
        ("select \u00a0 '@@'", "outside of quotes"),
    ],
)
def test_every_other_place_is_refused_whatever_the_value_is(text: str, why: str) -> None:
    with pytest.raises(Misplaced) as caught:
        made(text, *["7"] * text.count("@@"))
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("text", "value", "why"),
    [
        ("select * from @@", "t; drop table t", "'t; drop table t' cannot stand where a name stands"),
        ("select * from @@", "t where 1=1", "cannot stand where a name stands"),
        ("select * from public.@@", "t--", "cannot stand where a name stands"),
        ("select '@@'", "a\0b", "a value has a NUL"),
        ("select @@", "a\0b", "a value has a NUL"),
        ("select E'@@'", "a\0b", "a value has a NUL"),
        ('select "@@"', "a\0b", "a value has a NUL"),
        ("select '@@'", "\ud800", "half of a surrogate pair"),
    ],
)
def test_a_value_that_its_place_cannot_hold_is_refused(text: str, value: str, why: str) -> None:
    with pytest.raises(ValueError) as caught:
        made(text, value)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("expression", "bare"),
    [
        ('x | replace("\'", "\'\'")', "x"),
        ('x | tojson | replace("\'","\'\'") ', "x | tojson"),
        ("x | replace('\\'', '\\'\\'')", "x"),
        ("x | replace('a', 'b')", "x | replace('a', 'b')"),
        ("x | join(\"','\")", "x"),
        ("x | join(',')", "x | join(',')"),
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
    'select 1 as "a @@"',
    "select 1 from @@",
    "select 1 from t_@@",
    "select i from t order by @@",
    "create table if not exists u (a text default '@@')",
    "select 1 @@",
    "select (1)@@",
]


def run(kind: Style, connection: Any, sql: str) -> list[Any] | None:
    """The rows, or None if the database refused."""
    try:
        if kind == "sqlite":
            return list(connection.execute(sql))
        cursor = connection.execute(sql)
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
                sql = made(place, *[text] * place.count("@@"), style=kind)
            except ValueError:
                continue
            rows = run(kind, connection, sql)
            if place == "select '@@'":
                assert rows is not None and [tuple(row) for row in rows] == [(text,)], (place, text)
                told += 1
            if place == "select 'a @@ b'":
                assert rows is not None and rows[0][0] == f"a {text} b"
    assert told == 300
    assert [tuple(row) for row in connection.execute("select * from t").fetchall()] == [(42,)]
    connection.close()
