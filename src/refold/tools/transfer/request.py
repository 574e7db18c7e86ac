"""What a transfer is asked to do: from where, to where, and how."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from refold.ports import ToolCall
from refold.tool_api import refused, type_name
from refold.tools.sql.request import CONNECTION_KEYS, file_of

FILES = ("csv", "json", "jsonl", "parquet")
TABLES = ("sqlite", "duckdb", "postgres")
CONNECTION = (*CONNECTION_KEYS, "auth")

SOURCE_KEYS: Mapping[str, tuple[str, ...]] = {
    "sqlite": ("database", "query", "params", "table"),
    "duckdb": ("database", "query", "params", "table"),
    "postgres": (*CONNECTION, "query", "params", "table"),
    "http": ("url", "method", "headers", "params", "json", "auth", "pages", "data_path"),
    **{kind: ("path", "options") for kind in FILES},
}
TARGET_KEYS: Mapping[str, tuple[str, ...]] = {
    "sqlite": ("database", "table", "mapping"),
    "duckdb": ("database", "table", "mapping"),
    "postgres": (*CONNECTION, "table", "mapping"),
    **{kind: ("path", "options", "mapping") for kind in FILES},
}
CHUNK = 10_000  # rows


class End(Struct, frozen=True):
    """One end of a transfer: where rows come from or go to."""

    type: str
    keys: Mapping[str, Any]

    @property
    def is_file(self) -> bool:
        return self.type in FILES


class Transfer(Struct, frozen=True):
    source: End
    target: End
    mode: str
    key: tuple[str, ...]
    chunk_size: int
    timeout: float | None
    call: ToolCall


def transfer_of(call: ToolCall, keys: Mapping[str, Any]) -> Transfer:
    source = _with_files(call, _end("source", keys, SOURCE_KEYS))
    target = _with_files(call, _end("target", keys, TARGET_KEYS))
    mode = keys.get("mode", "replace" if target.is_file else "append")
    if target.is_file and mode != "replace":
        raise refused(f"a file is replaced as a whole: `mode: {mode}` is for tables")
    key = keys.get("key", [])
    names = tuple([key] if isinstance(key, str) else key)
    if (mode == "upsert") != bool(names):
        raise refused("`mode: upsert` and `key`, a column or a list of them, belong together")
    size = keys.get("chunk_size", CHUNK)
    if size < 1:
        raise refused("`chunk_size` must be a number of rows")
    return Transfer(source, target, mode, names, int(size), keys.get("timeout"), call)


def _with_files(call: ToolCall, end: End) -> End:
    """Return an end with its file as this process finds it. The `database` of PostgreSQL is not a file."""
    key = "path" if end.is_file else "database" if end.type in ("sqlite", "duckdb") else ""
    if not isinstance(end.keys.get(key), str):
        return end
    return End(end.type, {**end.keys, key: file_of(call, end.keys[key])})


def _end(name: str, keys: Mapping[str, Any], known: Mapping[str, Sequence[str]]) -> End:
    given = keys.get(name)
    if not isinstance(given, Mapping):
        raise refused(f"`{name}` must be a map with a `type`, not {type_name(given)}")
    kind = given.get("type")
    if not isinstance(kind, str) or kind not in known:
        raise refused(f"`{name}.type` must be one of {', '.join(known)}, not {kind!r}")
    rest = {key: value for key, value in given.items() if key != "type" and value is not None}
    for key in rest:
        if key not in known[kind]:
            raise refused(f"`{name}` of type {kind} has no key `{key}`; it has {', '.join(known[kind])}")
    _complete(name, kind, rest)
    return End(kind, rest)


def _complete(name: str, kind: str, keys: Mapping[str, Any]) -> None:
    if kind in FILES:
        _text(name, keys, "path")
        if "://" in keys["path"]:
            raise refused(f"`{name}.path` is a file, and no address; a source of type http reads one")
    elif kind == "http":
        _text(name, keys, "url")
    elif name == "target":
        _text(name, keys, "table")
    elif ("query" in keys) == ("table" in keys):
        raise refused("`source` needs exactly one of `query` and `table`")
    if kind == "sqlite" or (kind == "duckdb" and (name == "target" or "database" in keys)):
        _text(name, keys, "database")


def _text(name: str, keys: Mapping[str, Any], key: str) -> None:
    if not isinstance(keys.get(key), str) or not keys[key] or "\x00" in keys[key]:
        raise refused(f"`{name}.{key}` must be text")
