"""Rules for workflows of events: which step takes which event, what a failure becomes, and when the run ends."""

from collections.abc import Iterator
from typing import Any

from refold.core.decide.decision import Decision
from refold.core.decide.ending import end_run
from refold.core.decide.routing import final_fault
from refold.core.facts import EventsTaken, RequestAnswered, StepFault, StepSettled, VisitFailed
from refold.core.fold.events import DEFAULT_WORKERS, expecting_none, waiting
from refold.core.outcomes import ANSWER, Failed, Fault, Report, Sent
from refold.core.plan import STOP, Collect
from refold.core.read.gates import answer_fields
from refold.core.state import COMPLETED, FAILED, RUNNING, Inbox, Ref


def catch_failures(d: Decision) -> None:
    """End the visits whose failure is final."""
    for command in list(d.state.judge):
        fault = final_fault(d, command)
        if fault is not None:
            opened = d.state.open[command]
            step = d.graph.step(opened.step)
            d.record_fact(
                VisitFailed(step.name, opened.visit, fault, step.on_error, opened.events if step.on_error else ())
            )


def deliver_answers(d: Decision) -> None:
    """Turn the answers to open requests into events, in the order in which they came."""
    for id in list(d.state.answered):
        while id in d.state.answered:
            asks = d.state.requests[id][0].asks
            data, blob = d.box(answer_fields(asks, d.state.signals[f"{ANSWER}{id}"][0]))
            d.record_fact(RequestAnswered(id, Sent(asks.answer, data, blob)))


def end_by_event(d: Decision) -> None:
    """End the run: by the first stop event, or as failed by a failure or by an event that no step takes."""
    state = d.state
    if state.life != RUNNING:
        return
    if state.failures:
        end_run(d, FAILED, state.failures[0])
    elif state.untaken:
        end_run(d, FAILED, _untaken(d, *state.untaken[0]))
    elif state.stopped is not None:
        end_run(d, COMPLETED)


def _untaken(d: Decision, type: str, sender: str) -> StepFault:
    takes = "; ".join(f"{step.name} takes {', '.join(step.accepts)}" for step in d.graph.plan.steps)
    why = f"no step takes the event {type!r} that {sender or 'the start'} has sent: {takes}"
    visit = d.state.steps[d.graph.index[sender]].visits if sender else 0
    return StepFault(sender, visit, "untaken event", Fault("untaken", why, retryable=False))


def take_events(d: Decision) -> None:
    """Turn waiting events into commands, in the order in which they came, up to the number that a step may run."""
    for s in list(d.state.taking):
        inbox, step = d.state.inboxes[s], d.graph.step(s)
        room = (step.workers or DEFAULT_WORKERS) - inbox.open
        first = d.state.steps[s].visits + 1
        if step.collect is None:
            d.record_fact(EventsTaken(step.name, first, _plain(inbox, room)))
            continue
        full = _full(d, inbox, step.collect, room)
        if full:
            groups, batches = zip(*full, strict=True)
            d.record_fact(EventsTaken(step.name, first, batches, groups))


def _plain(inbox: Inbox, room: int) -> tuple[tuple[Ref, ...], ...]:
    return tuple((ref,) for ref in inbox.waiting[inbox.head : inbox.head + room])


def _full(d: Decision, inbox: Inbox, collect: Collect, room: int) -> list[tuple[str, tuple[Ref, ...]]]:
    """Return the complete batches, each with its group. None is complete while the wanted number is not set."""
    wanted: Any = collect.n if isinstance(collect.n, int) else d.state.ctx.get(collect.n)
    if not isinstance(wanted, int) or wanted < 1:
        return []
    batches: list[tuple[str, tuple[Ref, ...]]] = []
    for group, refs in inbox.groups.items():
        for first in range(0, len(refs) - wanted + 1, wanted):
            batches.append((group, tuple(refs[first : first + wanted])))
            if len(batches) == room:
                return batches
    return batches


def gather_no_longer(d: Decision, step: str, group: str) -> None:
    """Fail the step for a group whose time is up, with the events that have come."""
    s = d.graph.index[step]
    refs, collect = d.state.inboxes[s].groups[group], d.graph.step(s).collect
    assert collect is not None
    visit = d.state.steps[s].visits + 1
    d.record_fact(EventsTaken(step, visit, (tuple(refs),), (group,)))
    wanted = (
        collect.n if isinstance(collect.n, int) else d.state.ctx.get(collect.n, f"{collect.n!r}, which is not set,")
    )
    of = f" of {collect.by} {group!r}" if collect.by else ""
    why = f"{len(refs)} of {wanted} events{of} came within {collect.timeout:g} s"
    d.record_fact(StepSettled(step, visit, Report(1, Failed(Fault("timeout", why, retryable=False)))))


def end_without_event(d: Decision) -> None:
    """Fail a run in which nothing is queued, running or awaited and no step has sent a stop event.

    A step that collects 0 events is run first, with an empty list: only now no other step can set another number.
    """
    state = d.state
    if state.life != RUNNING or state.visiting or state.children or state.orphans or state.requests:
        return
    empty = list(expecting_none(d.graph, state))
    for name in empty:
        d.record_fact(EventsTaken(name, state.steps[d.graph.index[name]].visits + 1, ((),), ("",)))
    if empty:
        return
    last = max(state.steps, key=lambda step: step.done_at)
    name = d.graph.name(state.steps.index(last))
    why = f"nothing is left to do, and no step has sent a {STOP}; the last one was {name}" + "".join(_rest(d))
    end_run(d, FAILED, StepFault(name, last.visits, "no end", Fault("no_stop", why, retryable=False)))


def _rest(d: Decision) -> Iterator[str]:
    for name, count in waiting(d.graph, d.state):
        collect = d.graph.step(d.graph.index[name]).collect
        of = f" of {collect.n}" if collect is not None else ""
        yield f"; {name} waits with {count}{of} events"
