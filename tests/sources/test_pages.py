"""What every source promises: each item once, in pages of any size, and the same page for the same cursor anywhere."""

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from msgspec.json import decode

from tests.sources.pulls import SIZES, Sources, written
from tests.tools.databases import opened
from tests.tools.web import Asked, Site, says, served

COUNT = 23
ROWS: list[dict[str, Any]] = [{"id": i, "name": f"n{i}", "odd": bool(i % 2)} for i in range(COUNT)]
GENERATOR = """
def main(count):
    for i in range(count):
        yield {"id": i, "at": (i, i + 1)}
"""
ASYNC = """
import asyncio

async def main(count):
    for i in range(count):
        await asyncio.sleep(0)
        yield i
"""


def of_csv(folder: Path) -> tuple[dict[str, Any], list[Any]]:
    with open(folder / "rows.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "text"])
        rows.writerows([i, f'a "{i}"\nline {i}\r\n, or two'] for i in range(COUNT))
    items = [{"id": i, "text": f'a "{i}"\nline {i}\r\n, or two'} for i in range(COUNT)]
    return {"path": "rows.csv", "folder": str(folder), "types": {"id": "integer"}}, items


def of_jsonl(folder: Path) -> tuple[dict[str, Any], list[Any]]:
    written(folder / "rows.jsonl", "\n\n".join(map(json.dumps, ROWS)))
    return {"path": str(folder / "rows.jsonl")}, ROWS


def of_glob(folder: Path) -> tuple[dict[str, Any], list[Any]]:
    names = [f"{'abc'[i % 3]}/{i:02}.txt" for i in range(COUNT)]
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        written(folder / name, "x")
    return {"pattern": "**/*.txt", "folder": str(folder)}, [str(folder / name) for name in sorted(names)]


KINDS: dict[str, Callable[[Path], tuple[dict[str, Any], list[Any]]]] = {
    "list": lambda folder: ({"items": ROWS}, ROWS),
    "range": lambda folder: ({"start": 5, "stop": -20, "step": -1}, list(range(5, -20, -1))),
    "csv": of_csv,
    "jsonl": of_jsonl,
    "glob": of_glob,
}


@pytest.mark.parametrize("most", SIZES)
@pytest.mark.parametrize("kind", KINDS)
async def test_pages_of_any_size_hold_each_item_once(sources: Sources, tmp_path: Path, kind: str, most: int) -> None:
    settings, items = KINDS[kind](tmp_path)
    await check_pages(sources, kind, settings, items, most, given=lambda item: item["path"] if kind == "glob" else item)


@pytest.mark.parametrize("most", SIZES)
@pytest.mark.parametrize("code", [GENERATOR, ASYNC])
async def test_an_iterator_is_given_page_by_page(sources: Sources, code: str, most: int) -> None:
    items = [{"id": i, "at": [i, i + 1]} for i in range(COUNT)] if code is GENERATOR else list(range(COUNT))
    settings = {"code": code, "args": {"count": COUNT}}
    assert await sources.all("python", settings, most) == items


@pytest.mark.parametrize("most", [7, 1000])
@pytest.mark.parametrize("code", [GENERATOR, ASYNC])
async def test_an_iterator_is_built_anew_where_another_process_goes_on(sources: Sources, code: str, most: int) -> None:
    items = [{"id": i, "at": [i, i + 1]} for i in range(COUNT)] if code is GENERATOR else list(range(COUNT))
    await check_pages(sources, "python", {"code": code, "args": {"count": COUNT}}, items, most)


@pytest.mark.parametrize("most", SIZES)
async def test_rows_of_a_parquet_file_are_paged(sources: Sources, tmp_path: Path, most: int) -> None:
    parquet(tmp_path / "rows.parquet")
    settings = {"path": "rows.parquet", "folder": str(tmp_path), "columns": ["name", "id"]}
    wanted = [{"name": row["name"], "id": row["id"]} for row in ROWS]
    await check_pages(sources, "parquet", settings, wanted, most)
    some = {**settings, "where": "id >= $least and odd", "params": {"least": 6}, "columns": None}
    await check_pages(sources, "parquet", some, [row for row in ROWS if row["id"] >= 6 and row["odd"]], most)


def parquet(path: Path) -> None:
    with duckdb.connect() as db:
        made = "select i::int as id, 'n' || i as name, i % 2 = 1 as odd from range(23) as r(i)"
        db.execute(f"copy ({made}) to '{path}' (format parquet, row_group_size 10)")


@pytest.fixture
def site() -> Iterator[tuple[Site, str]]:
    found = Site()
    with served(found) as address:
        yield found, address


def paged(next_of: Callable[[int], dict[str, Any]], **how: Any) -> Callable[[Asked], Any]:
    """Pages of ten."""

    def answer(asked: Asked) -> Any:
        page = int(asked.query.get("page", ["1"])[0])
        items = ROWS[(page - 1) * 10 : page * 10]
        more = page * 10 < COUNT
        link = f'<?page={page + 1}>; rel="next"' if more and how.get("link") else ""
        return says({"data": {"items": items}, **(next_of(page + 1) if more else {})}, link=link)

    return answer


WAYS: dict[str, tuple[Callable[[int], dict[str, Any]], dict[str, Any]]] = {
    "link": (lambda page: {}, {"link": True}),
    "path": (lambda page: {"next": f"/rows?page={page}"}, {"path": "next"}),
    "page": (lambda page: {}, {"page": "page"}),
    "cursor": (lambda page: {"meta": [{"after": str(page)}]}, {"cursor": "meta.0.after", "param": "page"}),
}


@pytest.mark.parametrize("most", SIZES)
@pytest.mark.parametrize("way", WAYS)
async def test_pages_of_a_server_are_followed(sources: Sources, site: tuple[Site, str], way: str, most: int) -> None:
    next_of, following = WAYS[way]
    site[0]["/rows"] = paged(next_of, link=way == "link")
    settings = {"url": f"{site[1]}/rows", "items": "data.items", "next": following}
    assert await sources.all("http", settings, most) == ROWS
    assert len(site[0].asked) == (4 if way == "page" else 3), "a page of the server is asked for once"
    await check_pages(sources, "http", settings, ROWS, most)


@pytest.mark.parametrize("most", SIZES)
@pytest.mark.parametrize("key", ["id", None])
@pytest.mark.parametrize("driver", ["sqlite", "duckdb", "postgres"])
async def test_rows_of_a_query_are_paged(
    sources: Sources, tmp_path: Path, request: pytest.FixtureRequest, driver: str, key: str | None, most: int
) -> None:
    settings = await table(driver, tmp_path, request)
    settings |= {"query": "select id, name from rows where id >= $least", "params": {"least": 3}}
    settings |= {"key": key} if key else {"query": settings["query"] + " order by name, id; -- in this order"}
    wanted = [{"id": row["id"], "name": row["name"]} for row in ROWS if row["id"] >= 3]
    await check_pages(sources, "sql", settings, wanted if key else sorted(wanted, key=lambda row: row["name"]), most)


async def table(driver: str, folder: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    where = {"url": request.getfixturevalue("postgres")} if driver == "postgres" else {"database": str(folder / "x.db")}
    async with opened(driver, where) as database:  # type: ignore[arg-type]
        await database.run("drop table if exists rows; create table rows (id integer, name varchar(20))")
        rows = ", ".join(f"({row['id']}, '{row['name']}')" for row in ROWS)
        await database.run(f"insert into rows values {rows}")
    return {"driver": driver, **where}


async def check_pages(
    sources: Sources,
    kind: str,
    settings: dict[str, Any],
    items: list[Any],
    most: int,
    given: Callable[[Any], Any] = lambda item: item,
) -> None:
    pages = [page async for page in sources.pages(kind, settings, most)]
    assert [given(item) for page in pages for item in page["items"]] == items
    assert all(len(page["items"]) <= most for page in pages)
    assert all(page["items"] for page in pages[:-1]), "a page with one after it holds something"
    await sources.forget()
    cursor = None
    for page in pages[:5]:
        assert decode(json.dumps(cursor)) == cursor
        assert await sources.pull(kind, settings, cursor, most) == page
        cursor = page["cursor"]
        if kind == "python":
            await sources.forget()
