"""Rules about events: who gets one next, what a failure becomes, and when a run of events is over."""

from collections.abc import Iterator
from typing import Any

from refold.core.decision import Decision
from refold.core.emitted import waiting
from refold.core.ending import end_run
from refold.core.facts import EventsTaken, Fault, StepFault, VisitFailed
from refold.core.plan import STOP, Collect
from refold.core.routing_rules import final_fault
from refold.core.state import COMPLETED, FAILED, RUNNING, Inbox, Ref

AT_ONCE = 64  # commands of a step that says nothing else


def catch_failures(d: Decision) -> None:
    """Failures that no policy wants to try again."""
    for command in list(d.state.judge):
        fault = final_fault(d, command)
        if fault is not None:
            opened = d.state.open[command]
            step = d.graph.step(opened.step)
            d.say(VisitFailed(step.name, opened.visit, fault, step.on_error))


def end_by_event(d: Decision) -> None:
    """The first event that stops the run ends it; one that nobody takes, or a failure, fails it."""
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
    """Waiting events become commands, in the order of their coming, as many as a step may have at once."""
    for s in list(d.state.taking):
        inbox, step = d.state.inboxes[s], d.graph.step(s)
        room = (step.workers or AT_ONCE) - inbox.open
        if room <= 0:
            del d.state.taking[s]  # it is owed again when one of its commands is over
            continue
        batches = _plain(inbox, room) if step.collect is None else _full(d, inbox, step.collect, room)
        if batches:
            d.say(EventsTaken(step.name, d.state.steps[s].visits + 1, batches))


def _plain(inbox: Inbox, room: int) -> tuple[tuple[Ref, ...], ...]:
    return tuple((ref,) for ref in inbox.waiting[inbox.head : inbox.head + room])


def _full(d: Decision, inbox: Inbox, collect: Collect, room: int) -> tuple[tuple[Ref, ...], ...]:
    """Batches that are complete; a number that nobody has set yet is not reached."""
    found = [tuple(refs) for refs in inbox.again[:room]]
    wanted: Any = collect.n if isinstance(collect.n, int) else d.state.ctx.get(collect.n)
    if not isinstance(wanted, int) or wanted < 1:
        return tuple(found)
    for refs in inbox.groups.values():
        for first in range(0, len(refs) - wanted + 1, wanted):
            found.append(tuple(refs[first : first + wanted]))
    return tuple(found[:room])


def end_without_event(d: Decision) -> None:
    """Nothing is queued, running or awaited, and no step has stopped the run: that is an error, at once."""
    state = d.state
    if state.life != RUNNING or state.visiting or state.children or state.orphans:
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
