"""The machine's clock can be set; what a store has promised for "in 5 s" takes 5 s all the same."""

from pathlib import Path

import pytest

from refold.core.outcomes import SECOND
from refold.ports import Store
from refold.stores.sqlite.store import SqliteStore
from tests.contracts.stores import (
    NOON,
    FakeClock,
    claim,
    claim_one,
    commit,
    due_keys,
    due_runs,
    issue,
    note,
    opened,
    order,
)

HOUR = 3600.0
YEAR = 365 * 24 * HOUR


def set_timer(store: Store, seconds: float, run: str = "r", key: str = "t") -> None:
    with store.turn([]) as turn:
        now = turn.now
    commit(store, run, note(), timers={key: now + round(seconds * SECOND)})


def fires(store: Store, run: str = "r") -> bool:
    return due_runs(store) == [run] and due_keys(store, run) != []


def test_a_clock_set_back_delays_no_timer(store: Store, clock: FakeClock) -> None:
    set_timer(store, 5)
    clock.elapse(2)
    clock.forward(-HOUR)
    clock.elapse(2.9)
    assert due_runs(store) == []
    clock.elapse(0.1)
    assert fires(store)


def test_a_clock_set_back_while_nobody_looks_delays_no_timer(store: Store, clock: FakeClock) -> None:
    set_timer(store, 5)
    clock.forward(-HOUR)
    clock.elapse(5)
    assert fires(store)


def test_a_timer_set_after_the_clock_was_set_back_takes_its_time(store: Store, clock: FakeClock) -> None:
    commit(store, "other", note())
    clock.forward(-HOUR)
    set_timer(store, 5)
    clock.elapse(4.9)
    assert due_runs(store) == []
    clock.elapse(0.1)
    assert fires(store)


def test_a_clock_set_forward_and_back_again_lets_new_timers_take_their_time(store: Store, clock: FakeClock) -> None:
    clock.forward(YEAR)
    commit(store, "other", note())
    clock.forward(-YEAR)
    for _ in range(3):
        set_timer(store, 5)
        clock.elapse(4.9)
        assert due_runs(store) == []
        clock.elapse(0.1)
        assert fires(store)
        commit(store, "r", note(), timers={"t": None})


def test_a_clock_set_back_delays_no_retry(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order(not_before=NOON + 5 * SECOND))
    clock.forward(-HOUR)
    clock.elapse(4.9)
    assert not claim(store)
    clock.elapse(0.1)
    assert claim_one(store).command.id == "a/1"


