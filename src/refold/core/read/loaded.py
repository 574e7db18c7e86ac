"""Values that a turn has loaded because Missing was raised: facts, blobs, and the items and events in them."""

from bisect import bisect_right
from typing import Any

from msgspec import Struct

from refold.core.expressions import Missing
from refold.core.facts import Fact, FanOutEntered, PageCame, PageTaken, VisitFailed
from refold.core.fold.events import sent_by
from refold.core.outcomes import Blob, Succeeded
from refold.core.state import ISSUED, ITEM_RUNNING, ITEM_WAITING, FanOut, Ref, RunState


class LoadedPage(Struct):
    """Consecutive items of a source, from number `first` on."""

    fan: FanOut
    first: int
    items: list[Any]


class Loaded(Struct):
    """Facts by number and values of blobs by hash. Reading one that is not loaded raises Missing."""

    facts: dict[int, Fact] = {}
    blobs: dict[str, Any] = {}
    page: LoadedPage | None = None  # the page that was read last

    def blob(self, blob: Blob) -> Any:
        if blob.hash not in self.blobs:
            raise Missing(blobs=[blob.hash])
        return self.blobs[blob.hash]

    def fact(self, number: int) -> Fact:
        if number not in self.facts:
            raise Missing(facts=[number])
        return self.facts[number]


def page_of(loaded: Loaded, came: int) -> Any:
    """Return the page that a source returned, by the number of its PageCame fact."""
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


def _read(fan: FanOut, loaded: Loaded, item: int) -> LoadedPage:
    """Return the page with an item, without the items that were left out."""
    first, came, taken = _page(fan, item)
    items, fact = page_of(loaded, came)["items"], loaded.fact(taken)
    assert isinstance(fact, PageTaken)
    left_out = frozenset(fact.left_out)
    kept = [each for position, each in enumerate(items) if position not in left_out] if left_out else items
    return LoadedPage(fan, first, kept)


def key_of(fan: FanOut, loaded: Loaded, item: int) -> str:
    """Return the key of an item; empty if it has none."""
    first, _, number = _page(fan, item) if fan.pulls is not None else (0, 0, fan.at)
    fact = loaded.fact(number)
    assert isinstance(fact, FanOutEntered | PageTaken)
    return fact.keys[item - first] if fact.keys else ""


def has_keys(fan: FanOut, loaded: Loaded) -> bool:
    return fan.count > 0 and key_of(fan, loaded, 0) != ""


def item_of_key(fan: FanOut, loaded: Loaded, key: str) -> int | None:
    """Return the number of the item with this key, or None."""
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
    """Return the loaded values that the next turn needs too: the items of running loops."""
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
    """Keep the pages with items that have not ended."""
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
    """Return an event as a step receives it; raises Missing."""
    seq, index = ref
    if seq not in loaded.facts:
        raise Missing(facts=[seq])
    fact = loaded.facts[seq]
    sent = sent_by(fact, index)
    if isinstance(fact, VisitFailed):
        return {"type": sent.type, "data": {**sent.data, "events": events_of(loaded, fact.events)}}
    return {"type": sent.type, "data": loaded.blob(sent.blob) if sent.blob is not None else sent.data}


def events_of(loaded: Loaded, refs: tuple[Ref, ...]) -> list[Any]:
    # For a single event, `event_at` raises.
    missing = {seq for seq, _ in refs} - loaded.facts.keys() if len(refs) > 1 else None
    if missing:
        raise Missing(facts=missing)
    return [event_at(loaded, ref) for ref in refs]
