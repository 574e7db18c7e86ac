"""What can be wrong with the keys of the SQL tools, and be seen before a run."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from refold.descriptions import ToolProblem
from refold.tools.checks import TEMPLATE

NO_SPLICING = "write $1 or $name there, and give the value in `params`"


def check_sql(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    return [*_texts(keys), *_params(keys)]


def _texts(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    query, commands = keys.get("query"), keys.get("commands")
    if (query is None) == (commands is None):
        yield ToolProblem("", "exactly one of `query` and `commands` is needed", "give `query`")
    for key, text in [
        ("query", query),
        *(("commands", each) for each in (commands if isinstance(commands, list) else ())),
    ]:
        if isinstance(text, str):
            yield from spliced(key, text)


def spliced(key: str, text: str) -> Iterator[ToolProblem]:
    """A value that is put into the text of a statement can be anything to it; a whole statement is the author's."""
    found = TEMPLATE.search(text)
    if found is None or (text.strip().startswith("{{") and text.strip().endswith("}}") and text.count("{{") == 1):
        return
    before = text[: found.start()]
    line, column = before.count("\n") + 1, found.start() - before.rfind("\n")
    yield ToolProblem(key, "no value may be put into the text of a statement", NO_SPLICING, line, column)


def _params(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    params = keys.get("params")
    if params is not None and not isinstance(params, (list, Mapping)) and not _is_expression(params):
        yield ToolProblem("params", "`params` is a list or a map", "[a, b] for $1 and $2, {name: a} for $name")


def _is_expression(value: Any) -> bool:
    return isinstance(value, str) and "{{" in value


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
        if isinstance(end, Mapping) and kind not in known and not _is_expression(kind):
            yield ToolProblem(name, f"`{name}.type` is one of {', '.join(known)}", f"give `{name}` a `type`")


def _key(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    mode = keys.get("mode")
    if not _is_expression(mode) and (mode == "upsert") != (keys.get("key") is not None):
        yield ToolProblem("key", "`mode: upsert` and `key` belong together", "give both, or none")
