"""State to facts: an ordered table of small rules, applied until none of them has anything to do."""

from collections.abc import Callable
from typing import Any

from refold.core.commands import child_id
from refold.core.decide.decision import Decision
from refold.core.decide.ending import end_if_asked, end_run, fail_completed, watch_budget, withdraw_waits
from refold.core.decide.events import catch_failures, deliver_answers, end_by_event, end_without_event, take_events
from refold.core.decide.issue import fill_windows, issue_entered, start_waiting_children, try_again
from refold.core.decide.routing import deliver_signals, enter_step, give_up_items, route
from refold.core.decide.waits import check_polls
from refold.core.expressions import CannotEvaluate
from refold.core.facts import ChildContinued, ChildUsed, RunEnded, StepFault
from refold.core.outcomes import Fault
from refold.core.plan import CONTINUE
from refold.core.read.loaded import event_at
from refold.core.read.template_scope import run_result
from refold.core.state import (
    COMPLETED,
    CONTINUED,
    ENDING,
    FAILED,
    INITIAL,
    PENDING,
    RUNNING,
    TERMINAL,
    KeptEnd,
    RunState,
)


def run_finalizers(d: Decision) -> None:
    """Enter the next finalizer once everything else has ended."""
    if d.state.life == ENDING and d.state.final and _quiet(d.state) and not d.state.orphans:
        enter_step(d, d.graph.index[d.state.final[0]])


def _quiet(state: RunState) -> bool:
    """Whether no visit is unfinished and no step can be entered; an ending run enters none."""
    if state.visiting or state.ended:
        return False
    return state.life == ENDING or not (state.ready or state.over or state.failures)


def finish_when_nothing_is_open(d: Decision) -> None:
    """End the run when nothing is running or waiting. A step that was never reached is a failure."""
    state, plan = d.state, d.graph.plan
    if not _quiet(state) or state.children or state.orphans or state.final:
        return
    if state.kept is not None:
        _end_as_before(d, state.kept)
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


def _end_as_before(d: Decision, kept: KeptEnd) -> None:
    """Items were run again alone: the run keeps its status and its result."""
    d.record_moves()
    d.record_fact(RunEnded(kept.outcome, kept.result, kept.blob, kept.error, kept.also_failed))


def _end(d: Decision, outcome: str) -> None:
    state, error = d.state, d.state.error
    other_failures = tuple(failure for failure in state.failures if failure != error)
    if outcome == COMPLETED and state.stopped is not None and event_at(d.loaded, state.stopped)["type"] == CONTINUE:
        d.record_moves()
        d.record_fact(RunEnded(CONTINUED, also_failed=other_failures, successor=child_id(state.run, CONTINUE)))
        return
    try:
        value = _result(d) if outcome == COMPLETED else None
    except CannotEvaluate as why:
        outcome, value = FAILED, None
        error = StepFault("", 0, "result", Fault(why.kind, f"the result has no value: {why}", retryable=False))
    result, blob = d.box(value)
    d.record_moves()
    d.record_fact(RunEnded(outcome, result, blob, error, other_failures))


def _result(d: Decision) -> Any:
    """Return what the plan says, the result of the stop event, or that of the step that completed last."""
    if d.state.stopped is None and d.graph.plan.result is not None:
        return d.evaluate.value(d.graph.plan.result, d.scope({}))
    if d.state.stopped is None:
        return run_result(d.graph, d.state, d.loaded)
    data = event_at(d.loaded, d.state.stopped)["data"]
    return data.get("result") if isinstance(data, dict) else data


def _spends_more(d: Decision, state: RunState) -> bool:
    """Whether more will be issued, or child runs that are not over have used something."""
    issues = bool(state.entered or state.judge or state.filling or state.taking or d.due)
    return issues or any(type(fact) in _USING for fact in d.facts)


_USING = frozenset({ChildUsed, ChildContinued})  # what child runs that are not over have used

Guard = Callable[[Decision, RunState], Any]
"""Whether a rule has anything to look at. Most turns have work for few rules, and asking is cheaper than calling."""

Rules = tuple[tuple[Guard, Callable[[Decision], None]], ...]
"""Rules in the order in which they are applied, each behind its guard. To add a rule, add a line."""

RULES: Rules = (
    (lambda d, state: state.life == ENDING, withdraw_waits),
    (lambda d, state: state.deliverable, deliver_signals),
    (lambda d, state: state.polls, check_polls),
    (lambda d, state: state.judge, give_up_items),
    (lambda d, state: state.ready or state.ended or state.judge or state.over or state.failures, route),
    (lambda d, state: state.budget and state.life == RUNNING and _spends_more(d, state), watch_budget),
    (lambda d, state: state.entered or d.moves, issue_entered),
    (lambda d, state: state.judge, try_again),
    (lambda d, state: d.due, start_waiting_children),
    (lambda d, state: state.filling, fill_windows),
    (lambda d, state: state.failures and state.life == ENDING, fail_completed),
    (lambda d, state: state.final, run_finalizers),
    (lambda d, state: not state.visiting, finish_when_nothing_is_open),
)

EVENT_RULES: Rules = (
    (lambda d, state: state.life == ENDING, withdraw_waits),
    (lambda d, state: state.deliverable, deliver_signals),
    (lambda d, state: state.answered and state.life == RUNNING, deliver_answers),
    (lambda d, state: state.judge, catch_failures),
    (lambda d, state: state.stopped is not None or state.untaken or state.failures, end_by_event),
    (lambda d, state: state.budget and state.life == RUNNING and _spends_more(d, state), watch_budget),
    (lambda d, state: state.judge, try_again),
    (lambda d, state: state.taking and state.life == RUNNING, take_events),
    (lambda d, state: not state.visiting, end_without_event),
    (lambda d, state: state.life == ENDING and not state.visiting, finish_when_nothing_is_open),
)


def decide(d: Decision) -> None:
    """Apply the rules until none of them has anything to do.

    May raise Missing: load what it names and call again; what has been decided until then is kept.
    """
    state, rules = d.state, EVENT_RULES if d.graph.by_events else RULES
    if state.cancel is not None or state.timed_out is not None:
        end_if_asked(d)
    while not _rests(state):
        before = len(d.facts), len(d.moves)
        for guard, rule in rules:
            if guard(d, state):
                rule(d)
                if state.paused:
                    break
        if (len(d.facts), len(d.moves)) == before:
            break
    d.record_moves()
    d.dismiss_orphans()
    d.report_usage()


def _rests(state: RunState) -> bool:
    return state.paused or state.life == INITIAL or state.life in TERMINAL
