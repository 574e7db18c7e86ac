"""Which extras of Refold a workflow needs, such as `refold[duckdb]`, and whether they are installed."""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from refold.core.pipeline import TaskPipeline
from refold.core.plan import Call, Plan, Step

PACKAGES = {"duckdb": "duckdb", "postgres": "psycopg", "secrets": "cryptography"}
"""For each extra a module that is there if it is installed."""

FILES = ("csv", "json", "jsonl", "parquet")  # ends of a transfer that DuckDB reads and writes


def extras_of(plan: Plan) -> dict[str, list[str]]:
    """Return the extras that a workflow needs, each with the steps that need it."""
    found: dict[str, list[str]] = {}
    for step in plan.steps:
        for extra in dict.fromkeys(_of_step(step)):
            found.setdefault(extra, []).append(step.name)
    return dict(sorted(found.items()))


def missing(extra: str) -> bool:
    """Return whether an extra is not installed here."""
    return find_spec(PACKAGES[extra]) is None


def _of_step(step: Step) -> Iterator[str]:
    match step.work:
        case Call(tool=kind):
            yield from _of_tool(kind, _written(step.input))
        case TaskPipeline(tasks=tasks, secret=secret):
            for task in tasks:
                yield from _of_tool(task.kind, task.keys)
            if secret:
                yield "secrets"
        case _:
            pass
    if step.loop is not None and step.loop.source is not None:
        source = step.loop.source
        yield from _of_tool("duckdb" if source.kind == "parquet" else str(source.settings.get("driver")), {})


def _written(input: Any) -> Mapping[str, Any]:
    """Return the keys of a tool as they are written in the playbook."""
    keys = input.get("$in") if isinstance(input, Mapping) else None
    return keys if isinstance(keys, Mapping) else {}


def _of_tool(kind: str, keys: Mapping[str, Any]) -> Iterator[str]:
    if kind in ("duckdb", "postgres"):
        yield kind
    if kind != "transfer":
        return
    for end in (keys.get("source"), keys.get("target")):
        type = end.get("type") if isinstance(end, Mapping) else None
        if type in FILES or type == "duckdb":
            yield "duckdb"
        elif type == "postgres":
            yield "postgres"
