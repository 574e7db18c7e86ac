"""Reads the loop of a step: its items, their order, how many run at a time, and what happens after failures."""

from collections.abc import Iterator
from typing import Literal

from msgspec import structs

from refold.core.plan import Loop
from refold.playbooks.reader.reading import Fields, Reading
from refold.playbooks.sources import LoopSource
from refold.playbooks.yaml.text import Node

OF_ITEMS = ("retry", "timeout")  # what a loop says of its items is what the step says
TAKEN = ("index", "count")  # names behind `iter.`

Rendered = Literal["run", "source", "key"]
"""When templates of a loop are rendered: with the step, with the source, or for the key of each item."""


def lift(reading: Reading, step: Fields) -> None:
    """Move `retry` and `timeout` of the loop to the step."""
    loop: Fields | None = step.get("loop")
    for name in OF_ITEMS if loop is not None else ():
        assert loop is not None
        if name in loop.node.nodes and name in step.node.nodes:
            message = f"`{name}` is on the loop and on its step, and means the same"
            reading.at_key(loop.node, name, "given-twice", message, "leave one of them out")
        elif name in loop.values:
            step.values[name] = loop.values[name]


def read_loop(reading: Reading, fields: Fields | None) -> Loop | None:
    """Read the loop as far as possible, and report what is wrong with it."""
    if fields is None:
        return None
    loop_source: LoopSource | None = fields.get("source")
    _check_iterator(reading, fields)
    _check_order(reading, fields)
    _check_failures(reading, fields)
    order: Fields = fields.get("order", Fields(fields.node, {}))
    return structs.replace(
        _paced(reading, fields),
        items=fields.get("in"),
        iterator=fields.get("iterator", "item"),
        source=None if loop_source is None else loop_source.source,
        key=fields.get("key"),
        after=order.get("after"),
        on_cycle=order.get("on_cycle", "fail"),
        failures="halt" if fields.get("on_item_error") == "halt" else "all",
        tolerate=fields.get("tolerate"),
        min_success=fields.get("min_success"),
    )


def templated(fields: Fields | None) -> Iterator[tuple[Node, Rendered]]:
    """Every value of a loop that may contain templates, and when it is rendered."""
    if fields is None:
        return
    order: Fields | None = fields.get("order")
    loop_source: LoopSource | None = fields.get("source")
    if "in" in fields.values:
        yield fields.node.nodes["in"], "run"
    if isinstance(fields.get("max_in_flight"), str):
        yield fields.node.nodes["max_in_flight"], "run"
    for node in loop_source.rendered if loop_source is not None else ():
        yield node, "source"
    if "key" in fields.values:
        yield fields.node.nodes["key"], "key"
    if order is not None and "after" in order.values:
        yield order.node.nodes["after"], "key"


def _paced(reading: Reading, fields: Fields) -> Loop:
    """How many items run at a time."""
    spec: Fields = fields.get("spec", Fields(fields.node, {}))
    mode, window = spec.get("mode", "sequential"), fields.get("max_in_flight")
    if window is None:
        if mode == "sequential" and "max_in_flight" in spec.values:
            message = "`max_in_flight` has no effect on a sequential loop"
            reading.warn(
                spec.node.nodes["max_in_flight"], "no-effect", message, "add `mode: parallel`, or leave it out"
            )
        return Loop(sequential=mode == "sequential", max_in_flight=spec.get("max_in_flight", Loop().max_in_flight))
    if "max_in_flight" in spec.values:
        message = "`max_in_flight` is on the loop and in its `spec`"
        reading.at_key(spec.node, "max_in_flight", "given-twice", message, "leave `spec` out")
    if mode == "sequential" and "mode" in spec.values:
        message = "a sequential loop runs one item at a time, whatever `max_in_flight` is"
        reading.at_key(fields.node, "max_in_flight", "contradiction", message, "leave `spec` out, or `max_in_flight`")
    return Loop(computed_max_in_flight=window) if isinstance(window, str) else Loop(max_in_flight=window)


def _check_iterator(reading: Reading, fields: Fields) -> None:
    name = fields.get("iterator")
    if name in TAKEN:
        node = fields.node.nodes["iterator"]
        reading.at(node, "bad-name", f"`iter.{name}` means something else", f"for example `{name}_1`")


def _check_order(reading: Reading, fields: Fields) -> None:
    if "order" in fields.values and "key" not in fields.node.nodes:
        message = "`order` needs `key`: items wait for others by their keys"
        name = fields.get("iterator", "item")
        reading.at_key(fields.node, "order", "missing-key", message, f'add `key: "{{{{ {name}.id }}}}"`')


def _check_failures(reading: Reading, fields: Fields) -> None:
    policy = fields.get("on_item_error")
    if policy == "skip_dependents" and "order" not in fields.node.nodes:
        message = "no item of this loop depends on another, so there are none to skip"
        hint = 'add `order: {after: "{{ … }}"}`, or write `continue`'
        reading.at(fields.node.nodes["on_item_error"], "no-effect", message, hint)
    for name in ("tolerate", "min_success") if policy == "halt" else ():
        if name in fields.node.nodes:
            message = f"`{name}` has no effect where the first failure halts the loop"
            reading.at_key(fields.node, name, "no-effect", message, "leave it out, or write `on_item_error: continue`")
