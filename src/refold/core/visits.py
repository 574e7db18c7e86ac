"""The life of a visit: how commands open and close, how it ends, what it leaves behind."""

from heapq import heapify, heappop
from typing import Any

from refold.core import fanout, routing
from refold.core.commands import command_id
from refold.core.facts import (
    AddTo,
    AppendTo,
    DeleteKey,
    Fault,
    Instant,
    Outcome,
    PutIf,
    Report,
    SetKey,
    StepFault,
    Succeeded,
    Write,
)
from refold.core.loops import Graph
from refold.core.state import (
    BYPASSED,
    CANCELLED,
    COMPLETED,
    ENDING,
    FAILED,
    ISSUED,
    OPEN,
    PENDING,
    SKIPPED,
    Latest,
    OpenCommand,
    RunState,
)


def enter(graph: Graph, state: RunState, s: int) -> None:
    _unready(state, s)
    routing.enter(graph, state, s)
    state.entered[s] = None


def skip(graph: Graph, state: RunState, s: int) -> None:
    _unready(state, s)
    state.steps[s].last = SKIPPED
    routing.settle(graph, state, s, SKIPPED)


def _unready(state: RunState, s: int) -> None:
    ready = state.ready
    if ready and ready[0] >> 1 == s:
        heappop(ready)
    elif state.steps[s].due:
        state.ready = [entry for entry in ready if entry >> 1 != s]
        heapify(state.ready)


def issue(graph: Graph, state: RunState, s: int) -> None:
    """The visit is in somebody's hands from here on."""
    if state.steps[s].life == PENDING:
        enter(graph, state, s)
    state.entered.pop(s, None)
    state.steps[s].life = ISSUED


def open_command(state: RunState, command: str, opened: OpenCommand) -> None:
    state.open[command] = opened
    if opened.signal:
        wait_for(state, opened.signal, command)


def close_command(state: RunState, command: str) -> OpenCommand:
    opened = state.open.pop(command)
    if opened.signal:
        stop_waiting(state, opened.signal, command)
    for key, call in opened.calls.items():
        if call.signal:
            stop_waiting(state, call.signal, f"{command}#{key}")
    state.judge.pop(command, None)
    return opened


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


def report_plain(graph: Graph, state: RunState, command: str, report: Report) -> None:
    """A try of a plain step ended; success ends the visit, anything else wants judging."""
    opened = state.open[command]
    step = state.steps[opened.step]
    step.attempts += 1
    add_usage(state, report.usage)
    if isinstance(report.outcome, Succeeded):
        close_command(state, command)
        step.result, step.blob, step.fault = report.outcome.result, report.outcome.blob, None
        apply_writes(state, report.writes)
        over(graph, state, opened.step)
    else:
        hold(state, command, report.outcome)


def report_item(graph: Graph, state: RunState, command: str, report: Report) -> None:
    opened = state.open[command]
    step = state.steps[opened.step]
    fan, item, loop = step.fan, opened.item, graph.step(opened.step).loop
    assert fan is not None and item is not None and loop is not None
    step.attempts += 1
    add_usage(state, report.usage)
    if isinstance(report.outcome, Succeeded):
        close_command(state, command)
        fanout.finish(fan, item, state.seq, () if loop.sequential else report.writes)
        if loop.sequential:
            apply_writes(state, report.writes)
    else:
        fan.places[item] = state.seq
        hold(state, command, report.outcome)


def hold(state: RunState, command: str, outcome: Outcome) -> None:
    opened = state.open[command]
    opened.held, opened.report = True, outcome
    state.judge[command] = state.seq


def after_items(graph: Graph, state: RunState, s: int, at: int = 0) -> None:
    """Items moved, by the reports in fact `at`: the visit may be over, or its window may have room."""
    fan = state.steps[s].fan
    assert fan is not None
    if fanout.is_over(fan, state.life == ENDING):
        state.filling.pop(s, None)
        for item in sorted(fan.writes):
            apply_writes(state, fan.writes[item])
        fan.writes = {}
        over(graph, state, s, at)
    elif state.life != ENDING and fanout.room(graph, s, fan) > 0:
        state.filling[s] = None


