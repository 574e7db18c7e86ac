"""Rings as text: what is sent is what is heard, and nothing else is a ring."""

from hypothesis import given
from hypothesis import strategies as st

from refold.ports import ANYTHING, RING_KINDS, Ring
from refold.rings import LONGEST, MOST, NO_KEY, TOKEN, decoded, encoded
from refold.runtime.background import concerns

KEYS = st.text(st.characters(codec="utf-8"), max_size=40)


@given(st.builds(Ring, st.sampled_from(RING_KINDS), KEYS))
def test_a_ring_is_heard_as_it_was_rung_and_its_name_is_never_sent_as_it_is(ring: Ring) -> None:
    ((kind, key),) = encoded([ring])
    assert decoded(kind, key) == ring
    assert TOKEN.fullmatch(key), "no space, dot, star or line break reaches a channel"


@given(st.text(max_size=20), st.text(max_size=40))
def test_any_other_text_is_no_ring(kind: str, key: str) -> None:
    ring = decoded(kind, key)
    if ring is not None:
        assert encoded([ring]) == [(kind, key)], "what is accepted is what would be sent"


def test_rings_about_many_runs_are_one_ring_about_any() -> None:
    assert encoded(Ring("ended", f"r{n}") for n in range(MOST + 1)) == [("ended", NO_KEY)]
    assert encoded([Ring("ended", "r" * LONGEST)]) == [("ended", NO_KEY)]
    assert encoded([Ring("ended", "r"), ANYTHING]) == [("any", NO_KEY)]


def test_a_process_looks_only_at_what_concerns_it() -> None:
    rings = [Ring("work", "big"), Ring("ended", "r")]
    assert concerns(rings, "work", ["big"]) and concerns(rings, "work")
    assert not concerns(rings, "work", ["small"]) and not concerns(rings, "withdrawn")
    assert concerns([Ring("work")], "work", ["small"]) and concerns([ANYTHING], "withdrawn", [])
