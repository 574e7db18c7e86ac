"""How the fold changes visits: how commands open and close, how a visit ends, and the result that it leaves."""

from collections.abc import Collection
from typing import Any, TypeGuard

from refold.core.commands import command_id, page_id
from refold.core.facts import StepFault
from refold.core.fold import fanout, routing
from refold.core.fold.routing import forget_arc_inputs
from refold.core.graph import Graph
from refold.core.outcomes import (
    AddTo,
    AppendTo,
    Awaited,
    DeleteKey,
    Fault,
    Instant,
    Outcome,
    Parked,
    PutIf,
    Report,
    SetKey,
    Succeeded,
    Suspended,
    Write,
    fault_of_outcome,
)
from refold.core.pipeline import digest, looks_sealed
from refold.core.state import (
    ASKED,
    BYPASSED,
    CANCELLED,
    COMPLETED,
    ENDING,
    FAILED,
    ISSUED,
    ITEM_RUNNING,
    PENDING,
    SKIPPED,
    FanOut,
    Latest,
    OpenCommand,
    RunState,
)

LAST_ERROR = 2_000  # characters of the message of a failed try that the next try can read


def enter(state: RunState, s: int) -> None:
    routing.enter(state, s)
    state.entered[s] = None


def skip(graph: Graph, state: RunState, s: int) -> None:
    routing.unready(state, s)
    if not state.steps[s].visits:  # else people still see how its last visit ended
        state.steps[s].last = SKIPPED
    routing.settle(graph, state, s, SKIPPED)


def clear_obligation(obligations: dict[Any, Any], key: Any) -> None:
    """Remove the key, and clear an empty dict, because iterating over a dict that shrank stays slow."""
    obligations.pop(key, None)
    if not obligations:
        obligations.clear()


def issue(state: RunState, s: int) -> None:
    """Mark the visit as issued: a worker, a child run or the engine has its work now."""
    step = state.steps[s]
    if step.life == PENDING:
        routing.enter(state, s, ISSUED)
    else:
        clear_obligation(state.entered, s)
        step.life = ISSUED


def close_command(state: RunState, command: str) -> OpenCommand:
    """Close a command, and stop everything that it waited for."""
    opened = state.open.pop(command)
    if opened.child:
        dismiss(state, command)
    if opened.signal:
        stop_waiting_at_all(state, opened, command)
    if state.polls:
        clear_obligation(state.polls, command)
    if opened.calls:
        for key, call in opened.calls.items():
            forget_call(state, f"{command}#{key}", call)
    if state.judge:
        clear_obligation(state.judge, command)
    return opened


def forget_call(state: RunState, waiter: str, call: Awaited) -> None:
    if call.signal:
        stop_waiting(state, call.signal, waiter)
    if call.child:
        dismiss(state, waiter)


def dismiss(state: RunState, owner: str) -> None:
    """Stop waiting for a child run. It becomes an orphan: the run still waits for the letter about its end."""
    child = state.children.pop(owner, "")
    if child:
        state.orphans[child] = None


def wait_for(state: RunState, signal: str, waiter: str) -> None:
    state.waiting.setdefault(signal, []).append(waiter)
    if state.signals.get(signal):
        state.deliverable[signal] = None


def stop_waiting(state: RunState, signal: str, waiter: str) -> None:
    waiters = state.waiting.get(signal, [])
    if waiter in waiters:
        waiters.remove(waiter)
    if not waiters:
        state.waiting.pop(signal, None)
        state.deliverable.pop(signal, None)


def stop_waiting_at_all(state: RunState, opened: OpenCommand, command: str) -> None:
    """Remove a command from the waiters of all of its signals."""
    for signal in (opened.signal, *opened.signals):
        stop_waiting(state, signal, command)
    opened.signal, opened.signals = "", ()


def report_plain(graph: Graph, state: RunState, command: str, report: Report) -> None:
    """Take the report about a try of a step without a loop. Success ends the visit; anything else must be judged."""
    opened = state.open[command]
    step = state.steps[opened.step]
    if report.usage:
        add_usage(state, report.usage)
        step.used = {unit: step.used.get(unit, 0) + report.usage.get(unit, 0) for unit in {**step.used, **report.usage}}
    outcome = report.outcome
    if type(outcome) is Succeeded:
        step.attempts += 1
        step.took = max(0, state.at - report.started_at) if report.started_at else 0
        step.result, step.blob, step.fault = outcome.result, outcome.blob, None
        if report.writes:
            apply_writes(state, report.writes)
        if opened.step in graph.polled_calls:
            opened.held, opened.report, state.polls[command] = True, outcome, state.seq
            return
        close_command(state, command)
        work_done(graph, state, opened.step)
    else:
        hold_for_judgement(state, command, outcome)


