"""The JSON Schema of playbooks, for editors: generated from the tables that the reader uses."""

from typing import Any

from refold.playbooks.language.blocks import WORDS
from refold.playbooks.language.loop import LOOP_SOURCE
from refold.playbooks.language.playbook import TABLES
from refold.playbooks.language.tables import Key, Table
from refold.playbooks.reader.kinds import Catalog
from refold.schemas import TYPES as VALUE_TYPES
from refold.tool_api import ToolInfo, ToolKey

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
EXPRESSION: Schema = {"type": "string", "pattern": r"^\s*\{\{[\s\S]*\}\}\s*$"}
TEMPLATE: Schema = {"type": "string", "pattern": r"\{[{%#]"}
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
    "lane": {"type": ["string", "integer"]},
    "map": {"type": "object"},
    "name": {"type": "string", "pattern": STEP_NAME},
    "number": {"type": "number"},
    "playbook name": {"type": "string", "pattern": r"^[A-Za-z0-9][A-Za-z0-9_.\-]{0,63}$"},
    "rate": {"type": "string", "pattern": r"^\s*\d{1,9}(\.\d{1,6})? ?/ ?[smh]\s*$"},
    "schema": {"type": "object"},
    "share": {
        "anyOf": [
            {"type": "integer", "minimum": 0},
            {"type": "string", "pattern": r"^\s*(100(\.0{1,9})?|\d{1,2}(\.\d{1,9})?) ?%\s*$"},
        ]
    },
    "sets": {"type": "object", "propertyNames": {"pattern": r"^ctx\.[A-Za-z][A-Za-z0-9_]{0,63}$"}},
    "step": {"type": "string"},
    "steps": {"type": "array", "items": {"type": "string"}},
    "template": TEMPLATE,
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
    "waits": {"anyOf": [TEMPLATE, {"type": "array"}]},
    "width": {"anyOf": [{"type": "integer"}, EXPRESSION]},
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


def schema(catalog: Catalog, sources: Catalog) -> Schema:
    """The schema checks the shape only; names, graphs and templates are checked by the reader."""
    places = {name: _table(table) for name, table in TABLES.items() if name not in ("playbook", LOOP_SOURCE.name)}
    return {
        "$schema": DIALECT,
        "title": "Refold playbook",
        **_table(TABLES["playbook"]),
        "$defs": {
            **places,
            "item": _item(),
            "tool": _chosen(catalog, "tool", {"kind": {"description": "what to run"}}),
            **{f"tool.{kind}": _kind(info, _of_tools(info)) for kind, info in catalog.items()},
            LOOP_SOURCE.name: _chosen(sources, "source", _properties(LOOP_SOURCE)),
            **{f"source.{kind}": _kind(info, _of_sources()) for kind, info in sources.items()},
        },
    }


def _table(table: Table) -> Schema:
    return {
        "type": "object",
        "description": table.about,
        "properties": _properties(table),
        "required": [key.name for key in table.keys if key.required],
        "additionalProperties": False,
        **({"oneOf": [{"required": [name]} for name in table.one_of]} if table.one_of else {}),
    }


def _properties(table: Table) -> Schema:
    return {key.name: {"description": key.about, **_value(key)} for key in table.keys}


def _value(key: Key) -> Schema:
    there = {"$ref": f"#/$defs/{key.of}"}
    match key.type:
        case "table" | "source":
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
    """A step, or a block, which is recognised by its key."""
    found: Schema = {"$ref": "#/$defs/step"}
    for word in reversed(WORDS):
        is_one = {"required": [word], "not": {"required": ["step"]}}
        found = {"if": is_one, "then": {"$ref": f"#/$defs/{word}"}, "else": found}
    return found


def _limits(key: Key) -> Schema:
    limits: Schema = {"enum": list(key.choices)} if key.choices else {}
    limits |= {"minimum": key.least} if key.least is not None else {}
    return limits | ({"maximum": key.most} if key.most is not None else {})


def _chosen(catalog: Catalog, word: str, properties: Schema) -> Schema:
    """The kind decides which keys there are, so that an editor can suggest them."""
    chosen = [
        {
            "if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
            "then": {"$ref": f"#/$defs/{word}.{kind}"},
        }
        for kind in catalog
    ]
    kinds = {"kind": {"description": properties["kind"]["description"], "enum": list(catalog)}}
    return {"type": "object", "properties": properties | kinds, "required": ["kind"], "allOf": chosen}


def _of_tools(info: ToolInfo) -> Schema:
    if info.by_engine:
        return {}
    return {
        "input": {"type": "object", "description": "merged over the step's input"},
        "name": {"type": "string", "pattern": STEP_NAME, "description": "of the task"},
        "set": {"type": "object", "description": "what to remember of the result"},
        "spec": {"$ref": "#/$defs/task.spec"},
    }


def _of_sources() -> Schema:
    return {name: value for name, value in _properties(LOOP_SOURCE).items() if name != "kind"}


def _kind(info: ToolInfo, own: Schema) -> Schema:
    kind: Schema = {"kind": {"const": info.kind}}
    return {
        "type": "object",
        "description": info.about,
        "properties": kind | own | {key.name: {"description": key.about, **_tool_value(key)} for key in info.keys},
        "required": ["kind", *(key.name for key in info.keys if key.required)],
        "additionalProperties": False,
    }


def _tool_value(key: ToolKey) -> Schema:
    value = TOOL_TYPES[key.type] | ({"enum": list(key.choices)} if key.choices else {})
    if key.static or key.type in ("any", "tool") or (key.type == "text" and not key.choices):
        return value
    return {"anyOf": [value, EXPRESSION]}
