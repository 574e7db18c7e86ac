"""The text of each kind of fact for people, one line each."""

from collections.abc import Callable
from typing import Any

from msgspec import json

from refold.core.fact_kinds import for_every_fact, for_every_move
from refold.core.facts import (
    BodyWoke,
    BudgetExceeded,
    Bypassed,
    CallsAwaited,
    CallSettled,
    CancelAsked,
    ChildContinued,
    ChildEnded,
    ChildUsed,
    Dropped,
    Entered,
    EventsTaken,
    Fact,
    FanOutEntered,
    GateDecided,
    ItemsCancelled,
    ItemsGivenUp,
    ItemsIssued,
    ItemsReopened,
    ItemsRetried,
    ItemsSettled,
    LoopLeft,
    PageAsked,
    PageCame,
    PagesGivenUp,
    PageTaken,
    PassBegan,
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
    Skipped,
    StepFault,
    StepIssued,
    StepSettled,
    Took,
    VisitFailed,
)
from refold.core.faults import fault_text
from refold.core.outcomes import (
    Cancelled,
    Instant,
    Outcome,
    Parked,
    Report,
    Succeeded,
    Suspended,
    TimedOut,
    fault_of_outcome,
)
from refold.core.read.why_text import took
from refold.core.times import stamp


def fact_text(fact: Fact, at: Instant = 0) -> str:
    """Return a fact as one line for people. `at` is when it was recorded: delays are counted from then."""
    return _TEXTS[type(fact)](fact) + (_delay(fact, at) if at and isinstance(fact, StepIssued | ItemsRetried) else "")


def _delay(fact: StepIssued | ItemsRetried, at: Instant) -> str:
    first = min((at for _, _, at in fact.items), default=0) if isinstance(fact, ItemsRetried) else fact.not_before
    return f", after {took(at, first)}" if first > at else ""


def value_text(value: Any) -> str:
    """Return data as JSON on one line."""
    return json.encode(value, enc_hook=str).decode()


def _where(fact: Any) -> str:
    return f"{fact.step}/{fact.visit}"


def _by(name: str) -> str:
    return f" by {name}" if name else ""


def _cleaning(fact: RunEnding) -> str:
    return f"; {', '.join(fact.cleaning)} may clean up for {fact.grace:g} s" if fact.cleaning else ""


def _because(why: str) -> str:
    return f": {why}" if why else ""


def _started(fact: RunStarted) -> str:
    by = f" by {fact.parent.command} of run {fact.parent.run}" if fact.parent is not None else ""
    if fact.schedule is not None:
        by = f" by the schedule {fact.schedule.id} for {stamp(fact.schedule.planned)}"
    return f"run started{by}" + (f" with {value_text(fact.input)}" if fact.input else "")


def _issued(fact: StepIssued) -> str:
    waits = [f"signal {signal!r}" for signal in (fact.signal, *fact.signals) if signal]
    decides = fact.input is not None or fact.choices
    waits += ["a decision" if decides else "a time"] if fact.until is not None else []
    if fact.child:
        return f"{_where(fact)} started run {fact.child}"
    if waits:
        return f"{_where(fact)} waits for " + " or ".join(waits)
    return f"{_where(fact)} issued" + (f", try {fact.attempt}" if fact.attempt > 1 else "")


def _items_issued(fact: ItemsIssued) -> str:
    if fact.items:
        return f"{_where(fact)} {_listed(fact.items)} issued again"
    last = fact.first + fact.count - 1
    return f"{_where(fact)} " + (f"item {last} issued" if fact.count == 1 else f"items {fact.first}-{last} issued")


def _fan_entered(fact: FanOutEntered) -> str:
    if fact.source is not None:
        return f"{_where(fact)} entered with a source"
    left_out = f", and {fact.left_out} left out because of their keys" if fact.left_out else ""
    return f"{_where(fact)} entered with {fact.count} items{left_out}"


def _listed(items: tuple[int, ...]) -> str:
    listed = ", ".join(map(str, items[:20])) + (", …" if len(items) > 20 else "")
    return f"item{'' if len(items) == 1 else 's'} {listed}"


