"""Rules about the end of a run: which commands are cancelled, which finalizers run, what a failing one means."""

from refold.core.decide.decision import Decision
from refold.core.facts import BudgetExceeded, Dropped, RunEnding, RunPaused, StepFault
from refold.core.fold import visits
from refold.core.outcomes import Fault
from refold.core.read.budget import PAUSED_BY_BUDGET, over_budget, over_budget_text
from refold.core.state import CANCELLED, COMPLETED, ENDING, FAILED, RUNNING, OpenCommand

GIVEN_UP = 2  # cancellations after which finalizers do not run any more


def end_run(d: Decision, outcome: str, error: StepFault | None = None, children_finish: bool = True) -> None:
    """Begin to end the run: no step is entered any more, and commands that may not finish are cancelled."""
    state, plan = d.state, d.graph.plan
    final = _first_finalizers(d, outcome) if state.life == RUNNING else _remaining_finalizers(d, outcome)
    entered = tuple(d.graph.name(s) for s in state.entered)
    asked = state.cancel is not None or state.timed_out is not None
    cleaning = _cleaning(d, outcome)
    drains = outcome == FAILED and plan.on_failure == "drain" and not asked
    withdrawn = _withdrawn(d, drains, final, cleaning, children_finish)
    d.record_moves()
    d.record_fact(RunEnding(outcome, error, withdrawn, final, cleaning, state.grace if cleaning else 0.0))
    if entered:
        d.move(Dropped(entered))


def divert(d: Decision, step: str) -> None:
    """End the run with this step and the finalizers that always run. Running commands finish first, and child runs,
    which would use more, are cancelled."""
    entered = tuple(d.graph.name(s) for s in d.state.entered)
    final = (step, *d.graph.plan.always)
    withdrawn = _withdrawn(d, d.graph.plan.on_failure == "drain", final, children_finish=False)
    d.record_fact(RunEnding(COMPLETED, None, withdrawn, final))
    if entered:
        d.move(Dropped(entered))


def _first_finalizers(d: Decision, outcome: str) -> tuple[str, ...]:
    plan = d.graph.plan
    if d.state.kept is not None:
        return ()  # they ran when the run ended first
    last = (plan.final_step,) if plan.final_step and outcome == COMPLETED else ()
    return (*last, *(plan.on_fail if outcome == FAILED else ()), *plan.always)


def _remaining_finalizers(d: Decision, outcome: str) -> tuple[str, ...]:
    """Return the finalizers that an ending run keeps when it is cancelled. Cancelled again, it keeps none."""
    if d.state.cancels >= GIVEN_UP:
        return ()
    keeps = {*d.graph.plan.always, *(d.graph.plan.on_fail if outcome == FAILED else ())}
    return tuple(name for name in d.state.final if name in keeps)


def _cleaning(d: Decision, outcome: str) -> tuple[str, ...]:
    """Return the commands that a cancellation keeps open so that their bodies may clean up: those that wait, those that
    are running, and those that have recorded calls in a process that is gone. The body of an item does not clean up:
    the body that wants its result does."""
    state = d.state
    if outcome != CANCELLED or state.life != RUNNING or not d.graph.by_events:
        return ()
    running = d.claimed_now()
    return tuple(
        command
        for command, opened in state.open.items()
        if (opened.parks or _began(opened, command in running)) and command not in state.judge
    )


def _began(opened: OpenCommand, is_running: bool) -> bool:
    return opened.item is None and (is_running or (bool(opened.recorded) and not opened.held))


def _withdrawn(
    d: Decision, drains: bool, final: tuple[str, ...], cleaning: tuple[str, ...] = (), children_finish: bool = True
) -> tuple[str, ...]:
    """Return the commands to cancel: all that have not reported. A draining run keeps claimed commands, and children if
    they may finish."""
    spared = d.claimed_now() if drains else frozenset()
    kept = d.graph.index[final[0]] if final else -1
    return tuple(
        command
        for command, opened in d.state.open.items()
        if command not in d.state.judge
        and command not in cleaning
        and opened.step != kept
        and not (drains and opened.child and children_finish)
        and (command not in spared or opened.held)
    )


def withdraw_waits(d: Decision) -> None:
    """Cancel what was parked or suspended while an ending run drained, because it would wait."""
    state = d.state
    if state.life != ENDING:
        return
    waits = tuple(
        command
        for command, opened in state.open.items()
        if (opened.held or opened.not_before > d.now)
        and opened.grace is None
        and visits.stops(d.graph, state, opened.step)
        and not (command in state.judge or opened.child)
    )
    if waits:
        d.record_moves()
        d.record_fact(RunEnding(state.outcome, state.error, waits, tuple(state.final)))


def end_if_asked(d: Decision) -> None:
    """End the run if a cancellation was asked for, or its time is up."""
    state = d.state
    if state.cancel is not None:
        if state.cancels >= GIVEN_UP:
            d.hurry_orphans()
        end_run(d, FAILED if state.outcome == FAILED else CANCELLED, state.error)
    elif state.timed_out is not None and state.life == RUNNING:
        end_run(d, FAILED, StepFault("", 0, f"no end after {state.timed_out:g} s"))


def fail_completed(d: Decision) -> None:
    """Fail a completed run whose final step failed; the finalizers of a failed run are added."""
    state, plan = d.state, d.graph.plan
    broken = next((failure for failure in state.failures if failure.step in (plan.final_step, plan.on_budget)), None)
    if state.outcome == COMPLETED and broken is not None:
        d.record_moves()
        d.record_fact(RunEnding(FAILED, broken, (), (*plan.on_fail, *state.final)))


def watch_budget(d: Decision) -> None:
    """Before more is issued, pause or fail a run beyond its budget, or end it with the step for this case."""
    exceeded = over_budget(d.state)
    if exceeded is None:
        return
    d.record_moves()
    d.record_fact(BudgetExceeded(*exceeded))
    match d.graph.plan.on_budget:
        case "pause":
            d.record_fact(RunPaused(PAUSED_BY_BUDGET))
        case on_budget if on_budget == "fail" or d.state.kept is not None:
            fault = Fault("budget", over_budget_text(*exceeded), retryable=False)
            end_run(d, FAILED, StepFault("", 0, "budget", fault), children_finish=False)
        case step:
            divert(d, step)
