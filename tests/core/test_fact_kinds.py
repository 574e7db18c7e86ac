"""A kind of fact that misses one of its parts cannot be imported."""

import subprocess
import sys

import pytest
from msgspec import Struct

from refold.core import fact_kinds
from refold.core.decide.effects import EFFECTS
from refold.core.facts import Fact, Move, RunEnded
from refold.core.fold import apply
from refold.core.read import fact_text

FORGOTTEN = """
from msgspec import Struct
from refold.core import facts

class Forgotten(Struct, frozen=True, tag="forgotten"):
    pass

facts.Fact = facts.Fact | Forgotten
import {module}
"""


class Stray(Struct, frozen=True, tag="stray"):
    pass


@pytest.mark.parametrize(
    ("module", "part"),
    [
        ("refold.core.fold.apply", "change of the state (core/fold/apply.py)"),
        ("refold.core.read.fact_text", "text for people (core/read/fact_text.py)"),
        ("refold.core.decide.effects", "effects (core/decide/effects.py)"),
    ],
)
def test_a_fact_without_one_of_its_parts_fails_at_import(module: str, part: str) -> None:
    done = subprocess.run([sys.executable, "-c", FORGOTTEN.format(module=module)], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"IncompleteFactKind: the fact kind Forgotten has no {part}" in done.stderr


def test_a_fact_that_is_in_no_union_fails_at_import() -> None:
    with pytest.raises(fact_kinds.IncompleteFactKind, match="Stray is in none of the unions"):
        fact_kinds.check_unions([RunEnded, Stray])


def test_an_entry_for_what_is_no_fact_is_refused() -> None:
    with pytest.raises(fact_kinds.IncompleteFactKind, match="Stray has a text, but it is not in the unions"):
        fact_kinds.check_table("text", {RunEnded: 1, Stray: 2}, (RunEnded,))


def test_every_table_has_every_kind() -> None:
    facts, moves = set(Fact.__args__), set(Move.__args__)
    assert set(EFFECTS) == set(apply._APPLY) == set(fact_text._TEXTS) == facts
    assert set(apply._MOVES) == set(fact_text._MOVES) == moves
