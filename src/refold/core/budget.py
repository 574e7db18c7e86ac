"""Budgets: how much of each unit a run may use up, with its children, before it is stopped from issuing more."""

from collections.abc import Mapping

from refold.core.decision import Decision
from refold.core.ending import divert, end_run
from refold.core.facts import BudgetExceeded, RunPaused, StepFault
from refold.core.outcomes import Fault
from refold.core.state import FAILED, RunState

PAUSES = "budget"  # who paused a run that is beyond its budget


def exceeded(state: RunState, raised: Mapping[str, int | float] | None = None) -> tuple[str, float, float] | None:
    """The first unit of which more is used up than the budget allows: unit, used, limit."""
    for unit, limit in {**state.budget, **(raised or {})}.items():
        if state.usage.get(unit, 0) > limit:
            return unit, state.usage[unit], limit
    return None


def told(unit: str, used: float, limit: float) -> str:
    return f"{used:g} {unit} are used up, and the budget is {limit:g}"


def watch_budget(d: Decision) -> None:
    """Before more is issued: a run beyond its budget is paused, fails, or goes to the step that is there for it."""
    over = exceeded(d.state)
    if over is None:
        return
    d.tell_moves()
    d.say(BudgetExceeded(*over))
    match d.graph.plan.on_budget:
        case "pause":
            d.say(RunPaused(PAUSES))
        case "fail":
            end_run(d, FAILED, StepFault("", 0, "budget", Fault("budget", told(*over), retryable=False)))
        case step:
            divert(d, step)
