"""Dependencies between the items of a loop: which item waits for which, by their keys."""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappush

from refold.core.outcomes import Fault
from refold.core.plan import Loop
from refold.core.state import (
    ITEM_CANCELLED,
    ITEM_COMPLETED,
    ITEM_FAILED,
    ITEM_SKIPPED,
    ITEM_STOPPED,
    ITEM_WAITING,
    FanOut,
    ItemOrder,
)

_NOT_DONE = bytes((ITEM_FAILED, ITEM_SKIPPED, ITEM_CANCELLED))


def note(order: ItemOrder, first: int, keys: Iterable[str], after: dict[int, tuple[str, ...]]) -> None:
    """Add items, numbered from `first` on."""
    order.names.update({key: first + position for position, key in enumerate(keys)})
    order.after.update(after)


def begin(fan: FanOut, loop: Loop) -> None:
    """Begin once all items are known. If an item would wait forever, set the fault of the loop instead."""
    order = fan.order
    assert order is not None
    if loop.on_unknown == "drop":
        order.after = {item: tuple(key for key in keys if key in order.names) for item, keys in order.after.items()}
    unknown = next(_unknown(order), None)
    if unknown is not None:
        fan.fault = Fault("order", "item {!r} waits for {!r}, which is not an item of this loop".format(*unknown))
        return
    circle = _drop_circles(order, loop.on_cycle == "drop")
    if circle:
        fan.fault = Fault("order", f"items wait for each other: {' -> '.join(circle)}")
        return
    order.known, fan.next = True, fan.count
    _link(fan, order)


def link_again(fan: FanOut) -> None:
    """Compute again which items may run, after some of them have been set back to waiting."""
    assert fan.order is not None
    _link(fan, fan.order)


def completed(fan: FanOut, item: int) -> None:
    order = fan.order
    assert order is not None
    for waiting in order.behind.get(item, ()):
        order.left[waiting] -= 1
        if not order.left[waiting] and fan.status[waiting] == ITEM_WAITING:
            heappush(fan.todo, waiting)


def skip_dependents(fan: FanOut, items: Iterable[int]) -> None:
    """Skip every item that depends on these items, directly or not."""
    assert fan.order is not None
    todo = list(items)
    while todo:
        for waiting in fan.order.behind.get(todo.pop(), ()):
            if fan.status[waiting] in (ITEM_WAITING, ITEM_STOPPED):
                fan.status[waiting] = ITEM_SKIPPED
                fan.skipped += 1
                todo.append(waiting)


def with_skipped_dependents(fan: FanOut, items: Iterable[int]) -> set[int]:
    """Return the items and every item that was skipped because it depended on them."""
    chosen, todo = set(items), list(items)
    while todo and fan.order is not None:
        for waiting in fan.order.behind.get(todo.pop(), ()):
            if waiting not in chosen and fan.status[waiting] == ITEM_SKIPPED:
                chosen.add(waiting)
                todo.append(waiting)
    return chosen


def _unknown(order: ItemOrder) -> Iterator[tuple[str, str]]:
    names = {item: key for key, item in order.names.items() if item in order.after}
    return ((names[item], key) for item, keys in order.after.items() for key in keys if key not in order.names)


def _drop_circles(order: ItemOrder, drops: bool) -> list[str]:
    """Find circles of dependencies by a depth-first walk, in the order of the items.

    A dependency that closes a circle is ignored if `drops`; otherwise the keys of the circle are returned.
    """
    finished: set[int] = set()
    for start in order.after:
        path: dict[int, Iterator[str]] = {} if start in finished else {start: iter(order.after[start])}
        while path:
            item = next(reversed(path))
            key = next(path[item], None)
            if key is None:
                finished.add(item)
                del path[item]
                continue
            other = order.names[key]
            if other in path:
                if not drops:
                    return _named(order, [*list(path)[list(path).index(other) :], other])
                order.dropped.append((item, other))
            elif other not in finished and other in order.after:
                path[other] = iter(order.after[other])
    return []


def _named(order: ItemOrder, items: list[int]) -> list[str]:
    names = {item: key for key, item in order.names.items()}
    return [names[item] for item in items]


def _link(fan: FanOut, order: ItemOrder) -> None:
    """Compute which items depend on which, and which may run now: those that wait for no other item."""
    dropped = set(order.dropped)
    order.left, order.behind = {}, {}
    for item, keys in order.after.items():
        others = {other for other in map(order.names.__getitem__, keys) if (item, other) not in dropped}
        order.left[item] = sum(fan.status[other] != ITEM_COMPLETED for other in others)
        for other in sorted(others):
            order.behind.setdefault(other, []).append(item)
    skip_dependents(fan, [item for item in range(fan.count) if fan.status[item] in _NOT_DONE])
    fan.todo = [item for item in range(fan.count) if fan.status[item] == ITEM_WAITING and not order.left.get(item)]
    heapify(fan.todo)
