"""Moves runs to other plans: who may be moved, and what stands in the way, said by the names of steps."""

from collections.abc import Sequence

from refold.core.decision import Decision
from refold.core.facts import RunMigrated
from refold.core.fold import Record, life_of
from refold.core.loops import Graph
from refold.core.migrating import Graphs, Refusal, migrate, refusals, replay
from refold.core.state import COMPLETED, RUNNING, TERMINAL, RunState
from refold.errors import CannotMigrate, Conflict, Corrupt, InvalidValue, NotFound, Unavailable
from refold.runtime.inputs import check_inputs
from refold.runtime.mail import Migrate
from refold.schemas import WORK_UNDER_LOCK

SHORT = 12  # characters by which a plan is named


def move(d: Decision, mail: Migrate) -> None:
    """Say that the run follows the new plan, or raise why it does not."""
    refuse(d.graph, mail.graph, d.state, mail.plan)
    migrate(d, mail.graph, RunMigrated(mail.plan, mail.by))


def refuse(old: Graph, new: Graph, state: RunState, plan: str) -> None:
    """Raises Conflict, or CannotMigrate with all that stands in the way."""
    if state.life in TERMINAL:
        hint = f"; `refold runs retry {state.name or state.run} --detach` reopens it" if state.life != COMPLETED else ""
        raise Conflict(f"run {state.run} is {state.life}, and only one that is under way is migrated{hint}")
    if state.life != RUNNING:
        raise Conflict(f"run {state.run} is {life_of(state)}, and needs no other plan for that")
    if state.plan == plan:
        raise Conflict(f"run {state.run} follows plan {plan[:SHORT]} already")
    found = refusals(old, new, state) or list(_inputs(new, state))
    if found:
        raise CannotMigrate(state.run, plan, [(each.step, each.why) for each in found])


def _inputs(new: Graph, state: RunState) -> Sequence[Refusal]:
    try:
        check_inputs(new.plan, {**new.plan.defaults, **state.input}, WORK_UNDER_LOCK)
    except InvalidValue as error:
        return (Refusal("", str(error)),)
    return ()


def replayed(graphs: Graphs, records: Sequence[Record], state: RunState) -> Graph:
    """A log that cannot be is named as such, whatever the fold stumbles over."""
    try:
        return replay(graphs, records, state)
    except (Corrupt, NotFound, Unavailable):
        raise
    except Exception as error:
        raise Corrupt(f"the log of run {state.run} cannot be folded past fact {state.seq}: {error!r}") from error