def report_item(graph: Graph, state: RunState, command: str, report: Report) -> None:
    opened = state.open[command]
    step = state.steps[opened.step]
    fan, item = step.fan, opened.item
    assert fan is not None and item is not None
    if report.usage:
        add_usage(state, report.usage)
    if type(report.outcome) is Succeeded:
        step.attempts += 1
        close_command(state, command)
        fanout.finish(fan, item, state.seq)
        if report.writes:
            _keep_writes(graph, state, opened.step, item, report.writes)
    else:
        fan.report_facts[item] = state.seq
        hold_for_judgement(state, command, report.outcome)


def _keep_writes(graph: Graph, state: RunState, s: int, item: int, writes: tuple[Write, ...]) -> None:
    """Apply the writes of an item: immediately in a sequential loop, else in item order when the visit ends."""
    fan, loop = state.steps[s].fan, graph.step(s).loop
    assert fan is not None and loop is not None
    if loop.sequential:
        apply_writes(state, writes)
    else:
        fan.writes[item] = writes


def hold_for_judgement(state: RunState, command: str, outcome: Outcome) -> None:
    opened = state.open[command]
    opened.held, opened.report, opened.parked_by = True, outcome, ""
    if not isinstance(outcome, (Parked, Suspended)):  # a parked or suspended try does not count
        state.steps[opened.step].attempts += 1
        fault = fault_of_outcome(outcome)
        opened.last_error = "" if fault is None else fault.message[:LAST_ERROR]
    if opened.signal:  # it was parked until this signal, and has reported before the signal came
        stop_waiting_at_all(state, opened, command)
    state.judge[command] = state.seq


def after_items(graph: Graph, state: RunState, s: int, at: int = 0) -> None:
    """End the visit if all items have ended, else note whether more can be started. The reports are in fact `at`."""
    fan = state.steps[s].fan
    assert fan is not None
    ending = stops(graph, state, s)
    if fanout.is_over(graph, s, fan, ending):
        state.filling.pop(s, None)
        for item in sorted(fan.writes):
            apply_writes(state, fan.writes[item])
        fan.writes = {}
        work_done(graph, state, s, at)
    elif not ending and fanout.has_work(graph, s, fan):
        state.filling[s] = None
    else:
        state.filling.pop(s, None)


def stops(graph: Graph, state: RunState, s: int) -> bool:
    """Whether a step must stop because the run is ending. An ending run continues only its current finalizer."""
    return state.life == ENDING and not (state.final and graph.index[state.final[0]] == s)


def work_done(graph: Graph, state: RunState, s: int, at: int = 0) -> None:
    """The work of a visit is done: complete it immediately if no arc has a condition, else leave it to the rules."""
    step = state.steps[s]
    step.done_at = at or state.seq
    arcs = graph.arcs_without_conditions[s]
    fan = _fan_of(graph, state, s) if step.fan is not None else None
    step.shown = fan
    loop = graph.step(s).loop
    if state.kept is not None and s not in graph.finalizers:
        complete(graph, state, s, COMPLETED, ())  # its arcs were chosen when it completed first
    elif arcs is None or (fan is not None and loop is not None and not fanout.is_well(loop, fan)):
        state.ended[s] = step.done_at
    else:
        complete(graph, state, s, COMPLETED, arcs)


def _fan_of(graph: Graph, state: RunState, s: int) -> FanOut | None:
    return state.steps[s].fan if graph.step(s).loop is not None else None


def complete(graph: Graph, state: RunState, s: int, life: str, taken: Collection[int]) -> None:
    step, latest = state.steps[s], state.latest
    step.last = life
    counts = s not in graph.finalizers or graph.name(s) == graph.plan.on_budget
    if life == COMPLETED and counts and state.kept is None and (latest is None or step.done_at >= latest.at):
        fan = _fan_of(graph, state, s) if step.fan is not None else None
        state.latest = Latest(step.done_at, s, step.result, step.blob, fan)
    if state.arc_inputs:
        forget_arc_inputs(graph, state, s)
    _close_visit(graph, state, s, life, taken)


