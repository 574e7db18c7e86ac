"""The check that every kind of fact is complete. It runs when the modules with the parts are imported.

A kind of fact is a class in the unions `Fact` or `Move` of `facts.py`. Each has an entry in these tables:

- `fold/apply.py`: how it changes the state,
- `read/fact_text.py`: its text for people,
- `decide/effects.py`: the commands that it touches, and what follows from it (facts only: the fold and the decision see
  a move as part of a `Routed` fact).

To add a kind of fact, add its class to the union and an entry to each table. A table that misses a kind raises
`IncompleteFactKind` at import, so a part cannot be forgotten.
"""

from typing import TypeVar

from msgspec import Struct

from refold.core import facts
from refold.core.facts import Fact, Move

Part = TypeVar("Part")


class IncompleteFactKind(TypeError):
    """A kind of fact has no entry in one of the tables; add it there."""


def for_every_fact(part: str, table: dict[type, Part]) -> dict[type, Part]:
    """Return the table, which has this part of every kind of fact; raise IncompleteFactKind if one is missing."""
    return check_table(part, table, Fact.__args__)


def for_every_move(part: str, table: dict[type, Part]) -> dict[type, Part]:
    """Return the table, which has this part of every kind of move; raise IncompleteFactKind if one is missing."""
    return check_table(part, table, Move.__args__)


def check_table(part: str, table: dict[type, Part], kinds: tuple[type, ...]) -> dict[type, Part]:
    for kind in kinds:
        if kind not in table:
            raise IncompleteFactKind(f"the fact kind {kind.__name__} has no {part}; add it to the table with this part")
    for kind in table:
        if kind not in kinds:
            raise IncompleteFactKind(f"{kind.__name__} has a {part}, but it is not in the unions of core/facts.py")
    return table


def check_unions(classes: list[type]) -> None:
    """Raise if a class with a tag is in none of the unions: it could be neither written nor read."""
    for kind in classes:
        if issubclass(kind, Struct) and kind.__struct_config__.tag and kind not in (*Fact.__args__, *Move.__args__):
            raise IncompleteFactKind(f"the fact kind {kind.__name__} is in none of the unions of core/facts.py")


check_unions([each for each in facts.__dict__.values() if isinstance(each, type) and each.__module__ == facts.__name__])
