"""State to facts and orders: an ordered list of small rules, applied until nothing is open."""

from refold.core.budget import watch_budget
from refold.core.decision import Decision
from refold.core.ending import end_if_asked, end_run, fail_completed, withdraw_waits
from refold.core.facts import RunEnded, StepFault
from refold.core.issuing import fill_windows, issue_entered, start_waiting_children, try_again
from refold.core.routing_rules import deliver_signals, enter_step, give_up_items, route
from refold.core.state import COMPLETED, ENDING, FAILED, INITIAL, PENDING, RUNNING, TERMINAL, RunState
from refold.core.view import latest_result
from refold.core.waiting import check_polls


def run_finalizers(d: Decision) -> None:
    """One after the other, once everything else is over."""
    if d.state.life == ENDING and d.state.final and _quiet(d.state) and not d.state.orphans:
        enter_step(d, d.graph.index[d.state.final[0]])


def _quiet(state: RunState) -> bool:
    """No visit is open and no step can be entered; an ending run enters none anyway."""
    if state.visiting or state.ended:
        return False
    return state.life == ENDING or not (state.ready or state.over or state.failures)


def finish_when_nothing_is_open(d: Decision) -> None:
    state, plan = d.state, d.graph.plan
    if not _quiet(state) or state.children or state.orphans or state.final:
        return
    if state.life == ENDING:
        _end(d, state.outcome)
        return
    stuck = next((s for s, step in enumerate(state.steps) if step.life == PENDING and d.graph.reached[s]), None)
    if stuck is not None:
        end_run(d, FAILED, StepFault(d.graph.name(stuck), state.steps[stuck].visits, "unreached"))
    elif plan.final_step or plan.always:
        end_run(d, COMPLETED)
    else:
        _end(d, COMPLETED)


def _end(d: Decision, outcome: str) -> None:
    state, error = d.state, d.state.error
    also = tuple(each for each in state.failures if each != error)
    value = latest_result(state, d.loaded) if outcome == COMPLETED else None
    result, blob = d.box(value)
    d.tell_moves()
    d.say(RunEnded(outcome, result, blob, error, also))


def _follow_up(d: Decision, state: RunState) -> None:
    """The rules about what has happened, in their order, each with what it is owed for."""
    if state.life == ENDING:
        withdraw_waits(d)
    if state.deliverable:
        deliver_signals(d)
    if state.polls:
        check_polls(d)
    if state.judge:
        give_up_items(d)
    if state.ready or state.ended or state.judge or state.over or state.failures:
        route(d)


def _hand_out(d: Decision, state: RunState) -> None:
    """The rules about what comes next, in their order, each with what it is owed for."""
    if state.budget and state.life == RUNNING and (state.entered or state.judge or state.filling or d.due):
        watch_budget(d)
        if state.paused:
            return
    if state.entered or d.moves:
        issue_entered(d)
    if state.judge:
        try_again(d)
    if d.due:
        start_waiting_children(d)
    if state.filling:
        fill_windows(d)


def _come_to_an_end(d: Decision, state: RunState) -> None:
    """The rules about the end, in their order, each with what it is owed for."""
    if state.failures and state.life == ENDING:
        fail_completed(d)
    if state.final:
        run_finalizers(d)
    if not state.visiting:
        finish_when_nothing_is_open(d)


def decide(d: Decision) -> None:
    """Until nothing is open. May raise Missing: load what it names and call again, nothing is lost."""
    state = d.state
    end_if_asked(d)
    while not _rests(state):
        before = len(d.facts), len(d.moves)
        _follow_up(d, state)
        _hand_out(d, state)
        _come_to_an_end(d, state)
        if (len(d.facts), len(d.moves)) == before:
            break
    d.tell_moves()
    d.dismiss_orphans()


def _rests(state: RunState) -> bool:
    return state.paused or state.life == INITIAL or state.life in TERMINAL
