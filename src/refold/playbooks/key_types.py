"""The types of values in the language tables: how each is read, and what is reported for wrong values."""

import re
from collections.abc import Mapping
from typing import Any

from msgspec import structs

from refold.core import times
from refold.errors import InvalidValue
from refold.names import NAME, PLAYBOOK_NAME, RESERVED, WORDS, did_you_mean, label_flaw, tidied
from refold.playbooks.budgets import read_budget
from refold.playbooks.checks.secrets import read_entries
from refold.playbooks.inputs import read_inputs, read_schema
from refold.playbooks.language.blocks import WORDS as BLOCK_WORDS
from refold.playbooks.language.tables import Key
from refold.playbooks.reader.reading import Fields, Reader, Reading, cut, either, kind_of
from refold.playbooks.reader.templates import is_expression, is_template, templates_in
from refold.playbooks.sources import read_source
from refold.playbooks.tools import read_else
from refold.playbooks.yaml.text import Node

PERCENT = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?%")


def _text(reading: Reading, node: Node, key: Key) -> str | None:
    value = node.value
    if not isinstance(value, str):
        reading.wrong(node, key, "text")
        return None
    if key.choices and value not in key.choices:
        _no_choice(reading, node, key)
        return None
    return value


def _no_choice(reading: Reading, node: Node, key: Key) -> None:
    wanted = either(key.choices) + (", or a map" if key.of else "")
    hint = did_you_mean(node.value, key.choices) if len(key.choices) > 1 else f"write `{key.name}: {key.choices[0]}`"
    reading.at(node, "bad-choice", f"`{key.name}` must be {wanted}, not `{cut(node.value)}`", hint)


def _texts(reading: Reading, node: Node, key: Key) -> tuple[str, ...] | None:
    if not isinstance(node.value, list):
        reading.wrong(node, key, "a list of texts")
        return None
    for each in node.nodes:
        if not isinstance(each.value, str):
            reading.wrong(each, key, "a list of texts")
    return tuple(each for each in node.value if isinstance(each, str))


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _integer(reading: Reading, node: Node, key: Key) -> int | None:
    if not _whole(node.value):
        reading.wrong(node, key, "a whole number")
        return None
    return int(node.value) if _in_range(reading, node, key) else None


def _number(reading: Reading, node: Node, key: Key) -> float | None:
    if not _whole(node.value) and not isinstance(node.value, float):
        reading.wrong(node, key, "a number")
        return None
    return float(node.value) if _in_range(reading, node, key) else None


def _in_range(reading: Reading, node: Node, key: Key) -> bool:
    if key.least is not None and node.value < key.least:
        message = f"`{key.name}` must be at least {key.least:,}, not {node.value:,}"
    elif key.most is not None and node.value > key.most:
        message = f"`{key.name}` must be at most {key.most:,}, not {node.value:,}"
    else:
        return True
    reading.at(node, "out-of-range", message, f"for example `{key.name}: {key.example}`")
    return False


def _bool(reading: Reading, node: Node, key: Key) -> bool | None:
    if isinstance(node.value, bool):
        return node.value
    reading.wrong(node, key, "true or false")
    return None


def _duration(reading: Reading, node: Node, key: Key) -> float | None:
    if isinstance(node.value, dict | list | bool | None) or is_template(node.value):
        reading.wrong(node, key, "a duration")
        return None
    try:
        return times.seconds(node.value)
    except InvalidValue as error:
        reading.at(node, "bad-duration", f"{error.path} is not a duration for `{key.name}`", times.FORMS)
        return None


def _name(reading: Reading, node: Node, key: Key) -> str | None:
    value = node.value
    if not isinstance(value, str):
        reading.wrong(node, key, "text")
        return None
    if value in RESERVED or value in WORDS:
        reading.at(node, "bad-name", f"`{value}` means something else in templates", f"for example `{value}_1`")
        return None
    if not NAME.fullmatch(value):
        better = tidied(value)
        hint = f"for example `{better if better and better not in RESERVED | WORDS else key.example}`"
        message = f"`{cut(value)}` is not a name: use lower-case letters, digits and `_`, and begin with a letter"
        reading.at(node, "bad-name", message, hint)
        return None
    return value


