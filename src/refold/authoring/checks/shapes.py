"""What is known of a value before the run: which keys it has, and whether it can have others."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from refold.authoring.steps import Draft
from refold.core.plan import Call, Gate, Quality, Wait
from refold.descriptions import ToolInfo

WORDS = {"string": "text", "integer": "a number", "number": "a number", "boolean": "true or false", "array": "a list"}
EITHER = ("$ref", "$dynamicRef", "anyOf", "oneOf", "allOf", "if", "patternProperties", "dependentSchemas")


class Shape(Struct, frozen=True):
    """`keys` that are None: anything may be there. If it is not sure, there may be others too."""

    keys: Mapping[str, "Shape | None"]
    sure: bool = True
    kind: str = "a map"


class Gap(Struct, frozen=True):
    """The first name of a path that is not there, and what is known of the value before it."""

    at: int
    shape: Shape


LIST = Shape({}, kind="a list")
STATS = Shape(dict.fromkeys(("total", "success", "failed", "skipped", "cancelled")))
FAN_OUT = Shape({"results": LIST, "items": LIST, "stats": STATS, "failed": LIST})
VERDICT = Shape({"succeeded": LIST, "failed": LIST, "errors": None})


def gap(shape: Shape | None, names: Sequence[str]) -> Gap | None:
    for at, name in enumerate(names):
        if shape is None:
            return None
        if name not in shape.keys:
            return Gap(at, shape)
        shape = shape.keys[name]
    return None


def of_schema(schema: Any) -> Shape | None:
    """What a JSON Schema says of keys; None where it leaves that open."""
    if not isinstance(schema, Mapping) or any(word in schema for word in EITHER):
        return None
    kind = schema.get("type", "object" if "properties" in schema else None)
    if kind in WORDS:
        return Shape({}, kind=WORDS[kind])
    if kind != "object" or "properties" not in schema:
        return None
    keys = {name: of_schema(each) for name, each in schema["properties"].items()}
    return Shape(keys, sure=schema.get("additionalProperties") is False)


def of_default(value: Any) -> Shape | None:
    """A default tells what is meant, but an input may bring anything."""
    if not isinstance(value, dict) or not value:
        return None
    return Shape({name: of_default(each) for name, each in value.items()}, sure=False)


def of_result(draft: Draft, catalog: Mapping[str, ToolInfo]) -> Shape | None:
    """Of what a step leaves when it has run."""
    step = draft.step
    if step.loop is not None:
        return FAN_OUT
    if step.result is not None:
        return of_schema(step.result)
    if draft.block and draft.name == draft.block:
        return VERDICT
    match step.work:
        case Call(tool=kind):
            return _of_tool(kind, catalog)
        case Wait() if step.poll is not None:
            return Shape({"by": None})
        case Gate() | Wait() | Quality():
            return _of_tool(type(step.work).__name__.lower(), catalog)
        case _:
            return None


def _of_tool(kind: str, catalog: Mapping[str, ToolInfo]) -> Shape | None:
    info = catalog.get(kind)
    return Shape(dict.fromkeys(info.result_keys)) if info is not None and info.result_keys else None
