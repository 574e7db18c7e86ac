"""Facts to state. The fold believes: it issues nothing, evaluates nothing and refuses only what cannot be."""

from collections.abc import Callable, Iterable
from typing import Any

from refold.core import fanout, routing, visits, waits
from refold.core.commands import command_id
from refold.core.facts import (
    SECOND,
    Bypassed,
    CallSettled,
    CancelAsked,
    ChildEnded,
    Dropped,
    Entered,
    Fact,
    FanOutEntered,
    GateDecided,
    Instant,
    ItemsGivenUp,
    ItemsIssued,
    ItemsRetried,
    ItemsSettled,
    LoopLeft,
    Move,
    Outcome,
    Parked,
    PassBegan,
    Routed,
    RunEnded,
    RunEnding,
    RunPaused,
    RunResumed,
    RunStarted,
    RunTimedOut,
    SignalReceived,
    SignalTaken,
    Skipped,
    StepIssued,
    StepSettled,
    Succeeded,
    Suspended,
    Took,
)
from refold.core.loops import Graph
from refold.core.plan import Child
from refold.core.retry import fault_of
from refold.core.state import (
    BYPASSED,
    CANCELLED,
    COMPLETED,
    ENDING,
    ENTERED,
    FAILED,
    INITIAL,
    ISSUED,
    PAUSED,
    PENDING,
    RUNNING,
    SKIPPED,
    OpenCommand,
    RunState,
)
from refold.errors import Corrupt

Record = tuple[int, Instant, Fact]
"""A fact in its place: number, time, fact."""

STEP_LIFE: dict[type, tuple[frozenset[str], str]] = {  # what happened: (may follow, leaves)
    Entered: (frozenset({PENDING}), ENTERED),
    StepIssued: (frozenset({PENDING, ENTERED, ISSUED}), ISSUED),  # PENDING: entered by this; ISSUED: the next try
    FanOutEntered: (frozenset({PENDING, ENTERED}), ISSUED),
    StepSettled: (frozenset({ISSUED}), COMPLETED),  # or FAILED, or ISSUED still: parked, suspended, tried again
    Took: (frozenset({ENTERED, ISSUED, BYPASSED}), COMPLETED),  # or FAILED
    Bypassed: (frozenset({PENDING}), BYPASSED),
    Skipped: (frozenset({PENDING}), SKIPPED),
    Dropped: (frozenset({PENDING, ENTERED, ISSUED, BYPASSED}), CANCELLED),
    PassBegan: (frozenset({COMPLETED, FAILED, SKIPPED, BYPASSED, CANCELLED}), PENDING),
}

_ISSUABLE = STEP_LIFE[StepIssued][0]

RUN_LIFE: dict[type, tuple[frozenset[str], str]] = {
    RunStarted: (frozenset({INITIAL}), RUNNING),
    RunPaused: (frozenset({RUNNING, ENDING}), PAUSED),
    RunResumed: (frozenset({PAUSED}), RUNNING),  # or ENDING
    RunEnding: (frozenset({RUNNING, PAUSED, ENDING}), ENDING),  # PAUSED: by a cancellation
    RunEnded: (frozenset({RUNNING, ENDING}), COMPLETED),  # or FAILED, or CANCELLED
}


_UNDER_WAY = frozenset({RUNNING, ENDING})


def fold(graph: Graph, records: Iterable[Record], state: RunState) -> RunState:
    for seq, at, fact in records:
        if seq != state.seq + 1:
            raise Corrupt(f"fact {seq} follows fact {state.seq}")
        apply(graph, state, at, fact)
    return state


def apply(graph: Graph, state: RunState, at: Instant, fact: Fact) -> None:
    """The next fact of the log; in place, for the fold owns the state."""
    if state.life not in _UNDER_WAY:
        _refuse_out_of_life(state, fact)
    state.seq += 1
    state.at = at
    _APPLY[type(fact)](graph, state, fact)


def _refuse_out_of_life(state: RunState, fact: Fact) -> None:
    if not (state.life == INITIAL and isinstance(fact, RunStarted)):
        where = "before the start" if state.life == INITIAL else "after the end"
        raise Corrupt(f"{type(fact).__name__} {where} of the run")


def life_of(state: RunState) -> str:
    return PAUSED if state.paused else state.life


def _may(kind: type, life: str, who: str) -> None:
    follows = (STEP_LIFE.get(kind) or RUN_LIFE[kind])[0]
    if life not in follows:
        raise Corrupt(f"{kind.__name__} of {who}, which is {life}")


def _run_started(graph: Graph, state: RunState, fact: RunStarted) -> None:
    _may(RunStarted, life_of(state), "the run")
    state.life, state.started_at = RUNNING, state.at
    state.plan, state.name, state.key = fact.plan, fact.name, fact.key
    state.input = {**graph.plan.defaults, **fact.input}
    state.parent, state.depth = fact.parent, fact.depth
    if graph.plan.timeout is not None:
        state.deadline = state.at + round(graph.plan.timeout * SECOND)
    routing.begin(graph, state)


