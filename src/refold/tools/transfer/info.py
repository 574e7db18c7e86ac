"""What the tool `transfer` is for its authors: its keys, its result, an example, and its checks."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from refold.tool_api import ToolInfo, ToolKey, ToolProblem
from refold.tools.shared_keys import is_expression
from refold.tools.sql.info import spliced


def check_transfer(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    return [*_query_of_source(keys.get("source")), *_types(keys), *_key(keys)]


def _query_of_source(source: Any) -> Iterator[ToolProblem]:
    query = source.get("query") if isinstance(source, Mapping) else None
    for problem in spliced("source", query) if isinstance(query, str) else ():
        yield ToolProblem("source", problem.message, problem.hint, code="spliced")


SOURCES = ("sqlite", "duckdb", "postgres", "csv", "json", "jsonl", "parquet", "http")
TARGETS = SOURCES[:-1]


def _types(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    for name, known in (("source", SOURCES), ("target", TARGETS)):
        end = keys.get(name)
        kind = end.get("type") if isinstance(end, Mapping) else None
        if isinstance(end, Mapping) and kind not in known and not is_expression(kind):
            yield ToolProblem(name, f"`{name}.type` is one of {', '.join(known)}", f"give `{name}` a `type`")


def _key(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    mode = keys.get("mode")
    if not is_expression(mode) and (mode == "upsert") != (keys.get("key") is not None):
        yield ToolProblem("key", "`mode: upsert` and `key` belong together", "give both or neither")


TRANSFER = ToolInfo(
    kind="transfer",
    about="Copies rows from a database, a file or an address into a table or a file. All rows arrive or none: it is"
    " one transaction, or a new file in place of the old one. At most one chunk is in memory. Files and DuckDB"
    " need `pip install 'refold[duckdb]'`, PostgreSQL `pip install 'refold[postgres]'`.",
    keys=(
        ToolKey(
            name="source",
            type="map",
            required=True,
            about="`type` is sqlite, duckdb or postgres, with the keys of that tool for its connection, and `query`,"
            " one statement, with `params`, or `table` (a query of DuckDB needs no `database`); csv, json, jsonl (a"
            " map on each line) or parquet, with `path` (`*` matches many files) and `options`, those of DuckDB for"
            " such files; or http, with `url`, `method`, `headers`, `params`, `json`, `auth` and `pages` as that tool"
            " has them, and `data_path`, where the list of maps is in the response",
        ),
        ToolKey(
            name="target",
            type="map",
            required=True,
            about="`type` is sqlite, duckdb or postgres, with its connection and `table`, which is created if it does"
            " not exist; or a type of file, with `path` and `options`. `mapping` chooses and renames columns:"
            " `{column of the target: column of the source}`",
        ),
        ToolKey(
            name="mode",
            type="text",
            choices=("append", "replace", "upsert"),
            about="`append` (the default for tables), `replace`, which empties the table first (the default for files,"
            " and their only one), or `upsert`, which updates the rows that have the same `key`",
        ),
        ToolKey(
            name="key",
            type="any",
            about="for `upsert`: a column of the target, or a list of columns; unique in the table",
        ),
        ToolKey(name="chunk_size", type="integer", about="rows at a time (10000)"),
        ToolKey(name="timeout", type="duration", about="for the whole transfer"),
    ),
    result="`{direction, source_type, target_type, mode, rows_transferred, chunks_processed, target_table, columns}`;"
    " between DuckDB and files everything is one chunk",
    result_keys=(
        *("direction", "source_type", "target_type", "mode", "rows_transferred", "chunks_processed", "target_table"),
        "columns",
    ),
    check=check_transfer,
    example="""\
tool:
  kind: transfer
  source: {type: csv, path: "{{ workload.file }}"}
  target: {type: postgres, url: "{{ ctx.url }}", table: public.orders, mapping: {order_id: id, total: amount}}
  mode: upsert
  key: order_id
""",
)
