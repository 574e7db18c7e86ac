"""A JSON Schema of playbooks, for editors: made from the tables that the reader goes by."""

from typing import Any

from refold.authoring.blocks.tables import WORDS
from refold.authoring.language import TABLES
from refold.authoring.tables import Key, Table
from refold.authoring.work import Catalog
from refold.descriptions import ToolInfo, ToolKey
from refold.schemas import TYPES as VALUE_TYPES

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
EXPRESSION: Schema = {"type": "string", "pattern": r"^\s*\{\{[\s\S]*\}\}\s*$"}
DURATION: Schema = {
    "anyOf": [
        {"type": "number", "minimum": 0},
        {"type": "string", "pattern": r"^\s*(\d|P)[\dPTWDHMSwdhms.]*\s*$"},
    ]
}
STEP_NAME = r"^[a-z][a-z0-9_]{0,63}$"
EXCEEDED: Schema = {
    "anyOf": [
        {"enum": ["pause", "fail"]},
        {
            "type": "object",
            "properties": {"goto": {"type": "string"}},
            "required": ["goto"],
            "additionalProperties": False,
        },
    ]
}
SCALAR = ["string", "number", "boolean", "null"]

TYPES: dict[str, Schema] = {
    "any": {},
    "bool": {"type": "boolean"},
    "budget": {
        "type": "object",
        "properties": {"on_exceeded": EXCEEDED},
        "propertyNames": {"pattern": STEP_NAME},
        "additionalProperties": {"type": "number", "minimum": 0},
    },
    "condition": {"anyOf": [{"type": "boolean"}, EXPRESSION]},
    "count": {"anyOf": [{"type": "number", "minimum": 0}, EXPRESSION]},
    "duration": DURATION,
    "entries": {
        "type": "array",
        "items": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name", "kind"]},
    },
    "expression": EXPRESSION,
    "limit": {"anyOf": [DURATION, EXPRESSION]},
    "inputs": {"type": "object", "additionalProperties": {"anyOf": [{"enum": list(VALUE_TYPES)}, {"type": "object"}]}},
    "integer": {"type": "integer"},
    "items": {"anyOf": [{"type": "array"}, EXPRESSION]},
    "labels": {"type": "object", "additionalProperties": {"type": SCALAR}},
    "map": {"type": "object"},
    "name": {"type": "string", "pattern": STEP_NAME},
    "number": {"type": "number"},
    "playbook name": {"type": "string", "pattern": r"^[A-Za-z0-9][A-Za-z0-9_.\-]{0,63}$"},
    "schema": {"type": "object"},
    "sets": {"type": "object", "propertyNames": {"pattern": r"^ctx\.[A-Za-z][A-Za-z0-9_]{0,63}$"}},
    "step": {"type": "string"},
    "steps": {"type": "array", "items": {"type": "string"}},
    "templates": {"type": "object"},
    "text": {"type": "string"},
    "texts": {"type": "array", "items": {"type": "string"}},
    "tool": {
        "anyOf": [
            {"$ref": "#/$defs/tool"},
            {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/tool"}},
        ]
    },
    "values": {"type": "object"},
}
TOOL_TYPES: dict[str, Schema] = {
    "any": {},
    "bool": {"type": "boolean"},
    "duration": DURATION,
    "integer": {"type": "integer"},
    "list": {"type": "array"},
    "map": {"type": "object"},
    "number": {"type": "number"},
    "text": {"type": "string"},
    "tool": {"$ref": "#/$defs/tool"},
}


def schema(catalog: Catalog) -> Schema:
    """What it accepts is shaped like a playbook; names, graphs and templates are for the reader to check."""
    places = {name: _table(table) for name, table in TABLES.items() if name != "playbook"}
    return {
        "$schema": DIALECT,
        "title": "Refold playbook",
        **_table(TABLES["playbook"]),
        "$defs": {
            **places,
            "item": _item(),
            "tool": _tool(catalog),
            **{f"tool.{kind}": _kind(info) for kind, info in catalog.items()},
        },
    }


def _table(table: Table) -> Schema:
    return {
        "type": "object",
        "description": table.about,
        "properties": {key.name: {"description": key.about, **_value(key)} for key in table.keys},
        "required": [key.name for key in table.keys if key.required],
        "additionalProperties": False,
    }


def _value(key: Key) -> Schema:
    there = {"$ref": f"#/$defs/{key.of}"}
    match key.type:
        case "table":
            return there
        case "tables":
            return {"type": "array", "minItems": 1, "items": there}
        case "body" | "branches":
            body: Schema = {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/item"}}
            return body if key.type == "body" else {"anyOf": [_named(body), body | {"items": body}]}
        case "join":
            return {"anyOf": [{"enum": list(key.choices)}, there]}
        case "else":
            then = {
                "type": "object",
                "properties": {"then": there},
                "required": ["then"],
                "additionalProperties": False,
            }
            return {"anyOf": [there, then]}
        case "next":
            names = {"type": "array", "minItems": 1, "items": {"type": "string"}}
            return {"anyOf": [{"type": "string"}, names, {"$ref": "#/$defs/next"}]}
        case _:
            return TYPES[key.type] | _limits(key)


def _named(body: Schema) -> Schema:
    return {"type": "object", "minProperties": 1, "propertyNames": {"pattern": STEP_NAME}, "additionalProperties": body}


def _item() -> Schema:
    """A step, or a block by the word that makes it one."""
    found: Schema = {"$ref": "#/$defs/step"}
    for word in reversed(WORDS):
        is_one = {"required": [word], "not": {"required": ["step"]}}
        found = {"if": is_one, "then": {"$ref": f"#/$defs/{word}"}, "else": found}
    return found


def _limits(key: Key) -> Schema:
    limits: Schema = {"enum": list(key.choices)} if key.choices else {}
    limits |= {"minimum": key.least} if key.least is not None else {}
    return limits | ({"maximum": key.most} if key.most is not None else {})


def _tool(catalog: Catalog) -> Schema:
    """The kind decides which keys there are, so that an editor tells of those."""
    chosen = [
        {
            "if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
            "then": {"$ref": f"#/$defs/tool.{kind}"},
        }
        for kind in catalog
    ]
    kinds = {"enum": list(catalog), "description": "what to run"}
    return {"type": "object", "properties": {"kind": kinds}, "required": ["kind"], "allOf": chosen}


def _kind(info: ToolInfo) -> Schema:
    own: Schema = {"kind": {"const": info.kind}}
    if not info.by_engine:
        own |= {
            "input": {"type": "object", "description": "laid over the step's input"},
            "name": {"type": "string", "pattern": STEP_NAME, "description": "of the task"},
            "set": {"type": "object", "description": "what to remember of the result"},
            "spec": {"$ref": "#/$defs/task.spec"},
        }
    return {
        "type": "object",
        "description": info.about,
        "properties": own | {key.name: {"description": key.about, **_tool_value(key)} for key in info.keys},
        "required": ["kind", *(key.name for key in info.keys if key.required)],
        "additionalProperties": False,
    }


def _tool_value(key: ToolKey) -> Schema:
    value = TOOL_TYPES[key.type] | ({"enum": list(key.choices)} if key.choices else {})
    if key.static or key.type in ("any", "tool") or (key.type == "text" and not key.choices):
        return value
    return {"anyOf": [value, EXPRESSION]}
