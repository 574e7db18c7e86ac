"""What can be wrong with the keys of a source, beyond their names and types, and be seen before a run."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from refold.tool_api import ToolProblem

TYPES = ("text", "integer", "number", "bool")
POSTGRES = ("url", "host", "port", "user", "password", "sslmode", "auth", "schema")
WAYS = "`{link: true}`, `{path: data.next}`, `{page: page, start: 1}` or `{cursor: data.next, param: cursor}`"


def check_range(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    if keys.get("step") == 0 and not isinstance(keys["step"], bool):
        return [ToolProblem("step", "`step` must not be 0", "1 goes up, -1 goes down")]
    return []


def check_csv(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    return [*_types(keys.get("types")), *_columns(keys), *check_filter(keys)]


def _types(types: Any) -> Iterator[ToolProblem]:
    for column, name in types.items() if isinstance(types, Mapping) else ():
        if name not in TYPES and not is_computed(name):
            yield ToolProblem("types", f"`types.{column}` is one of {', '.join(TYPES)}, not {name!r}")


def _columns(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    columns = keys.get("columns")
    if isinstance(columns, list) and not all(isinstance(each, str) for each in columns):
        yield ToolProblem("columns", "`columns` is a list of names")
    if keys.get("header") is False and columns is None:
        yield ToolProblem("columns", "without a header, `columns` is needed", "name them in their order")


def check_filter(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    found = []
    given = keys.get("filter")
    for column, wanted in given.items() if isinstance(given, Mapping) else ():
        values = wanted if isinstance(wanted, list) else [wanted]
        if any(isinstance(each, (list, Mapping)) for each in values):
            found.append(ToolProblem("filter", f"`filter.{column}` is a value or a list of values"))
    return found


def check_parquet(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    columns = keys.get("columns")
    found = list(_params(keys))
    if isinstance(columns, list) and not (columns and all(isinstance(each, str) for each in columns)):
        found.append(ToolProblem("columns", "`columns` is a list of names"))
    return found


def check_sql(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    driver = keys.get("driver")
    found = list(_params(keys))
    if driver == "sqlite" and keys.get("database") is None:
        found.append(ToolProblem("database", "sqlite needs `database`, its file"))
    for name in POSTGRES if driver in ("sqlite", "duckdb") else ("attach",) if driver == "postgres" else ():
        if keys.get(name) is not None:
            found.append(ToolProblem(name, f"{driver} has no `{name}`", "`driver` says whose keys these are"))
    return found


def _params(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    params = keys.get("params")
    if params is not None and not isinstance(params, (list, Mapping)) and not is_computed(params):
        yield ToolProblem("params", "`params` is a list or a map", "[a, b] for $1 and $2, {name: a} for $name")


def check_http(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    found = []
    url, way = keys.get("url"), keys.get("next")
    if isinstance(url, str) and not is_computed(url) and not url.lower().startswith(("http://", "https://")):
        found.append(ToolProblem("url", "an address begins with http:// or https://"))
    if isinstance(way, Mapping) and not _leads_on(way):
        found.append(ToolProblem("next", f"`next` must be {WAYS}"))
    return found


def _leads_on(way: Mapping[str, Any]) -> bool:
    match dict(way):
        case {"link": True, **rest} | {"path": str(), **rest}:
            return not rest
        case {"page": str(), "start": start, **rest}:
            return not rest and ((isinstance(start, int) and not isinstance(start, bool)) or is_computed(start))
        case {"page": str(), **rest}:
            return not rest
        case {"cursor": str(), "param": str(), **rest}:
            return not rest
        case _:
            return False


def check_python(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    code, function = keys.get("code"), keys.get("function")
    if (code is None) == (function is None):
        return [ToolProblem("", "exactly one of `function` and `code` is needed")]
    module, _, name = function.partition(":") if isinstance(function, str) else ("x", "", "x")
    if not module or not name:
        return [ToolProblem("function", f"{function!r} does not name a function", "write 'package.module:function'")]
    return []


def is_computed(value: Any) -> bool:
    return isinstance(value, str) and "{{" in value
