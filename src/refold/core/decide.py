"""State to facts and orders: an ordered list of small rules, applied until nothing is open."""

from collections.abc import Callable

from refold.core.decision import Decision
from refold.core.facts import RunEnded, StepFault
from refold.core.issuing import fill_windows, issue_entered, try_again
from refold.core.routing_rules import deliver_signals, end_run, enter_step, give_up_items, route, withdraw_waits
from refold.core.state import CANCELLED, COMPLETED, ENDING, FAILED, INITIAL, PENDING, RUNNING, TERMINAL, RunState
from refold.core.view import latest_result

Rule = Callable[[Decision], None]
Owed = Callable[[Decision], object]
"""Whether a rule may have something to do; cheap to ask."""


def end_if_asked(d: Decision) -> None:
    """Cancelled from outside, or out of time; an ending run gives up its finalizers too."""
    if d.state.cancel is not None:
        end_run(d, FAILED if d.state.outcome == FAILED else CANCELLED, d.state.error)
    elif d.state.timed_out is not None and d.state.life == RUNNING:
        end_run(d, FAILED, StepFault("", 0, f"no end after {d.state.timed_out:g} s"))


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
    """A failing final step fails a completed run; other failing finalizers are only listed."""
    state, error = d.state, d.state.error
    broken = next((each for each in state.failures if each.step == d.graph.plan.final_step), None)
    if outcome == COMPLETED and broken is not None:
        outcome, error = FAILED, broken
    also = tuple(each for each in state.failures if each != error)
    value = latest_result(state, d.loaded) if outcome == COMPLETED else None
    result, blob = d.box(value)
    d.tell_moves()
    d.say(RunEnded(outcome, result, blob, error, also))


RULES: tuple[tuple[Owed, Rule], ...] = (
    (lambda d: d.state.life == ENDING, withdraw_waits),
    (lambda d: d.state.deliverable, deliver_signals),
    (lambda d: d.state.judge, give_up_items),
    (lambda d: d.state.ready or d.state.ended or d.state.judge or d.state.over or d.state.failures, route),
    (lambda d: d.state.entered or d.moves, issue_entered),
    (lambda d: d.state.judge, try_again),
    (lambda d: d.state.filling, fill_windows),
    (lambda d: d.state.final, run_finalizers),
    (lambda d: not d.state.visiting, finish_when_nothing_is_open),
)


def decide(d: Decision) -> None:
    """Until nothing is open. May raise Missing: load what it names and call again, nothing is lost."""
    end_if_asked(d)
    while not _rests(d.state):
        before = len(d.facts), len(d.moves)
        for owed, rule in RULES:
            if owed(d):
                rule(d)
                if _rests(d.state):
                    break
        if (len(d.facts), len(d.moves)) == before:
            break
    d.tell_moves()
    d.dismiss_orphans()


def _rests(state: RunState) -> bool:
    return state.paused or state.life == INITIAL or state.life in TERMINAL
