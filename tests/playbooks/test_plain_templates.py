"""Templates that are seen to be good without being read: the reader of templates says the same of each."""

import random

from refold.playbooks.checks.templates import NAMED, SIMPLE
from refold.templates import problem_of, uses_of

OPERANDS = ("a", "a.b", "ctx.page_1", "7", "123456789", "x1.y2.z3")
SUMS = (" + ", "*", " - ", "-")
COMPARISONS = (" == ", "!=", " < ", ">=", "<=", " > ")


def expression(rng: random.Random) -> str:
    def total() -> str:
        found = rng.choice(OPERANDS)
        for _ in range(rng.choice((0, 0, 1, 3))):
            found += rng.choice(SUMS) + rng.choice(OPERANDS)
        return found

    other = rng.choice((total(), "'text'", "''"))
    return total() + (rng.choice(COMPARISONS) + other if rng.random() < 0.5 else "")


def test_what_looks_plain_is_well_written_and_names_the_same_paths() -> None:
    rng, seen = random.Random(7), 0
    for _ in range(2_000):
        text = f"x {{{{{rng.choice(('', ' '))}{expression(rng)} }}}} y"
        (found,) = SIMPLE.findall(text)
        seen += 1
        assert problem_of(text) is None, text
        paths = [tuple(path.split(".")) for path in NAMED.findall(found) if path]
        assert sorted(paths) == sorted(use.path for use in uses_of(text)), text
    assert seen == 2_000


def test_what_is_anything_else_is_read() -> None:
    for text in ("{{ a < b < c }}", "{{ a + }}", "{{ a b }}", "{{ a | upper }}", "{{ f(a) }}", "{{ 'a' }}", "{{ -1 }}"):
        assert SIMPLE.findall(text) == [], text
