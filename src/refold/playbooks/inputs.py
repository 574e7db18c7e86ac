"""Reads declared inputs and schemas, and checks that values passed to inputs fit."""

from collections.abc import Iterator, Mapping
from typing import Any

from refold.core.plan import Input, Plan
from refold.errors import OverBound
from refold.names import did_you_mean
from refold.playbooks.language.tables import Key
from refold.playbooks.problems import Problem
from refold.playbooks.reader.reading import Fields, Reading, cut, kind_of
from refold.playbooks.reader.templates import templates_in
from refold.playbooks.yaml.text import Node
from refold.schemas import TYPES, Misfit, misfits, misfits_text, schema_flaw


def read_inputs(reading: Reading, node: Node, key: Key) -> tuple[Input, ...] | None:
    """Read a JSON Schema for each name, with `required: true` for inputs that must be given; or in short, a type."""
    if not isinstance(node.value, dict):
        reading.wrong(node, key, "a map of names to JSON Schemas")
        return None
    return tuple(_input(reading, node, name, each) for name, each in node.nodes.items())


def _input(reading: Reading, node: Node, name: str, each: Node) -> Input:
    if not name.isidentifier():
        message = f"`{cut(name)}` is not a name that a template can read"
        reading.at_key(node, name, "bad-name", message, "a name has letters, digits and `_`")
    if isinstance(each.value, str):
        return Input(name=name, schema=_short(reading, each))
    if not isinstance(each.value, dict):
        message = f"`{cut(name)}` must be a type or a JSON Schema, not {kind_of(each.value)}"
        reading.at(each, "wrong-type", message, f"for example `{cut(name)}: {{type: string, required: true}}`")
        return Input(name=name)
    schema = dict(each.value)
    required = schema.pop("required") if isinstance(schema.get("required"), bool) else False
    return Input(name=name, schema=_sound(reading, each, schema), required=required)


def _short(reading: Reading, node: Node) -> dict[str, Any]:
    if node.value in TYPES:
        return {"type": node.value}
    reading.at(node, "bad-schema", f"`{cut(node.value)}` is not a type", did_you_mean(node.value, TYPES))
    return {}


def read_schema(reading: Reading, node: Node, key: Key) -> dict[str, Any] | None:
    if isinstance(node.value, dict):
        return _sound(reading, node, node.value)
    reading.wrong(node, key, "a JSON Schema, which is a map")
    return None


def _sound(reading: Reading, node: Node, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, or an empty one if it is not valid."""
    for template in templates_in(node):
        reading.at(template, "bad-schema", "a schema is taken as it is written; this is a template", "write it out")
    found = schema_flaw(schema)
    if found is None:
        return schema
    where, why = found
    hint = "see https://json-schema.org"
    if where == ["type"]:
        hint = did_you_mean(str(node.value.get("type", "")), TYPES)
    elif "pattern" in where[-1:] or "patternProperties" in where[-2:-1]:
        hint = "patterns are matched in bounded time: groups, sets, `|`, repeats, `^` and `$`; see the reference"
    reading.at(_node_at(node, where), "bad-schema", f"this is not a JSON Schema: {why}", hint)
    return {}


def _node_at(node: Node, path: list[Any]) -> Node:
    """The node at the end of a path, or the last one that exists."""
    for key in path:
        inside = node.nodes
        if (isinstance(inside, dict) and key in inside) or (
            isinstance(inside, list) and isinstance(key, int) and key < len(inside)
        ):
            node = inside[key]
    return node


def check_defaults(reading: Reading, fields: Fields) -> None:
    """Check the defaults of inputs against their schemas."""
    workload: Mapping[str, Any] = fields.get("workload", {})
    for declared in fields.get("inputs", ()):
        node = fields.node.nodes["inputs"].nodes[declared.name]
        if declared.name not in workload:
            continue
        if declared.required:
            message = f"`{declared.name}` has a default, so it is never missing"
            reading.warn(node.nodes["required"], "no-effect", message, "leave `required` out, or the default")
        found = _misfits(declared, workload[declared.name]) if declared.schema else []
        if found:
            given = fields.node.nodes["workload"].nodes[declared.name]
            message = f"the default of `{declared.name}` does not fit: {misfits_text(found, declared.name)}"
            reading.at(given, "wrong-input", message, "fix the default, or what `inputs` says of it")


def _misfits(declared: Input, value: Any) -> list[Misfit]:
    """Where a value does not fit; one that cannot be checked within bounds does not fit."""
    try:
        return misfits(declared.schema, value)
    except OverBound as error:
        return [Misfit("$", str(error))]


def check_given(reading: Reading, step: Fields, file: str, plan: Plan) -> None:
    """Check the inputs that a step passes to the playbook it starts: report missing ones and those that do not fit."""
    given = {name: node for inputs in given_to(step) for name, node in inputs.nodes.items()}
    for declared in plan.inputs:
        node = given.get(declared.name)
        if node is None:
            if declared.required and declared.name not in plan.defaults and not _is_item(step, declared.name, given):
                message = f"`{file}` needs the input `{declared.name}`"
                hint = f"add `input: {{{declared.name}: …}}`"
                reading.at(_starter(step), "missing-input", message, hint)
        elif declared.schema and not any(templates_in(node)):
            _say_misfits(reading, file, declared, node, _misfits(declared, node.value))


def _say_misfits(reading: Reading, file: str, declared: Input, node: Node, found: list[Misfit]) -> None:
    if found:
        message = f"`{file}` does not take this as `{declared.name}`: {misfits_text(found, declared.name)}"
        hint = f"its `inputs` want {cut(_wanted(declared))}"
        reading.say(Problem("wrong-input", message, node.place, hint, length=node.length))


def _wanted(declared: Input) -> str:
    kind = declared.schema.get("type")
    return f"a value of type {kind}" if isinstance(kind, str) else "something else"


def _starter(step: Fields) -> Node:
    """The node of a step that starts a playbook."""
    tool: Node | None = step.get("tool")
    starter: Node = step.get("loop").node.nodes["workflow"] if tool is None else tool.nodes["kind"]
    return starter


def given_to(step: Fields) -> Iterator[Node]:
    """The maps of inputs that a step passes to what it starts."""
    for holder in (step.node, step.get("tool")):
        inputs = holder.nodes.get("input") if holder is not None else None
        if inputs is not None and isinstance(inputs.value, dict):
            yield inputs


def _is_item(step: Fields, name: str, given: Mapping[str, Node]) -> bool:
    """Whether the name is that of the item, which is the input in a loop without `input`."""
    loop: Fields | None = step.get("loop")
    return loop is not None and not given and name == loop.get("iterator", "item")
