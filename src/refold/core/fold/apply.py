"""Facts to state: the fold. It issues nothing, evaluates nothing, and refuses only facts that cannot be true."""

from collections.abc import Callable, Iterable
from typing import Any

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
    Move,
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
    StepIssued,
    StepSettled,
    Took,
    VisitFailed,
)
from refold.core.fold import events, fanout, items, routing, visits, waits
from refold.core.fold import items as pages
from refold.core.fold.reopen import end_as_before, reopened
from refold.core.graph import Graph
from refold.core.outcomes import SECOND, Instant, Succeeded, fault_of_outcome
from refold.core.state import (
    BYPASSED,
    CANCELLED,
    COMPLETED,
    CONTINUED,
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
"""An entry of the log: number, time, fact."""

Life = dict[type, tuple[frozenset[str], tuple[str, ...]]]
"""Kind of fact -> the states in which it may happen, and the states that it may lead to, the usual one first."""

STEP_LIFE: Life = {
    Entered: (frozenset({PENDING}), (ENTERED,)),
    StepIssued: (
        frozenset({PENDING, ENTERED, ISSUED}),
        (ISSUED,),
    ),  # PENDING: it enters the step too; ISSUED: next try
    FanOutEntered: (frozenset({PENDING, ENTERED}), (ISSUED, COMPLETED)),  # COMPLETED: a list without items
    StepSettled: (frozenset({ISSUED}), (COMPLETED, ISSUED)),  # ISSUED: parked, suspended, or failed and not judged yet
    Took: (frozenset({ENTERED, ISSUED, BYPASSED}), (COMPLETED, FAILED, BYPASSED)),
    Bypassed: (frozenset({PENDING}), (BYPASSED,)),
    Skipped: (frozenset({PENDING}), (SKIPPED,)),
    Dropped: (frozenset({PENDING, ENTERED, ISSUED, BYPASSED}), (CANCELLED,)),
    PassBegan: (frozenset({COMPLETED, FAILED, SKIPPED, BYPASSED, CANCELLED}), (PENDING,)),
}

_ISSUABLE = STEP_LIFE[StepIssued][0]

RUN_LIFE: Life = {
    RunStarted: (frozenset({INITIAL}), (RUNNING,)),
    RunPaused: (frozenset({RUNNING, ENDING}), (PAUSED,)),
    RunResumed: (frozenset({PAUSED}), (RUNNING, ENDING)),
    RunEnding: (frozenset({RUNNING, PAUSED, ENDING}), (ENDING,)),  # PAUSED: a paused run is cancelled
    RunEnded: (frozenset({RUNNING, ENDING}), (COMPLETED, FAILED, CANCELLED, CONTINUED)),
    RunReopened: (
        frozenset({FAILED, CANCELLED, COMPLETED}),
        (RUNNING,),
    ),  # COMPLETED: to retry failed items
}


_UNDER_WAY = frozenset({RUNNING, ENDING})
REOPENED = RUN_LIFE[RunReopened][0]


def fold(graph: Graph, records: Iterable[Record], state: RunState) -> RunState:
    for seq, at, fact in records:
        if seq != state.seq + 1:
            raise Corrupt(f"fact {seq} follows fact {state.seq}")
        apply(graph, state, at, fact)
    return state


def apply(graph: Graph, state: RunState, at: Instant, fact: Fact) -> None:
    """Apply the next fact of the log to the state, in place."""
    if state.life not in _UNDER_WAY:
        _refuse_out_of_life(state, fact)
    state.seq += 1
    state.at = at
    _APPLY[type(fact)](graph, state, fact)


def _refuse_out_of_life(state: RunState, fact: Fact) -> None:
    is_reopened = isinstance(fact, RunReopened) and state.life in REOPENED
    if not is_reopened and not (state.life == INITIAL and isinstance(fact, RunStarted)):
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
    state.plan, state.name, state.key, state.labels = fact.plan, fact.name, fact.key, fact.labels
    state.folder, state.queueing = fact.folder, fact.queueing
    state.input = fact.input if graph.plan.computed else {**graph.plan.defaults, **fact.input}
    state.parent, state.depth, state.predecessor = fact.parent, fact.depth, fact.predecessor
    state.schedule, state.budgeted = fact.schedule, fact.budgeted
    for name, values in fact.signals.items():
        waits.keep_signals(state, name, values)
    state.budget = dict(graph.plan.budget)
    if graph.plan.timeout is not None:
        state.deadline = state.at + round(graph.plan.timeout * SECOND)
    (events if graph.by_events else routing).begin(graph, state)


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
        if graph.plan.steps[s].keeps_input:
            state.steps[s].kept_input = fact.input
        state.open[command] = OpenCommand(
            s, fact.visit, None, fact.attempt, fact.input, fact.not_before, fact.until, fact.signal, fact.child
        )
        if fact.share or fact.limit:
            state.open[command].share, state.open[command].limit = fact.share, fact.limit
        if fact.signal:
            visits.wait_for(state, fact.signal, command)
    if fact.child:
        state.children[command] = fact.child
    if s in graph.engine_steps:
        waits.begin(graph, state, command, fact)


def _try_again(state: RunState, opened: OpenCommand, command: str, fact: StepIssued) -> None:
    visits.clear_obligation(state.judge, command)
    visits.dismiss(state, command)  # the child of the last try, if it has not ended
    opened.attempt, opened.child = fact.attempt, fact.child
    visits.postpone(opened, fact.not_before)


def _step_settled(graph: Graph, state: RunState, fact: StepSettled) -> None:
    command = f"{fact.step}/{fact.visit}"
    if command not in state.open:
        raise Corrupt(f"{command} was settled but is not open")
    if graph.by_events:
        events.settled(graph, state, command, fact)
        return
    if graph.secret:
        visits.note_sealed(graph, state, graph.index[fact.step], fact.report.outcome)
    visits.report_plain(graph, state, command, fact.report)
    if type(fact.report.outcome) is not Succeeded:
        waits.put_aside(state, command, fact.report)


def _fan_out_entered(graph: Graph, state: RunState, fact: FanOutEntered) -> None:
    s = graph.index[fact.step]
    _may(FanOutEntered, state.steps[s].life, fact.step)
    visits.issue(state, s)
    old, loop = state.steps[s].fan, graph.step(s).loop
    if fact.redo and old is not None:
        state.steps[s].fan = fanout.reopen_fan(old, fact, state.at)
    else:
        state.steps[s].fan = fan = fanout.open_fan(fact, state.seq, state.at)
        if loop is not None and loop.after is not None:
            items.put_in_order(fan, loop, fact)
    visits.after_items(graph, state, s)


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
        polled = state.polls.get(command, 0)
        report = visits.close_command(state, command).report
        fault = fault or (fault_of_outcome(report) if report is not None else None)
        if fault is None:
            step.done_at = polled  # the condition of a repeated call holds
    visits.clear_obligation(state.ended, s)
    visits.clear_obligation(state.entered, s)
    for key, value in move.sets.items():
        visits.put(state, key, value)
    for key, values in move.appends.items():
        visits.extend(state, key, values)
    taken = {graph.out[s][position] for position in move.arcs}
    if fault is not None:
        visits.fail(graph, state, s, taken, fault)
    else:
        visits.complete(graph, state, s, BYPASSED if step.life == BYPASSED else COMPLETED, taken)
    for (
        position,
        inputs,
    ) in move.inputs.items():  # after the visit, as an arc may lead back to its own step
        state.arc_inputs[graph.out[s][position]] = inputs


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


def _signal_received(graph: Graph, state: RunState, fact: SignalReceived) -> None:
    waits.signal_received(graph, state, fact)
    events.note_answers(state, fact.name)


def _signal_taken(graph: Graph, state: RunState, fact: SignalTaken) -> None:
    waits.signal_taken(graph, state, fact)
    events.note_answers(state, fact.name)


def _run_paused(graph: Graph, state: RunState, fact: RunPaused) -> None:
    if not (state.paused and state.parent is not None and state.paused_by == state.parent.run):
        _may(RunPaused, life_of(state), "the run")
        state.paused_at = state.at
    state.paused, state.paused_by = True, fact.by  # a pause by an operator replaces a pause by the parent


def _run_resumed(graph: Graph, state: RunState, fact: RunResumed) -> None:
    _may(RunResumed, life_of(state), "the run")
    state.paused = False
    state.budget.update(fact.budget)
    if state.deadline is not None:
        state.deadline += state.at - state.paused_at
    if graph.collects_with_timeout:
        events.resumed(state, state.at - state.paused_at)


def _cancel_asked(graph: Graph, state: RunState, fact: CancelAsked) -> None:
    state.cancel = state.cancel_reason = fact.reason
    state.cancels += 1
    state.grace = fact.grace


def _run_timed_out(graph: Graph, state: RunState, fact: RunTimedOut) -> None:
    state.timed_out = state.exceeded = fact.after


def _run_ending(graph: Graph, state: RunState, fact: RunEnding) -> None:
    _may(RunEnding, life_of(state), "the run")
    state.life, state.outcome, state.error = ENDING, fact.outcome, fact.error
    state.cancel = state.timed_out = None
    state.final = list(fact.final)
    state.paused = False
    touched = dict(state.filling)
    state.filling = {}  # ready steps stay ready, in case the run is reopened; an ending run enters none
    for command in fact.withdrawn:
        opened = state.open[command]
        if graph.by_events:
            events.withdraw(graph, state, command)
            continue
        if opened.item is None and not opened.page:
            visits.drop(graph, state, opened.step)
            continue
        visits.close_command(state, command)
        items.withdraw(state, opened)
        touched[opened.step] = None
    for command in fact.cleaning:
        waits.begin_clean_up(state, command, fact.grace)
    for s in touched:
        visits.after_items(graph, state, s)


def _run_ended(graph: Graph, state: RunState, fact: RunEnded) -> None:
    _may(RunEnded, life_of(state), "the run")
    state.life = state.outcome = fact.status
    state.result, state.blob, state.error = fact.result, fact.blob, fact.error
    state.also_failed, state.ended_at, state.successor = fact.also_failed, state.at, fact.successor
    state.paused = False
    if state.kept is not None:
        end_as_before(state, state.kept)


def _run_reopened(graph: Graph, state: RunState, fact: RunReopened) -> None:
    _may(RunReopened, life_of(state), "the run")
    reopened(graph, state, fact)


def _run_migrated(graph: Graph, state: RunState, fact: RunMigrated) -> None:
    raise Corrupt(f"the run was migrated to {fact.plan}: later facts belong to another graph")


_MOVES: dict[type, Callable[[Graph, RunState, Any], None]] = for_every_move(
    "change of the state (core/fold/apply.py)",
    {
        Entered: _entered,
        Took: _took,
        Bypassed: _bypassed,
        Skipped: _skipped,
        Dropped: _dropped,
        PassBegan: _pass_began,
        LoopLeft: _loop_left,
    },
)

_APPLY: dict[type, Callable[[Graph, RunState, Any], None]] = for_every_fact(
    "change of the state (core/fold/apply.py)",
    {
        RunStarted: _run_started,
        StepIssued: _step_issued,
        StepSettled: _step_settled,
        FanOutEntered: _fan_out_entered,
        ItemsIssued: items.issued,
        ItemsRetried: items.retried,
        ItemsSettled: items.settled,
        ItemsGivenUp: items.given_up,
        ItemsCancelled: items.cancelled,
        ItemsReopened: items.reopened,
        PageAsked: pages.asked,
        PageCame: pages.came,
        PageTaken: pages.taken,
        PagesGivenUp: pages.source_given_up,
        EventsTaken: events.taken,
        VisitFailed: events.failed,
        RequestAnswered: events.answered,
        Routed: _routed,
        SignalReceived: _signal_received,
        SignalTaken: _signal_taken,
        CallSettled: waits.call_settled,
        CallsAwaited: waits.calls_awaited,
        BodyWoke: waits.body_woke,
        ChildEnded: waits.child_ended,
        ChildUsed: waits.child_used,
        ChildContinued: waits.child_continued,
        GateDecided: waits.gate_decided,
        RunPaused: _run_paused,
        RunResumed: _run_resumed,
        CancelAsked: _cancel_asked,
        RunTimedOut: _run_timed_out,
        RunEnding: _run_ending,
        RunEnded: _run_ended,
        RunReopened: _run_reopened,
        BudgetExceeded: lambda graph, state, fact: None,  # the facts that follow it change the state
        RunMigrated: _run_migrated,
    },
)
