"""Results of steps and tools in NoETL files: what `output` selects, and the names of references."""

from collections.abc import Iterable, Mapping
from typing import Any

from refold.core.pipeline import Task
from refold.playbooks.reader.reading import Reading, cut
from refold.playbooks.yaml.text import Node
from refold.templates import paths_of
from refold.templates.json_paths import parsed

KEPT = "results of any size are kept, and all of their fields can be read"
HINTS = {
    "store": KEPT,
    "inline_max_bytes": KEPT,
    "preview_max_bytes": KEPT,
    "scope": "a result lives as long as its run",
    "as": "a result has the name of its step",
    "ttl": "a result lives as long as its run",
}
COLLECT = 'collect in `ctx`: `set: {ctx.all: "{{ (ctx.all | default([])) + [output] }}"}`, or loop'


def read_output(reading: Reading, nodes: Iterable[Node | None]) -> dict[str, str]:
    """Names for fields of the result, by their paths."""
    found: dict[str, str] = {}
    for node in nodes:
        if node is None or node.value is None:
            continue
        if not isinstance(node.value, dict):
            reading.at(node, "wrong-type", "`output` must be a map", "write `output: {output_select: [id]}`")
            continue
        found |= _read(reading, node)
    return found


def _read(reading: Reading, node: Node) -> dict[str, str]:
    for name, child in node.nodes.items():
        if name in HINTS:
            reading.warn_key(node, name, "no-effect", f"`{name}` has no effect here: {HINTS[name]}", "leave it out")
        elif name == "accumulate" and not (isinstance(child.value, dict) and child.value.get("enabled") is False):
            reading.at_key(node, name, "unsupported", "results are not accumulated", COLLECT)
        elif name == "output_select":
            _check_names(reading, child)
        elif name not in ("select", "accumulate"):
            reading.warn_key(node, name, "unknown-key", f"`output` has no key `{cut(name)}`", "leave it out")
    return _selects(reading, node.nodes.get("select"))


def _check_names(reading: Reading, node: Node) -> None:
    """Ignore a selection of fields, because all fields of a result can be read."""
    names = node.value if isinstance(node.value, list) else [node.value]
    if not all(isinstance(name, str) for name in names):
        reading.at(node, "wrong-type", "`output_select` must be a list of names", "write `output_select: [id]`")


def _selects(reading: Reading, node: Node | None) -> dict[str, str]:
    if node is None:
        return {}
    found: dict[str, str] = {}
    for each in node.nodes if isinstance(node.value, list) else [node]:
        path = each.value.get("path") if isinstance(each.value, dict) else each.value
        if not isinstance(path, str):
            reading.at(each, "wrong-type", "what is selected needs a path", "write `select: [{path: $.a.b, as: b}]`")
            continue
        try:
            keys = parsed(path)
        except ValueError as error:
            reading.at(each, "unsupported", f"the path {error}", "write `$.a.b[0]`, or compute it with `set`")
            continue
        named = each.value.get("as") if isinstance(each.value, dict) else None
        last = next((key for key in reversed(keys) if isinstance(key, str)), None)
        found[str(named or last or "selected")] = path
    return found


def warn_references(reading: Reading, node: Node, sets: Iterable[Mapping[str, Any]]) -> None:
    """Warn if a variable contains a reference but its name does not say so."""
    for key, value in (pair for each in sets for pair in each.items()):
        if isinstance(value, str) and not key.endswith("_ref") and any(path[-1] == "_ref" for path in paths_of(value)):
            message = f"`{cut(key)}` contains a reference, not the value that it refers to"
            reading.warn(node, "unnamed-reference", message, f"call it `{key}_ref`, or leave `_ref` out of the value")


def sets_of(tasks: Iterable[Task]) -> list[Mapping[str, Any]]:
    return [each for task in tasks for each in (task.set, *(rule.set for rule in task.rules))]