def _playbook_name(reading: Reading, node: Node, key: Key) -> str | None:
    value = _text(reading, node, key)
    if value is not None and not PLAYBOOK_NAME.fullmatch(value):
        message = f"`{cut(value)}` is not a name for a playbook: use letters, digits, `_`, `.` and `-`, at most 64"
        reading.at(node, "bad-name", message, f"for example `{tidied(value) or key.example}`")
        return None
    return value


OLD_BOOLS = {"yes": "true", "on": "true", "no": "false", "off": "false"}  # what YAML 1.1 took them for


def _condition(reading: Reading, node: Node, key: Key) -> Any:
    value = node.value
    if isinstance(value, bool) or (isinstance(value, str) and is_expression(value)):
        return value
    if not isinstance(value, str):
        reading.wrong(node, key, "true, false or one {{ expression }}")
    elif is_template(value):
        hint = f"put all of it into one expression: `{key.name}: {key.example}`"
        reading.at(
            node, "bad-condition", f"`{key.name}` must be one {{{{ expression }}}}, with nothing around it", hint
        )
    else:
        meant = OLD_BOOLS.get(value.lower()) or f'"{{{{ {cut(value)} }}}}"'
        hint = f"write `{key.name}: {meant}`"
        reading.at(node, "bad-condition", f"`{key.name}` is text that always holds, not an expression", hint)
    return None


def _items(reading: Reading, node: Node, key: Key) -> Any:
    value = node.value
    if isinstance(value, list) or (isinstance(value, str) and is_expression(value)):
        return value
    kind = "text" if isinstance(value, str) else kind_of(value)
    hint = f'write a list, or one expression: `{key.name}: "{{{{ … }}}}"`'
    reading.at(node, "not-a-list", f"a loop needs a list; this is {kind}", hint)
    return None


def _template(reading: Reading, node: Node, key: Key) -> str | None:
    """A text with an expression in it, so that it differs between items."""
    if isinstance(node.value, str) and is_template(node.value):
        return node.value
    if not isinstance(node.value, str):
        reading.wrong(node, key, "text with an {{ expression }} in it")
        return None
    hint = f"for example `{key.name}: {key.example}`"
    reading.at(node, "not-a-template", f"`{key.name}` would be the same for each item: it has no expression", hint)
    return None


def _waits(reading: Reading, node: Node, key: Key) -> Any:
    """A template, or a list of them."""
    return list(node.value) if isinstance(node.value, list) else _template(reading, node, key)


def _share(reading: Reading, node: Node, key: Key) -> int | str | None:
    """A whole number, or a percentage."""
    found = PERCENT.fullmatch(node.value.strip()) if isinstance(node.value, str) else None
    if found is None and not _whole(node.value):
        reading.wrong(node, key, "a whole number or a percentage such as 1%")
        return None
    if found is not None and float(found[1]) > 100:
        message = f"`{key.name}` must lie between 0% and 100%, not at {cut(node.value)}"
        reading.at(node, "out-of-range", message, f"for example `{key.name}: {key.example}`")
        return None
    if found is not None:
        return f"{found[1]}%"
    return int(node.value) if _in_range(reading, node, structs.replace(key, least=0)) else None


def _map(reading: Reading, node: Node, key: Key) -> dict[str, Any] | None:
    if isinstance(node.value, dict):
        return dict(node.value)
    reading.wrong(node, key, "a map")
    return None


def _labels(reading: Reading, node: Node, key: Key) -> dict[str, Any] | None:
    for name, each in node.nodes.items() if isinstance(node.value, dict) else ():
        if isinstance(each.value, dict | list):
            message = f"`{cut(name)}` must be text, a number, true or false, not {kind_of(each.value)}"
            reading.at(each, "wrong-type", message, f"for example `{key.name}: {key.example}`")
    flaw = label_flaw({name: "" for name in node.nodes}) if isinstance(node.value, dict) else ""
    if flaw:
        reading.at(node, "wrong-type", flaw, f"for example `{key.name}: {key.example}`")
    return _map(reading, node, key)


def _values(reading: Reading, node: Node, key: Key) -> dict[str, Any] | None:
    for each in templates_in(node) if isinstance(node.value, dict) else ():
        hint = "compute it in a step and keep it with `set`"
        reading.at(each, "templated-default", f"`{key.name}` holds plain values; a template is not rendered here", hint)
    return _map(reading, node, key)


