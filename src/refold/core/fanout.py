"""Items of a fan-out: windows, order and results, as changes the fold makes to the state."""

from collections.abc import Iterable
from typing import Any

from refold.core.facts import FanOutEntered
from refold.core.loops import Graph
from refold.core.state import DONE, LOST, OPEN, STOPPED, WAITS, FanOut


def open_fan(fact: FanOutEntered) -> FanOut:
    return FanOut(
        count=fact.count,
        items=fact.items,
        blob=fact.blob,
        capture=fact.capture,
        status=bytearray(fact.count),
        places=[0] * fact.count,
        visit=fact.visit,
    )


def go_on(old: FanOut, visit: int) -> FanOut:
    """Another visit with the same items; what was done stays so, and the rest is to be done."""
    todo = [item for item, status in enumerate(old.status) if status != DONE]
    status, places = bytearray(old.status), list(old.places)
    for item in todo:
        status[item], places[item] = WAITS, 0
    return FanOut(
        count=old.count,
        items=old.items,
        blob=old.blob,
        capture=old.capture,
        status=status,
        places=places,
        next=old.count,
        done=old.done,
        visit=visit,
        todo=todo,
    )


def issue_some(fan: FanOut, items: tuple[int, ...], capture: dict[str, Any] | None) -> None:
    """The next ones of those that are to be done."""
    fan.todo = fan.todo[len(items) :]
    for item in items:
        fan.status[item] = OPEN
    fan.open += len(items)
    if capture is not None:
        fan.capture = capture


def issue(fan: FanOut, first: int, count: int, capture: dict[str, Any] | None) -> None:
    fan.status[first : first + count] = bytes([OPEN]) * count
    fan.next = first + count
    fan.open += count
    if capture is not None:
        fan.capture = capture


def finish(fan: FanOut, item: int, seq: int) -> None:
    """The item succeeded; its result stands in fact `seq`."""
    fan.status[item] = DONE
    fan.places[item] = seq
    fan.open -= 1
    fan.done += 1


def give_up(fan: FanOut, items: Iterable[int]) -> None:
    for item in items:
        fan.status[item] = LOST
        fan.open -= 1
        fan.failed += 1


def stop(fan: FanOut, item: int) -> None:
    fan.status[item] = STOPPED
    fan.open -= 1


def is_over(fan: FanOut, ending: bool) -> bool:
    """Nothing is open, and nothing more will be: all items are through, or the run is ending."""
    return fan.open == 0 and (ending or fan.done + fan.failed == fan.count)


def room(graph: Graph, s: int, fan: FanOut) -> int:
    """How many fresh items fit into the window now."""
    return min(graph.windows[s] - fan.open, len(fan.todo) or fan.count - fan.next)


def failed_items(fan: FanOut) -> list[int]:
    return [item for item, status in enumerate(fan.status) if status == LOST]


def places(fan: FanOut) -> dict[int, None]:
    """The facts that hold the reports of the items."""
    return dict.fromkeys(place for place in fan.places if place)
