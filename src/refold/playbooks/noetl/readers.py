"""Readers for each type of value in a NoETL file: less strict than Refold's, with a warning for old forms."""

from typing import Any

from refold.core import times
from refold.errors import InvalidValue
from refold.playbooks.key_types import READERS
from refold.playbooks.language.tables import Key
from refold.playbooks.reader.reading import Fields, Reader, Reading, cut, either, kind_of
from refold.playbooks.reader.templates import is_template
from refold.playbooks.tools import read_else
from refold.playbooks.yaml.text import Node

LOOP_MODES = {"sequential": "sequential", "parallel": "parallel", "async": "parallel", "cursor": "cursor"}


def _title(reading: Reading, node: Node, key: Key) -> str | None:
    if isinstance(node.value, str) and node.value.strip():
        return node.value
    reading.wrong(node, key, "text")
    return None


def _step_name(reading: Reading, node: Node, key: Key) -> str | None:
    name = _title(reading, node, key)
    if name is not None and ("/" in name or "#" in name):
        reading.at(
            node, "bad-name", f"`{cut(name)}` is not a name for a step: it has `/` or `#` in it", "write `_` instead"
        )
        return None
    return name


def _words(reading: Reading, node: Node, key: Key) -> tuple[str, ...] | None:
    """A single text means a list with one text."""
    return (node.value,) if isinstance(node.value, str) else READERS["texts"](reading, node, key)


def _condition(reading: Reading, node: Node, key: Key) -> Any:
    if isinstance(node.value, bool | str):
        return node.value
    reading.wrong(node, key, "true, false or a template")
    return None


def _count(reading: Reading, node: Node, key: Key) -> Any:
    """A number, also as text, or a template."""
    value = node.value
    if is_template(value):
        return value
    if isinstance(value, str):
        try:
            value = float(value) if "." in value else int(value)
        except ValueError:
            value = None
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        reading.wrong(node, key, "a number")
        return None
    return value


def read_limit(reading: Reading, node: Node, key: Key) -> Any:
    """A duration, a template that gives one, or `{connect, read}`, of which the sum counts."""
    value = node.value
    if is_template(value):
        return value
    if isinstance(value, dict) and value and value.keys() <= {"connect", "read"}:
        spans = [read_limit(reading, each, key) for each in node.nodes.values()]
        return sum(span for span in spans if isinstance(span, int | float))
    try:
        return times.seconds(value)
    except InvalidValue:
        reading.wrong(node, key, "a duration")
        return None


def _loop_mode(reading: Reading, node: Node, key: Key) -> str | None:
    mode = LOOP_MODES.get(node.value) if isinstance(node.value, str) else None
    if mode is None:
        message = f"`{key.name}` must be {either(list(LOOP_MODES))}, not `{cut(str(node.value))}`"
        reading.at(node, "bad-choice", message, "write `mode: parallel`")
    return mode


def _sets(reading: Reading, node: Node, key: Key) -> dict[str, Any] | None:
    found: dict[str, Any] | None = READERS["map"](reading, node, key)
    return found


def _arcs(reading: Reading, node: Node, key: Key) -> list[Fields] | None:
    """Steps may be missing or empty."""
    if not isinstance(node.value, list):
        reading.wrong(node, key, "a list of arcs")
        return None
    return [reading.table(each, key.of) for each in node.nodes]


def _next(reading: Reading, node: Node, key: Key) -> Fields | None:
    """The map with `arcs`; in old files also one name, a list of names, or a list of arcs."""
    if isinstance(node.value, dict):
        return _next_map(reading, node)
    names = [node] if isinstance(node.value, str) else list(node.nodes) if isinstance(node.value, list) else None
    if names is None:
        reading.wrong(node, key, "a map with `arcs`")
        return None
    reading.warn(node, "old-form", f"this is an old form of `{key.name}`", "write `next: {arcs: [{step: …}]}`")
    arcs = [_short_arc(reading, each) for each in names]
    plain = len(names) > 1 and all(isinstance(each.value, str) for each in names)
    return Fields(node, {"arcs": [arc for arc in arcs if arc is not None], "mode": "inclusive" if plain else ""})


def _next_map(reading: Reading, node: Node) -> Fields:
    if "step" in node.nodes and "arcs" not in node.nodes:
        reading.warn(node, "old-form", "this is an old form of `next`", "write `next: {arcs: [{step: …}]}`")
        return Fields(node, {"arcs": [reading.table(node, "arc")], "mode": ""})
    return reading.table(node, "next")


def _short_arc(reading: Reading, node: Node) -> Fields | None:
    if isinstance(node.value, str):
        return Fields(node, {"step": node.value})
    if isinstance(node.value, dict):
        return reading.table(node, "arc")
    reading.at(node, "wrong-type", f"an arc is a map, not {kind_of(node.value)}", "write `{step: …, when: …}`")
    return None


def _idle(reading: Reading, node: Node, key: Key) -> None:
    """A key that NoETL uses and Refold ignores."""
    if node.value not in (None, {}, []):
        reading.warn(node, "no-effect", f"`{key.name}` has no effect here", "leave it out")


def _output(reading: Reading, node: Node, key: Key) -> Node | None:
    if isinstance(node.value, dict):
        return node
    reading.wrong(node, key, "a map")
    return None


NOETL_READERS: dict[str, Reader] = {
    **READERS,
    "arcs": _arcs,
    "condition": _condition,
    "count": _count,
    "else": read_else,
    "idle": _idle,
    "limit": read_limit,
    "loop mode": _loop_mode,
    "next": _next,
    "output": _output,
    "sets": _sets,
    "step name": _step_name,
    "title": _title,
    "words": _words,
}
