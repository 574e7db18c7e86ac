"""Runs that are over and go on: who may be reopened, and the dead letters that a run leaves or takes back."""

from collections.abc import Mapping, Sequence

from msgspec import structs

from refold.core import codec
from refold.core.budget import PAUSES, exceeded, told
from refold.core.dead import DeadLetter, any_tolerated, dead_letters
from refold.core.decision import Decision
from refold.core.expressions import Missing
from refold.core.facts import RunReopened
from refold.core.reopening import reopening
from refold.core.state import CANCELLED, FAILED, TERMINAL, RunState
from refold.errors import Conflict, NotFound
from refold.ports import StoreTurn


def refuse_spent(state: RunState, budget: Mapping[str, int | float]) -> None:
    """A run that its budget paused would be paused again at once, unless it gets more."""
    over = exceeded(state, budget) if state.paused_by == PAUSES else None
    if over is not None:
        raise Conflict(f"{told(*over)}: raise it, as in `refold runs resume RUN --budget {over[0]}={2 * over[1]:g}`")


def reopen(d: Decision, step: str, by: str, budget: dict[str, int | float]) -> None:
    """Say that the run goes on, or raise why it does not."""
    state = d.state
    if state.life not in (FAILED, CANCELLED):
        raise Conflict(f"run {state.run} is {state.life}: only one that has failed or was cancelled is retried")
    if state.parent is not None:
        raise Conflict(f"run {state.run} was started by run {state.parent.run}: retry that one")
    if step:
        _check_step(d, step)
    d.say(structs.replace(reopening(d.graph, state, step, by), budget=budget))


def _check_step(d: Decision, step: str) -> None:
    if d.graph.by_events:
        raise Conflict("steps of this workflow follow events: it goes on with what was lost, and not from a step")
    s = d.graph.index.get(step)
    if s is None:
        raise NotFound(f"{d.graph.plan.name!r} has no step {step!r}; it has {', '.join(d.graph.index)}")
    if s in d.graph.finalizers:
        raise Conflict(f"{step!r} runs when the run ends, and will do so again; nothing follows from it")
    if not d.state.steps[s].visits:
        raise Conflict(f"the run has never come to step {step!r}")


def dead_of(turn: StoreTurn, d: Decision) -> Sequence[DeadLetter] | None:
    """All that the run has left now; None if that has not changed."""
    ended = d.state.life in TERMINAL and (d.state.failures or any_tolerated(d.graph, d.state))
    if not ended and not (d.facts and isinstance(d.facts[0], RunReopened)):
        return None
    return loaded_dead(turn, d)


def loaded_dead(turn: StoreTurn, d: Decision) -> Sequence[DeadLetter]:
    while True:
        try:
            return dead_letters(d.graph, d.state, d.loaded)
        except Missing as missing:
            for number, _, fact in turn.some_facts(d.state.run, missing.facts - d.loaded.facts.keys()):
                d.loaded.facts[number] = fact
            for hash in missing.blobs:
                d.loaded.blobs[hash] = codec.unbox(turn.blob(d.state.run, hash))
