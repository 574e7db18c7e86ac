"""Reads the file of a schema, which says what the output of an agent is, and which markers follow from it."""

import re
from collections.abc import Mapping
from typing import Any

from refold.playbooks.problems import InvalidPlaybook, Place
from refold.playbooks.yaml import text as yaml_text
from refold.playbooks.yaml.text import Node

SCALARS = ("string", "number", "boolean")
TYPES = (*SCALARS, "enum", "array", "object")
NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
NUMBER = r"-?[0-9]+(?:\.[0-9]+)?"
ENUM = re.compile(r"enum\((.*)\)", re.DOTALL)
LENGTH = re.compile(rf"({NAME})(?:\[\s*({NAME})\s*==\s*(.*?)\s*\])?\.length\s*(==|!=|>=|<=|>|<)\s*([0-9]+)", re.DOTALL)
EQUAL = re.compile(rf"({NAME})\s*(==|!=)\s*(\S.*)", re.DOTALL)
COMPARE = re.compile(rf"({NAME})\s*(>=|<=|>|<)\s*({NUMBER})")
FOR_PEOPLE = ("name", "title", "description", "version")  # are not read
OF_FIELD = frozenset({"type", "desc", "description", "examples", "items", "fields"})
DEEPEST = 20


class BadSchema(Exception):
    """What is wrong with a schema, with its place in the file."""

    def __init__(self, message: str, place: Place) -> None:
        self.message, self.place = message, place
        super().__init__(message)


def read_schema(text: str, file: str) -> dict[str, Any]:
    """Return the rules of a schema as plain data. Raises BadSchema."""
    try:
        root = yaml_text.read(text, file)
    except InvalidPlaybook as error:
        first = error.problems[0]
        raise BadSchema(first.message, first.place) from None
    if not isinstance(root.value, dict) or "fields" not in root.nodes:
        raise BadSchema("a schema is a map with `fields`", root.place)
    for key in root.nodes:
        if key not in ("fields", "markers", *FOR_PEOPLE):
            raise BadSchema(f"a schema has `fields` and `markers`, and not `{key}`", root.place_of(key))
    return {"fields": _fields(root.nodes["fields"], 0), "markers": _markers(root)}


def _markers(root: Node) -> dict[str, Any] | None:
    node = root.nodes.get("markers")
    if node is None or node.value is None:
        return None
    if not isinstance(node.value, dict):
        raise BadSchema("`markers` is a map of names to conditions", node.place)
    return {name: _marker(each) for name, each in node.nodes.items()}


def _marker(node: Node) -> dict[str, Any]:
    text = node.value.strip() if isinstance(node.value, str) else ""
    if found := LENGTH.fullmatch(text):
        field, name, wanted, op, number = found.groups()
        where = {"where": [name, _unquoted(wanted)]} if name is not None else {}
        return {"field": field, "length": True, "op": op, "value": int(number[:15]), **where}
    if found := COMPARE.fullmatch(text):
        return {"field": found[1], "op": found[2], "value": float(found[3])}
    if found := EQUAL.fullmatch(text):
        return {"field": found[1], "op": found[2], "value": _literal(found[3].strip())}
    hint = "write `field == value`, `field > 3`, `list.length > 0` or `list[name == value].length > 0`"
    raise BadSchema(f"the condition `{text}` means nothing: {hint}", node.place)


def _literal(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    return float(text) if re.fullmatch(NUMBER, text) else _unquoted(text)


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _fields(node: Node, depth: int) -> dict[str, Any]:
    if not isinstance(node.value, dict):
        raise BadSchema("fields are a map of names to types", node.place)
    fields: dict[str, Any] = {}
    for key, each in node.nodes.items():
        name = key.removesuffix("?")
        if name in fields:
            raise BadSchema(f"the field `{name}` is declared twice", node.place_of(key))
        fields[name] = _field(each, depth) | ({"optional": True} if key.endswith("?") else {})
    return fields


def _field(node: Node, depth: int) -> dict[str, Any]:
    if depth > DEEPEST:
        raise BadSchema(f"fields stand in each other more than {DEEPEST} deep", node.place)
    if not isinstance(node.value, dict):
        return _typed(node)
    keys: Mapping[str, Node] = node.nodes
    is_declared = "description" in keys and _is_type(keys["description"].value)
    if not keys.keys() <= OF_FIELD or is_declared or ("type" in keys and isinstance(keys["type"].value, dict)):
        return {"type": "object", "fields": _fields(node, depth + 1)}  # a map without a type is an object
    field: dict[str, Any] = {"type": "array" if "items" in keys else "object"}
    if "type" in keys:
        field = _typed(keys["type"])
    about = keys.get("desc") or keys.get("description")
    if about is not None and isinstance(about.value, str):
        field["desc"] = about.value
    if "examples" in keys:
        examples = keys["examples"].value
        field["examples"] = examples if isinstance(examples, list) else [examples]
    if "fields" in keys:
        if field["type"] != "object":
            raise BadSchema(f"`fields` belong to an object, and this is {field['type']}", keys["fields"].place)
        field["fields"] = _fields(keys["fields"], depth + 1)
    if "items" in keys:
        if field["type"] != "array":
            raise BadSchema(f"`items` belong to an array, and this is {field['type']}", keys["items"].place)
        field["items"] = _items(keys["items"], depth + 1)
    return field


def _items(node: Node, depth: int) -> dict[str, Any]:
    """Return what the elements of a list are: of a type, or maps with these fields."""
    if not isinstance(node.value, dict):
        return _typed(node)
    if "type" in node.nodes and node.nodes["type"].value in TYPES:
        return _field(node, depth)
    return {"type": "object", "fields": _fields(node, depth)}


def _is_type(value: Any) -> bool:
    return not isinstance(value, str) or value.strip() in TYPES or ENUM.fullmatch(value.strip()) is not None


def _typed(node: Node) -> dict[str, Any]:
    word = node.value.strip() if isinstance(node.value, str) else ""
    if word in TYPES and word != "enum":
        return {"type": word}
    found = ENUM.fullmatch(word)
    values = [_unquoted(value.strip()) for value in found[1].split(",")] if found else []
    if not values or not all(values):
        raise BadSchema(f"`{word}` is not a type: {', '.join(SCALARS)}, enum(a, b), array or object", node.place)
    return {"type": "enum", "values": values}
