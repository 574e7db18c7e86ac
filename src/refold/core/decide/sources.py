"""Rules for sources of items: when a page is asked for, which items of it are taken, and their keys and order."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct

from refold.core.decide.decision import Decision
from refold.core.decide.waits import rendered
from refold.core.expressions import CannotEvaluate
from refold.core.facts import PageAsked, PagesGivenUp, PageTaken
from refold.core.fold import fanout
from refold.core.outcomes import Fault
from refold.core.plan import Loop
from refold.core.read.loaded import page_of
from refold.core.state import CAME, FanOut


class NamedItems(Struct):
    """Items with their keys. Items whose key was seen before are left out."""

    items: list[Any] = []
    keys: tuple[str, ...] = ()
    after: dict[int, tuple[str, ...]] = {}
    left_out: tuple[int, ...] = ()


def pull(d: Decision, s: int, fan: FanOut) -> None:
    """Take the page that came, and ask for the next one if the loop will soon run out of items."""
    name, visit, pulls = d.graph.name(s), d.state.steps[s].visits, fan.pulls
    if pulls is not None and pulls.life == CAME:
        d.record_moves()
        d.record_fact(_taken(d, s, fan))
    if pulls is not None and fanout.wants_page(d.graph, s, fan):
        d.record_moves()
        d.record_fact(PageAsked(name, visit, pulls.page + 1))


def _taken(d: Decision, s: int, fan: FanOut) -> PageTaken | PagesGivenUp:
    step, visit, pulls = d.graph.step(s), d.state.steps[s].visits, fan.pulls
    assert pulls is not None and step.loop is not None
    page = page_of(d.loaded, pulls.came)
    try:
        items, cursor = _read(page)
        named = name_items(d, step.loop, items, visit, fan.count, pulls.seen)
    except CannotEvaluate as error:
        fault = Fault("source", str(error), retryable=False)
        return PagesGivenUp(step.name, visit, pulls.page, fault)
    return PageTaken(step.name, visit, pulls.page, len(named.items), cursor, named.left_out, named.keys, named.after)


def _read(page: Any) -> tuple[Sequence[Any], Any]:
    if not isinstance(page, dict) or not isinstance(page.get("items"), list):
        raise CannotEvaluate("the source did not return a page: a page is a map with a list of `items`, and a `cursor`")
    return page["items"], page.get("cursor")


def source_of(d: Decision, loop: Loop, visit: int, arc_inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the rendered settings of the source of a loop."""
    assert loop.source is not None
    settings = rendered(d, loop.source.settings, visit, arc_inputs)
    if not isinstance(settings, dict):
        raise CannotEvaluate(f"the settings of source {loop.source.kind!r} are not a map")
    return settings


def name_items(
    d: Decision, loop: Loop, items: Iterable[Any], visit: int, first: int = 0, seen: Iterable[str] = ()
) -> NamedItems:
    """Compute the keys of items, and the keys of the items that each of them depends on."""
    if loop.key is None:
        return NamedItems(list(items))
    seen_keys, keys, named, left_out = set(seen), list[str](), NamedItems(), list[int]()
    for position, item in enumerate(items):
        number = first + len(keys)
        value = _of_item(d, loop, visit, number, item)
        key = _key(value(loop.key), number)
        if key in seen_keys:
            left_out.append(position)
            continue
        seen_keys.add(key)
        keys.append(key)
        named.items.append(item)
        if loop.after is not None:
            depends_on = _keys(value(loop.after), number)
            if depends_on:
                named.after[number] = depends_on
    named.keys, named.left_out = tuple(keys), tuple(left_out)
    return named


def _of_item(d: Decision, loop: Loop, visit: int, number: int, item: Any) -> Callable[[Any], Any]:
    scope = d.scope({"visit": visit, loop.iterator: item, "iter": {loop.iterator: item, "index": number}})

    def value(template: Any) -> Any:
        try:
            return d.evaluate.value(template, scope)
        except CannotEvaluate as error:
            raise CannotEvaluate(f"{template} of item {number}: {error}") from None

    return value


def _key(value: Any, number: int) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise CannotEvaluate(f"the key of item {number} is {value!r}: it must be a text or a whole number")
    return str(value)


def _keys(value: Any, number: int) -> tuple[str, ...]:
    """Return the keys that an item depends on, given as a list, one key or nothing."""
    values = value if isinstance(value, list | tuple) else [] if value is None or value == "" else [value]
    return tuple(dict.fromkeys(_key(key, number) for key in values))
