"""The stage that a run of a pipeline has reached, from its plan and its state."""

from msgspec import Struct

from refold.core.plan import Call, Plan
from refold.core.state import COMPLETED, RunState


class StageProgress(Struct, frozen=True):
    """The stage that a run has reached: `number` of `of`, from 1 on; 0 and no name before the first."""

    number: int
    of: int
    name: str = ""
    done: int = 0  # stages that are over
    runs: tuple[str, ...] = ()  # child runs that are under way

    @property
    def percent(self) -> float:
        return 100 * self.done / self.of


def stages_of(plan: Plan) -> tuple[str, ...]:
    """Return the names of the stages; none if the plan is not a pipeline of workflows."""
    return tuple(step.name for step in plan.steps if isinstance(step.work, Call) and "stage" in step.work.settings)


def stage_progress(plan: Plan, state: RunState) -> StageProgress | None:
    names = stages_of(plan)
    if not names:
        return None
    reached = sum(step.visits > 0 for step in state.steps)
    done = sum(step.last == COMPLETED for step in state.steps)
    name = names[reached - 1] if reached else ""
    return StageProgress(reached, len(names), name, done, tuple(state.children.values()))