def over(graph: Graph, state: RunState, s: int, at: int = 0) -> None:
    """The work of a visit is done: settle at once if no arc has to be evaluated."""
    step = state.steps[s]
    step.done_at = at or state.seq
    plainly = graph.plainly[s]
    fan = step.fan if graph.step(s).loop is not None else None
    if plainly is None or (fan is not None and fan.done < fan.count):
        state.ended[s] = step.done_at
    else:
        complete(graph, state, s, COMPLETED, plainly)


def complete(graph: Graph, state: RunState, s: int, life: str, taken: tuple[int, ...]) -> None:
    step = state.steps[s]
    step.last = life
    if life == COMPLETED and s not in graph.finalizers:
        _note_latest(graph, state, s)
    _close_visit(graph, state, s, life, taken)


def _note_latest(graph: Graph, state: RunState, s: int) -> None:
    step = state.steps[s]
    if state.latest is None or step.done_at >= state.latest.at:
        fan = step.fan if graph.step(s).loop is not None else None
        state.latest = Latest(step.done_at, s, step.result, step.blob, fan)


def fail(graph: Graph, state: RunState, s: int, taken: tuple[int, ...], fault: Fault) -> None:
    step = state.steps[s]
    step.last, step.fault = FAILED, fault
    if not taken:
        why = "finalizer failed" if s in graph.finalizers else "unhandled failure"
        state.failures.append(StepFault(graph.name(s), step.visits, why, fault))
    _close_visit(graph, state, s, FAILED, taken)


def drop(graph: Graph, state: RunState, s: int) -> None:
    """Stopped or withdrawn: nothing is taken, and it is no failure."""
    step = state.steps[s]
    for command in commands_of(graph, state, s):
        release(state, command)
    step.last = CANCELLED
    for obligations in (state.entered, state.ended, state.filling):
        obligations.pop(s, None)
    if step.due:
        _unready(state, s)
    if step.life == PENDING:
        routing.settle(graph, state, s, CANCELLED)
    else:
        _close_visit(graph, state, s, CANCELLED, ())


def release(state: RunState, command: str) -> None:
    """Let go of a command; a child run it started must still tell that it ended."""
    opened = close_command(state, command)
    for owner in (command, *(f"{command}#{key}" for key in opened.calls)):
        child = state.children.pop(owner, "")
        if child:
            state.orphans[child] = None


def commands_of(graph: Graph, state: RunState, s: int) -> list[str]:
    """The open commands of a step's current visit."""
    step = state.steps[s]
    name = graph.name(s)
    plain = command_id(name, step.visits)
    if plain in state.open:
        return [plain]
    fan = step.fan if step.life == ISSUED else None
    if fan is None:
        return []
    return [command_id(name, step.visits, item) for item in range(fan.next) if fan.status[item] == OPEN]


def _close_visit(graph: Graph, state: RunState, s: int, life: str, taken: tuple[int, ...]) -> None:
    state.visiting -= 1
    if s in graph.finalizers and state.final and graph.index[state.final[0]] == s:
        state.final.pop(0)
    routing.settle(graph, state, s, life, taken)


def bypass(graph: Graph, state: RunState, s: int) -> None:
    enter(graph, state, s)
    del state.entered[s]
    step = state.steps[s]
    step.life = BYPASSED
    plainly = graph.plainly[s]
    if plainly is None:
        state.ended[s] = state.seq
    else:
        complete(graph, state, s, BYPASSED, plainly)


def add_usage(state: RunState, usage: dict[str, float]) -> None:
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
                put(state, key, state.ctx.get(key, 0) + amount)
            case AppendTo(key=key, value=value):
                put(state, key, [*state.ctx.get(key, []), value])


def put(state: RunState, key: str, value: Any) -> None:
    state.ctx[key] = value
    state.versions[key] = state.versions.get(key, 0) + 1


def postpone(opened: OpenCommand, until: Instant) -> None:
    opened.held, opened.report, opened.not_before = False, None, until