def _ended(outcome: Outcome, attempt: int = 0) -> str:
    match outcome:
        case Succeeded():
            return "succeeded"
        case Parked():
            return "parked" + _because(outcome.reason)
        case Suspended():
            return "suspended until " + ", ".join(call.key for call in outcome.calls)
        case TimedOut():
            return f"timed out after {outcome.after:g} s" + (f" on try {attempt}" if attempt else "")
        case Cancelled():
            return "cancelled" + _because(outcome.reason)
        case _:
            fault = fault_of_outcome(outcome)
            assert fault is not None
            return "failed" + (f" on try {attempt}" if attempt else "") + f": {fault_text(fault)}"


def _amounts(usage: dict[str, int | float]) -> str:
    return ", ".join(f"{amount:g} {unit}" for unit, amount in usage.items())


def _events(fact: EventsTaken) -> str:
    count = sum(map(len, fact.batches))
    last = fact.first + len(fact.batches) - 1
    where = f"visit {last}" if last == fact.first else f"visits {fact.first}-{last}"
    return f"{count} event{'s' * (count != 1)} in {where}"


def _reported(report: Report) -> str:
    unasked = f"; it did not ask for {', '.join(report.unasked)}" if report.unasked else ""
    return _ended(report.outcome, report.attempt) + unasked


def _fault(error: StepFault | None) -> str:
    if error is None:
        return ""
    step = f"{error.step} " if error.step else ""
    return f": {step}{error.why}" + _because(fault_text(error.fault) if error.fault is not None else "")


def _is_generated(step: str) -> bool:
    """Whether a block made the step. Its name says so: names that people give have no dot."""
    return "." in step


def _took(move: Took) -> str:
    sets = [f"{key} = {value_text(value)}" for key, value in move.sets.items() if not _is_generated(key)]
    text = " and set " + ", ".join(sets) if sets else ""
    added = ", ".join(f"{value_text(values)} to {key}" for key, values in move.appends.items())
    text += f" and added {added}" if added else ""
    arcs = "took no arc" if not move.arcs else "took arc " + " and ".join(str(arc + 1) for arc in move.arcs)
    arcs = "is over" if move.quiet else arcs
    return f"{_where(move)} {arcs}{text}" + (f" ({fault_text(move.fault)})" if move.fault is not None else "")


def _routed(fact: Routed) -> str:
    """Steps that a block made are left out unless nothing else happened."""
    texts = [text for move in fact.moves if (text := _MOVES[type(move)](move))]
    return "; ".join(texts) or "the steps of a block that only lead to others were passed"


def _named(verb: str, move: Skipped | Dropped) -> str:
    steps = [step for step in move.steps if not _is_generated(step)]
    return f"{verb} {', '.join(steps)}" if steps else ""


