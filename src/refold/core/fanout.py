"""Items of a fan-out: windows, order and results, as changes the fold makes to the state."""

from collections.abc import Iterable
from typing import Any

from refold.core.facts import FanOutEntered
from refold.core.loops import Graph
from refold.core.state import DONE, LOST, OPEN, STOPPED, FanOut


def open_fan(fact: FanOutEntered) -> FanOut:
    return FanOut(
        count=fact.count,
        items=fact.items,
        blob=fact.blob,
        capture=fact.capture,
        status=bytearray(fact.count),
        places=[0] * fact.count,
    )


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
    return min(graph.windows[s] - fan.open, fan.count - fan.next)


def failed_items(fan: FanOut) -> list[int]:
    return [item for item, status in enumerate(fan.status) if status == LOST]


def places(fan: FanOut) -> dict[int, None]:
    """The facts that hold the reports of the items."""
    return dict.fromkeys(place for place in fan.places if place)