def test_a_lease_runs_out_and_is_kept_by_the_stores_clock(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a/1"), order("b/1"))
    claim_one(store, worker="dead", lease_for=10.0)
    claim_one(store, worker="alive", lease_for=10.0)
    clock.forward(-HOUR)
    clock.elapse(9)
    store.extend("alive", 10.0)
    store.expire(5)
    assert (len(store.leases_of("dead")), len(store.leases_of("alive"))) == (1, 1)
    clock.elapse(1)
    store.expire(5)
    assert (len(store.leases_of("dead")), len(store.leases_of("alive"))) == (0, 1)


def test_small_corrections_of_the_clock_are_waited_for_and_do_not_add_up(store: Store, clock: FakeClock) -> None:
    for _ in range(100):
        clock.forward(-0.2)
        before = store.now()
        clock.elapse(1)
        assert store.now() >= before
    assert store.now() == clock.at


def test_the_store_follows_the_machine_when_its_clock_is_set_forward(store: Store, clock: FakeClock) -> None:
    set_timer(store, HOUR)
    clock.forward(HOUR)
    assert fires(store)
    assert store.now() == clock.at


@pytest.mark.parametrize("away", [0.0, 3.0])
def test_a_clock_set_back_delays_no_timer_over_a_restart(tmp_path: Path, clock: FakeClock, away: float) -> None:
    """The steady clock runs on while no process does."""
    with opened("sqlite", tmp_path, clock) as store:
        set_timer(store, 5)
    clock.forward(-HOUR)
    clock.elapse(away)
    with opened("sqlite", tmp_path, clock) as store:
        clock.elapse(4.9 - away)
        assert due_runs(store) == []
        clock.elapse(0.1)
        assert fires(store)


def test_after_a_new_start_of_the_machine_the_time_continues_from_the_last_commit(tmp_path: Path) -> None:
    """Nobody knows how long it was off, but an hour is not added to that."""
    before, after = FakeClock(), FakeClock(NOON - round(HOUR) * SECOND, boot="the next start")
    with opened("sqlite", tmp_path, before) as store:
        before.elapse(1000)
        set_timer(store, 5)
    with opened("sqlite", tmp_path, after) as store:
        assert store.now() == NOON + 1000 * SECOND
        after.elapse(4.9)
        assert due_runs(store) == []
        after.elapse(0.1)
        assert fires(store)


def test_a_file_from_another_machine_is_not_taken_into_the_future(tmp_path: Path, clock: FakeClock) -> None:
    elsewhere = FakeClock(boot="of another machine")
    elsewhere.since_boot = 300 * 24 * 3600 * SECOND
    with opened("sqlite", tmp_path, clock) as store:
        commit(store, "r", note())
    with opened("sqlite", tmp_path, elsewhere) as store:
        assert store.now() == NOON


def test_two_processes_of_one_file_have_one_time(tmp_path: Path, clock: FakeClock) -> None:
    with opened("sqlite", tmp_path, clock) as first:
        clock.forward(YEAR)
        ahead = FakeClock()  # a process that did not look while the clock was wrong
        with opened("sqlite", tmp_path, ahead) as second:
            commit(first, "r", note())
            commit(second, "r", note("second"))
            [(_, one, _), (_, two, _)] = second.facts("r")
            assert two >= one
            assert second.now() >= first.now()


def test_marks_are_written_now_and_then_and_with_facts_alone(tmp_path: Path, clock: FakeClock) -> None:
    def marks() -> list[tuple[int, ...]]:
        assert isinstance(store, SqliteStore)
        return store.file.rows("select at from marks", ())

    with opened("sqlite", tmp_path, clock) as store:
        with store.turn(["r"]) as turn:
            assert turn.head("r") == 0
        assert marks() == []
        issue(store, "r", order())
        assert marks() == [(NOON,)]
        clock.elapse(0.9)
        commit(store, "r", note())
        assert marks() == [(NOON,)]
        clock.elapse(0.1)
        claim_one(store)
        assert marks() == [(NOON,)]
        commit(store, "r", note())
        assert marks() == [(NOON + SECOND,)]


@pytest.mark.parametrize("change", ["at = 1 << 62", "at = -1", "steady = 5", "boot = 'x'", "seal = 1", "at = at + 1"])
def test_a_mark_that_is_not_what_was_written_is_none(tmp_path: Path, clock: FakeClock, change: str) -> None:
    with opened("sqlite", tmp_path, clock) as store:
        assert isinstance(store, SqliteStore)
        commit(store, "r", note())
        store.file.db.execute(f"update marks set {change}")
    with opened("sqlite", tmp_path, clock) as store:
        clock.elapse(1)
        assert store.now() == clock.at
        commit(store, "r", note())
    clock.forward(-HOUR)
    with opened("sqlite", tmp_path, clock) as store:
        assert store.now() == clock.at + round(HOUR) * SECOND


def test_a_mark_of_the_far_future_is_not_believed(tmp_path: Path, clock: FakeClock) -> None:
    from refold.stores.sqlite.rows import seal

    with opened("sqlite", tmp_path, clock) as store:
        assert isinstance(store, SqliteStore)
        commit(store, "r", note())
        values = ("default", 1 << 60, 0, "")
        store.file.db.execute("update marks set at = ?, steady = ?, boot = ?, seal = ?", (*values[1:], seal(values)))
    with opened("sqlite", tmp_path, clock) as store:
        assert store.now() == clock.at
