"""Deciding may need values that are not in memory: they are loaded under the same lock."""

from refold.core import codec
from refold.core.commands import Command, Held
from refold.core.decide import decide
from refold.core.decision import Decision
from refold.core.emitted import needed_soon
from refold.core.expressions import Missing
from refold.core.facts import Fact
from refold.ports import StoreTurn


def decided(turn: StoreTurn, d: Decision, sent: dict[int, Fact]) -> dict[str, Command | Held | None]:
    """What the store must hold of the commands that were touched.

    `sent` are facts whose events a run of events was expected to need; it is brought up to date.
    """
    if not d.graph.by_events:
        return _decided(turn, d)
    d.loaded.facts.update(sent)
    commands = _decided(turn, d)
    soon = needed_soon(d.state)
    sent.clear()
    sent.update({number: fact for number, fact in d.loaded.facts.items() if number in soon})
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