def _step_issued(graph: Graph, state: RunState, fact: StepIssued) -> None:
    s = graph.index[fact.step]
    life = state.steps[s].life
    if life not in _ISSUABLE:
        _may(StepIssued, life, fact.step)
    command = f"{fact.step}/{fact.visit}"
    if life == ISSUED and command in state.open:
        _try_again(state, state.open[command], command, fact)
    else:
        visits.issue(state, s)
        state.open[command] = OpenCommand(
            s, fact.visit, None, fact.attempt, fact.input, fact.not_before, fact.until, fact.signal, fact.child
        )
        if fact.signal:
            visits.wait_for(state, fact.signal, command)
    if fact.child:
        state.children[command] = fact.child


def _try_again(state: RunState, opened: OpenCommand, command: str, fact: StepIssued) -> None:
    visits.discharge(state.judge, command)
    opened.attempt, opened.child = fact.attempt, fact.child
    visits.postpone(opened, fact.not_before)


def _step_settled(graph: Graph, state: RunState, fact: StepSettled) -> None:
    command = f"{fact.step}/{fact.visit}"
    if command not in state.open:
        raise Corrupt(f"{command} was settled but is not open")
    visits.report_plain(graph, state, command, fact.report)
    if type(fact.report.outcome) is not Succeeded:
        _put_aside(state, command, fact.report.outcome)


def _put_aside(state: RunState, command: str, outcome: Outcome) -> None:
    if isinstance(outcome, Parked):
        waits.park(state, command, outcome)
    elif isinstance(outcome, Suspended):
        waits.suspend(state, command, outcome)


def _fan_out_entered(graph: Graph, state: RunState, fact: FanOutEntered) -> None:
    s = graph.index[fact.step]
    _may(FanOutEntered, state.steps[s].life, fact.step)
    visits.issue(state, s)
    state.steps[s].fan = fanout.open_fan(fact)
    visits.after_items(graph, state, s)


def _items_issued(graph: Graph, state: RunState, fact: ItemsIssued) -> None:
    s = graph.index[fact.step]
    fan = state.steps[s].fan
    assert fan is not None
    if fact.first != fan.next:
        raise Corrupt(f"item {fact.first} of {fact.step} was issued after item {fan.next - 1}")
    fanout.issue(fan, fact.first, fact.count, fact.capture)
    for item in range(fact.first, fan.next):
        state.open[f"{fact.step}/{fact.visit}/{item}"] = OpenCommand(s, fact.visit, item)
    if isinstance(graph.step(s).work, Child):
        for item in range(fact.first, fan.next):
            waits.await_child(state, f"{fact.step}/{fact.visit}/{item}")
    if fanout.room(graph, s, fan) <= 0:
        state.filling.pop(s, None)


def _items_retried(graph: Graph, state: RunState, fact: ItemsRetried) -> None:
    for item, attempt, not_before in fact.items:
        command = command_id(fact.step, fact.visit, item)
        visits.discharge(state.judge, command)
        opened = state.open[command]
        opened.attempt = attempt
        visits.postpone(opened, not_before)
        if opened.child:
            waits.await_child(state, command)
        fan = state.steps[opened.step].fan
        assert fan is not None
        fan.retried[item] = attempt


def _items_settled(graph: Graph, state: RunState, fact: ItemsSettled) -> None:
    s = graph.index[fact.step]
    for report in fact.reports:
        command = f"{fact.step}/{fact.visit}/{report.item}"
        if command not in state.open:
            raise Corrupt(f"{command} was settled but is not open")
        state.children.pop(command, None)  # a child reports by letter; this one never started
        visits.report_item(graph, state, command, report)
        if type(report.outcome) is not Succeeded:
            _put_aside(state, command, report.outcome)
    visits.after_items(graph, state, s)


def _items_given_up(graph: Graph, state: RunState, fact: ItemsGivenUp) -> None:
    s = graph.index[fact.step]
    fan = state.steps[s].fan
    assert fan is not None
    for item in fact.items:
        visits.close_command(state, command_id(fact.step, fact.visit, item))
    fanout.give_up(fan, fact.items)
    visits.after_items(graph, state, s, max(fan.places[item] for item in fact.items))


def _routed(graph: Graph, state: RunState, fact: Routed) -> None:
    for move in fact.moves:
        apply_move(graph, state, move)


def apply_move(graph: Graph, state: RunState, move: Move) -> None:
    _MOVES[type(move)](graph, state, move)


def _entered(graph: Graph, state: RunState, move: Entered) -> None:
    s = graph.index[move.step]
    _may(Entered, state.steps[s].life, move.step)
    visits.enter(state, s)


def _bypassed(graph: Graph, state: RunState, move: Bypassed) -> None:
    s = graph.index[move.step]
    _may(Bypassed, state.steps[s].life, move.step)
    visits.bypass(graph, state, s)


