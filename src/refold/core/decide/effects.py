"""What follows from each kind of fact, apart from the state: the commands that it touches, letters, events."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct

from refold.core.commands import page_id
from refold.core.fact_kinds import for_every_fact
from refold.core.facts import (
    BodyWoke,
    BudgetExceeded,
    CallsAwaited,
    CallSettled,
    CancelAsked,
    ChildContinued,
    ChildEnded,
    ChildUsed,
    EventsTaken,
    FanOutEntered,
    GateDecided,
    ItemsCancelled,
    ItemsGivenUp,
    ItemsIssued,
    ItemsReopened,
    ItemsRetried,
    ItemsSettled,
    PageAsked,
    PageCame,
    PagesGivenUp,
    PageTaken,
    RequestAnswered,
    Routed,
    RunEnded,
    RunEnding,
    RunMigrated,
    RunPaused,
    RunReopened,
    RunResumed,
    RunStarted,
    RunTimedOut,
    SignalReceived,
    SignalTaken,
    StepIssued,
    StepSettled,
    VisitFailed,
)


def _none(fact: Any) -> Sequence[str]:
    return ()


def _visit(fact: Any) -> Sequence[str]:
    return (f"{fact.step}/{fact.visit}",)


def _owner(fact: Any) -> Sequence[str]:
    """Return the command of a durable call: `command#call` belongs to `command`."""
    return (fact.command.partition("#")[0],)


def _items(fact: Any, items: Iterable[int | None]) -> Sequence[str]:
    visit = f"{fact.step}/{fact.visit}/"
    return [f"{visit}{item}" for item in items]


def _page(fact: Any) -> Sequence[str]:
    return (page_id(fact.step, fact.visit, fact.page),) if fact.page else ()


class Effects(Struct, frozen=True):
    """What follows from a kind of fact; the defaults are those of a fact from which nothing follows."""

    commands_touched: Callable[[Any], Sequence[str]] = _none  # the commands that it opens, changes or closes
    opens_commands: bool = False
    reports: bool = False  # it holds what workers have reported
    answers_call: bool = False  # it concerns a durable call; a worker that is running the body keeps its command
    awaits_calls: bool = False  # child runs of durable calls may have to start
    sends_events: bool = False  # of a workflow of events: steps may receive what it holds
    read_later: bool = False  # later rules of the turn may read it, before the store has it
    writes_letters: bool = False  # letters to other runs may follow from it


EFFECTS: dict[type, Effects] = for_every_fact(
    "effects (core/decide/effects.py)",
    {
        RunStarted: Effects(sends_events=True),
        StepIssued: Effects(_visit, opens_commands=True, writes_letters=True),
        StepSettled: Effects(_visit, reports=True, sends_events=True),
        FanOutEntered: Effects(read_later=True),
        ItemsIssued: Effects(
            lambda fact: _items(fact, fact.items or range(fact.first, fact.first + fact.count)),
            opens_commands=True,
            writes_letters=True,
        ),
        ItemsRetried: Effects(lambda fact: _items(fact, (item for item, _, _ in fact.items)), writes_letters=True),
        ItemsSettled: Effects(
            lambda fact: _items(fact, (report.item for report in fact.reports)), reports=True, read_later=True
        ),
        ItemsGivenUp: Effects(lambda fact: _items(fact, fact.items)),
        ItemsCancelled: Effects(lambda fact: [*_items(fact, fact.items), *_page(fact)]),
        ItemsReopened: Effects(),
        PageAsked: Effects(_page, opens_commands=True),
        PageCame: Effects(_page, reports=True, read_later=True),
        PageTaken: Effects(read_later=True),
        PagesGivenUp: Effects(_page),
        EventsTaken: Effects(
            lambda fact: [f"{fact.step}/{fact.first + n}" for n in range(len(fact.batches))], opens_commands=True
        ),
        VisitFailed: Effects(_visit, sends_events=True),
        RequestAnswered: Effects(sends_events=True),
        Routed: Effects(),
        SignalReceived: Effects(),
        SignalTaken: Effects(_owner, answers_call=True),
        CallSettled: Effects(_owner, answers_call=True),
        CallsAwaited: Effects(_owner, answers_call=True, awaits_calls=True),
        BodyWoke: Effects(_owner),
        ChildUsed: Effects(),
        ChildContinued: Effects(writes_letters=True),
        ChildEnded: Effects(_owner, answers_call=True, read_later=True),
        GateDecided: Effects(_visit),
        RunPaused: Effects(writes_letters=True),
        RunResumed: Effects(writes_letters=True),
        CancelAsked: Effects(),
        RunTimedOut: Effects(),
        RunEnding: Effects(lambda fact: (*fact.withdrawn, *fact.cleaning)),
        RunEnded: Effects(writes_letters=True),
        RunReopened: Effects(),
        BudgetExceeded: Effects(),
        RunMigrated: Effects(),
    },
)
