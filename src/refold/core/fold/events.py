"""Events between the steps of a Python workflow: how facts fill the inboxes of steps, and what waits in them."""

from collections.abc import Iterator

from refold.core.facts import (
    EventsTaken,
    Fact,
    RequestAnswered,
    RunEnding,
    RunReopened,
    RunResumed,
    RunStarted,
    StepFault,
    StepSettled,
    VisitFailed,
)
from refold.core.faults import error_value
from refold.core.fold import visits, waits
from refold.core.graph import Graph
from refold.core.outcomes import (
    ANSWER,
    SECOND,
    Cancelled,
    Instant,
    Parked,
    Sent,
    Succeeded,
    Suspended,
    fault_of_outcome,
)
from refold.core.plan import CONTINUE, START, STOP
from refold.core.state import (
    CANCELLED,
    COMPLETED,
    FAILED,
    ISSUED,
    RUNNING,
    Inbox,
    OpenCommand,
    OpenRequest,
    Ref,
    RunState,
    StepState,
)

DEFAULT_WORKERS = 64  # commands of a step that may run at a time, if the step does not say
COLLECT = "collect"  # stands in the key of a timer where others have the number of a visit


def begin(graph: Graph, state: RunState) -> None:
    state.steps = [StepState() for _ in graph.plan.steps]
    _deliver(graph, state, Sent(START, state.input), (state.seq, 0), "")


def _deliver(graph: Graph, state: RunState, sent: Sent, ref: Ref, sender: str) -> None:
    """Put an event into the inbox of every step that takes its type. The first stop event ends the run."""
    if sent.type in (STOP, CONTINUE):
        state.stopped = state.stopped or ref
        return
    takers = graph.takers.get(sent.type, ())
    if not takers:
        state.untaken.append((sent.type, sender))
    for s in takers:
        inbox = state.inboxes.get(s) or state.inboxes.setdefault(s, Inbox())
        collect = graph.step(s).collect
        if collect is None:
            inbox.waiting.append(ref)
        else:
            group = _group(sent, collect.by)
            inbox.groups.setdefault(group, []).append(ref)
            inbox.since.setdefault(group, state.at)
        _note_taking(graph, state, s)


def _note_taking(graph: Graph, state: RunState, s: int) -> None:
    """Note whether a step can take events: some wait, and it may run more commands."""
    inbox = state.inboxes[s]
    has_events = inbox.groups or inbox.head < len(inbox.waiting)
    if has_events and inbox.open < (graph.step(s).workers or DEFAULT_WORKERS):
        state.taking[s] = None
    else:
        visits.clear_obligation(state.taking, s)


def ask_again(graph: Graph, state: RunState) -> None:
    """Note again which steps can take events, after the graph or the inboxes have changed."""
    state.taking = {}
    for s in state.inboxes:
        _note_taking(graph, state, s)


def _group(sent: Sent, by: str) -> str:
    if not by:
        return ""
    data = sent.by if sent.blob is not None else sent.data
    return str(data.get(by)) if isinstance(data, dict) else ""


def taken(graph: Graph, state: RunState, fact: EventsTaken) -> None:
    """Turn each batch of events into an open command."""
    s = graph.index[fact.step]
    step, inbox = state.steps[s], state.inboxes.get(s) or state.inboxes.setdefault(s, Inbox())
    groups = fact.groups or ("",) * len(fact.batches)
    for visit, (batch, group) in enumerate(zip(fact.batches, groups, strict=True), fact.first):
        state.open[f"{fact.step}/{visit}"] = OpenCommand(s, visit, events=batch, group=group)
        step.visits = visit
    step.life = ISSUED
    inbox.open += len(fact.batches)
    state.visiting += len(fact.batches)
    if graph.step(s).collect is None:
        _advance(inbox, len(fact.batches))
    else:
        for visit, (batch, group) in enumerate(zip(fact.batches, fact.groups, strict=True), fact.first):
            if batch:
                _withdraw(inbox, group, len(batch), state.at)
            else:
                state.open[f"{fact.step}/{visit}"].input = {"events": []}
                inbox.emptied = _version(graph, state, s)
    _note_taking(graph, state, s)


def _version(graph: Graph, state: RunState, s: int) -> int:
    """Return the version of the context key that says how many events a step collects."""
    collect = graph.step(s).collect
    return 0 if collect is None else state.versions.get(str(collect.n), 0)


def expecting_none(graph: Graph, state: RunState) -> Iterator[str]:
    """Yield the steps that collect as many events as a context key says, where the key is 0 and no events wait."""
    for s, step in enumerate(graph.plan.steps):
        if step.collect is not None and isinstance(step.collect.n, str) and not step.collect.by:
            wanted, inbox = state.ctx.get(step.collect.n), state.inboxes.get(s) or Inbox()
            is_zero = type(wanted) is int and wanted == 0
            if is_zero and not inbox.groups and inbox.emptied != _version(graph, state, s):
                yield step.name


