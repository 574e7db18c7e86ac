"""Files as sources: csv, jsonl, parquet and glob; what is read of them, what is let through, and what is refused."""

import asyncio
import csv
import errno
import io
import os
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refold.ports import Pull
from refold.sources import text_files
from refold.sources.text_files import from_csv
from tests.sources.pulls import SIZES, Sources, written

TEXTS = st.text(st.sampled_from('ab",;\n\r ü€'), max_size=6)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(rows=st.lists(st.tuples(TEXTS, TEXTS), max_size=12), ending=st.sampled_from(["\n", "\r\n"]))
def test_rows_are_what_was_written_whatever_is_in_them(tmp_path: Path, rows: list[Any], ending: str) -> None:
    with open(tmp_path / "rows.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator=ending, quoting=csv.QUOTE_ALL).writerows([("x", "y"), *rows])
    for most in SIZES:
        found, cursor = list[Any](), None
        while True:
            pull = Pull(settings={"path": str(tmp_path / "rows.csv")}, cursor=cursor, most=most)
            page = asyncio.run(from_csv(pull))
            found += page.items
            cursor = page.cursor
            if cursor is None:
                break
        assert [(item["x"], item["y"]) for item in found] == rows


async def test_a_hundred_thousand_rows_are_read_in_flat_memory(sources: Sources, tmp_path: Path) -> None:
    with open(tmp_path / "big.csv", "w") as file:
        file.write("id,text\n")
        file.writelines(f"{i},{'x' * 60}\n" for i in range(100_000))
    count, last, before = 0, {}, resident()
    async for page in sources.pages("csv", {"path": str(tmp_path / "big.csv")}, 500):
        count, last = count + len(page["items"]), page["items"][-1]
    assert (count, last["id"]) == (100_000, "99999")
    assert resident() - before < 16 * 1024 * 1024, "all rows at once are some 40 MiB"


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_a_late_page_costs_no_more_than_an_early_one(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "x.csv", "id\n" + "".join(f"{i:06}\n" for i in range(50_000)))
    read: list[int] = []

    class Raw(io.FileIO):
        def readinto(self, buffer: Any) -> Any:
            read.append(len(buffer))
            return super().readinto(buffer)

    def counting(path: str) -> io.BufferedReader:
        return io.BufferedReader(Raw(path))

    monkeypatch.setattr(text_files, "opened", counting)
    cursor: Any = None
    costs = []
    for _ in range(90):
        page = await sources.pull("csv", {"path": str(path)}, cursor, 500)
        cursor = page["cursor"]
        costs.append(sum(read))
        read.clear()
    assert max(costs) <= 8 * min(costs)


@pytest.mark.parametrize(
    ("text", "more", "items"),
    [
        ("a;b\n1;x,y\n", {"delimiter": ";"}, [{"a": "1", "b": "x,y"}]),
        ("1,2\n3,4", {"columns": ["a", "b"]}, [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]),
        ("x,y\n3,4", {"columns": ["a", "b"], "header": True}, [{"a": "3", "b": "4"}]),
        ("\ufeffa\n1\n\n\n2\n", {}, [{"a": "1"}, {"a": "2"}]),
        ("a,b\n1,\n", {"types": {"a": "number", "b": "integer"}}, [{"a": 1.0, "b": None}]),
        ("a\nYes\nfalse\n\n", {"types": {"a": "bool"}}, [{"a": True}, {"a": False}]),
        ("a,n\nx,1\ny,2\nx,3\n", {"filter": {"a": "x"}}, [{"a": "x", "n": "1"}, {"a": "x", "n": "3"}]),
        ("a,n\nx,1\ny,2\nx,3\n", {"filter": {"n": [1, 2], "a": "x"}}, [{"a": "x", "n": "1"}]),
        ("n\n1\n02\n3\n", {"types": {"n": "integer"}, "filter": {"n": ["2", 3]}}, [{"n": 2}, {"n": 3}]),
        ("a\n", {}, []),
        ("", {}, []),
    ],
)
async def test_rows_are_maps_by_column(
    sources: Sources, tmp_path: Path, text: str, more: dict[str, Any], items: list[Any]
) -> None:
    path = written(tmp_path / "x.csv", text)
    assert await sources.all("csv", {"path": str(path), **more}, 1) == items


async def test_a_file_in_another_encoding_is_read_in_it(sources: Sources, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes("stadt\nKöln\n".encode("latin-1"))
    assert await sources.all("csv", {"path": str(path), "encoding": "latin-1"}) == [{"stadt": "Köln"}]
    wrong = await sources.fault("csv", {"path": str(path)})
    assert (wrong.kind, wrong.retryable) == ("parse", False)
    assert wrong.message == f"{path}, line 2: it is not utf-8: invalid start byte at its byte 2"
    refused = await sources.fault("csv", {"path": str(path), "encoding": "utf-16"})
    assert "cannot be read from its middle; convert it to utf-8" in refused.message
    assert "not an encoding of text" in (await sources.fault("csv", {"path": str(path), "encoding": "klingon"})).message


@pytest.mark.parametrize(
    ("text", "more", "why"),
    [
        ("a,b\n1,2\n3\n", {}, "line 3: it has 1 values, and there are 2 columns"),
        ("a\n1\nx\n", {"types": {"a": "integer"}}, "line 3: `a` is 'x', and no integer"),
        ("a\nnan\n", {"types": {"a": "number"}}, "line 2: `a` is 'nan', and no number"),
        ("a\nmaybe\n", {"types": {"a": "bool"}}, "line 2: `a` is 'maybe', and no bool"),
        ('a\n"x\ny\n', {}, "line 3: unexpected end of data"),
        ("a,a\n", {}, "'a' is the name of two columns"),
        ("amount\n", {"types": {"amuont": "number"}}, "`types`: there is no column `amuont`; did you mean `amount`?"),
        ("amount\n", {"filter": {"x": 1}}, "`filter`: there is no column `x`; there are `amount`"),
        ("a\n", {"types": {"a": "integer"}, "filter": {"a": "x"}}, "`filter.a`: 'x' is not of the type integer"),
        ("a\n", {"filter": {"a": {"b": 1}}}, "`filter.a` is a value or a list of values"),
        ("a\n", {"types": {"a": "date"}}, "`types.a` is one of text, integer, number, bool, not 'date'"),
        ("a\n", {"delimiter": "::"}, "`delimiter` must be one character, not '::'"),
        ("a\n", {"header": False}, "without a header, `columns` is needed"),
    ],
)
async def test_what_is_wrong_with_a_table_is_told_with_its_place(
    sources: Sources, tmp_path: Path, text: str, more: dict[str, Any], why: str
) -> None:
    path = written(tmp_path / "x.csv", text)
    fault = await sources.fault("csv", {"path": str(path), **more})
    assert why in fault.message
    assert fault.retryable is False


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize("change", ["size", "time", "head"])
async def test_a_file_that_has_changed_since_the_first_page_is_an_error(
    sources: Sources, tmp_path: Path, kind: str, change: str
) -> None:
    path = written(tmp_path / "x", "1\n2\n3\n")
    settings = {"path": str(path)}
    cursor = (await sources.pull(kind, settings, None, 1))["cursor"]
    assert await sources.pull(kind, settings, cursor, 1)
    before = path.stat()
    path.write_text({"size": "1\n2\n3\n4\n", "time": "1\n2\n3\n", "head": "9\n2\n3\n"}[change])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + (change == "time")))
    fault = await sources.fault(kind, settings, cursor, 1)
    assert (fault.kind, fault.retryable) == ("source_changed", False)
    assert str(path) in fault.message and "has changed since its first page" in fault.message


