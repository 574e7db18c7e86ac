"""The source `parquet`: the rows of a file, read by DuckDB; a cursor is the number of the next row."""

import asyncio
from collections.abc import Mapping
from typing import Any

from refold.ports import Page, Pull
from refold.sources.bound import Bound, quoted
from refold.sources.files import begun, located, mark_of, opened
from refold.sources.means import Ask

NUMBER = "file_row_number"  # what DuckDB calls it


class ParquetSource:
    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def __call__(self, pull: Pull) -> Page:
        path = located(pull.settings)
        mark = await asyncio.to_thread(_mark, path)
        at = begun(pull.cursor, path, mark).get("at", 0)
        answer = await self._ask("duckdb", {**_query(pull, path, at), "read_only": True})
        rows = answer["rows"]
        items = [{name: value for name, value in row.items() if name != NUMBER} for row in rows[: pull.most]]
        if len(rows) <= pull.most:
            return Page(items)
        return Page(items, {"at": rows[pull.most][NUMBER], "file": mark})


def _query(pull: Pull, path: str, at: int) -> Mapping[str, Any]:
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