def _sets(reading: Reading, node: Node, key: Key) -> dict[str, Any] | None:
    for name in node.nodes if isinstance(node.value, dict) else ():
        scope, dot, rest = name.partition(".")
        if scope != "ctx" or not dot:
            better = "ctx." + (name.removeprefix("iter.").removeprefix("step.") or "name")
            reading.at_key(node, name, "bad-set", f"`{cut(name)}` cannot be set", f"write `{cut(better)}`")
        elif not NAME.fullmatch(rest.lower()):
            message = f"`{cut(name)}` is not a name in `ctx`: after `ctx.` use letters, digits and `_`"
            hint = f"for example `ctx.{tidied(rest) or 'page'}`"
            reading.at_key(node, name, "bad-set", message, hint)
    return _map(reading, node, key)


def _steps(reading: Reading, node: Node, key: Key) -> tuple[tuple[str, Node], ...] | None:
    if not isinstance(node.value, list):
        reading.wrong(node, key, "a list of steps")
        return None
    for each in node.nodes:
        if not isinstance(each.value, str):
            reading.wrong(each, key, "a list of names of steps")
    return tuple((each.value, each) for each in node.nodes if isinstance(each.value, str))


def _tables(reading: Reading, node: Node, key: Key) -> list[Fields] | None:
    if not isinstance(node.value, list):
        reading.wrong(node, key, f"a list, each item {reading.tables[key.of].noun}")
        return None
    if not node.value:
        reading.at(node, "wrong-type", f"`{key.name}` is empty", f"for example `{key.name}: {key.example}`")
    return [reading.table(each, key.of) for each in node.nodes]


def _next(reading: Reading, node: Node, key: Key) -> Fields | None:
    """The short forms, a name or a list of names that all follow; otherwise the table."""
    if isinstance(node.value, str):
        return Fields(node, {"arcs": [Fields(node, {"step": node.value})]})
    if isinstance(node.value, dict):
        return reading.table(node, "next")
    if not isinstance(node.value, list) or not node.value:
        reading.wrong(node, key, "the name of a step, a list of names, or a map with `arcs`")
        return None
    for each in node.nodes:
        if not isinstance(each.value, str):
            hint = "write `next: {arcs: [{step: …, when: …}]}`"
            reading.at(each, "old-form", "arcs with conditions are under `arcs` in refold/v1", hint)
            return None
    arcs = [Fields(each, {"step": each.value}) for each in node.nodes]
    return Fields(node, {"arcs": arcs, "mode": "inclusive"})


def _join(reading: Reading, node: Node, key: Key) -> str | int | None:
    if isinstance(node.value, dict):
        at_least: int | None = reading.table(node, "join").get("at_least")
        return at_least
    if not isinstance(node.value, str):
        reading.wrong(node, key, "`all`, `any`, `race` or {at_least: n}")
        return None
    return _text(reading, node, key)


def _table(reading: Reading, node: Node, key: Key) -> Fields:
    return reading.table(node, key.of)


def _any(reading: Reading, node: Node, key: Key) -> Any:
    return node.value


def _node(reading: Reading, node: Node, key: Key) -> Node:
    return node


def _limit(reading: Reading, node: Node, key: Key) -> Any:
    """A duration, or one expression that gives it."""
    is_computed = isinstance(node.value, str) and is_expression(node.value)
    return node.value if is_computed else _duration(reading, node, key)


def _count(reading: Reading, node: Node, key: Key) -> Any:
    """A number, or one expression that gives it."""
    is_computed = isinstance(node.value, str) and is_expression(node.value)
    return node.value if is_computed else _number(reading, node, key)


def _width(reading: Reading, node: Node, key: Key) -> Any:
    """A whole number, or one expression that gives it."""
    is_computed = isinstance(node.value, str) and is_expression(node.value)
    return node.value if is_computed else _integer(reading, node, key)


RATE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) ?/ ?([smh])")
SECONDS = {"s": 1, "m": 60, "h": 3600}


def _rate(reading: Reading, node: Node, key: Key) -> float | None:
    """How many in a second."""
    found = RATE.fullmatch(node.value.strip()) if isinstance(node.value, str) else None
    if found is None or not float(found[1]):
        reading.wrong(node, key, "a number with /s, /m or /h, such as 20/s")
        return None
    return float(found[1]) / SECONDS[found[2]]


def _lane(reading: Reading, node: Node, key: Key) -> str | None:
    if isinstance(node.value, bool) or not isinstance(node.value, str | int) or node.value == "":
        reading.wrong(node, key, "a name, or text with an {{ expression }} in it")
        return None
    return str(node.value)


