"""How the fold changes commands that wait without a worker: for signals, times, calls, children, gates and polls."""

from typing import Any

from refold.core.commands import child_id
from refold.core.facts import (
    BodyWoke,
    CallsAwaited,
    CallSettled,
    ChildContinued,
    ChildEnded,
    ChildUsed,
    GateDecided,
    SignalReceived,
    SignalTaken,
    StepIssued,
)
from refold.core.fold import gates, visits
from refold.core.graph import Graph
from refold.core.outcomes import (
    REPLY,
    REQUEST_SIGNAL,
    RUN_CANCELLED,
    SECOND,
    WITHDRAWN,
    Awaited,
    Cancelled,
    Failed,
    Fault,
    Instant,
    Outcome,
    Parked,
    Report,
    Succeeded,
    Suspended,
    TimedOut,
)
from refold.core.plan import Call, Child, Gate, Quality, Step, WorkerWork
from refold.core.state import OpenCommand, RunState
from refold.core.times import stamp


def begin(graph: Graph, state: RunState, command: str, fact: StepIssued) -> None:
    """Begin, or begin again, a step that the engine ends itself or times."""
    opened = state.open[command]
    step = graph.step(opened.step)
    opened.assignee, opened.choices = fact.assignee, fact.choices
    if fact.until is not None:
        opened.until = fact.until
    if fact.signals:
        opened.signals = fact.signals
        for signal in fact.signals:
            visits.wait_for(state, signal, command)
    if step.poll is not None:
        _begin_poll(state, command, opened, step)
    elif fact.child or not isinstance(step.work, Child):
        opened.deadline = _deadline(state, step.timeout)
    else:
        opened.deadline = None  # its time starts when its child starts
    if isinstance(step.work, Quality):
        settle(graph, state, command, _judged(step.work, fact))


def _begin_poll(state: RunState, command: str, opened: OpenCommand, step: Step) -> None:
    """Set the deadline of a poll. It counts from the first issue; each try of a worker has a limit of its own."""
    assert step.poll is not None
    by_worker = isinstance(step.work, WorkerWork)
    if opened.deadline is None:
        limits = [step.poll.timeout, None if by_worker else step.timeout]
        opened.deadline = _deadline(state, min((limit for limit in limits if limit is not None), default=None))
    if by_worker:
        visits.clear_obligation(state.polls, command)
    else:
        state.polls[command] = state.seq


def _deadline(state: RunState, seconds: float | None) -> Instant | None:
    return None if seconds is None else state.at + round(seconds * SECOND)


def _judged(quality: Quality, fact: StepIssued) -> Outcome:
    if fact.input["passed"] or quality.on_fail == "continue":
        return Succeeded(fact.input)
    why = f"{fact.input['score']:g} is below {fact.input['threshold']:g}"
    why += f": {fact.input['why']}" if "why" in fact.input else ""
    return Failed(Fault("quality", why, retryable=False, data=fact.input))


def put_aside(state: RunState, command: str, report: Report) -> None:
    outcome = report.outcome
    if isinstance(outcome, Parked):
        park(state, command, outcome)
    elif isinstance(outcome, Suspended):
        suspend(state, command, outcome, report.worker)


def park(state: RunState, command: str, parked: Parked) -> None:
    """Park a command until a time or a signal. No try is used up."""
    opened = state.open[command]
    visits.postpone(opened, parked.until or 0)
    opened.progress, opened.reason = parked.progress, parked.reason
    state.judge.pop(command, None)
    if parked.signal:
        opened.held = True
        opened.signal = parked.signal
        visits.wait_for(state, parked.signal, command)
    if parked.until is not None:
        opened.held = False


def suspend(state: RunState, command: str, suspended: Suspended, worker: str) -> None:
    """Suspend a body until its durable calls have results; calls with a recorded result are not waited for."""
    opened = state.open[command]
    opened.report, opened.parks = None, suspended.known >= 0
    opened.parked_by = worker if opened.parks else ""
    opened.progress = opened.progress if suspended.progress is None else suspended.progress
    state.judge.pop(command, None)
    wait_for_calls(state, command, suspended.calls)
    has_news = 0 <= suspended.known < len(opened.recorded)  # a call was answered while the body was still running
    opened.held = bool(opened.calls) and not has_news
    opened.awake = has_news


