"""The tool of a step: its keys checked against the catalog, and what the engine is to do."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from refold.authoring.children import read_child
from refold.authoring.inside import place_inside
from refold.authoring.names import did_you_mean
from refold.authoring.reading import Fields, Reading, cut, either, kind_of
from refold.authoring.template_text import is_expression, is_secret, is_template
from refold.authoring.waiting import read_gate, read_quality, read_wait, refuse_idle, ways_out
from refold.authoring.yaml_text import Node
from refold.core import durations
from refold.core.plan import Call, Poll, Wait, Work
from refold.descriptions import ToolInfo, ToolKey
from refold.errors import InvalidValue

Catalog = Mapping[str, ToolInfo]

WANTED = {
    "text": "text",
    "number": "a number",
    "integer": "a whole number",
    "bool": "true or false",
    "map": "a map",
    "list": "a list",
    "duration": "a duration",
    "tool": "a tool",
}
SHAPES = {"text": '"…"', "number": "1.5", "integer": "3", "bool": "true", "map": "{name: value}", "list": "[a, b]"}
SHAPES["tool"] = "{kind: http, url: …}"
EVERY = 30.0  # seconds between two looks of a poll
OWN = ("kind", "input")  # keys that every tool has


class Tooled(Struct):
    """What a step does: the work, the keys that are rendered for it, and the nodes that may hold templates."""

    work: Work
    config: dict[str, Any] = {}
    input: Node | None = None  # under the tool, laid over the step's own
    rendered: list[Node] = []
    poll: Poll | None = None
    judged: list[Node] = []  # nodes whose templates can read what came of the step
    arcs: list[Fields] = []  # besides those that the step itself has


def read_tool(reading: Reading, step: Fields, catalog: Catalog) -> Tooled:
    node: Node | None = step.get("tool")
    if node is None:
        return Tooled(Call())
    found = checked(reading, node, catalog)
    if found is None:
        return Tooled(Call())
    info, keys, told = found
    if info.kind == "playbook":
        return Tooled(read_child(reading, step, reading.family, keys), input=input_node(reading, node))
    if info.kind == "poll" and "check" in told:
        return _poll(reading, step, catalog, keys, told)
    if info.by_engine:
        refuse_idle(reading, step, info.kind)
        return _by_engine(reading, info.kind, keys, told)
    return _call(reading, node, info, keys, told)


def checked(reading: Reading, node: Node, catalog: Catalog) -> tuple[ToolInfo, dict[str, Node], dict[str, Any]] | None:
    """The kind of a tool, its keys, and the values of those that are as they should be."""
    info = _kind(reading, node, catalog)
    if info is None:
        return None
    keys = {name: child for name, child in node.nodes.items() if name not in OWN}
    told = _keys(reading, node, info, keys)
    if info.check is not None:
        _check(reading, node, info, keys)
    return info, keys, told


def _call(reading: Reading, node: Node, info: ToolInfo, keys: dict[str, Node], told: dict[str, Any]) -> Tooled:
    static = {key.name for key in info.keys if key.static}
    return Tooled(
        Call(tool=info.kind, settings=settings_of(reading, info, told)),
        {name: value for name, value in told.items() if name not in static},
        input_node(reading, node),
        [child for name, child in keys.items() if name in told and name not in static],
    )


def settings_of(reading: Reading, info: ToolInfo, told: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that are taken as they are written, and where a script is looked for."""
    static = {key.name for key in info.keys if key.static}
    settings = {name: value for name, value in told.items() if name in static}
    beside = {"folder": reading.family.folder()} if info.kind == "python" and "script" in settings else {}
    return {**settings, **beside}


def _by_engine(reading: Reading, kind: str, keys: dict[str, Node], told: dict[str, Any]) -> Tooled:
    nodes = list(keys.values())
    match kind:
        case "gate":
            rendered = [keys[name] for name in ("prompt", "assignee") if name in keys]
            return Tooled(read_gate(told), rendered=rendered, arcs=ways_out(keys))
        case "quality":
            return Tooled(read_quality(told), rendered=nodes)
        case "poll":
            return Tooled(Wait(), rendered=nodes, poll=_poll_of(reading, keys, told))
        case _:
            return Tooled(read_wait(reading, keys, told), rendered=nodes)


def _poll_of(reading: Reading, keys: dict[str, Node], told: dict[str, Any]) -> Poll:
    every = told.get("every", EVERY)
    if not every:
        reading.at(keys["every"], "out-of-range", "`every` must be more than nothing", "for example `every: 30s`")
    return Poll(until=told.get("until", True), every=every or EVERY, timeout=told.get("timeout"))


