"""Loads values that a computation needs and that are not in memory, under the lock of the same turn."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from msgspec import structs

from refold.core.commands import Command, Held
from refold.core.decide.decision import Decision
from refold.core.decide.rules import decide
from refold.core.expressions import Missing
from refold.core.facts import RunReopened
from refold.core.fold.events import needed_soon
from refold.core.read.dead_letters import DeadLetter, any_tolerated, dead_letters
from refold.core.read.loaded import Loaded
from refold.core.read.loaded import needed_soon as items_needed_soon
from refold.core.state import TERMINAL, RunState
from refold.ports import Lease, Memory, StoreTurn
from refold.queries.reading import load_missing

T = TypeVar("T")


def with_loaded(
    open_turn: Callable[[], AbstractContextManager[StoreTurn]], run: str, loaded: Loaded, compute: Callable[[], T]
) -> T:
    """Return what `compute` returns. The facts and blobs that it misses are loaded, and it is called again."""
    while True:
        try:
            return compute()
        except Missing as missing:
            with open_turn() as turn:
                load_missing(turn, run, missing, loaded)


def decided(turn: StoreTurn, d: Decision, kept: Loaded) -> dict[str, Command | Held | None]:
    """Decide, and return what the store must hold of the commands that were touched.

    `kept` is what the run was expected to need again, events or the items of loops; it is brought up to date.
    """
    if kept.facts or kept.blobs:
        d.loaded.facts.update(kept.facts)
        d.loaded.blobs.update(kept.blobs)

    def compute() -> dict[str, Command | Held | None]:
        decide(d)
        return d.commands()

    commands = with_loaded(lambda: nullcontext(turn), d.state.run, d.loaded, compute)
    if d.graph.by_events:
        soon = needed_soon(d.state)
        kept.facts = {number: fact for number, fact in d.loaded.facts.items() if number in soon}
    elif d.loaded.facts or d.loaded.blobs:
        items = items_needed_soon(d.state, d.loaded)
        kept.facts, kept.blobs = items.facts, items.blobs
    return commands


def memory_of(state: RunState, command: str) -> Memory:
    """The maps are copied; their values are never changed in place."""
    opened = state.open[command]
    recorded = dict(opened.recorded)
    is_cancelled = opened.grace is not None
    return Memory(dict(state.ctx), dict(state.versions), recorded, frozenset(opened.calls), len(recorded), is_cancelled)


def with_memory(leases: Sequence[Lease], state_of: Callable[[str], RunState | None]) -> Sequence[Lease]:
    """Give leases the memory of their run if its state is loaded. Other bodies ask for it when they need it."""
    found = []
    for lease in leases:
        state = state_of(lease.run)
        found.append(lease if state is None else structs.replace(lease, memory=memory_of(state, lease.command.id)))
    return found


def dead_of(turn: StoreTurn, d: Decision) -> Sequence[DeadLetter] | None:
    """Return all dead letters of the run, or None if they have not changed."""
    ended = d.state.life in TERMINAL and (d.state.failures or (d.graph.list_loops and any_tolerated(d.graph, d.state)))
    if not ended and not (d.facts and isinstance(d.facts[0], RunReopened)):
        return None
    return loaded_dead(turn, d)


def loaded_dead(turn: StoreTurn, d: Decision) -> Sequence[DeadLetter]:
    """Return all dead letters of the run; what they quote is loaded."""
    return with_loaded(
        lambda: nullcontext(turn), d.state.run, d.loaded, lambda: dead_letters(d.graph, d.state, d.loaded)
    )