def _advance(inbox: Inbox, count: int) -> None:
    """Skip the events that were taken. They are removed only now and then, because moving the others is expensive."""
    inbox.head += count
    if inbox.head >= len(inbox.waiting):
        inbox.waiting, inbox.head = [], 0
    elif inbox.head > 1000 and 2 * inbox.head > len(inbox.waiting):
        inbox.waiting, inbox.head = inbox.waiting[inbox.head :], 0


def _withdraw(inbox: Inbox, group: str, count: int, at: Instant) -> None:
    """Remove the first events of a group. The time limit of the others starts again."""
    remaining = inbox.groups.pop(group)[count:]
    inbox.since.pop(group)
    if remaining:
        inbox.groups[group], inbox.since[group] = remaining, at


def settled(graph: Graph, state: RunState, command: str, fact: StepSettled) -> None:
    """Take the report about a try. Its events are delivered only if it succeeded."""
    opened, report = state.open[command], fact.report
    if opened.grace is not None and not isinstance(report.outcome, Parked | Suspended):
        _cleaned_up(graph, state, command, fact)
        return
    if report.usage:
        visits.add_usage(state, report.usage)
    if type(report.outcome) is not Succeeded:
        visits.hold_for_judgement(state, command, report.outcome)
        before = opened.progress
        waits.put_aside(state, command, report)
        if isinstance(before, dict) and isinstance(report.outcome, Suspended):
            opened.progress = {**before, **opened.progress}  # a body that waits reports what has changed
        return
    step = state.steps[opened.step]
    step.attempts += 1
    step.result, step.blob, step.fault = report.outcome.result, report.outcome.blob, None
    step.done_at, step.last = state.seq, COMPLETED
    if report.writes:
        visits.apply_writes(state, report.writes)
    close(graph, state, command, COMPLETED)
    for index, sent in enumerate(report.events):
        if sent.asks is None:
            _deliver(graph, state, sent, (state.seq, index), fact.step)
        else:
            request = OpenRequest(fact.step, fact.visit, (state.seq, index), sent.type, sent.data, sent.asks)
            state.requests.setdefault(request.asks.id, []).append(request)
            _note_answer(state, request.asks.id)


def _cleaned_up(graph: Graph, state: RunState, command: str, fact: StepSettled) -> None:
    """End the visit of a cancelled body. What it returns is not used; a failure of its clean-up is shown."""
    withdraw(graph, state, command)
    fault = fault_of_outcome(fact.report.outcome)
    if fault is not None and not isinstance(fact.report.outcome, Cancelled):
        state.failures.append(StepFault(fact.step, fact.visit, "clean-up", fault))


def _note_answer(state: RunState, id: str) -> None:
    if state.signals.get(f"{ANSWER}{id}") and id in state.requests:
        state.answered[id] = None
    else:
        visits.clear_obligation(state.answered, id)


def note_answers(state: RunState, signal: str) -> None:
    """Note whether there is an answer to an open request, after a signal has come or was taken."""
    if state.requests and signal.startswith(ANSWER):
        _note_answer(state, signal.removeprefix(ANSWER))


def answered(graph: Graph, state: RunState, fact: RequestAnswered) -> None:
    """Close the oldest request with an id, use up the oldest answer to it, and deliver the answer as an event."""
    signal = f"{ANSWER}{fact.id}"
    answers, requests = state.signals[signal], state.requests[fact.id]
    answers.pop(0)
    request = requests.pop(0)
    if not answers:
        del state.signals[signal]
        state.deliverable.pop(signal, None)
    if not requests:
        del state.requests[fact.id]
    _note_answer(state, fact.id)
    _deliver(graph, state, fact.sent, (state.seq, 0), request.step)


def open_requests(state: RunState) -> list[OpenRequest]:
    """Return the requests that wait for an answer, the oldest first."""
    return sorted((each for requests in state.requests.values() for each in requests), key=lambda each: each.ref)


def close(graph: Graph, state: RunState, command: str, life: str) -> OpenCommand:
    opened = visits.close_command(state, command)
    state.visiting -= 1
    inbox = state.inboxes[opened.step]
    inbox.open -= 1
    step = state.steps[opened.step]
    if not inbox.open:
        step.life = life
    _note_taking(graph, state, opened.step)
    return opened


def failed(graph: Graph, state: RunState, fact: VisitFailed) -> None:
    """End a visit with a final failure: it becomes an event if the step says so, else the run fails."""
    opened = close(graph, state, f"{fact.step}/{fact.visit}", FAILED)
    step = state.steps[opened.step]
    step.last, step.fault = FAILED, fact.fault
    if fact.event:
        _deliver(graph, state, sent_by(fact, 0), (state.seq, 0), fact.step)
    else:
        state.failures.append(StepFault(fact.step, fact.visit, "unhandled failure", fact.fault))
        state.undone.append((opened.step, opened.events, opened.group))


