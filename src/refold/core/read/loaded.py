"""What a turn has fetched because somebody raised Missing, and the items of loops that are found in it."""

from bisect import bisect_right
from typing import Any

from msgspec import Struct

from refold.core.expressions import Missing
from refold.core.facts import Fact, FanOutEntered, PageCame, PageTaken, VisitFailed
from refold.core.fold.events import sent_by
from refold.core.outcomes import Blob, Succeeded
from refold.core.state import ISSUED, ITEM_RUNNING, ITEM_WAITING, FanOut, Ref, RunState


class Page(Struct):
    """Items of a source, one after the other from number `first` on."""

    fan: FanOut
    first: int
    items: list[Any]


class Loaded(Struct):
    facts: dict[int, Fact] = {}
    blobs: dict[str, Any] = {}
    page: Page | None = None  # the last that was read

    def blob(self, blob: Blob) -> Any:
        if blob.hash not in self.blobs:
            raise Missing(blobs=[blob.hash])
        return self.blobs[blob.hash]

    def fact(self, number: int) -> Fact:
        if number not in self.facts:
            raise Missing(facts=[number])
        return self.facts[number]


def page_of(loaded: Loaded, came: int) -> Any:
    """What a source brought, by the fact that tells of it."""
    fact = loaded.fact(came)
    assert isinstance(fact, PageCame) and isinstance(fact.report.outcome, Succeeded)
    outcome = fact.report.outcome
    return loaded.blob(outcome.blob) if outcome.blob is not None else outcome.result


def item_value(fan: FanOut, loaded: Loaded, item: int) -> Any:
    if fan.pulls is None:
        items = loaded.blob(fan.blob) if fan.blob is not None else fan.items
        assert items is not None
        return items[item]
    page = loaded.page
    if page is None or page.fan is not fan or not page.first <= item < page.first + len(page.items):
        loaded.page = page = _read(fan, loaded, item)
    return page.items[item - page.first]


def _read(fan: FanOut, loaded: Loaded, item: int) -> Page:
    """The page where an item stands, without what was left out of it."""
    first, came, taken = _page(fan, item)
    items, fact = page_of(loaded, came)["items"], loaded.fact(taken)
    assert isinstance(fact, PageTaken)
    left_out = frozenset(fact.left_out)
    return Page(fan, first, [each for place, each in enumerate(items) if place not in left_out] if left_out else items)


def key_of(fan: FanOut, loaded: Loaded, item: int) -> str:
    """What the item is called; empty if it has no key."""
    first, _, number = _page(fan, item) if fan.pulls is not None else (0, 0, fan.at)
    fact = loaded.fact(number)
    assert isinstance(fact, FanOutEntered | PageTaken)
    return fact.keys[item - first] if fact.keys else ""


def has_keys(fan: FanOut, loaded: Loaded) -> bool:
    return fan.count > 0 and key_of(fan, loaded, 0) != ""


def item_of_key(fan: FanOut, loaded: Loaded, key: str) -> int | None:
    """The number of the item that is called so."""
    firsts = {taken: first for first, _, taken in fan.pulls.pages} if fan.pulls is not None else {fan.at: 0}
    for number, first in firsts.items():
        fact = loaded.fact(number)
        if isinstance(fact, FanOutEntered | PageTaken) and key in fact.keys:
            return first + fact.keys.index(key)
    return None


def _page(fan: FanOut, item: int) -> tuple[int, int, int]:
    assert fan.pulls is not None
    return fan.pulls.pages[bisect_right(fan.pulls.pages, item, key=lambda page: page[0]) - 1]


def needed_soon(state: RunState, loaded: Loaded) -> Loaded:
    """Of what was loaded: the items of loops that go on."""
    kept = Loaded()
    if not loaded.facts and not loaded.blobs:
        return kept
    for step in state.steps:
        if step.fan is None or step.life != ISSUED:
            continue
        _keep(loaded, kept, step.fan.blob)
        if step.fan.pulls is not None:
            _keep_pages(step.fan, loaded, kept)
    return kept


def _keep(loaded: Loaded, kept: Loaded, blob: Blob | None) -> None:
    if blob is not None and blob.hash in loaded.blobs:
        kept.blobs[blob.hash] = loaded.blobs[blob.hash]


def _keep_pages(fan: FanOut, loaded: Loaded, kept: Loaded) -> None:
    """Those with items that are not through."""
    assert fan.pulls is not None
    pages = fan.pulls.pages
    for number, fact in loaded.facts.items():
        at = bisect_right(pages, number, key=lambda page: page[1]) - 1
        if not isinstance(fact, PageCame) or at < 0 or pages[at][1] != number:
            continue
        first, _, taken = pages[at]
        last = pages[at + 1][0] if at + 1 < len(pages) else fan.count
        if any(fan.status.find(life, first, last) >= 0 for life in (ITEM_WAITING, ITEM_RUNNING)):
            kept.facts[number] = fact
            if taken in loaded.facts:
                kept.facts[taken] = loaded.facts[taken]
            if isinstance(fact.report.outcome, Succeeded):
                _keep(loaded, kept, fact.report.outcome.blob)


def event_at(loaded: Loaded, ref: Ref) -> Any:
    """An event as a step gets it; raises Missing."""
    seq, place = ref
    if seq not in loaded.facts:
        raise Missing(facts=[seq])
    fact = loaded.facts[seq]
    sent = sent_by(fact, place)
    if isinstance(fact, VisitFailed):
        return {"type": sent.type, "data": {**sent.data, "events": events_of(loaded, fact.events)}}
    return {"type": sent.type, "data": loaded.blob(sent.blob) if sent.blob is not None else sent.data}


def events_of(loaded: Loaded, refs: tuple[Ref, ...]) -> list[Any]:
    missing = {seq for seq, _ in refs} - loaded.facts.keys() if len(refs) > 1 else None  # of one, `event_at` tells
    if missing:
        raise Missing(facts=missing)
    return [event_at(loaded, ref) for ref in refs]
