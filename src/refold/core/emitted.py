"""Typed events between steps: which step takes which, in what order, and what is gathered before it is taken."""

from collections.abc import Iterator
from typing import Any

from refold.core import visits, waits
from refold.core.expressions import Missing
from refold.core.facts import (
    EventsTaken,
    Fact,
    RunStarted,
    Sent,
    StepFault,
    StepSettled,
    Succeeded,
    VisitFailed,
)
from refold.core.loops import Graph
from refold.core.plan import START, STOP
from refold.core.state import CANCELLED, COMPLETED, FAILED, ISSUED, Inbox, OpenCommand, Ref, RunState, StepState
from refold.core.view import Loaded, error_value


def begin(graph: Graph, state: RunState) -> None:
    state.steps = [StepState() for _ in graph.plan.steps]
    _deliver(graph, state, Sent(START, state.input), (state.seq, 0), "")


def _deliver(graph: Graph, state: RunState, sent: Sent, ref: Ref, sender: str) -> None:
    """To every step that takes its type; the first that stops the run is the one that counts."""
    if sent.type == STOP:
        state.stopped = state.stopped or ref
        return
    takers = graph.takers.get(sent.type, ())
    if not takers:
        state.untaken.append((sent.type, sender))
    for s in takers:
        inbox = state.inboxes.setdefault(s, Inbox())
        collect = graph.step(s).collect
        if collect is None:
            inbox.waiting.append(ref)
        else:
            group = inbox.groups.setdefault(_group(sent, collect.by), [])
            group.append(ref)
            inbox.since.setdefault(_group(sent, collect.by), state.at)
        state.taking[s] = None


def _group(sent: Sent, by: str) -> str:
    if not by:
        return ""
    data = sent.by if sent.blob is not None else sent.data
    return str(data.get(by)) if isinstance(data, dict) else ""


def taken(graph: Graph, state: RunState, fact: EventsTaken) -> None:
    """Each batch is a command from here on."""
    s = graph.index[fact.step]
    step, inbox = state.steps[s], state.inboxes[s]
    for visit, batch in enumerate(fact.batches, fact.first):
        state.open[f"{fact.step}/{visit}"] = OpenCommand(s, visit, events=batch)
        step.visits = visit
    step.life = ISSUED
    inbox.open += len(fact.batches)
    state.visiting += len(fact.batches)
    if graph.step(s).collect is None:
        _advance(inbox, len(fact.batches))
    else:
        for batch in fact.batches:
            _withdraw(inbox, batch)
    if not inbox.groups and inbox.head >= len(inbox.waiting):
        state.taking.pop(s, None)


def _advance(inbox: Inbox, count: int) -> None:
    """What is taken stays in front for a while: to move the rest each time would cost as much as there is."""
    inbox.head += count
    if inbox.head >= len(inbox.waiting):
        inbox.waiting, inbox.head = [], 0
    elif inbox.head > 1000 and 2 * inbox.head > len(inbox.waiting):
        inbox.waiting, inbox.head = inbox.waiting[inbox.head :], 0


def _withdraw(inbox: Inbox, batch: tuple[Ref, ...]) -> None:
    gone = set(batch)
    for name, refs in list(inbox.groups.items()):
        if refs and refs[0] in gone:
            rest = [ref for ref in refs if ref not in gone]
            inbox.groups.pop(name)
            inbox.since.pop(name, None)
            if rest:
                inbox.groups[name] = rest


def settled(graph: Graph, state: RunState, command: str, fact: StepSettled) -> None:
    """A try ended; what it sends goes out with its success, and with nothing else."""
    opened, report = state.open[command], fact.report
    if report.usage:
        visits.add_usage(state, report.usage)
    if type(report.outcome) is not Succeeded:
        visits.hold(state, command, report.outcome)
        waits.put_aside(state, command, report.outcome)
        return
    step = state.steps[opened.step]
    step.attempts += 1
    step.result, step.blob, step.fault = report.outcome.result, report.outcome.blob, None
    step.done_at, step.last = state.seq, COMPLETED
    if report.writes:
        visits.apply_writes(state, report.writes)
    close(graph, state, command, COMPLETED)
    for place, sent in enumerate(report.events):
        _deliver(graph, state, sent, (state.seq, place), fact.step)


def close(graph: Graph, state: RunState, command: str, life: str) -> OpenCommand:
    opened = visits.close_command(state, command)
    state.visiting -= 1
    inbox = state.inboxes[opened.step]
    inbox.open -= 1
    step = state.steps[opened.step]
    if not inbox.open:
        step.life = life
    if inbox.head < len(inbox.waiting) or inbox.groups:
        state.taking[opened.step] = None
    return opened


def failed(graph: Graph, state: RunState, fact: VisitFailed) -> None:
    """For good: it becomes an event if the step says so, and else the run fails."""
    opened = close(graph, state, f"{fact.step}/{fact.visit}", FAILED)
    step = state.steps[opened.step]
    step.last, step.fault = FAILED, fact.fault
    if fact.event:
        _deliver(graph, state, sent_by(fact, 0), (state.seq, 0), fact.step)
    else:
        state.failures.append(StepFault(fact.step, fact.visit, "unhandled failure", fact.fault))
        state.lost.append((opened.step, opened.events))


def withdraw(graph: Graph, state: RunState, command: str) -> None:
    """The run is ending; what is not done now is to be done if the run goes on after all."""
    opened = close(graph, state, command, CANCELLED)
    state.steps[opened.step].last = CANCELLED
    state.lost.append((opened.step, opened.events))


def reopen(graph: Graph, state: RunState) -> list[str]:
    """All that was lost is to be done again, in front of what waits."""
    names = dict.fromkeys(graph.name(s) for s, _ in state.lost)
    for s, refs in reversed(state.lost):
        inbox = state.inboxes[s]
        if graph.step(s).collect is None:
            inbox.waiting, inbox.head = [*refs, *inbox.waiting[inbox.head :]], 0
        else:
            inbox.again.append(refs)
        state.taking[s] = None
    state.lost, state.untaken = [], []
    return list(names)


def sent_by(fact: Fact, place: int) -> Sent:
    """The event at this place of a fact."""
    match fact:
        case RunStarted(input=input):
            return Sent(START, input)
        case StepSettled(report=report):
            return report.events[place]
        case VisitFailed():
            return Sent(fact.event, {"step": fact.step, "visit": fact.visit, "error": error_value(fact.fault)})
        case _:
            raise AssertionError(fact)


def event_at(loaded: Loaded, ref: Ref) -> Any:
    """An event as a step gets it; raises Missing."""
    seq, place = ref
    if seq not in loaded.facts:
        raise Missing(facts=[seq])
    sent = sent_by(loaded.facts[seq], place)
    return {"type": sent.type, "data": loaded.blob(sent.blob) if sent.blob is not None else sent.data}


def events_of(loaded: Loaded, refs: tuple[Ref, ...]) -> list[Any]:
    missing = {seq for seq, _ in refs} - loaded.facts.keys()
    if missing:
        raise Missing(facts=missing)
    return [event_at(loaded, ref) for ref in refs]


def waiting(graph: Graph, state: RunState) -> Iterator[tuple[str, int]]:
    """Steps for which events wait, and how many."""
    for s, inbox in state.inboxes.items():
        count = len(inbox.waiting) - inbox.head + sum(map(len, inbox.groups.values()))
        if count:
            yield graph.name(s), count
