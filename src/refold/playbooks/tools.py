"""Reads the tool of a step: checks its keys against the catalog, and builds the work of the step."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from refold.core.plan import Call, Gate, Poll, Quality, Wait, Work
from refold.core.times import instant
from refold.playbooks.children import read_child
from refold.playbooks.reader.kinds import Catalog, KindValues, read_kind
from refold.playbooks.reader.reading import Fields, Reading, cut, kind_of
from refold.playbooks.reader.templates import is_template
from refold.playbooks.yaml.text import Node
from refold.tool_api import ToolInfo

IDLE = {  # keys of a step that have no use where no worker takes part
    "input": "leave it out: the keys of a {kind} read the names of the run",
    "loop": "loop over another tool, before or after the {kind}",
    "retry": "leave it out: a {kind} is not tried again",
    "queue": "leave it out",
    "priority": "leave it out",
}
OPTIONS = ("approve", "reject")


def refuse_unused(reading: Reading, step: Fields, kind: str, names: tuple[str, ...] = tuple(IDLE)) -> None:
    """Report keys that have no effect, because their author expects one."""
    tool: Node = step.get("tool")
    noun = f"{kind} gate" if kind == "quality" else kind
    for name in names:
        for node in (step.node, tool):
            if name in node.nodes and not (node is tool and name != "input"):
                message = f"`{name}` has no effect on a {noun}"
                reading.at_key(node, name, "no-effect", message, IDLE[name].format(kind=noun))


def read_wait(reading: Reading, keys: Mapping[str, Node], values: Mapping[str, Any]) -> Wait:
    until = values.get("until")
    if until is not None and not is_template(until):
        until = _moment(reading, keys["until"])
    return Wait(seconds=values.get("seconds"), until=until, signal=values.get("signal"))


def _moment(reading: Reading, node: Node) -> int | None:
    """An ISO text with a time zone as microseconds since 1970; a number is returned unchanged."""
    value = node.value
    try:
        moment = instant(value)
    except ValueError:
        hint = "write it like 2027-01-31T12:00:00Z, with its zone"
        reading.at(node, "bad-moment", f"`{cut(str(value))}` is not a time", hint)
        return None
    return moment if isinstance(value, str) else int(value)


def read_gate(values: Mapping[str, Any]) -> Gate:
    """Values that the catalog's check has refused are ignored here."""
    options = values.get("options", OPTIONS)
    labels = {name: str(label) for name, label in options.items()} if isinstance(options, dict) else {}
    names = tuple(dict.fromkeys(map(str, options))) if isinstance(options, dict | list | tuple) else ()
    refuse = values.get("refuse", ["reject"] if values.get("type", "approval") == "approval" else [])
    on_timeout = values.get("on_timeout", "fail")
    return Gate(
        prompt=values.get("prompt", ""),
        options=names or OPTIONS,
        refuse=tuple(str(each) for each in refuse if each in names),
        timeout=values.get("timeout"),
        on_timeout="goto" if isinstance(on_timeout, dict) else "continue" if on_timeout == "continue" else "fail",
        labels={name: label for name, label in labels.items() if label != name},
        form=values.get("form"),
        assignee=values.get("assignee"),
        min_approvals=max(values.get("min_approvals", 1), 1),
    )


def ways_out(keys: Mapping[str, Node]) -> list[Fields]:
    """The arc that a gate takes at its timeout, if it names a step for that."""
    on_timeout = keys.get("on_timeout")
    if (
        on_timeout is None
        or not isinstance(on_timeout.value, dict)
        or not isinstance(on_timeout.value.get("goto"), str)
    ):
        return []
    node: Node = on_timeout.nodes["goto"]
    return [Fields(node, {"step": node.value, "on": "timeout"})]


def read_quality(values: Mapping[str, Any]) -> Quality:
    return Quality(
        source=values.get("source"), threshold=values.get("threshold", 0), on_fail=values.get("on_fail", "fail")
    )


EVERY = 30.0  # seconds between two looks of a poll


