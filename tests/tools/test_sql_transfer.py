"""The tool `transfer`: rows go from anywhere to anywhere, all of them or none."""

import asyncio
import os
import sys
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from refold.core.outcomes import Fault
from refold.ports import Tool, ToolCall
from refold.tools.catalog import CATALOG
from refold.tools.sql.text import Style
from refold.tools.transfer.columns import table_name
from refold.wiring.tools import database_tools
from tests.alive import within
from tests.tools.calls import call, fault_of
from tests.tools.databases import KINDS

FILES = ("csv", "json", "jsonl", "parquet")
ROWS = [{"id": i, "name": f"it's {i}", "amount": i / 4, "day": f"2024-01-{i:02}", "note": None} for i in range(1, 26)]
ANSWER = {"data": {"items": [{"id": 1, "who": "ann", "tags": ["a"]}, {"id": 2, "ok": True, "who": None}]}}


class Moving:
    """The tools, and where each type of source or target is in this test."""

    def __init__(self, folder: Path, url: str) -> None:
        async def http(which: ToolCall) -> Any:
            self.asked.append(which.input["config"])
            return ANSWER

        self.asked: list[Any] = []
        self.folder, self.url = folder, url
        self.tools = {name: make() for name, make in database_tools(lambda: http).items()}

    def end(self, kind: str, name: str = "rows", **more: Any) -> dict[str, Any]:
        if kind in FILES:
            return {"type": kind, "path": str(self.folder / f"{name}.{kind}"), **more}
        return {"type": kind, **self.where(kind), **({} if "query" in more else {"table": name}), **more}

    def computed(self, query: str) -> dict[str, Any]:
        return {"type": "duckdb", "query": query}

    def where(self, kind: str) -> dict[str, Any]:
        return {"url": self.url} if kind == "postgres" else {"database": str(self.folder / f"x.{kind}")}

    async def __call__(self, source: dict[str, Any], target: dict[str, Any], **more: Any) -> Any:
        return await self.tools["transfer"](call(None, {"source": source, "target": target, **more}))

    async def fault(self, source: Any, target: Any, **more: Any) -> Fault:
        return await fault_of(self.tools["transfer"], call(None, {"source": source, "target": target, **more}))

    async def rows(self, kind: str, query: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = (await self.run(kind, query))["rows"]
        return rows

    async def run(self, kind: str, query: str) -> Any:
        return await self.tools[kind](call(None, {**self.where(kind), "query": query}))

    async def close(self) -> None:
        for tool in self.tools.values():
            await tool.close()  # type: ignore[attr-defined]


@pytest.fixture
async def moving(tmp_path: Path, postgres: str) -> AsyncIterator[Moving]:
    made = Moving(tmp_path, postgres)
    header = ",".join(ROWS[0])
    lines = [",".join("" if value is None else str(value) for value in row.values()) for row in ROWS]
    (tmp_path / "rows.csv").write_text("\n".join([header, *lines, ""]))
    await made.run("postgres", "drop schema public cascade; create schema public")
    yield made
    await made.close()


async def first(moving: Moving, kind: str) -> list[dict[str, Any]]:
    if kind in FILES:
        return await moving.rows("duckdb", f"select * from '{moving.folder}/out.{kind}' order by id")
    return await moving.rows(kind, "select * from out order by id")


@pytest.mark.parametrize("source", [*KINDS, *FILES])
async def test_rows_go_from_every_kind_to_every_kind(moving: Moving, source: str) -> None:
    if source != "csv":
        await moving(moving.end("csv"), moving.end(source), mode="replace")
    for target in (*KINDS, *FILES):
        result = await moving(moving.end(source), moving.end(target, "out"), mode="replace", chunk_size=10)
        assert result == {
            "direction": f"{source}_to_{target}",
            "source_type": source,
            "target_type": target,
            "mode": "replace",
            "rows_transferred": 25,
            "chunks_processed": result["chunks_processed"],
            "target_table": moving.end(target, "out").get("path", "out"),
            "columns": ["id", "name", "amount", "day", "note"],
        }
        assert result["chunks_processed"] in (1, 3)
        assert await first(moving, target) == ROWS, (source, target)


async def test_what_is_odd_arrives_too(moving: Moving) -> None:
    query = (
        "select 1 as id, interval '1 month' as span, timestamptz '2024-01-01 00:00:00+00' as at, [1, 2] as list,"
        " {'a': 'x'} as map, 'x'::blob as bytes, 1.10::decimal(10, 2) as price, 2::hugeint as huge, true as yes"
    )
    expected = {"id": 1, "at": "2024-01-01T00:00:00+00:00", "bytes": "eA==", "price": 1.1, "huge": 2, "yes": True}
    for target in KINDS:
        await moving(moving.computed(query), moving.end(target, "out"))
        [row] = await first(moving, target)
        assert {name: row[name] for name in expected} == expected
        assert row["list"] in ([1, 2], "[1,2]")
        assert row["span"] in ("1 month", "P1M")
    await moving(moving.end("postgres", "out"), moving.end("duckdb", "back"))
    [row] = await moving.rows("duckdb", "select * from back")
    assert row == {**expected, "span": "1 month", "list": [1, 2], "map": {"a": "x"}}


async def test_a_query_takes_bound_values_only(moving: Moving) -> None:
    for kind in KINDS:
        await moving(moving.end("csv"), moving.end(kind, "picked"))
        source = moving.end(
            kind, query="select id, name from picked where id > $1 and name <> $2", params=[23, "'; --"]
        )
        result = await moving(source, moving.end("sqlite", "out"), mode="replace")
        assert result["rows_transferred"] == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_append_adds_replace_empties_and_upsert_updates(moving: Moving, kind: str) -> None:
    source = moving.end("csv")
    target = moving.end(kind, "out", mapping={"id": "id", "name": "name"})
    await moving(source, target, mode="upsert", key="id")
    await moving.run(kind, "delete from out where id > 20; update out set name = 'old'")
    result = await moving(source, target, mode="upsert", key=["id"])
    assert (result["mode"], result["rows_transferred"]) == ("upsert", 25)
    assert await moving.rows(kind, "select count(*) as n, count(distinct name) as d from out") == [{"n": 25, "d": 25}]
    more = moving.end(kind, "more")
    for mode, count in (("append", 25), ("append", 50), ("replace", 25)):
        await moving(source, more, mode=mode)
        assert await moving.rows(kind, "select count(*) as n from more") == [{"n": count}]


@pytest.mark.parametrize("kind", KINDS)
async def test_of_rows_with_the_same_key_the_last_one_counts(moving: Moving, kind: str) -> None:
    (moving.folder / "twice.csv").write_text("id,name\n1,a\n2,b\n1,c\n")
    for source in (moving.end("csv", "twice"), moving.end("sqlite", "twice")):
        if source["type"] == "sqlite":
            await moving(moving.end("csv", "twice"), source)
        await moving(source, moving.end(kind, "out"), mode="upsert", key="id")
        assert await first(moving, kind) == [{"id": 1, "name": "c"}, {"id": 2, "name": "b"}]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_failure_leaves_the_target_as_it_was(moving: Moving, kind: str) -> None:
    await moving.run(kind, "create table out (id integer primary key, name text); insert into out values (1, 'old')")
    (moving.folder / "bad.csv").write_text("id,name\n" + "".join(f"{i},x\n" for i in range(2, 40)) + "3,again\n")
    await moving(moving.end("csv", "bad"), moving.end("sqlite", "bad"))
    for source in (moving.end("csv", "bad"), moving.end("sqlite", "bad")):
        for mode in ("append", "replace"):
            fault = await moving.fault(source, moving.end(kind, "out"), mode=mode, chunk_size=10)
            assert fault.kind == "db_constraint"
            assert await first(moving, kind) == [{"id": 1, "name": "old"}]


async def test_a_file_is_replaced_as_a_whole_or_not_at_all(moving: Moving) -> None:
    out = moving.folder / "out.csv"
    out.write_text("old")
    bad = "select case when i < 90000 then i else error('no more') end as i from range(100000) as r(i)"
    fault = await moving.fault(moving.computed(bad), moving.end("csv", "out"))
    assert "no more" in fault.message
    assert out.read_text() == "old"
    assert [each.name for each in moving.folder.iterdir() if "part" in each.name] == []


async def test_columns_are_chosen_and_named_anew(moving: Moving) -> None:
    target = moving.end("postgres", "out", mapping={"order_id": "id", "total": "amount"})
    result = await moving(moving.end("csv"), target)
    assert result["columns"] == ["order_id", "total"]
    assert await moving.rows("postgres", "select * from out where order_id = 2") == [{"order_id": 2, "total": 0.5}]
    fault = await moving.fault(moving.end("csv"), moving.end("sqlite", "out", mapping={"a": "nope"}))
    assert fault.message == "`mapping.a`: the source has no column 'nope'; it has id, name, amount, day, note"


async def test_an_address_is_read_by_the_tool_http(moving: Moving) -> None:
    source = {"type": "http", "url": "http://x/items", "params": {"a": 1}, "data_path": "items"}
    for kind in KINDS:
        await moving(source, moving.end(kind, "out"), mode="replace")
        rows = await moving.rows(kind, "select id, who from out order by id")
        assert rows == [{"id": 1, "who": "ann"}, {"id": 2, "who": None}]
    assert moving.asked[0] == {"url": "http://x/items", "params": {"a": 1}}
    assert await moving.rows("postgres", "select tags, ok from out where id = 1") == [{"tags": ["a"], "ok": None}]
    fault = await moving.fault({**source, "data_path": "nope"}, moving.end("sqlite", "out"))
    assert fault.message.startswith("there is no list of maps at nope of the answer, but null")


async def test_options_are_those_of_duckdb(moving: Moving) -> None:
    (moving.folder / "odd.csv").write_text("1;a;2\n2;b;3\n")
    source = moving.end("csv", "odd", options={"delim": ";", "header": False, "names": ["i", "s", "n"]})
    result = await moving(source, moving.end("csv", "out", options={"delim": "|"}))
    assert result["columns"] == ["i", "s", "n"]
    assert (moving.folder / "out.csv").read_text() == "i|s|n\n1|a|2\n2|b|3\n"
    fault = await moving.fault({**source, "options": {"delim='x') --": 1}}, moving.end("csv", "out"))
    assert fault.message.startswith("`options` is a map of DuckDB's options")


async def test_a_transfer_from_a_duckdb_file_that_is_in_use_goes_row_by_row(moving: Moving) -> None:
    await moving(moving.end("csv"), moving.end("duckdb"))
    slow = asyncio.create_task(moving.run("duckdb", "select count(*) from range(300000) a, range(300000) b"))
    file = os.path.realpath(moving.end("duckdb")["database"])
    assert await asyncio.to_thread(within, 60, lambda: is_open(file))
    target = {"type": "duckdb", "database": str(moving.folder / "other.duckdb"), "table": "out"}
    try:
        result = await moving(moving.end("duckdb"), target, chunk_size=10)
        assert (result["rows_transferred"], result["chunks_processed"]) == (25, 3)
    finally:
        slow.cancel()
        await asyncio.wait([slow])


def is_open(file: str) -> bool:
    """In this process."""
    found = []
    for each in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{each}"))
    return file in found


async def test_no_more_than_a_chunk_is_in_memory(moving: Moving) -> None:
    source = moving.computed("select i, repeat('x', 1000) as s from range(20000) as r(i)")
    tracemalloc.start()
    try:
        await moving(source, moving.end("sqlite", "out"), chunk_size=500)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 6_000_000  # of 20 MB


async def test_a_transfer_that_takes_too_long_is_stopped_and_leaves_nothing(moving: Moving) -> None:
    source = moving.computed("select a.range from range(1000000) a, range(1000000) b")
    for kind in KINDS:
        fault = await moving.fault(source, moving.end(kind, "out"), timeout=0.3)
        assert (fault.kind, fault.retryable) == ("db_timeout", True)
        assert (
            await fault_of(moving.tools[kind], call(None, {**moving.where(kind), "query": "select * from out"}))
        ).kind


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"source": 5, "target": {}}, "`source` must be a map"),
        ({"source": {"type": "csv"}, "target": {}}, "`source.path` must be text"),
        ({"source": {"type": "xml"}, "target": {}}, "`source.type` must be one of sqlite, duckdb, postgres, http, csv"),
        (
            {"source": {"type": "csv", "path": "http://x/a.csv"}, "target": {}},
            "`source.path` is a file, and no address",
        ),
        (
            {"source": {"type": "csv", "path": "x", "query": "select 1"}, "target": {}},
            "`source` of type csv has no key",
        ),
        ({"source": {"type": "sqlite", "database": "x"}, "target": {}}, "`source` needs exactly one of `query` and"),
        ({"target": {"type": "http", "url": "x"}}, "`target.type` must be one of sqlite, duckdb, postgres, csv"),
        ({"target": {"type": "sqlite", "database": "x"}}, "`target.table` must be text"),
        ({"mode": "append"}, "a file is replaced as a whole"),
        ({"target": {"type": "sqlite", "database": "x", "table": "t"}, "mode": "upsert"}, "`mode: upsert` and `key`"),
        ({"target": {"type": "sqlite", "database": "x", "table": "t"}, "key": "id"}, "`mode: upsert` and `key`"),
        ({"chunk_size": 0}, "`chunk_size` must be a number of rows"),
    ],
)
async def test_what_cannot_be_meant_is_refused(config: dict[str, Any], why: str) -> None:
    tool: Tool = database_tools(lambda: tool)["transfer"]()
    given = {"source": {"type": "csv", "path": "x"}, "target": {"type": "csv", "path": "y"}, **config}
    fault = await fault_of(tool, call(None, given))
    assert (fault.kind, fault.retryable) == ("invalid_settings", False)
    assert fault.message.startswith(why)


