"""Deciding may need values that are not in memory: they are loaded under the same lock."""

from collections.abc import Callable, Sequence

from msgspec import structs

from refold.core import codec
from refold.core.commands import Command, Held
from refold.core.decide.decision import Decision
from refold.core.decide.rules import decide
from refold.core.expressions import Missing
from refold.core.fold.events import needed_soon
from refold.core.read.loaded import Loaded
from refold.core.read.loaded import needed_soon as items_needed_soon
from refold.core.state import RunState
from refold.ports import Lease, Memory, StoreTurn


def decided(turn: StoreTurn, d: Decision, kept: Loaded) -> dict[str, Command | Held | None]:
    """What the store must hold of the commands that were touched.

    `kept` is what the run was expected to need again, events or the items of loops; it is brought up to date.
    """
    if kept.facts or kept.blobs:
        d.loaded.facts.update(kept.facts)
        d.loaded.blobs.update(kept.blobs)
    commands = _decided(turn, d)
    if d.graph.by_events:
        soon = needed_soon(d.state)
        kept.facts = {number: fact for number, fact in d.loaded.facts.items() if number in soon}
    elif d.loaded.facts or d.loaded.blobs:
        items = items_needed_soon(d.state, d.loaded)
        kept.facts, kept.blobs = items.facts, items.blobs
    return commands


def _decided(turn: StoreTurn, d: Decision) -> dict[str, Command | Held | None]:
    while True:
        try:
            decide(d)
            return d.commands()
        except Missing as missing:
            run = d.state.run
            for number, _, fact in turn.some_facts(run, missing.facts - d.loaded.facts.keys()):
                d.loaded.facts[number] = fact
            for hash in missing.blobs:
                d.loaded.blobs[hash] = codec.unbox(turn.blob(run, hash))


def memory_of(state: RunState, command: str) -> Memory:
    """Values themselves are never changed in place."""
    opened = state.open[command]
    return Memory(dict(state.ctx), dict(state.versions), dict(opened.recorded), frozenset(opened.calls))


def with_memory(leases: Sequence[Lease], state_of: Callable[[str], RunState | None]) -> Sequence[Lease]:
    """Those of runs whose state is at hand bring it along; the others ask for it when they need it."""
    found = []
    for lease in leases:
        state = state_of(lease.run)
        found.append(lease if state is None else structs.replace(lease, memory=memory_of(state, lease.command.id)))
    return found
