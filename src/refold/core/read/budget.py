"""Whether a run has used more than its budget allows."""

from collections.abc import Mapping

from refold.core.state import RunState

PAUSED_BY_BUDGET = "budget"  # stands where facts name the person who paused a run


def over_budget(state: RunState, raised: Mapping[str, int | float] | None = None) -> tuple[str, float, float] | None:
    """Return the first unit of which the run used more than its budget allows: unit, used, limit."""
    for unit, limit in {**state.budget, **(raised or {})}.items():
        if state.usage.get(unit, 0) > limit:
            return unit, state.usage[unit], limit
    return None


def over_budget_text(unit: str, used: float, limit: float) -> str:
    return f"{used:g} {unit} are used up, and the budget is {limit:g}"
