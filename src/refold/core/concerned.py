"""Which commands a fact opens, changes or closes, and what else each kind of fact does to a turn."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from refold.core.commands import page_id
from refold.core.facts import (
    CallSettled,
    ChildEnded,
    EventsTaken,
    FanOutEntered,
    GateDecided,
    ItemsCancelled,
    ItemsGivenUp,
    ItemsIssued,
    ItemsRetried,
    ItemsSettled,
    PageAsked,
    PageCame,
    PagesGivenUp,
    PageTaken,
    RunEnded,
    RunEnding,
    RunPaused,
    RunResumed,
    RunStarted,
    SignalTaken,
    StepIssued,
    StepSettled,
    VisitFailed,
)


def _one(fact: Any) -> Sequence[str]:
    return (f"{fact.step}/{fact.visit}",)


def _owner(fact: Any) -> Sequence[str]:
    return (fact.command.partition("#")[0],)


def _some(fact: Any, items: Iterable[int | None]) -> Sequence[str]:
    visit = f"{fact.step}/{fact.visit}/"
    return [f"{visit}{item}" for item in items]


def _pages(fact: Any) -> Sequence[str]:
    return (page_id(fact.step, fact.visit, fact.page),) if fact.page else ()


CONCERNED: dict[type, Callable[[Any], Sequence[str]]] = {  # the commands that a fact opens, changes or closes
    StepIssued: _one,
    StepSettled: _one,
    GateDecided: _one,
    ItemsIssued: lambda fact: _some(fact, fact.items or range(fact.first, fact.first + fact.count)),
    ItemsSettled: lambda fact: _some(fact, (report.item for report in fact.reports)),
    ItemsRetried: lambda fact: _some(fact, (item for item, _, _ in fact.items)),
    ItemsGivenUp: lambda fact: _some(fact, fact.items),
    ItemsCancelled: lambda fact: [*_some(fact, fact.items), *_pages(fact)],
    PageAsked: lambda fact: _pages(fact),
    PageCame: lambda fact: _pages(fact),
    PagesGivenUp: lambda fact: _pages(fact),
    CallSettled: _owner,
    ChildEnded: _owner,
    SignalTaken: _owner,
    RunEnding: lambda fact: fact.withdrawn,
    EventsTaken: lambda fact: [f"{fact.step}/{fact.first + n}" for n in range(len(fact.batches))],
    VisitFailed: _one,
}
READ_AGAIN = frozenset({ItemsSettled, ChildEnded, FanOutEntered, PageCame, PageTaken})
SENDS = frozenset({RunStarted, StepSettled, VisitFailed})
OPENING = frozenset({StepIssued, ItemsIssued, EventsTaken, PageAsked})
REPORTING = frozenset({StepSettled, ItemsSettled, PageCame})
ANSWERS = frozenset({SignalTaken, CallSettled, ChildEnded})
SENDING = frozenset({StepIssued, ItemsIssued, ItemsRetried, RunPaused, RunResumed, RunEnded})
