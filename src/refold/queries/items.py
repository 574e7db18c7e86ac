"""The items of a list loop: found by number or key, and shown row by row."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from msgspec import to_builtins

from refold.core.faults import fault_text
from refold.core.fold.fanout import ITEMS_FAILED
from refold.core.graph import Graph
from refold.core.read.items import ItemRow, LoopSeen, item_rows
from refold.core.read.loaded import has_keys, item_of_key
from refold.core.state import FanOut, RunState
from refold.errors import Conflict, InvalidValue, NotFound
from refold.ports import Views
from refold.queries.reading import RunReader, with_values

CHUNK = 500  # items read at once


def first_failure(views: Views, graph: Graph, state: RunState) -> str:
    """Return why the first failed item of the loop failed that has failed the run; empty if it was no loop."""
    error = state.error
    fault = error.fault if error is not None else None
    if error is None or fault is None or fault.kind != ITEMS_FAILED or error.step not in graph.index:
        return ""
    fan = state.steps[graph.index[error.step]].fan
    if fan is None or not isinstance(fault.data, list) or not fault.data or fan.visit != error.visit:
        return ""
    [row] = rows_of(views, LoopSeen(error.step, state, fan, False), fault.data[:1])
    return f"item {row.key or row.item}: {fault_text(row.error)}" if row.error is not None else ""


def find_loop(graph: Graph, state: RunState, step: str) -> tuple[int, FanOut]:
    """Find the list loop of this name, or the only one."""
    loops = {graph.name(s): s for s, each in enumerate(graph.plan.steps) if each.loop is not None}
    if step and step not in loops:
        others = f"; loops are {', '.join(loops)}" if loops else ""
        raise NotFound(f"{graph.plan.name!r} has no list loop {step!r}{others}")
    if not loops:
        raise Conflict(f"{graph.plan.name!r} has no list loop, so there are no items")
    if not step and len(loops) > 1:
        raise Conflict(f"say which step: {', '.join(loops)}")
    s = loops[step or next(iter(loops))]
    fan = state.steps[s].fan
    if fan is None:
        raise Conflict(f"the run has not reached step {graph.name(s)!r}")
    return s, fan


def item_numbers(views: Views, run: str, step: str, items: Sequence[str]) -> tuple[str, tuple[int, ...]]:
    """Return the name of the loop, and the numbers of items that are named by number or key."""
    graph, state = RunReader(views, run).read()
    s, fan = find_loop(graph, state, step)
    return graph.name(s), tuple(_number(views, run, fan, text) for text in items)


def _number(views: Views, run: str, fan: FanOut, text: str) -> int:
    """The text is a key where items have keys, else a number."""
    if with_values(views, run, partial(has_keys, fan)):
        item = with_values(views, run, lambda loaded: item_of_key(fan, loaded, text))
        if item is None:
            raise NotFound(f"no item has the key {text!r}; `refold runs items` shows them")
        return item
    if not text.isdecimal():
        raise InvalidValue("item", f"{text!r} is not a number, and the items of this loop have no keys")
    return int(text)


def rows_of(views: Views, loop: LoopSeen, items: Sequence[int]) -> Iterator[ItemRow]:
    for first in range(0, len(items), CHUNK):
        yield from with_values(views, loop.state.run, partial(item_rows, loop, items[first : first + CHUNK]))


def item_object(row: ItemRow) -> dict[str, Any]:
    """Return an item as JSON."""
    item = {"item": row.item, "key": row.key or None, "status": row.status, "tries": row.tries, "value": row.value}
    item |= {"result": row.result, "error": to_builtins(row.error) if row.error is not None else None}
    return item | ({"run": row.run} if row.run else {})