async def test_a_parquet_file_that_has_changed_is_an_error_too(sources: Sources, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    with duckdb.connect() as db:
        db.execute(f"copy (select i from range(5) as r(i)) to '{path}' (format parquet)")
        cursor = (await sources.pull("parquet", {"path": str(path)}, None, 2))["cursor"]
        db.execute(f"copy (select i from range(6) as r(i)) to '{path}' (format parquet)")
    assert (await sources.fault("parquet", {"path": str(path)}, cursor)).kind == "source_changed"
    assert (await sources.fault("parquet", {"path": str(path), "columns": ["j"]})).kind == "schema"


async def test_a_line_that_is_no_json_is_named(sources: Sources, tmp_path: Path) -> None:
    path = written(tmp_path / "x.jsonl", '{"a": 1}\n\n[2]\n{"a": \n')
    settings = {"path": str(path)}
    page = await sources.pull("jsonl", settings, None, 2)
    assert page["items"] == [{"a": 1}, [2]]
    fault = await sources.fault("jsonl", settings, page["cursor"], 2)
    assert fault.message.startswith(f"{path}, line 4: it is not JSON: ")
    assert "line 3: `filter` is for maps" in (await sources.fault("jsonl", {**settings, "filter": {"a": 1}})).message


async def test_lines_are_let_through_by_their_values(sources: Sources, tmp_path: Path) -> None:
    path = written(tmp_path / "x.jsonl", '{"a": 1}\n{"a": true}\n{"a": "1"}\n{"b": 1}\n{"a": 2, "b": 1}\n')
    for wanted, items in [
        ({"a": 1}, [{"a": 1}]),
        ({"a": [True, "1"]}, [{"a": True}, {"a": "1"}]),
        ({"a": [2, None], "b": 1}, [{"b": 1}, {"a": 2, "b": 1}]),
    ]:
        assert await sources.all("jsonl", {"path": str(path), "filter": wanted}, 1) == items


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
async def test_a_path_that_is_no_file_is_told(sources: Sources, tmp_path: Path, kind: str) -> None:
    fault = await sources.fault(kind, {"path": "no.such", "folder": str(tmp_path)})
    assert (fault.kind, fault.retryable) == ("storage_access", False)
    assert fault.message == f"{tmp_path}/no.such cannot be read: No such file or directory"
    assert "cannot be read" in (await sources.fault(kind, {"path": str(tmp_path)})).message
    assert "the source http reads one" in (await sources.fault(kind, {"path": "http://x/y"})).message
    assert "must be the path of a file" in (await sources.fault(kind, {"path": "a\0b"})).message


async def test_a_relative_path_is_seen_from_the_folder_or_from_here(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    written(tmp_path / "in/x.jsonl", "1\n")
    written(tmp_path / "x.jsonl", "2\n")
    monkeypatch.chdir(tmp_path)
    assert await sources.all("jsonl", {"path": "x.jsonl", "folder": str(tmp_path / "in")}) == [1]
    assert await sources.all("jsonl", {"path": "x.jsonl"}) == [2]


async def test_a_line_without_an_end_is_not_taken_into_memory(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refold.sources.files.LONGEST", 1 << 20)
    path = written(tmp_path / "x.jsonl", "1\n" + "2" * (3 << 20))
    assert "line 2: it has more than 1 MiB" in (await sources.fault("jsonl", {"path": str(path)})).message


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
async def test_large_items_make_small_pages(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("refold.sources.text_files.PAGE", 1000)
    path = written(tmp_path / "x", "\n".join(['"a"', *('"' + "x" * 400 + '"' for _ in range(10))]))
    sizes = [len(page["items"]) async for page in sources.pages(kind, {"path": str(path)}, 500)]
    assert sum(sizes) == 10 + (kind == "jsonl")
    assert max(sizes) <= 4


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("a/b/c/1.csv", "a/b/2.csv", "a/3.csv", "a/3.txt", "4.csv", ".hidden/5.csv", "a/.6.csv", "a.b/7.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        written(tmp_path / name, name)
    (tmp_path / "a/link").symlink_to(tmp_path / "a.b")
    (tmp_path / "a/loop").symlink_to(tmp_path / "a")
    (tmp_path / "a/gone.csv").symlink_to(tmp_path / "nothing")
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.csv", ["4.csv"]),
        ("**/*.csv", ["4.csv", "a/3.csv", "a/b/2.csv", "a/b/c/1.csv", "a.b/7.csv"]),
        ("**/**/*.csv", ["4.csv", "a/3.csv", "a/b/2.csv", "a/b/c/1.csv", "a.b/7.csv"]),
        ("a/**/b/**/*.csv", ["a/b/2.csv", "a/b/c/1.csv"]),
        ("a/**", ["a/3.csv", "a/3.txt", "a/b/2.csv", "a/b/c/1.csv"]),
        ("a/?.[ct]*", ["a/3.csv", "a/3.txt"]),
        ("a*/*.csv", ["a/3.csv", "a.b/7.csv"]),
        ("a/link/*.csv", ["a/link/7.csv"]),
        ("a/l*/*.csv", ["a/link/7.csv", "a/loop/3.csv"]),
        (".hidden/*", [".hidden/5.csv"]),
        ("a/.*", ["a/.6.csv"]),
        ("4.csv", ["4.csv"]),
        ("a/../4.csv", ["4.csv"]),
        ("x*", []),
    ],
)
@pytest.mark.parametrize("most", [1, 2, 1000])
async def test_files_are_found_by_a_pattern(
    sources: Sources, tree: Path, pattern: str, names: list[str], most: int
) -> None:
    found = await sources.all("glob", {"pattern": pattern, "folder": str(tree)}, most)
    assert [item["path"].removeprefix(f"{tree}/") for item in found] == names
    assert await sources.all("glob", {"pattern": str(tree / pattern)}, most) == found


async def test_a_file_is_told_with_its_size_and_its_time(sources: Sources, tree: Path) -> None:
    os.utime(tree / "4.csv", (0, 86400))
    [item] = await sources.all("glob", {"pattern": "4.*", "folder": str(tree)})
    wanted = {"path": str(tree / "4.csv"), "name": "4.csv", "size": 5, "modified": "1970-01-02T00:00:00+00:00"}
    assert item == wanted
    some = {"pattern": "**/*.csv", "folder": str(tree), "filter": {"name": ["1.csv", "7.csv"]}}
    assert [item["name"] for item in await sources.all("glob", some, 1)] == ["1.csv", "7.csv"]
    fault = await sources.fault("glob", {**some, "filter": {"nmae": "x"}})
    assert "`filter`: there is no column `nmae`; did you mean `name`?" in fault.message


async def test_a_folder_that_is_not_there_is_no_empty_loop(sources: Sources, tree: Path) -> None:
    fault = await sources.fault("glob", {"pattern": "incomign/*.csv", "folder": str(tree)})
    assert (fault.kind, fault.message) == ("storage_access", f"`pattern`: there is no folder {tree}/incomign")


async def test_a_folder_that_cannot_be_read_is_no_empty_loop_and_one_below_it_is_left_out_with_a_line_in_the_log(
    sources: Sources, tree: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    usual = os.scandir

    def closed(*folders: Path) -> None:
        def scandir(folder: str) -> Any:
            if Path(folder) in folders:
                raise PermissionError(errno.EACCES, "Permission denied", folder)
            return usual(folder)

        monkeypatch.setattr(os, "scandir", scandir)

    (tree / "below").mkdir()
    (tree / "below" / "9.csv").write_text("a")
    closed(tree / "below")
    pattern = {"pattern": "**/[49].csv", "folder": str(tree)}
    with caplog.at_level("WARNING", "refold"):
        assert [item["name"] for item in await sources.all("glob", pattern)] == ["4.csv"]
    assert "folder left out" in caplog.text
    closed(tree)
    fault = await sources.fault("glob", pattern)
    assert (fault.kind, fault.message) == (
        "storage_access",
        f"`pattern`: the folder {tree} cannot be read: Permission denied",
    )


async def test_a_cursor_of_another_source_is_refused(sources: Sources, tree: Path) -> None:
    path = {"path": str(tree / "4.csv")}
    assert (await sources.fault("csv", path, 17)).kind == "bad_cursor"