def withdraw(graph: Graph, state: RunState, command: str) -> None:
    """Take a command back because the run is ending. It is done again if the run is reopened."""
    opened = close(graph, state, command, CANCELLED)
    state.steps[opened.step].last = CANCELLED
    state.undone.append((opened.step, opened.events, opened.group))


def undone_steps(graph: Graph, state: RunState) -> tuple[str, ...]:
    """Return the steps that have visits to do again if the run is reopened."""
    return tuple(dict.fromkeys(graph.name(s) for s, _, _ in state.undone))


def reopen(graph: Graph, state: RunState) -> None:
    """Put the events of visits that were cut off back into their inboxes, before those that wait."""
    for s, refs, group in reversed(state.undone):
        inbox = state.inboxes[s]
        if graph.step(s).collect is None:
            inbox.waiting, inbox.head = [*refs, *inbox.waiting[inbox.head :]], 0
        elif not refs:
            inbox.emptied = 0
        else:
            inbox.groups = {group: [*refs, *inbox.groups.pop(group, [])], **inbox.groups}
    for s, inbox in state.inboxes.items():
        inbox.since = dict.fromkeys(inbox.groups, state.at)
        _note_taking(graph, state, s)
    for id in state.requests:
        _note_answer(state, id)
    state.undone, state.untaken = [], []


def resumed(state: RunState, pause: int) -> None:
    """Extend the time limits of groups by the length of a pause."""
    for inbox in state.inboxes.values():
        inbox.since = {group: since + pause for group, since in inbox.since.items()}


def sent_by(fact: Fact, index: int) -> Sent:
    """Return the event with this index in a fact."""
    match fact:
        case StepSettled():
            return fact.report.events[index]
        case RunStarted():
            return Sent(START, fact.input)
        case RequestAnswered():
            return fact.sent
        case VisitFailed():
            data = {"step": fact.step, "visit": fact.visit, "error": error_value(fact.fault)}
            return Sent(fact.event, data)
        case _:
            raise AssertionError(fact)


def timers_of(graph: Graph, state: RunState, fact: Fact) -> Iterator[str]:
    """Return the timers that a fact may change: those of the groups that it adds to or takes from.

    To be called before the fact is folded.
    """
    match fact:
        case StepSettled(report=report):
            for sent in report.events:
                yield from _timers_for(graph, sent)
        case RequestAnswered():
            yield from _timers_for(graph, fact.sent)
        case VisitFailed(event=event) if event:
            yield from _timers_for(graph, sent_by(fact, 0))
        case EventsTaken(step=step):
            if graph.index[step] in graph.collects_with_timeout:
                yield from (timer_key(step, group) for group in fact.groups)
        case RunEnding() | RunReopened() | RunResumed():
            for s in [s for s in state.inboxes if s in graph.collects_with_timeout]:
                groups = dict.fromkeys([*state.inboxes[s].groups, *(group for at, _, group in state.undone if at == s)])
                yield from (timer_key(graph.name(s), group) for group in groups)
        case _:
            pass


def timers(graph: Graph, state: RunState) -> Iterator[str]:
    """Return the timers of all groups, with a time limit or not."""
    for s, inbox in state.inboxes.items():
        yield from (timer_key(graph.name(s), group) for group in inbox.groups)


def _timers_for(graph: Graph, sent: Sent) -> Iterator[str]:
    for s in graph.takers.get(sent.type, ()):
        collect = graph.step(s).collect
        if s in graph.collects_with_timeout and collect is not None:
            yield timer_key(graph.name(s), _group(sent, collect.by))


def timer_key(step: str, group: str) -> str:
    return f"{step}/{COLLECT}#{group}"


def group_of(key: str) -> tuple[str, str] | None:
    """Return the step and the group of a timer, or None if the timer belongs to something else."""
    where, _, group = key.partition("#")
    step, _, what = where.rpartition("/")
    return (step, group) if what == COLLECT else None


def runs_out(graph: Graph, state: RunState, key: str) -> Instant | None:
    """Return when the time limit of a group ends, or None if it has none."""
    step_and_group = group_of(key)
    assert step_and_group is not None
    s = graph.index[step_and_group[0]]
    since = state.inboxes[s].since.get(step_and_group[1]) if s in state.inboxes else None
    collect = graph.step(s).collect
    if since is None or collect is None or collect.timeout is None or state.life != RUNNING:
        return None
    return since + round(collect.timeout * SECOND)


def needed_soon(state: RunState) -> set[int]:
    """Return the facts with events that are in use or taken next; they are kept because loading them again is slow."""
    numbers = {seq for opened in state.open.values() for seq, _ in opened.events[:1]}
    for inbox in state.inboxes.values():
        if inbox.head < len(inbox.waiting):
            numbers.add(inbox.waiting[inbox.head][0])
    return numbers


def waiting(graph: Graph, state: RunState) -> Iterator[tuple[str, int]]:
    """Return the steps for which events wait, and how many."""
    for s, inbox in state.inboxes.items():
        count = len(inbox.waiting) - inbox.head + sum(map(len, inbox.groups.values()))
        if count:
            yield graph.name(s), count
