"""Results that nobody has computed: made from a JSON Schema, or by the shape that a kind of tool has."""

import random
from collections.abc import Mapping
from typing import Any

from refold.core.outcomes import Fault
from refold.errors import OverBound, ToolFailed
from refold.schemas import Misfit, misfits, misfits_text
from refold.templates.output_blocks import read_answer
from refold.tools.catalog import CATALOG

WORDS = ("amber", "birch", "cedar", "dune", "ember", "fjord", "grove", "heath")
DEEP = 8  # levels of a value

SHAPES: Mapping[str, Mapping[str, Any]] = {
    "http": {"status_code": 200, "headers": {}, "data": {}, "text": None, "url": "", "elapsed": 0.0},
    "shell": {"exit_code": 0, "stdout": "", "stderr": "", "truncated": 0},
    "container": {"exit_code": 0, "stdout": "", "stderr": "", "truncated": 0, "name": "", "image": ""},
    "llm": {"text": "amber", "json": {}, "model": "", "finish_reason": "stop", "usage": {}},
}


def invented_result(step: str, kind: str, schema: Mapping[str, Any] | None, chance: random.Random) -> Any:
    """Raises ToolFailed if a schema is beyond this."""
    if schema is None:
        return _shaped(kind, chance)
    value = from_schema(schema, chance)
    try:
        found = misfits(schema, value)
    except OverBound as error:
        found = [Misfit("$", str(error))]
    if found:
        why = f"no result could be made up for step {step!r}: {misfits_text(found, 'result')}; give a recording"
        raise ToolFailed(Fault("made_up", why, retryable=False))
    return value


def invented_answer(step: str, config: Mapping[str, Any], chance: random.Random) -> dict[str, Any]:
    """Return the answer of an agent of a `.wf` file: without markers, or what its schema asks for."""
    rules = config.get("rules")
    value = {} if rules is None else invented_result(step, "agent", config.get("schema"), chance)
    return read_answer(value, rules, config["reserved"]).result()


def invented_reply(step: str, config: Mapping[str, Any], chance: random.Random) -> dict[str, Any]:
    """Return the result of an agent: words, or what its schema asks for."""
    schema = config.get("schema")
    output = chance.choice(WORDS) if schema is None else invented_result(step, "agent", schema, chance)
    return {"text": output if isinstance(output, str) else "amber", "output": output, "tries": 1}


def invented_task(step: str, schema: Mapping[str, Any], chance: random.Random) -> dict[str, Any]:
    """Return the answer of a remote agent of a JamJet file: what the schema of the node asks for."""
    return {**SHAPES["http"], "data": invented_result(step, "http", schema, chance)}


def _shaped(kind: str, chance: random.Random) -> Any:
    if kind in SHAPES:
        return dict(SHAPES[kind])
    info = CATALOG.get(kind)
    if info is not None and info.result_keys:
        return {key: [] if key in ("rows", "columns") else 0 for key in info.result_keys}
    return {"value": chance.randrange(100)}


def from_schema(schema: Any, chance: random.Random, depth: int = 0) -> Any:
    if not isinstance(schema, Mapping) or depth > DEEP:
        return None
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    for key in ("enum", "examples"):
        if schema.get(key):
            return chance.choice(list(schema[key]))
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return from_schema(chance.choice(list(schema[key])), chance, depth + 1)
    type = schema.get("type", "object" if "properties" in schema else "string")
    return _of_type(chance.choice(type) if isinstance(type, list) else type, schema, chance, depth)


def _of_type(type: str, schema: Mapping[str, Any], chance: random.Random, depth: int) -> Any:
    match type:
        case "object":
            fields = schema.get("properties", {})
            named = {name: from_schema(each, chance, depth + 1) for name, each in fields.items()}
            return {**{name: None for name in schema.get("required", ()) if name not in fields}, **named}
        case "array":
            least = schema.get("minItems", 0)
            count = max(least, min(schema.get("maxItems", least + 3), chance.randint(least, least + 3)))
            return [from_schema(schema.get("items", {}), chance, depth + 1) for _ in range(count)]
        case "integer" | "number":
            return _number(type, schema, chance)
        case "boolean":
            return chance.random() < 0.5
        case "null":
            return None
        case _:
            text = chance.choice(WORDS)
            return text.ljust(schema.get("minLength", 0), "x")[: schema.get("maxLength", 1000)]


def _number(type: str, schema: Mapping[str, Any], chance: random.Random) -> int | float:
    least = schema.get("minimum", schema.get("exclusiveMinimum", 0 if "maximum" not in schema else None))
    most = schema.get("maximum", schema.get("exclusiveMaximum"))
    least = most - 100 if least is None else least
    most = least + 100 if most is None else most
    if type == "integer":
        first, last = -int(-least // 1), int(most // 1)
        first += "exclusiveMinimum" in schema and first == least
        last -= "exclusiveMaximum" in schema and last == most
        return chance.randint(first, max(first, last))
    return float(least + (most - least) * (0.25 + chance.random() / 2))
