"""Dead letters: written with the turn, replaced as a whole, found by their reason, gone with their run."""

import pytest

from refold.core.read.dead_letters import DeadLetter
from refold.core.state import FAILED
from refold.ports import Store
from tests.contracts.stores import commit, note, put


def letter(run: str, at: int, fingerprint: str = "f", step: str = "a") -> DeadLetter:
    return DeadLetter(run, step, 1, fingerprint, "python", "error", "no disk", at, "plan", "name", 2, (1, 5))


def test_dead_letters_come_back_as_they_went_in_the_newest_run_first(store: Store) -> None:
    old, new = letter("one", 5), (letter("two", 7), letter("two", 7, "g", "b"))
    commit(store, "one", note(), dead=[old], status=FAILED)
    commit(store, "two", note(), dead=list(new), status=FAILED)
    assert list(store.views.dead()) == [*new, old]
    assert list(store.views.dead("g")) == [new[1]]
    assert list(store.views.dead("f")) == [new[0], old]
    assert list(store.views.dead(limit=2)) == list(new)
    assert list(store.views.dead("nothing")) == []


def test_those_of_a_run_are_replaced_as_a_whole_or_stay_what_they_were(store: Store) -> None:
    commit(store, "one", note(), dead=[letter("one", 5), letter("one", 5, "g")])
    commit(store, "one", note())
    assert len(store.views.dead()) == 2
    commit(store, "one", note(), dead=[letter("one", 9)])
    assert list(store.views.dead()) == [letter("one", 9)]
    commit(store, "one", note(), dead=[])
    assert list(store.views.dead()) == []


def test_a_turn_that_fails_leaves_none(store: Store) -> None:
    commit(store, "one", note(), dead=[letter("one", 5)])
    with pytest.raises(RuntimeError), store.turn(["one"]) as turn:
        put(turn, "one", note(), dead=[])
        raise RuntimeError
    assert list(store.views.dead()) == [letter("one", 5)]


def test_a_run_that_is_removed_takes_its_own_along(store: Store) -> None:
    for run in ("one", "two"):
        commit(store, run, note(), dead=[letter(run, 5)], status=FAILED)
    with store.turn(["one"]) as turn:
        turn.remove("one")
    assert list(store.views.dead()) == [letter("two", 5)]
