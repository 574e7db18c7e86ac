"""Turns over several runs at once: who is refused, who commits, what survives a failed commit."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from refold.core.expressions import Values
from refold.core.graph import prepare
from refold.core.outcomes import Instant
from refold.core.plan import Plan, Step
from refold.core.state import CANCELLED
from refold.errors import Ambiguous, Conflict, Corrupt, NotFound, Unavailable
from refold.runtime.mail import Cancel, Pause, Signal, Start
from refold.runtime.turn import Delivery, Turns
from refold.stores.memory import MemoryStore, MemoryTurn, StoredFact

NOON: Instant = 1_800_000_000_000_000
PLAN = Plan(name="p", steps=(Step(name="a"),))
START = Start(prepare(PLAN))


class Flaky(MemoryStore):
    """Fails its next commits, before or after they are carried out."""

    def __init__(self) -> None:
        super().__init__(lambda: NOON)
        self.before = self.after = self.mute = 0

    @contextmanager
    def turn(self, runs: Sequence[str]) -> Iterator[MemoryTurn]:
        with super().turn(runs) as turn:
            yield turn
            if self.before:
                self.before -= 1
                raise Unavailable("disk full")
        if self.after:
            self.after -= 1
            raise Ambiguous("connection lost")

    def turn_of(self, run: str, number: int) -> str | None:
        if self.mute:
            self.mute -= 1
            raise Unavailable("still down")
        return super().turn_of(run, number)


@pytest.fixture
def store() -> Flaky:
    return Flaky()


@pytest.fixture
def turns(store: Flaky) -> Turns:
    ids = iter(range(1000))
    return Turns(store, Values(), lambda: 0.5, lambda: f"turn{next(ids)}")


def test_many_runs_share_one_commit(turns: Turns, store: Flaky) -> None:
    posts = [Delivery(f"r{n}", START) for n in range(5)]
    turns.commit(posts)
    assert [post.error for post in posts] == [None] * 5
    assert {store.turn_of(f"r{n}", 1) for n in range(5)} == {"turn0-0"}


def test_a_run_that_cannot_be_folded_is_left_out_and_its_neighbours_commit(turns: Turns, store: Flaky) -> None:
    turns.commit([Delivery("bad", START), Delivery("good", START)])
    store.logs["bad"][-1] = StoredFact(NOON, b"{}", None)
    turns.known.clear()
    bad, good = Delivery("bad", Signal("x")), Delivery("good", Signal("x"))
    turns.commit([bad, good])
    assert isinstance(bad.error, Corrupt)
    assert good.error is None
    assert len(store.logs["good"]) == 3


def test_a_refused_piece_of_mail_harms_no_other_of_the_same_run(turns: Turns, store: Flaky) -> None:
    turns.commit([Delivery("r", START)])
    twice, signal = Delivery("r", START), Delivery("r", Signal("x"))
    turns.commit([twice, signal])
    assert isinstance(twice.error, Conflict)
    assert signal.error is None
    assert len(store.logs["r"]) == 3


def test_mail_for_a_run_that_does_not_exist_is_refused_by_name(turns: Turns) -> None:
    post = Delivery("nobody", Pause())
    turns.commit([post])
    assert isinstance(post.error, NotFound)
    assert "nobody" in str(post.error)


def test_a_failed_commit_is_tried_again(turns: Turns, store: Flaky) -> None:
    store.before = 2
    post = Delivery("r", START)
    turns.commit([post])
    assert post.error is None
    assert len(store.logs["r"]) == 2


def test_a_store_that_stays_down_is_said_and_nothing_is_written(turns: Turns, store: Flaky) -> None:
    turns.commit([Delivery("r", START)])
    store.before = 99
    post = Delivery("r", Signal("x"))
    turns.commit([post])
    assert isinstance(post.error, Unavailable)
    assert len(store.logs["r"]) == 2
    store.before = 0
    turns.commit([post := Delivery("r", Signal("y"))])
    assert post.error is None
    assert turns.look("r").state.signals == {"y": [None]}


def test_a_commit_that_was_carried_out_is_not_tried_again(turns: Turns, store: Flaky) -> None:
    turns.commit([Delivery("r", START)])
    store.after = 1
    post = Delivery("r", Signal("x", 1))
    turns.commit([post])
    assert post.error is None
    assert turns.look("r").state.signals == {"x": [1]}


def test_when_nobody_can_say_whether_it_was_carried_out_it_is_not_tried_again(turns: Turns, store: Flaky) -> None:
    turns.commit([Delivery("r", START)])
    store.after, store.mute = 1, 99
    post = Delivery("r", Signal("x", 1))
    turns.commit([post])
    store.mute = 0
    assert isinstance(post.error, Ambiguous)
    assert turns.look("r").state.signals == {"x": [1]}


def test_finished_runs_leave_memory_and_others_when_there_are_too_many(turns: Turns) -> None:
    turns.keep = 3
    for n in range(6):
        turns.commit([Delivery(f"r{n}", START)])
    assert list(turns.known) == ["r3", "r4", "r5"]
    turns.commit([Delivery("r5", Cancel())])
    assert list(turns.known) == ["r3", "r4"]


def test_a_finished_run_that_is_looked_at_leaves_memory_again(turns: Turns) -> None:
    turns.commit([Delivery("r", START)])
    turns.commit([Delivery("r", Cancel())])
    assert turns.look("r").state.life == CANCELLED
    assert not turns.known
    assert [state.run for state in turns.states(["r"])] == ["r"]
    assert not turns.known


def test_what_another_process_appended_is_folded_first(store: Flaky) -> None:
    ids = iter(range(1000))
    one, two = (Turns(store, Values(), lambda: 0.5, lambda: f"t{next(ids)}") for _ in range(2))
    one.commit([Delivery("r", START)])
    two.commit([Delivery("r", Signal("x", 1))])
    one.commit([Delivery("r", Signal("x", 2))])
    assert two.look("r").state.signals == one.look("r").state.signals == {"x": [1, 2]}
    assert len(store.logs["r"]) == 4


def test_a_snapshot_is_a_cache_that_may_be_gone_or_too_new(turns: Turns, store: Flaky) -> None:
    turns.commit([Delivery("r", START)])
    turns.commit([Delivery("r", Signal("x", 1))])
    turns.snapshot("r")
    turns.commit([Delivery("r", Signal("x", 2))])
    cold = Turns(store, Values(), lambda: 0.5, lambda: "cold")
    assert cold.look("r").state.signals == {"x": [1, 2]}
    assert cold.known["r"].snapshot_at == 3
    del store.logs["r"][2:]
    again = Turns(store, Values(), lambda: 0.5, lambda: "again")
    assert again.look("r").state.signals == {}
