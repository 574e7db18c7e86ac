"""Loops over rows that are claimed from a database: the loop is over those who claim, each until nothing is left."""

from typing import Any

from msgspec import structs

from refold.authoring.noetl.keys import tell_values
from refold.authoring.noetl.kinds import kind_of
from refold.authoring.noetl.tasks import Book
from refold.authoring.reading import Fields, Reading
from refold.core.pipelines import Claim, Pipeline, Task


def pullers_of(loop: Fields, spec: Fields) -> Any:
    """How many claims are made at once."""
    names = ("max_in_flight", "concurrency")
    return next((each.get(name) for each in (spec, loop) for name in names if each.get(name) is not None), 1)


def read_cursor(reading: Reading, loop: Fields, pipeline: Pipeline, book: Book) -> Pipeline:
    """The pipeline with what claims its rows."""
    cursor: Fields = loop.get("cursor")
    spec: Fields = loop.get("spec", Fields(loop.node, {}))
    frame: Fields = spec.get("frame", Fields(loop.node, {}))
    kind = kind_of(cursor.get("kind", "postgres")).kind
    options: dict[str, Any] = cursor.get("options", {})
    auth = cursor.get("auth")
    keys = {**options, "query": cursor.get("claim", ""), **({"auth": auth} if auth is not None else {})}
    if kind not in book.catalog:
        reading.at(cursor.node, "unknown-tool", f"there is no tool `{kind}`", "install the extra that has it")
    elif (check := book.catalog[kind].values) is not None and "claim" in cursor.node.nodes:
        tell_values(reading, check("sql", "query", keys["query"]), cursor.node.nodes["claim"])
    claim = Task(
        name="claim",
        kind=kind,
        keys={**keys, "as_objects": True},
        quoted={"query": "sql"},
        credentials=("auth",) if isinstance(auth, str) else (),
    )
    return structs.replace(
        pipeline,
        claim=Claim(
            task=claim,
            row=loop.get("iterator", "row"),
            rows=frame.get("max_rows", 1),
            at_once=frame.get("row_concurrency", 1),
            attempts=frame.get("max_attempts", 3),
            whole=frame.get("process", "row") == "frame",
            pullers=pullers_of(loop, spec),
        ),
    )
