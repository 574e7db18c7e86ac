"""Events as steps receive them, read from the facts that were loaded for a turn."""

from typing import Any

from refold.core.expressions import Missing
from refold.core.facts import VisitFailed
from refold.core.fold.events import sent_by
from refold.core.scope.loaded import Loaded
from refold.core.state import Ref


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
