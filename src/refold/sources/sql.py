"""The sources `sql` and `parquet`: rows that the SQL tools return, page by page.

With `key`, a page starts after the last key that was read; it costs no more than its rows, if there is an index.
Without it, a page skips the rows that were read, in an order that the query must have.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

from msgspec import Struct

from refold.core.outcomes import Fault
from refold.errors import ToolFailed
from refold.ports import Page, Pull
from refold.sources.files import begun, located, mark_of, opened
from refold.sources.services import Ask, SqlToken
from refold.tool_api import refused

POSTGRES = ("url", "host", "port", "database", "user", "password", "sslmode", "auth", "schema")
CONNECTION = {"sqlite": ("database",), "duckdb": ("database", "attach"), "postgres": POSTGRES}
PAGE = "refold_page"
LIMITING = {"LIMIT", "OFFSET", "FETCH"}


PREFIX = "refold_"


class Bound:
    """The `params` of a query, with values of the source added to them."""

    def __init__(self, given: Any) -> None:
        if given is not None and not isinstance(given, (list, Mapping)):
            raise refused("`params` must be a list, for $1 and $2, or a map, for $name")
        self.params: list[Any] | dict[str, Any] = list(given) if isinstance(given, list) else dict(given or {})

    def add(self, name: str, value: Any) -> str:
        """Add a value, and return its placeholder."""
        if isinstance(self.params, list):
            self.params.append(value)
            return f"${len(self.params)}"
        self.params[PREFIX + name] = value
        return f"${PREFIX}{name}"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class Query(Struct, frozen=True):
    text: str
    ordered: bool  # as a whole
    limited: bool


class SqlSource:
    def __init__(self, ask: Ask, tokens: Callable[[str, str], Iterable[SqlToken]]) -> None:
        self._ask, self._tokens = ask, tokens

    async def __call__(self, pull: Pull) -> Page:
        keys = pull.settings
        query = read_query(keys["query"], self._tokens(keys["query"], keys["driver"]))
        return await (self._after_key(pull, query) if "key" in keys else self._after_count(pull, query))

    async def _after_key(self, pull: Pull, query: Query) -> Page:
        key = pull.settings["key"]
        column = f"{PAGE}.{quoted(key)}"
        rows_of = f"from ({query.text}\n) as {PAGE} where {column}"
        bound = Bound(pull.settings.get("params"))
        condition = "is not null"
        if pull.cursor is not None:
            condition = f"> {bound.add('after', pull.cursor)}"
        elif await self._rows(pull, f"select 1 {rows_of} is null limit 1", bound):
            raise _unfit(f"`{key}` is null in some rows, which would never be reached; leave them out in the query")
        rows = await self._rows(pull, f"select * {rows_of} {condition} order by {column} limit {pull.most + 1}", bound)
        keys = [_key_of(row, key) for row in rows]
        if any(one == other for one, other in pairwise([pull.cursor, *keys])):
            raise _unfit(f"two rows have the same `{key}`, or it is not an exact value; take a unique key")
        return Page(rows[: pull.most], keys[pull.most - 1] if len(rows) > pull.most else None)

    async def _after_count(self, pull: Pull, query: Query) -> Page:
        if not query.ordered:
            raise refused("the query has no ORDER BY, so that its pages could be any rows; give it one, or give `key`")
        begin = pull.cursor or 0
        text = f"select * from ({query.text}\n) as {PAGE}" if query.limited else f"{query.text}\n"
        rows = await self._rows(
            pull, f"{text} limit {pull.most + 1} offset {int(begin)}", Bound(pull.settings.get("params"))
        )
        return Page(rows[: pull.most], begin + pull.most if len(rows) > pull.most else None)

    async def _rows(self, pull: Pull, text: str, bound: Bound) -> list[Any]:
        keys = {"query": text, "params": bound.params, "read_only": True, "max_rows": pull.most + 1}
        if "timeout" in pull.settings:
            keys["timeout"] = pull.settings["timeout"]
        answer = await self._ask(pull.settings["driver"], {**connection_of(pull.settings), **keys})
        rows: list[Any] = answer["rows"]
        return rows


def connection_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    driver = settings["driver"]
    found = {name: settings[name] for name in CONNECTION[driver] if name in settings}
    if driver != "postgres" and found.get("database", ":memory:") != ":memory:":
        found["database"] = located(settings, "database")
    return found


def read_query(text: str, tokens: Iterable[SqlToken]) -> Query:
    """Return the one statement of a query, without what follows it. Raises ToolFailed."""
    kept: list[str] = []
    words: list[str] = []  # those that are in no parentheses
    depth = 0
    ended = False
    for token in tokens:
        if token.kind == "comment":
            kept.append(" ")
            continue
        if ended and token.kind != "space" and token.text != ";":
            raise refused("`query` of a source is one statement, and here is another after it")
        ended = ended or token.text == ";"
        if ended:
            continue
        kept.append(token.text)
        if token.kind == "sign":
            depth += {"(": 1, ")": -1}.get(token.text, 0)
        elif token.kind == "word" and depth == 0:
            words.append(token.text.upper())
    if not "".join(kept).strip():
        raise refused("`query` holds no statement")
    ordered = ("ORDER", "BY") in pairwise(words)
    return Query("".join(kept).strip(), ordered, not LIMITING.isdisjoint(words))


def _key_of(row: Mapping[str, Any], key: str) -> Any:
    found = row.get(key)
    if isinstance(found, (list, Mapping)):
        raise _unfit(f"`{key}` is a list or a map, and has no order; take another key")
    return found


def _unfit(why: str) -> ToolFailed:
    return ToolFailed(Fault("bad_key", why, retryable=False))


NUMBER = "file_row_number"  # what DuckDB calls it


class ParquetSource:
    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def __call__(self, pull: Pull) -> Page:
        path = located(pull.settings)
        mark = await asyncio.to_thread(_mark, path)
        at = begun(pull.cursor, path, mark).get("at", 0)
        answer = await self._ask("duckdb", {**_parquet_query(pull, path, at), "read_only": True})
        rows = answer["rows"]
        items = [{name: value for name, value in row.items() if name != NUMBER} for row in rows[: pull.most]]
        if len(rows) <= pull.most:
            return Page(items)
        return Page(items, {"at": rows[pull.most][NUMBER], "file": mark})


def _parquet_query(pull: Pull, path: str, at: int) -> Mapping[str, Any]:
    keys = pull.settings
    bound = Bound(keys.get("params"))
    names = keys.get("columns")
    chosen = "*" if names is None else ", ".join([quoted(NUMBER), *map(quoted, names)])
    where = f"{NUMBER} >= {bound.add('row', at)}" + (f" and ({keys['where']}\n)" if "where" in keys else "")
    rows = f"read_parquet({bound.add('path', path)}, {NUMBER} = true)"
    text = f"select {chosen} from {rows} where {where} order by {NUMBER} limit {pull.most + 1}"
    return {"query": text, "params": bound.params, "max_rows": pull.most + 1}


def _mark(path: str) -> str:
    with opened(path) as file:
        return mark_of(path, file)