def _took(graph: Graph, state: RunState, move: Took) -> None:
    s = graph.index[move.step]
    step = state.steps[s]
    _may(Took, step.life, move.step)
    fault = move.fault
    command = f"{move.step}/{move.visit}"
    if command in state.open:
        report = visits.close_command(state, command).report
        fault = fault or (fault_of(report) if report is not None else None)
    visits.discharge(state.ended, s)
    visits.discharge(state.entered, s)
    for key, value in move.sets.items():
        visits.put(state, key, value)
    taken = {graph.out[s][position] for position in move.arcs}
    if fault is not None:
        visits.fail(graph, state, s, taken, fault)
    else:
        visits.complete(graph, state, s, BYPASSED if step.life == BYPASSED else COMPLETED, taken)


def _skipped(graph: Graph, state: RunState, move: Skipped) -> None:
    for name in move.steps:
        s = graph.index[name]
        _may(Skipped, state.steps[s].life, name)
        visits.skip(graph, state, s)


def _dropped(graph: Graph, state: RunState, move: Dropped) -> None:
    for name in move.steps:
        s = graph.index[name]
        _may(Dropped, state.steps[s].life, name)
        visits.drop(graph, state, s)


def _pass_began(graph: Graph, state: RunState, move: PassBegan) -> None:
    routing.begin_pass(graph, state, _over(graph, state, move))


def _loop_left(graph: Graph, state: RunState, move: LoopLeft) -> None:
    routing.leave_loop(graph, state, _over(graph, state, move))


def _over(graph: Graph, state: RunState, move: PassBegan | LoopLeft) -> int:
    loop = graph.loop_by_head[move.head]
    if loop not in state.over:
        raise Corrupt(f"{type(move).__name__} of {move.head}, whose pass is not over")
    state.over.remove(loop)
    return loop


def _run_paused(graph: Graph, state: RunState, fact: RunPaused) -> None:
    _may(RunPaused, life_of(state), "the run")
    state.paused, state.paused_at, state.paused_by = True, state.at, fact.by


def _run_resumed(graph: Graph, state: RunState, fact: RunResumed) -> None:
    _may(RunResumed, life_of(state), "the run")
    state.paused = False
    if state.deadline is not None:
        state.deadline += state.at - state.paused_at


def _cancel_asked(graph: Graph, state: RunState, fact: CancelAsked) -> None:
    state.cancel = fact.reason


def _run_timed_out(graph: Graph, state: RunState, fact: RunTimedOut) -> None:
    state.timed_out = fact.after


def _run_ending(graph: Graph, state: RunState, fact: RunEnding) -> None:
    _may(RunEnding, life_of(state), "the run")
    state.life, state.outcome, state.error = ENDING, fact.outcome, fact.error
    state.cancel = state.timed_out = None
    state.final = list(fact.final)
    state.paused = False
    touched = dict(state.filling)
    state.ready, state.over, state.filling = [], [], {}
    for command in fact.withdrawn:
        opened = state.open[command]
        if opened.item is None:
            visits.drop(graph, state, opened.step)
            continue
        visits.close_command(state, command)
        fan = state.steps[opened.step].fan
        assert fan is not None
        fanout.stop(fan, opened.item)
        touched[opened.step] = None
    for s in touched:
        visits.after_items(graph, state, s)


def _run_ended(graph: Graph, state: RunState, fact: RunEnded) -> None:
    _may(RunEnded, life_of(state), "the run")
    state.life = state.outcome = fact.status
    state.result, state.blob, state.error = fact.result, fact.blob, fact.error
    state.also_failed, state.ended_at = fact.also_failed, state.at
    state.paused = False


_MOVES: dict[type, Callable[[Graph, RunState, Any], None]] = {
    Entered: _entered,
    Took: _took,
    Bypassed: _bypassed,
    Skipped: _skipped,
    Dropped: _dropped,
    PassBegan: _pass_began,
    LoopLeft: _loop_left,
}

_APPLY: dict[type, Callable[[Graph, RunState, Any], None]] = {
    RunStarted: _run_started,
    StepIssued: _step_issued,
    StepSettled: _step_settled,
    FanOutEntered: _fan_out_entered,
    ItemsIssued: _items_issued,
    ItemsRetried: _items_retried,
    ItemsSettled: _items_settled,
    ItemsGivenUp: _items_given_up,
    Routed: _routed,
    SignalReceived: waits.signal_received,
    SignalTaken: waits.signal_taken,
    CallSettled: waits.call_settled,
    ChildEnded: waits.child_ended,
    GateDecided: waits.gate_decided,
    RunPaused: _run_paused,
    RunResumed: _run_resumed,
    CancelAsked: _cancel_asked,
    RunTimedOut: _run_timed_out,
    RunEnding: _run_ending,
    RunEnded: _run_ended,
}
