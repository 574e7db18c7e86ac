"""The items of one visit of a list loop: how the fold changes their states, and when the loop has ended."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop
from math import ceil, floor
from typing import Any

from msgspec import structs

from refold.core.expressions import CannotEvaluate
from refold.core.facts import FanOutEntered
from refold.core.fold import dependencies
from refold.core.graph import Graph
from refold.core.outcomes import Instant
from refold.core.plan import Loop, Step
from refold.core.state import (
    ASKED,
    AT_END,
    BROKEN,
    CAME,
    ITEM_CANCELLED,
    ITEM_COMPLETED,
    ITEM_FAILED,
    ITEM_RUNNING,
    ITEM_SKIPPED,
    ITEM_STOPPED,
    ITEM_WAITING,
    MORE,
    FanOut,
    SourceState,
)

MOST_NUMBERS = 1_000_000
ITEMS_FAILED = "items_failed"  # the kind of the fault of a loop whose items failed
_CUT = bytes((ITEM_WAITING, ITEM_STOPPED))
_KINDS = {str: "a text", dict: "a map", bool: "true or false", int: "a number", float: "a number", type(None): "null"}


def open_fan(fact: FanOutEntered, at: int, now: Instant) -> FanOut:
    fan = FanOut(
        count=fact.count,
        items=fact.items,
        blob=fact.blob,
        capture=fact.capture,
        status=bytearray(fact.count),
        report_facts=[0] * fact.count,
        visit=fact.visit,
        window=fact.window,
        at=at,
        since=now,
    )
    if fact.source is not None:
        fan.pulls = SourceState(fact.source)
    return fan


def reopen_fan(old: FanOut, fact: FanOutEntered, now: Instant) -> FanOut:
    """Return the fan-out of another visit with the same items.

    Completed items stay completed. Items that never ended run, and so do the chosen items, or all others if none are
    chosen.
    """
    chosen = dependencies.with_skipped_dependents(old, fact.only) if fact.only else range(old.count)
    todo = [item for item, life in enumerate(old.status) if life in _CUT or (life != ITEM_COMPLETED and item in chosen)]
    fan = structs.replace(old, status=bytearray(old.status), report_facts=list(old.report_facts), retried={}, writes={})
    fan.next, fan.todo, fan.running, fan.visit = old.count, [], 0, fact.visit
    fan.since, fan.before, fan.fault = now, old.done, None
    if old.pulls is not None:
        fan.pulls = structs.replace(old.pulls, pages=list(old.pulls.pages), seen=set(old.pulls.seen))
        fan.pulls.life = MORE if old.pulls.life in (ASKED, BROKEN) else old.pulls.life
    if old.order is not None:
        fan.order = structs.replace(old.order, names=dict(old.order.names), after=dict(old.order.after))
    make_wait(fan, todo)
    return fan


def make_wait(fan: FanOut, items: Sequence[int]) -> None:
    """Make these items wait to be run, whatever their state was."""
    for item in items:
        fan.status[item], fan.report_facts[item] = ITEM_WAITING, 0
    counts = Counter(fan.status)
    fan.failed, fan.skipped, fan.cancelled = counts[ITEM_FAILED], counts[ITEM_SKIPPED], counts[ITEM_CANCELLED]
    if fan.order is not None and fan.order.known:
        dependencies.link_again(fan)
    else:
        fan.todo = sorted({*fan.todo, *items})


def listed(value: Any, step: Step) -> list[Any]:
    """Return the value that the loop of a step runs over as a list; raise CannotEvaluate if it is not one."""
    is_lenient = step.loop is not None and step.loop.loose
    if isinstance(value, (list, tuple)):
        return list(value)
    if is_lenient and isinstance(value, Mapping):
        return [{"key": key, "value": each} for key, each in value.items()]
    if is_lenient and isinstance(value, int) and not isinstance(value, bool):
        if value > MOST_NUMBERS:
            raise CannotEvaluate(f"a loop counts to {MOST_NUMBERS:,} at most, not to {value:,}")
        return list(range(value))
    if is_lenient and isinstance(value, str):
        return [each.strip() for each in value.replace("\n", ",").split(",") if each.strip()]
    kind = _KINDS.get(type(value), type(value).__name__)
    raise CannotEvaluate(f"{kind} is not a list that step {step.name!r} could loop over")


def window(value: Any) -> int:
    """Return how many items may run at a time; a text with a number is accepted too."""
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    if isinstance(value, bool) or number < 1:
        raise CannotEvaluate(f"{value!r} is not a number of items that may run at a time")
    return number


def issue(fan: FanOut, items: Sequence[int], capture: dict[str, Any] | None) -> None:
    """Mark items as running: consecutive items from `next` on, or the first of those that may run."""
    if fan.todo:
        for _ in items:
            fan.status[heappop(fan.todo)] = ITEM_RUNNING
    else:
        fan.status[items[0] : items[0] + len(items)] = bytes([ITEM_RUNNING]) * len(items)
        fan.next = items[0] + len(items)
    fan.running += len(items)
    if capture is not None:
        fan.capture = capture


def finish(fan: FanOut, item: int, seq: int) -> None:
    """Mark an item as completed; its result is in fact `seq`."""
    fan.status[item] = ITEM_COMPLETED
    fan.report_facts[item] = seq
    fan.running -= 1
    fan.done += 1
    if fan.order is not None:
        dependencies.completed(fan, item)


def give_up(fan: FanOut, items: Sequence[int]) -> None:
    for item in items:
        fan.status[item] = ITEM_FAILED
        fan.running -= 1
        fan.failed += 1
    if fan.order is not None:
        dependencies.skip_dependents(fan, items)


def cancel(fan: FanOut, items: Sequence[int]) -> None:
    """Mark these items as cancelled, whether they were running or waiting."""
    for item in items:
        fan.running -= fan.status[item] == ITEM_RUNNING
        fan.status[item] = ITEM_CANCELLED
        fan.cancelled += 1
    waiting = [item for item in range(fan.next, fan.count) if fan.status[item] == ITEM_WAITING]
    fan.todo = sorted(item for item in {*fan.todo, *waiting} if fan.status[item] == ITEM_WAITING)
    fan.next = fan.count
    if fan.order is not None:
        dependencies.skip_dependents(fan, items)


def stop(fan: FanOut, item: int) -> None:
    fan.status[item] = ITEM_STOPPED
    fan.running -= 1


def halt(fan: FanOut) -> None:
    """Stop all items that have not ended, whether they were running or waiting."""
    fan.status = bytearray(ITEM_STOPPED if life in (ITEM_WAITING, ITEM_RUNNING) else life for life in fan.status)
    fan.running, fan.next, fan.todo = 0, fan.count, []


def settled(fan: FanOut) -> int:
    return fan.done + fan.failed + fan.skipped + fan.cancelled


def is_over(graph: Graph, s: int, fan: FanOut, ending: bool) -> bool:
    """Whether nothing is running and nothing more will start: all items have ended, or no more are started."""
    if fan.running or (fan.pulls is not None and fan.pulls.life == ASKED):
        return False
    if ending or _stops(graph, s, fan) or _is_unordered(fan):
        return True
    return settled(fan) == fan.count and (fan.pulls is None or fan.pulls.life in (AT_END, BROKEN))


def _stops(graph: Graph, s: int, fan: FanOut) -> bool:
    loop = graph.step(s).loop
    return fan.failed > 0 and loop is not None and loop.on_item_error in ("stop", "halt")


def _is_unordered(fan: FanOut) -> bool:
    """Whether the items should have an order and it could not be determined."""
    return fan.order is not None and not fan.order.known and fan.fault is not None


def room(graph: Graph, s: int, fan: FanOut) -> int:
    """Return how many items may be started now."""
    if _stops(graph, s, fan) or (fan.order is not None and not fan.order.known):
        return 0
    return min((fan.window or graph.windows[s]) - fan.running, len(fan.todo) or fan.count - fan.next)


def wants_page(graph: Graph, s: int, fan: FanOut) -> bool:
    """Whether to ask the source for a page: few items are left, or all are needed because they have an order."""
    if fan.pulls is None or fan.pulls.life != MORE or _stops(graph, s, fan):
        return False
    return fan.order is not None or len(fan.todo) + fan.count - fan.next < (fan.window or graph.windows[s])


def has_work(graph: Graph, s: int, fan: FanOut) -> bool:
    """Whether an item can be started, or a page can be asked for or taken."""
    came = fan.pulls is not None and fan.pulls.life == CAME
    return came or room(graph, s, fan) > 0 or wants_page(graph, s, fan)


def is_well(loop: Loop, fan: FanOut) -> bool:
    """Whether the loop has succeeded for certain, so that no policy has to be evaluated."""
    return fan.done == fan.count and fan.fault is None and loop.min_success is None


def was_cut(fan: FanOut) -> bool:
    """Whether some items did not end: the loop was stopped before."""
    return settled(fan) < fan.count


def failure(loop: Loop, fan: FanOut, name: Callable[[int], str] = str) -> str:
    """Return why the loop has failed, with the names of failed items, or an empty text."""
    if loop.on_item_error == "ignore" and not was_cut(fan):
        return ""
    wanted = 0 if loop.min_success is None else share(loop.min_success, fan.count, ceil)
    if fan.failed > _tolerated(loop, fan) or (fan.failed and was_cut(fan)):
        return f"{fan.failed} of {fan.count} items failed: {_listed(fan, name)}"
    if fan.done < wanted:
        failed = f"; failed: {_listed(fan, name)}" if fan.failed else ""
        return f"{fan.done} of {fan.count} items completed, and {wanted} must{failed}"
    return ""


def _listed(fan: FanOut, name: Callable[[int], str]) -> str:
    failed = failed_items(fan)
    return ", ".join(map(name, failed[:10])) + (", …" if len(failed) > 10 else "")


def _tolerated(loop: Loop, fan: FanOut) -> int:
    if loop.tolerate is None:
        return 0 if loop.min_success is None else fan.count
    return share(loop.tolerate, fan.count, floor)


def share(value: int | str, count: int, whole: Callable[[float], int]) -> int:
    """Return a number of items, given as a number or as a percentage of `count`."""
    return value if isinstance(value, int) else whole(round(count * float(value.rstrip("% ")) / 100, 6))


def failed_items(fan: FanOut) -> list[int]:
    return [item for item, status in enumerate(fan.status) if status == ITEM_FAILED]


def report_facts_of(fan: FanOut, items: Iterable[int]) -> dict[int, None]:
    """Return the numbers of the facts with the reports of these items."""
    return dict.fromkeys(number for item in items if (number := fan.report_facts[item]))