def wait_for_calls(state: RunState, command: str, calls: tuple[Awaited, ...]) -> None:
    opened = state.open[command]
    for call in calls:
        if call.key not in opened.recorded and call.key not in opened.calls:
            opened.calls[call.key] = call
            if call.signal:
                visits.wait_for(state, call.signal, f"{command}#{call.key}")
            if call.child and not call.detached:
                owner = f"{command}#{call.key}"
                state.children[owner] = child_id(state.run, owner)


def calls_awaited(graph: Graph, state: RunState, fact: CallsAwaited) -> None:
    wait_for_calls(state, fact.command, fact.calls)
    state.open[fact.command].awake = False


def body_woke(graph: Graph, state: RunState, fact: BodyWoke) -> None:
    """Let workers claim the command again; its open calls stay open."""
    visits.postpone(state.open[fact.command], 0)


def begin_clean_up(state: RunState, command: str, grace: float) -> None:
    """Withdraw what the body of a cancelled run waits for, and let workers claim its command for the clean-up. A body
    that is running keeps its command; a record says when the cancellation came."""
    opened = state.open[command]
    if not opened.held:
        opened.recorded[RUN_CANCELLED] = Cancelled()
    for key in list(opened.calls):
        record(state, command, key, Cancelled(WITHDRAWN))
    visits.postpone(opened, 0)
    opened.grace, opened.deadline = grace, _deadline(state, grace)


def signal_received(graph: Graph, state: RunState, fact: SignalReceived) -> None:
    state.signals.setdefault(fact.name, []).append(fact.value)
    if fact.request:
        state.replies[fact.request] = 0
    if fact.name in state.waiting:
        state.deliverable[fact.name] = None


def signal_taken(graph: Graph, state: RunState, fact: SignalTaken) -> None:
    values = state.signals[fact.name]
    value = values.pop(0)
    if not values:
        del state.signals[fact.name]
        state.deliverable.pop(fact.name, None)
    visits.stop_waiting(state, fact.name, fact.command)
    command, _, key = fact.command.partition("#")
    if key:
        record(state, command, key, Succeeded(value))
        return
    opened = state.open[command]
    if isinstance(graph.step(opened.step).work, Call):
        opened.signal = ""
        opened.recorded[fact.name] = Succeeded(value)
        visits.postpone(opened, 0)
    else:
        visits.stop_waiting_at_all(state, opened, command)
        settle(graph, state, command, Succeeded({"by": "signal", "signal": fact.name, "value": value}))


def call_settled(graph: Graph, state: RunState, fact: CallSettled) -> None:
    taken = state.open[fact.command].recorded.pop(fact.key, None)
    if isinstance(taken, Succeeded) and isinstance(fact.outcome, Cancelled) and fact.outcome.signal:
        _give_back(state, fact.outcome.signal, taken.result)
    record(state, fact.command, fact.key, fact.outcome)
    if fact.key.startswith(REPLY):
        state.replies[fact.key.removeprefix(REPLY)] = state.seq


def _give_back(state: RunState, signal: str, value: Any) -> None:
    """A call was withdrawn before its body got the signal that it had taken: the next wait of this name takes it."""
    state.signals.setdefault(signal, []).insert(0, value)
    if signal in state.waiting:
        state.deliverable[signal] = None


def record(state: RunState, command: str, key: str, outcome: Outcome) -> None:
    """Record the result of a durable call. A body that waits may start over; another one finds it in its next try."""
    opened = state.open[command]
    call = opened.calls.pop(key, None)
    if call is not None:  # None: the body made the call itself
        visits.forget_call(state, f"{command}#{key}", call)
    opened.recorded[key] = outcome
    if opened.held and opened.report is None:
        visits.postpone(opened, 0)
        opened.awake = bool(opened.calls)


def await_child(graph: Graph, state: RunState, command: str) -> None:
    """Wait for the child run of this try of an item."""
    opened = state.open[command]
    opened.child = state.children[command] = child_id(state.run, command, opened.attempt)
    opened.deadline = _deadline(state, graph.step(opened.step).timeout)


def child_used(graph: Graph, state: RunState, fact: ChildUsed) -> None:
    visits.add_usage(state, _not_counted(state, fact.child, fact.usage))
    state.counted[fact.child] = fact.usage


def _not_counted(state: RunState, child: str, usage: dict[str, int | float]) -> dict[str, int | float]:
    counted = state.counted.pop(child, {}) if state.counted else {}
    return {unit: amount - counted.get(unit, 0) for unit, amount in usage.items()} if counted else usage