def _of_step(text: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda move: "" if _is_generated(move.step) and type(move) is not Entered else text(move)


def _reopened(fact: RunReopened) -> str:
    again = [f"again {', '.join(fact.again)}"] if fact.again else []
    anew = [f"again from {fact.anew[0]}"] if fact.anew else []
    which = [f"items {', '.join(map(str, items))} of {step}" for step, items in fact.items.items()]
    if fact.alone:
        return "run reopened" + _by(fact.by) + _because(f"only {', '.join(which or fact.again)}, nothing that follows")
    return "run reopened" + _by(fact.by) + _because(", ".join(again + which + anew))


_MOVES: dict[type, Callable[[Any], str]] = for_every_move(
    "text for people (core/read/fact_text.py)",
    {
        Entered: lambda move: f"{_where(move)} entered",
        Took: _of_step(_took),
        Bypassed: _of_step(lambda move: f"{_where(move)} bypassed"),
        Skipped: lambda move: _named("skipped", move),
        Dropped: lambda move: _named("dropped", move),
        PassBegan: lambda move: f"another pass from {move.head.partition('.')[0]}",
        LoopLeft: lambda move: f"the loop of {move.head.partition('.')[0]} is over",
    },
)

_TEXTS: dict[type, Callable[[Any], str]] = for_every_fact(
    "text for people (core/read/fact_text.py)",
    {
        RunStarted: _started,
        StepIssued: _issued,
        StepSettled: lambda fact: f"{_where(fact)} {_reported(fact.report)}",
        FanOutEntered: _fan_entered,
        PageAsked: lambda fact: (
            f"{_where(fact)} page {fact.page} asked for" + (f", try {fact.attempt}" if fact.attempt > 1 else "")
        ),
        PageCame: lambda fact: f"{_where(fact)} page {fact.page} {_reported(fact.report)}",
        PageTaken: lambda fact: (
            f"{_where(fact)} has {fact.count} more items" + (", the last" if fact.cursor is None else "")
        ),
        PagesGivenUp: lambda fact: f"{_where(fact)} gave up its source: {fault_text(fact.fault)}",
        ItemsCancelled: lambda fact: (
            f"{_where(fact)} cancelled {_listed(fact.items)}" + _by(fact.by) + _because(fact.halts)
        ),
        ItemsReopened: lambda fact: f"{_where(fact)} {_listed(fact.items)} to run again" + _by(fact.by),
        ItemsIssued: _items_issued,
        ItemsRetried: lambda fact: (
            f"{_where(fact)} " + ", ".join(f"item {item} issued, try {attempt}" for item, attempt, _ in fact.items)
        ),
        ItemsSettled: lambda fact: (
            f"{_where(fact)} " + "; ".join(f"item {report.item} {_reported(report)}" for report in fact.reports)
        ),
        ItemsGivenUp: lambda fact: f"{_where(fact)} gave up on {_listed(fact.items)}",
        EventsTaken: lambda fact: f"{fact.step} takes {_events(fact)}",
        VisitFailed: lambda fact: (
            f"{_where(fact)} failed permanently" + (f", which is sent as {fact.event}" if fact.event else "")
        ),
        RequestAnswered: lambda fact: f"request {fact.id!r} was answered, which is sent as {fact.sent.type}",
        Routed: _routed,
        SignalReceived: lambda fact: (
            f"signal {fact.name!r} came" + (f" with {value_text(fact.value)}" if fact.value else "")
        ),
        SignalTaken: lambda fact: f"{fact.command} took signal {fact.name!r}",
        CallSettled: lambda fact: f"{fact.command} call {fact.key} {_ended(fact.outcome)}",
        CallsAwaited: lambda fact: f"{fact.command} waits for {', '.join(call.key for call in fact.calls)}",
        BodyWoke: lambda fact: f"{fact.command} has continued by itself",
        ChildUsed: lambda fact: f"{fact.command} run {fact.child} has used {_amounts(fact.usage)} until now",
        ChildContinued: lambda fact: f"{fact.command} run {fact.child} is continued by run {fact.successor}",
        ChildEnded: lambda fact: f"{fact.command} run {fact.child} {_ended(fact.outcome)}",
        GateDecided: lambda fact: f"{_where(fact)} decided: {', '.join((fact.option, *fact.choices))}" + _by(fact.by),
        RunPaused: lambda fact: "run paused" + _by(fact.by),
        RunResumed: lambda fact: "run resumed" + _by(fact.by),
        CancelAsked: lambda fact: "cancel asked for" + _by(fact.by) + _because(fact.reason),
        RunTimedOut: lambda fact: f"run timed out after {fact.after:g} s",
        RunEnding: lambda fact: f"run is ending as {fact.outcome}" + _fault(fact.error) + _cleaning(fact),
        RunEnded: lambda fact: (
            f"run {fact.status}" + (f" by run {fact.successor}" if fact.successor else "") + _fault(fact.error)
        ),
        RunReopened: _reopened,
        RunMigrated: lambda fact: f"run migrated to plan {fact.plan[:12]}" + _by(fact.by),
        BudgetExceeded: lambda fact: f"budget exceeded: {fact.used:g} of {fact.limit:g} {fact.unit} are used up",
    },
)
