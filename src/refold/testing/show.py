"""Facts in words, one line each."""

from refold.core.facts import (
    Fact,
    FanOutEntered,
    ItemsGivenUp,
    ItemsIssued,
    ItemsRetried,
    ItemsSettled,
    Report,
    Routed,
    RunEnded,
    RunStarted,
    StepIssued,
    StepSettled,
    Succeeded,
)
from refold.core.retry import fault_of


def told(fact: Fact) -> str:
    match fact:
        case RunStarted():
            return f"run started with {fact.input}" if fact.input else "run started"
        case RunEnded():
            return f"run {fact.status}"
        case StepIssued():
            return f"{fact.step}/{fact.visit} issued" + (f", try {fact.attempt}" if fact.attempt > 1 else "")
        case StepSettled():
            return f"{fact.step}/{fact.visit} {_ended(fact.report)}"
        case FanOutEntered() | ItemsIssued() | ItemsRetried() | ItemsSettled() | ItemsGivenUp():
            return _told_items(fact)
        case Routed():
            return "routed: " + "; ".join(str(move) for move in fact.moves)
        case _:
            return str(fact)


def _told_items(fact: FanOutEntered | ItemsIssued | ItemsRetried | ItemsSettled | ItemsGivenUp) -> str:
    where = f"{fact.step}/{fact.visit}"
    match fact:
        case FanOutEntered():
            return f"{where} entered with {fact.count} items"
        case ItemsIssued():
            last = fact.first + fact.count - 1
            return (
                f"{where} item {fact.first} issued"
                if last == fact.first
                else f"{where} items {fact.first}-{last} issued"
            )
        case ItemsRetried():
            return f"{where} " + ", ".join(f"item {item} issued, try {attempt}" for item, attempt, _ in fact.items)
        case ItemsGivenUp():
            return f"{where} given up on items {', '.join(map(str, fact.items))}"
        case ItemsSettled():
            return f"{where} " + "; ".join(f"item {report.item} {_ended(report)}" for report in fact.reports)


def _ended(report: Report) -> str:
    if isinstance(report.outcome, Succeeded):
        return "succeeded"
    fault = fault_of(report.outcome)
    if fault is None:
        return type(report.outcome).__name__.lower()
    return f"failed on try {report.attempt}: {fault.message or fault.kind}"
