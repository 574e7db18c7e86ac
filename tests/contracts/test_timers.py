"""A timer makes its run due from its moment on, until a turn moves it or clears it."""

from refold.core.state import PAUSED, RUNNING
from refold.ports import Store
from tests.contracts.stores import NOON, FakeClock, commit, due_keys, due_runs, letter, note


def test_a_store_without_timers_has_nothing_due(store: Store) -> None:
    assert store.due(10) == ([], None)
    assert due_keys(store, "r") == []


def test_a_timer_is_due_at_its_moment_and_not_before(store: Store, clock: FakeClock) -> None:
    commit(store, "r", note(), timers={"t": NOON + 1_000_000})
    clock.at = NOON + 999_999
    assert store.due(10) == ([], NOON + 1_000_000)
    assert due_keys(store, "r") == []
    clock.at = NOON + 1_000_000
    assert store.due(10) == (["r"], None)
    assert due_keys(store, "r") == ["t"]


def test_due_timers_come_in_the_order_in_which_they_were_due(store: Store, clock: FakeClock) -> None:
    commit(store, "r", note(), timers={"a": NOON + 3, "b": NOON + 1, "c": NOON + 2, "d": NOON + 9})
    clock.at = NOON + 3
    assert due_keys(store, "r") == ["b", "c", "a"]


def test_runs_come_in_the_order_in_which_their_timers_were_due_and_each_once(store: Store, clock: FakeClock) -> None:
    commit(store, "r", note(), timers={"1": NOON + 5, "2": NOON + 2})
    commit(store, "s", note(), timers={"1": NOON + 1, "2": NOON + 6})
    commit(store, "t", note(), timers={"1": NOON + 3, "2": NOON + 4})
    clock.at = NOON + 10
    assert due_runs(store) == ["s", "r", "t"]
    assert due_runs(store, limit=2) == ["s", "r"]
    assert due_runs(store, limit=0) == []


def test_a_due_run_stays_due_until_a_turn_deals_with_it(store: Store) -> None:
    commit(store, "r", note(), timers={"t": NOON})
    assert [due_runs(store) for _ in range(3)] == [["r"]] * 3
    commit(store, "r", note())
    assert due_runs(store) == ["r"]
    commit(store, "r", note(), timers={"t": None})
    assert due_runs(store) == []
    assert due_keys(store, "r") == []


def test_a_timer_can_be_moved_later(store: Store, clock: FakeClock) -> None:
    commit(store, "r", note(), timers={"t": NOON + 1})
    commit(store, "r", note(), timers={"t": NOON + 5})
    clock.at = NOON + 4
    assert store.due(10) == ([], NOON + 5)
    clock.at = NOON + 5
    assert store.due(10) == (["r"], None)


def test_a_timer_can_be_moved_forward(store: Store, clock: FakeClock) -> None:
    commit(store, "r", note(), timers={"t": NOON + 5})
    commit(store, "r", note(), timers={"t": NOON + 1})
    assert store.due(10) == ([], NOON + 1)
    clock.at = NOON + 1
    assert due_keys(store, "r") == ["t"]
    commit(store, "r", note(), timers={"t": None})
    clock.at = NOON + 5
    assert store.due(10) == ([], None)


def test_a_timer_moved_there_and_back_is_due_once(store: Store, clock: FakeClock) -> None:
    for at in (NOON + 1, NOON + 5, NOON + 1, NOON + 1):
        commit(store, "r", note(), timers={"t": at})
    clock.at = NOON + 1
    assert store.due(10) == (["r"], None)
    assert due_keys(store, "r") == ["t"]


def test_a_timer_can_be_set_again_after_it_was_cleared(store: Store, clock: FakeClock) -> None:
    commit(store, "r", note(), timers={"t": NOON + 1})
    commit(store, "r", note(), timers={"t": None, "never set": None})
    assert store.due(10) == ([], None)
    commit(store, "r", note(), timers={"t": NOON + 1})
    clock.at = NOON + 1
    assert store.due(10) == (["r"], None)


def test_the_next_moment_is_that_of_a_timer_still_set(store: Store) -> None:
    commit(store, "r", note(), timers={"cleared": NOON + 1, "moved": NOON + 2, "kept": NOON + 8})
    commit(store, "s", note(), timers={"kept": NOON + 7, "past": NOON - 1})
    commit(store, "r", note(), timers={"cleared": None, "moved": NOON + 9})
    assert store.due(10) == (["s"], NOON + 7)


def test_the_next_moment_does_not_depend_on_the_limit(store: Store) -> None:
    commit(store, "r", note(), timers={"t": NOON})
    commit(store, "s", note(), timers={"t": NOON, "later": NOON + 3})
    assert store.due(1)[1] == store.due(0)[1] == NOON + 3


def test_timers_of_a_paused_run_wait_until_it_goes_on(store: Store, clock: FakeClock) -> None:
    commit(store, "r", note(), timers={"t": NOON + 1})
    commit(store, "s", note(), timers={"t": NOON + 2})
    commit(store, "r", note(), status=PAUSED)
    clock.at = NOON + 5
    assert due_runs(store) == ["s"]
    commit(store, "r", note(), status=RUNNING)
    assert due_runs(store) == ["r", "s"]


def test_paused_runs_do_not_use_up_the_limit(store: Store) -> None:
    for n in range(5):
        commit(store, f"p{n}", note(), timers={"t": NOON - 9}, status=PAUSED)
    commit(store, "r", note(), timers={"t": NOON})
    assert due_runs(store, limit=1) == ["r"]


def test_timers_of_one_name_in_two_runs_are_two(store: Store) -> None:
    commit(store, "r", note(), timers={"t": NOON})
    commit(store, "s", note(), timers={"t": NOON})
    commit(store, "r", note(), timers={"t": None})
    assert due_runs(store) == ["s"]


def test_a_run_with_a_due_timer_and_a_letter_is_due_once(store: Store) -> None:
    commit(store, "r", note(), timers={"t": NOON}, letters=[letter("l", "r")])
    assert due_runs(store) == ["r"]


def test_moments_may_lie_centuries_away(store: Store, clock: FakeClock) -> None:
    far = 253_402_300_799_999_999  # the last microsecond of the year 9999
    commit(store, "r", note(), timers={"t": far, "first": 0})
    assert store.due(10) == (["r"], far)
    assert due_keys(store, "r") == ["first"]
    clock.at = far
    assert due_keys(store, "r") == ["first", "t"]