def child_ended(graph: Graph, state: RunState, fact: ChildEnded) -> None:
    visits.add_usage(state, _not_counted(state, fact.child, fact.usage))
    owner = f"{fact.command}#{fact.call}" if fact.call else fact.command
    if state.children.get(owner) != fact.child:
        state.orphans.pop(fact.child, None)
        return
    del state.children[owner]
    if fact.call:
        record(state, fact.command, fact.call, fact.outcome)
    else:
        settle(graph, state, fact.command, fact.outcome)


def child_continued(graph: Graph, state: RunState, fact: ChildContinued) -> None:
    """Wait for the successor in the place of the child. A child that is no longer waited for has an orphan for it."""
    visits.add_usage(state, _not_counted(state, fact.child, fact.usage))
    owner = f"{fact.command}#{fact.call}" if fact.call else fact.command
    if state.children.get(owner) == fact.child:
        state.children[owner] = fact.successor
        if not fact.call and fact.command in state.open:
            state.open[fact.command].child = fact.successor
    elif fact.child in state.orphans:
        del state.orphans[fact.child]
        state.orphans[fact.successor] = None


def keep_signals(state: RunState, name: str, values: list[Any]) -> None:
    """Keep signals that the predecessor of the run did not take, with the requests that they carry."""
    state.signals[name] = list(values)
    if name.startswith(REQUEST_SIGNAL):
        state.replies.update({value["id"]: 0 for value in values})


def gate_decided(graph: Graph, state: RunState, fact: GateDecided) -> None:
    """Add a vote at a gate, and settle the gate if the votes are a decision."""
    command = f"{fact.step}/{fact.visit}"
    opened, gate = state.open[command], graph.step(graph.index[fact.step]).work
    assert isinstance(gate, Gate)
    votes = opened.progress = [*(opened.progress or ()), gates.vote(fact, state.at)]
    if gates.is_decided(gate, votes):
        settle(graph, state, command, gates.gate_outcome(gate, votes))


def settle(graph: Graph, state: RunState, command: str, outcome: Outcome) -> None:
    """Settle a command of the engine, like a try that a worker reports."""
    opened = state.open[command]
    report = Report(opened.attempt, outcome, item=opened.item)
    if opened.item is None:
        visits.report_plain(graph, state, command, report)
    else:
        visits.report_item(graph, state, command, report)
        visits.after_items(graph, state, opened.step)


def due_at(opened: OpenCommand) -> Instant | None:
    """Return when a command ends by itself at the latest, or when its condition is looked at next."""
    return min((each for each in (opened.until, opened.deadline) if each is not None), default=None)


def outcome_of_timer(step: Step, opened: OpenCommand, now: Instant) -> Outcome | None:
    """Return the outcome of a command whose timer has fired; None if it is early, or only has to check a condition."""
    moment = due_at(opened)
    if moment is None or moment > now:
        return None
    if opened.grace is not None:
        return TimedOut(opened.grace)
    if moment == opened.deadline:
        return _timed_out(step)
    if step.poll is not None:
        return None
    if isinstance(step.work, Gate):
        return _undecided(step.work, opened, now)
    return Succeeded({"by": "timer", "value": None})


def _timed_out(step: Step) -> Outcome:
    """Return the outcome of a deadline. A child may be tried again; a wait, a gate or a poll may not."""
    limits = [step.timeout] if step.poll is None else [step.poll.timeout, step.timeout]
    seconds = next(each for each in limits if each is not None)
    if isinstance(step.work, Child):
        return TimedOut(seconds)
    return Failed(Fault("timeout", f"no end after {seconds:g} s", retryable=False))


def _undecided(gate: Gate, opened: OpenCommand, now: Instant) -> Outcome:
    if gate.on_timeout == "fail":
        return Failed(Fault("timeout", f"nobody decided within {gate.timeout:g} s", retryable=False))
    if gate.on_timeout == "refuse":
        why = f"nobody decided within {gate.timeout:g} s, which counts as a refusal"
        return Failed(Fault("rejected", why, retryable=False))
    votes = opened.progress or []
    value = {"by": "timeout", "option": None, "at": stamp(now), "feedback": None, "approvals": votes}
    return Succeeded(value if gate.choices is None else {**value, "choices": []})