def _poll(reading: Reading, step: Fields, catalog: Catalog, keys: dict[str, Node], told: dict[str, Any]) -> Tooled:
    """A tool that a worker runs again and again; `until` reads what comes of it."""
    refuse_idle(reading, step, "poll", ("loop",))
    found = checked(reading, keys["check"], catalog)
    if found is None:
        return Tooled(Call())
    info, inner, values = found
    if info.by_engine or info.kind == "playbook":
        message = f"a poll cannot run the tool `{info.kind}` again and again"
        reading.at(keys["check"].nodes["kind"], "bad-tool", message, "take one that a worker runs, such as `http`")
        return Tooled(Call())
    tooled = _call(reading, keys["check"], info, inner, values)
    over = input_node(reading, step.get("tool"))
    tooled.input = tooled.input or over
    tooled.poll, tooled.judged = _poll_of(reading, keys, told), [keys["until"]] if "until" in keys else []
    return tooled


def _kind(reading: Reading, node: Node, catalog: Catalog) -> ToolInfo | None:
    if not isinstance(node.value, dict):
        _no_tool(reading, node)
        return None
    kind = node.nodes.get("kind")
    if kind is None:
        reading.missing(node, "a tool", "kind", "python")
        return None
    if not isinstance(kind.value, str):
        reading.at(kind, "wrong-type", f"`kind` must be text, not {kind_of(kind.value)}", did_you_mean("", catalog))
        return None
    if kind.value not in catalog:
        reading.at(kind, "unknown-tool", f"there is no tool `{cut(kind.value)}`", did_you_mean(kind.value, catalog))
        return None
    return catalog[kind.value]


def _no_tool(reading: Reading, node: Node) -> None:
    hint = "write `tool: {kind: python, code: …}`"
    if isinstance(node.value, str):
        hint = f"write `tool: {{kind: {cut(node.value)}}}`"
    reading.at(node, "wrong-type", f"a tool must be a map, not {kind_of(node.value)}", hint)


def _keys(reading: Reading, node: Node, info: ToolInfo, keys: Mapping[str, Node]) -> dict[str, Any]:
    """The values of the keys that are as the catalog wants them."""
    known = {key.name: key for key in info.keys}
    told = {}
    for name, child in keys.items():
        key = known.get(name)
        if key is None:
            hint = "write `input`" if name == "args" else did_you_mean(name, [*known, "input"])
            reading.at_key(node, name, "unknown-key", f"the tool `{info.kind}` has no key `{cut(name)}`", hint)
        elif _fits(reading, child, key):
            told[name] = _taken(child.value, key)
    for key in info.keys:
        if key.required and key.name not in keys:
            reading.missing(node, f"the tool `{info.kind}`", key.name, "…")
    return told


def _fits(reading: Reading, node: Node, key: ToolKey) -> bool:
    value = node.value
    if not key.static and is_secret(value):
        return True
    if not key.static and is_template(value) and (is_expression(value) or key.type in ("text", "any")):
        return True
    if not _is_of(value, key.type):
        hint = "a value computed from text is text; write one {{ expression }}" if is_template(value) else ""
        if key.static and is_template(value):
            hint = "it is taken as it is written; a template cannot stand here"
        hint = hint or (durations.FORMS if key.type == "duration" else f"write `{key.name}: {SHAPES[key.type]}`")
        reading.at(node, "wrong-type", f"`{key.name}` must be {WANTED[key.type]}, not {kind_of(value)}", hint)
        return False
    if key.choices and value not in key.choices:
        hint = did_you_mean(str(value), key.choices)
        reading.at(node, "bad-choice", f"`{key.name}` must be {either(key.choices)}, not `{cut(str(value))}`", hint)
        return False
    return True


def _is_of(value: Any, kind: str) -> bool:
    match kind:
        case "any":
            return True
        case "duration":
            return _is_duration(value)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case _:
            return isinstance(value, {"text": str, "bool": bool, "list": list}.get(kind, dict))


def _is_duration(value: Any) -> bool:
    try:
        durations.seconds(value)
    except InvalidValue:
        return False
    return True


def _taken(value: Any, key: ToolKey) -> Any:
    return (
        durations.seconds(value) if key.type == "duration" and not (is_template(value) or is_secret(value)) else value
    )


def _check(reading: Reading, node: Node, info: ToolInfo, keys: Mapping[str, Node]) -> None:
    """What the tool itself finds; its places count inside the text of a key."""
    assert info.check is not None
    for found in info.check({name: child.value for name, child in keys.items()}):
        child = keys.get(found.key)
        if child is None:
            known = ", ".join(f"`{key.name}`" for key in info.keys)
            reading.at(node.nodes["kind"], "bad-tool", found.message, found.hint or f"its keys are {known}")
        elif found.line:
            place = place_inside(reading.source, child, found.line, found.column)
            reading.at_place(place, "bad-tool", found.message, found.hint or f"mend the text of `{found.key}`")
        else:
            reading.at_key(node, found.key, "bad-tool", found.message, found.hint or _about(info, found.key))


def _about(info: ToolInfo, name: str) -> str:
    return next((f"`{name}`: {key.about}" for key in info.keys if key.name == name), "")


def input_node(reading: Reading, node: Node) -> Node | None:
    given: Node | None = node.nodes.get("input")
    if given is not None and not isinstance(given.value, dict):
        message = f"`input` must be a map, not {kind_of(given.value)}"
        reading.at(given, "wrong-type", message, "for example `input: {city: Oslo}`")
        return None
    return given
