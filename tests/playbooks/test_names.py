"""Did you mean: the nearest name, and none rather than a far one."""

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from refold.names import NAME, did_you_mean, distance, meant, tidied

KEYS = ["step", "desc", "when", "input", "loop", "tool", "set", "next", "join", "retry", "timeout", "visit_limit"]


@pytest.mark.parametrize(
    ("written", "guess"),
    [
        ("inptu", "input"),
        ("Input", "input"),
        ("inputs", "input"),
        ("timout", "timeout"),
        ("time_out", "timeout"),
        ("visitlimit", "visit_limit"),
        ("nxt", "next"),
        ("stpe", "step"),
        ("visit", "visit_limit"),
        ("banana", ""),
        ("x", ""),
        ("", ""),
        ("i" * 500, ""),
    ],
)
def test_the_nearest_name_is_guessed(written: str, guess: str) -> None:
    assert meant(written, KEYS) == guess


def test_without_a_guess_the_names_are_listed() -> None:
    assert did_you_mean("banana", ["a", "b"]) == "known: `a`, `b`"
    assert did_you_mean("banana", []) == "there is none to choose from"
    assert did_you_mean("banana", [f"s{n}" for n in range(30)]).endswith("`s19`, …")


@pytest.mark.parametrize(("one", "other", "far"), [("ab", "ba", 1), ("abc", "abd", 1), ("abc", "ac", 1), ("", "ab", 2)])
def test_a_swap_of_neighbours_is_one_slip(one: str, other: str, far: int) -> None:
    assert distance(one, other, 9) == distance(other, one, 9) == far


@for_all(st.text("abc", max_size=8), st.text("abc", max_size=8), st.integers(0, 8))
def test_a_limit_only_saves_work(one: str, other: str, limit: int) -> None:
    far, found = distance(one, other, 99), distance(one, other, limit)
    assert found == far if far <= limit else found > limit


@for_all(st.text())
def test_a_tidied_name_is_a_good_one_or_nothing(name: str) -> None:
    better = tidied(name)
    assert better == "" or NAME.fullmatch(better)