class ToolWork(Struct):
    """The work of a step, the keys that are rendered for it, and the nodes that may contain templates."""

    work: Work
    config: dict[str, Any] = {}
    input: Node | None = None  # under the tool, laid over the step's own
    rendered: list[Node] = []
    poll: Poll | None = None
    judged: list[Node] = []  # nodes whose templates can read what came of the step
    arcs: list[Fields] = []  # besides those that the step itself has


def read_tool(reading: Reading, step: Fields, catalog: Catalog) -> ToolWork:
    node: Node | None = step.get("tool")
    if node is None:
        return ToolWork(Call())
    found = read_kind(reading, node, catalog)
    if found is None:
        return ToolWork(Call())
    info, keys, values = found.info, found.keys, found.values
    if info.kind == "playbook":
        return ToolWork(read_child(reading, step, reading.child_reader, keys), input=input_node(reading, node))
    if info.kind == "poll" and "check" in values:
        return _poll(reading, step, catalog, keys, values)
    if info.by_engine:
        refuse_unused(reading, step, info.kind)
        return _by_engine(reading, info.kind, keys, values)
    return _call(reading, node, found)


def _call(reading: Reading, node: Node, found: KindValues) -> ToolWork:
    static = found.static()
    return ToolWork(
        Call(tool=found.info.kind, settings=settings_of(reading, found.info, found.values)),
        {name: value for name, value in found.values.items() if name not in static},
        input_node(reading, node),
        [child for name, child in found.keys.items() if name in found.values and name not in static],
    )


def settings_of(reading: Reading, info: ToolInfo, values: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that are not rendered, and the folder in which a script is looked for."""
    static = {key.name for key in info.keys if key.static}
    settings = {name: value for name, value in values.items() if name in static}
    beside = {"folder": reading.child_reader.folder()} if info.kind == "python" and "script" in settings else {}
    return {**settings, **beside}


def _by_engine(reading: Reading, kind: str, keys: dict[str, Node], values: dict[str, Any]) -> ToolWork:
    nodes = list(keys.values())
    match kind:
        case "gate":
            rendered = [keys[name] for name in ("prompt", "assignee") if name in keys]
            return ToolWork(read_gate(values), rendered=rendered, arcs=ways_out(keys))
        case "quality":
            return ToolWork(read_quality(values), rendered=nodes)
        case "poll":
            return ToolWork(Wait(), rendered=nodes, poll=_poll_of(reading, keys, values))
        case _:
            return ToolWork(read_wait(reading, keys, values), rendered=nodes)


def _poll_of(reading: Reading, keys: dict[str, Node], values: dict[str, Any]) -> Poll:
    every = values.get("every", EVERY)
    if not every:
        reading.at(keys["every"], "out-of-range", "`every` must be more than nothing", "for example `every: 30s`")
    return Poll(until=values.get("until", True), every=every or EVERY, timeout=values.get("timeout"))


def _poll(reading: Reading, step: Fields, catalog: Catalog, keys: dict[str, Node], values: dict[str, Any]) -> ToolWork:
    """A tool that a worker runs repeatedly; `until` reads its result."""
    refuse_unused(reading, step, "poll", ("loop",))
    found = read_kind(reading, keys["check"], catalog)
    if found is None:
        return ToolWork(Call())
    if found.info.by_engine or found.info.kind == "playbook":
        message = f"a poll cannot run the tool `{found.info.kind}` again and again"
        reading.at(keys["check"].nodes["kind"], "bad-tool", message, "take one that a worker runs, such as `http`")
        return ToolWork(Call())
    tool_work = _call(reading, keys["check"], found)
    over = input_node(reading, step.get("tool"))
    tool_work.input = tool_work.input or over
    tool_work.poll, tool_work.judged = _poll_of(reading, keys, values), [keys["until"]] if "until" in keys else []
    return tool_work


def input_node(reading: Reading, node: Node) -> Node | None:
    given: Node | None = node.nodes.get("input")
    if given is not None and not isinstance(given.value, dict):
        message = f"`input` must be a map, not {kind_of(given.value)}"
        reading.at(given, "wrong-type", message, "for example `input: {city: Oslo}`")
        return None
    return given
