"""Deciding may need values that are not in memory: they are loaded under the same lock."""

from refold.core import codec
from refold.core.commands import Command, Held
from refold.core.decide import decide
from refold.core.decision import Decision
from refold.core.emitted import needed_soon
from refold.core.expressions import Missing
from refold.core.loaded import Loaded
from refold.core.loaded import needed_soon as items_needed_soon
from refold.ports import StoreTurn


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