def fail(graph: Graph, state: RunState, s: int, taken: Collection[int], fault: Fault) -> None:
    step = state.steps[s]
    step.last, step.fault = FAILED, fault
    if not taken:
        why = "finalizer failed" if s in graph.finalizers else "unhandled failure"
        state.failures.append(StepFault(graph.name(s), step.visits, why, fault))
    else:
        forget_arc_inputs(graph, state, s)
    _close_visit(graph, state, s, FAILED, taken)


def drop(graph: Graph, state: RunState, s: int) -> None:
    """Cancel a visit or a pending step. No arc is taken, and it does not count as a failure."""
    step = state.steps[s]
    for command in commands_of(graph, state, s):
        close_command(state, command)
    step.last = CANCELLED
    if state.life == ENDING and s not in graph.finalizers:
        state.cut[s] = None
    for obligations in (state.entered, state.ended, state.filling):
        clear_obligation(obligations, s)
    if step.life == PENDING:
        routing.unready(state, s)
        routing.settle(graph, state, s, CANCELLED)
    else:
        _close_visit(graph, state, s, CANCELLED, ())


def commands_of(graph: Graph, state: RunState, s: int) -> list[str]:
    """Return the open commands of the current visit of a step."""
    step = state.steps[s]
    name = graph.name(s)
    plain = command_id(name, step.visits)
    if plain in state.open:
        return [plain]
    fan = step.fan if step.life == ISSUED else None
    if fan is None:
        return []
    page = [page_id(name, step.visits, fan.pulls.page)] if fan.pulls is not None and fan.pulls.life == ASKED else []
    return page + [command_id(name, step.visits, item) for item, life in enumerate(fan.status) if life == ITEM_RUNNING]


def _close_visit(graph: Graph, state: RunState, s: int, life: str, taken: Collection[int]) -> None:
    state.visiting -= 1
    if state.kept is not None:
        state.steps[s].life = state.steps[s].last = COMPLETED  # as before its items were run again
        return
    if state.final and graph.index[state.final[0]] == s:
        state.final.pop(0)
    routing.settle(graph, state, s, life, taken)


def bypass(graph: Graph, state: RunState, s: int) -> None:
    routing.enter(state, s, BYPASSED)
    arcs = graph.arcs_without_conditions[s]
    if arcs is None:
        state.ended[s] = state.seq
    else:
        complete(graph, state, s, BYPASSED, arcs)


def add_usage(state: RunState, usage: dict[str, int | float]) -> None:
    for unit, amount in usage.items():
        state.usage[unit] = state.usage.get(unit, 0) + amount


def apply_writes(state: RunState, writes: tuple[Write, ...]) -> None:
    for write in writes:
        match write:
            case SetKey(key=key, value=value) | PutIf(key=key, value=value):
                put(state, key, value)
            case DeleteKey(key=key):
                state.ctx.pop(key, None)
                state.versions[key] = state.versions.get(key, 0) + 1
            case AddTo(key=key, amount=amount):
                current = state.ctx.get(key)
                put(state, key, current + amount if can_add(current) else amount)
            case AppendTo(key=key, value=value):
                extend(state, key, [value])


def can_add(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def put(state: RunState, key: str, value: Any) -> None:
    state.ctx[key] = value
    state.versions[key] = state.versions.get(key, 0) + 1


def extend(state: RunState, key: str, values: list[Any]) -> None:
    """Add elements to a list in the context; anything else under the key is replaced."""
    current = state.ctx.get(key)
    put(state, key, [*current, *values] if isinstance(current, list) else list(values))


def postpone(opened: OpenCommand, until: Instant) -> None:
    opened.held, opened.report, opened.reason, opened.not_before = False, None, "", until


def note_sealed(graph: Graph, state: RunState, s: int, outcome: Outcome) -> None:
    """Remember the digest of a sealed result, if the step is secret."""
    if s not in graph.secret or not isinstance(outcome, Succeeded):
        return
    if outcome.blob is not None:
        state.sealed.add(outcome.blob.hash)
    elif looks_sealed(outcome.result):
        state.sealed.add(digest(outcome.result))
