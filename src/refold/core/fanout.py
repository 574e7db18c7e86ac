"""Items of a fan-out: windows, order and results, as changes the fold makes to the state."""

from collections.abc import Iterable, Mapping
from typing import Any

from refold.core.expressions import CannotEvaluate
from refold.core.facts import FanOutEntered
from refold.core.loops import Graph
from refold.core.plan import Step
from refold.core.state import DONE, LOST, OPEN, STOPPED, WAITS, FanOut

MOST_NUMBERS = 1_000_000
_KINDS = {str: "a text", dict: "a map", bool: "true or false", int: "a number", float: "a number", type(None): "null"}


def open_fan(fact: FanOutEntered) -> FanOut:
    return FanOut(
        count=fact.count,
        items=fact.items,
        blob=fact.blob,
        capture=fact.capture,
        status=bytearray(fact.count),
        places=[0] * fact.count,
        visit=fact.visit,
        window=fact.window,
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
        window=old.window,
        todo=todo,
    )


def listed(value: Any, step: Step) -> list[Any]:
    """What the loop of a step goes over, as a list."""
    loose = step.loop is not None and step.loop.loose
    if isinstance(value, (list, tuple)):
        return list(value)
    if loose and isinstance(value, Mapping):
        return [{"key": key, "value": each} for key, each in value.items()]
    if loose and isinstance(value, int) and not isinstance(value, bool):
        if value > MOST_NUMBERS:
            raise CannotEvaluate(f"a loop counts to {MOST_NUMBERS:,} at most, not to {value:,}")
        return list(range(value))
    if loose and isinstance(value, str):
        return [each.strip() for each in value.replace("\n", ",").split(",") if each.strip()]
    kind = _KINDS.get(type(value), type(value).__name__)
    raise CannotEvaluate(f"{kind} is no list for step {step.name!r} to loop over")


def window(value: Any) -> int:
    """How many items at once; a number in a text is one too."""
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    if isinstance(value, bool) or number < 1:
        raise CannotEvaluate(f"{value!r} is no number of items that may run at once")
    return number


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


def is_over(graph: Graph, s: int, fan: FanOut, ending: bool) -> bool:
    """Nothing is open, and nothing more will be: all items are through, or no more are begun."""
    return fan.open == 0 and (ending or fan.done + fan.failed == fan.count or _stops(graph, s, fan))


def _stops(graph: Graph, s: int, fan: FanOut) -> bool:
    loop = graph.step(s).loop
    return fan.failed > 0 and loop is not None and loop.failures == "stop"


def room(graph: Graph, s: int, fan: FanOut) -> int:
    """How many fresh items fit into the window now."""
    if _stops(graph, s, fan):
        return 0
    return min((fan.window or graph.windows[s]) - fan.open, len(fan.todo) or fan.count - fan.next)


def stopped(fan: FanOut) -> bool:
    """Not all of its items came to an end of their own."""
    return fan.done + fan.failed < fan.count


def failed_items(fan: FanOut) -> list[int]:
    return [item for item, status in enumerate(fan.status) if status == LOST]


def places(fan: FanOut) -> dict[int, None]:
    """The facts that hold the reports of the items."""
    return dict.fromkeys(place for place in fan.places if place)