@pytest.mark.parametrize(
    ("name", "style", "told"),
    [
        ("orders", "sqlite", '"orders"'),
        ("Public.Orders", "postgres", '"public"."orders"'),
        ("Public.Orders", "duckdb", '"Public"."Orders"'),
        ('"My ""Orders"""', "postgres", '"My ""Orders"""'),
    ],
)
def test_a_table_is_named_as_its_database_would_read_it(name: str, style: Style, told: str) -> None:
    assert table_name(name, style) == told


@pytest.mark.parametrize("name", ["t; drop table t", "t--", "", "a b", "a.", '"', "t(i)", "x'"])
async def test_what_is_no_name_of_a_table_is_refused(moving: Moving, name: str) -> None:
    fault = await moving.fault(moving.end("csv"), moving.end("postgres", name))
    assert fault.kind == "invalid_settings"


def test_a_transfer_is_checked_before_the_run() -> None:
    check = CATALOG["transfer"].check
    assert check is not None
    good = {"source": {"type": "csv", "path": "{{ ctx.x }}"}, "target": {"type": "{{ ctx.kind }}"}}
    assert check(good) == []
    spliced = {**good, "source": {"type": "sqlite", "query": "select '{{ ctx.x }}'"}}
    assert [each.message for each in check(spliced)] == ["no value may be put into the text of a statement"]
    assert [each.key for each in check({**good, "source": {}})] == ["source"]
    assert [each.key for each in check({**good, "mode": "upsert"})] == ["key"]


async def test_a_library_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in ("sql.duckdb", "transfer.duckdb"):
        monkeypatch.delitem(sys.modules, f"refold.tools.{module}", raising=False)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    tool: Tool = database_tools(lambda: tool)["transfer"]()
    given = {"source": {"type": "csv", "path": "x"}, "target": {"type": "csv", "path": str(tmp_path / "y")}}
    fault = await fault_of(tool, call(None, given))
    assert fault.message == "duckdb is not installed: run `pip install 'refold[duckdb]'`"