def block_word(node: Node) -> str:
    """The key that makes an item a block, or "" if the item is a step."""
    if not isinstance(node.value, dict) or "step" in node.value:
        return ""
    return next((word for word in BLOCK_WORDS if word in node.value), "")


def read_body(reading: Reading, node: Node, key: Key) -> list[Fields] | None:
    if not isinstance(node.value, list):
        reading.wrong(node, key, "a list of steps and blocks")
        return None
    if not node.value:
        reading.at(node, "wrong-type", f"`{key.name}` is empty", f"for example `{key.name}: {key.example}`")
    return [_read_item(reading, each) for each in node.nodes]


def _read_item(reading: Reading, node: Node) -> Fields:
    """Read a step or a block. One that is written as in another engine is one problem, not one for each of its keys."""
    word = block_word(node)
    if word == "parallel" and isinstance(node.nodes["parallel"].value, list):
        hint = "write `parallel: name`, and the steps as `branches: {a: [{step: a}], b: [{step: b}]}`"
        reading.at_key(node, word, "wrong-type", "`parallel` must be a name, not a list", hint)
        return Fields(node, {})
    if not word and isinstance(node.value, dict) and "step" not in node.value:
        foreign = next((each for each in FOREIGN_BLOCKS if each in node.value), "")
        if foreign:
            reading.at_key(node, foreign, "unknown-key", f"there is no block `{foreign}`", FOREIGN_BLOCKS[foreign])
            return Fields(node, {})
    return reading.table(node, word or "step")


_EACH = (
    "a step has a loop: `{step: name, loop: {in: …}, tool: {…}}`; several steps for each item are a playbook of their"
    " own, with `tool: {kind: playbook, path: …}`"
)
FOREIGN_BLOCKS = {
    **dict.fromkeys(("foreach", "for_each", "forEach", "for"), _EACH),
    "block": "write its steps into the list, without `block` and `steps`: blocks begin with `parallel`, `if`, `while`"
    " or `until`",
}
"""Hints for blocks that other engines have."""


def read_branches(reading: Reading, node: Node, key: Key) -> dict[str, list[Fields]] | None:
    if not isinstance(node.value, dict | list) or not node.value:
        reading.wrong(node, key, "a map of names to lists of steps, or a list of such lists")
        return None
    named = isinstance(node.value, dict)
    nodes = node.nodes if named else {f"branch_{number}": each for number, each in enumerate(node.nodes, 1)}
    found = {}
    for name, each in nodes.items():
        if named and (not NAME.fullmatch(name) or name in WORDS):
            message = f"`{cut(name)}` is not a name for a branch: use lower-case letters, digits and `_`"
            reading.at_key(node, name, "bad-name", message, f"for example `{tidied(name) or 'branch_1'}`")
            continue
        if isinstance(each.value, dict):
            hint = f"write a list: `{name}: [{{step: …}}]`"
            reading.at(each, "wrong-type", "a branch must be a list of steps, not a map", hint)
            continue
        found[name] = read_body(reading, each, key) or []
    return found


def read_expression(reading: Reading, node: Node, key: Key) -> str | None:
    if isinstance(node.value, str) and is_expression(node.value):
        return node.value
    message = f"`{key.name}` must be one {{{{ expression }}}}, not {kind_of(node.value)}"
    reading.at(node, "wrong-type", message, f"for example `{key.name}: {key.example}`")
    return None


READERS: Mapping[str, Reader] = {
    "any": _any,
    "body": read_body,
    "bool": _bool,
    "branches": read_branches,
    "budget": read_budget,
    "condition": _condition,
    "count": _count,
    "duration": _duration,
    "else": read_else,
    "entries": read_entries,
    "expression": read_expression,
    "inputs": read_inputs,
    "integer": _integer,
    "items": _items,
    "join": _join,
    "lane": _lane,
    "limit": _limit,
    "labels": _labels,
    "map": _map,
    "name": _name,
    "next": _next,
    "number": _number,
    "playbook name": _playbook_name,
    "rate": _rate,
    "schema": read_schema,
    "sets": _sets,
    "share": _share,
    "source": read_source,
    "step": _text,
    "steps": _steps,
    "table": _table,
    "tables": _tables,
    "template": _template,
    "templates": _map,
    "text": _text,
    "texts": _texts,
    "tool": _node,
    "values": _values,
    "waits": _waits,
    "width": _width,
}
