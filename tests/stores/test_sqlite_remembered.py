"""What a connection remembers from one turn to the next: nothing that another one may have changed meanwhile."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from refold.core.state import COMPLETED, PAUSED, RUNNING
from refold.ports import Abilities, Lease
from refold.stores.sqlite import remembered
from refold.stores.sqlite.store import SqliteStore
from tests.contracts.stores import (
    LEASE,
    NOON,
    PLAN_BYTES,
    FakeClock,
    change,
    claim,
    claim_one,
    claimed_ids,
    commit,
    due_keys,
    holder,
    issue,
    letter,
    note,
    order,
    put,
    unread,
)
from tests.stores.sqlite_files import ask, opened

CAN = Abilities("w")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def here(tmp_path: Path, clock: FakeClock) -> Iterator[SqliteStore]:
    with opened(tmp_path, clock) as store:
        yield store


@pytest.fixture
def there(tmp_path: Path, clock: FakeClock) -> Iterator[SqliteStore]:
    """The same file by a connection of its own, as another process has it."""
    with opened(tmp_path, clock) as store:
        yield store


def statements(store: SqliteStore) -> list[str]:
    """What is asked and told from now on."""
    seen: list[str] = []

    def note_it(_: object, statement: str, __: object) -> bool:
        seen.append(statement)
        return True

    store.file._cursor.exec_trace = note_it
    return seen


def head(store: SqliteStore, run: str) -> int:
    with store.turn([run]) as turn:
        return turn.head(run)


def generation(store: SqliteStore, run: str, command: str) -> int | None:
    with store.turn([run]) as turn:
        return turn.generations(run, [command]).get(command)


def taken_at_once(store: SqliteStore) -> Lease:
    """Issued and claimed in one turn, after which it is known that nothing else waits."""
    with store.turn(["r"]) as turn:
        put(turn, "r", note("issued"), commands={"a/1": order("a/1")})
        (lease,) = turn.claim(CAN, LEASE, 2)
    assert CAN in store._tools.remembered.idle
    return lease


def test_a_run_that_nobody_else_has_touched_is_not_asked_for_again(here: SqliteStore) -> None:
    issue(here, "r", order("a/1"))
    claim_one(here)
    seen = statements(here)
    with here.turn(["r"]) as turn:
        assert turn.head("r") == 1
        assert not turn.letters("r") and not turn.due_timers("r")
        assert turn.generations("r", ["a/1"]) == {"a/1": 1}
    assert seen == ["begin immediate", "commit"]


def test_the_head_that_another_connection_has_moved_is_seen(here: SqliteStore, there: SqliteStore) -> None:
    commit(here, "r", note())
    commit(there, "r", note(), note())
    assert head(here, "r") == 3


def test_the_status_that_another_connection_has_changed_is_seen(here: SqliteStore, there: SqliteStore) -> None:
    issue(here, "r", order("a/1"))
    commit(there, "r", note(), status=PAUSED)
    issue(here, "r", order("a/2"), status=PAUSED)
    assert claimed_ids(here) == [], "what is issued to a paused run waits"


def test_a_lease_that_another_connection_took_back_is_not_held_any_more(
    here: SqliteStore, there: SqliteStore, clock: FakeClock
) -> None:
    issue(here, "r", order("a/1"))
    claim_one(here)
    assert generation(here, "r", "a/1") == 1
    clock.forward(LEASE + 1)
    there.expire(3)
    assert generation(here, "r", "a/1") is None
    claim_one(there, worker="other")
    assert generation(here, "r", "a/1") == 2


def test_a_command_that_another_connection_removed_is_gone(here: SqliteStore, there: SqliteStore) -> None:
    issue(here, "r", order("a/1"))
    claim_one(here)
    change(there, "r", "a/1", None)
    assert holder(here, "r", "a/1") is None


def test_a_command_that_another_connection_issued_is_found_by_one_that_knew_of_nothing(
    here: SqliteStore, there: SqliteStore
) -> None:
    taken_at_once(here)
    issue(there, "s", order("b/1"))
    with here.turn(["r"]) as turn:
        put(turn, "r", note())
        assert [lease.run for lease in turn.claim(CAN, LEASE, 2)] == ["s"]


def test_letters_that_another_connection_wrote_are_seen(here: SqliteStore, there: SqliteStore) -> None:
    commit(here, "r", note())
    assert unread(here, "r") == []
    commit(there, "s", note(), letters=[letter("k", "r")])
    assert unread(here, "r") == ["k"]


def test_letters_of_this_connection_are_seen_too(here: SqliteStore) -> None:
    commit(here, "r", note())
    with here.turn(["r", "s"]) as turn:
        assert turn.head("r") == 1
        put(turn, "s", note(), letters=[letter("k", "r")])
    assert unread(here, "r") == ["k"]
    commit(here, "r", note(), read_letters=["k"])
    assert unread(here, "r") == []


def test_timers_that_another_connection_set_are_seen(here: SqliteStore, there: SqliteStore, clock: FakeClock) -> None:
    commit(here, "r", note())
    assert due_keys(here, "r") == []
    commit(there, "r", note(), timers={"t": NOON + 1})
    clock.forward(1)
    assert due_keys(here, "r") == ["t"]


def test_timers_of_this_connection_are_due_when_their_time_has_come(here: SqliteStore, clock: FakeClock) -> None:
    commit(here, "r", note(), timers={"t": NOON + 1})
    assert due_keys(here, "r") == []
    clock.forward(1)
    assert due_keys(here, "r") == ["t"]


def test_a_turn_that_was_taken_back_leaves_nothing_behind(here: SqliteStore) -> None:
    issue(here, "r", order("a/1"))
    with pytest.raises(ZeroDivisionError), here.turn(["r"]) as turn:
        put(turn, "r", note(), note(), status=COMPLETED, commands={"b/1": order("b/1")}, plan=PLAN_BYTES)
        assert len(turn.claim(CAN, LEASE, 2)) == 2
        raise ZeroDivisionError
    assert head(here, "r") == 1
    assert generation(here, "r", "a/1") is None and generation(here, "r", "b/1") is None
    commit(here, "r", note(), plan=PLAN_BYTES)
    assert [row.status for row in here.views.runs().rows] == [RUNNING]
    assert claimed_ids(here) == ["a/1"]


def test_a_plan_whose_turn_was_taken_back_is_stored_by_the_next_one(here: SqliteStore, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), here.turn(["r"]) as turn:
        put(turn, "r", note(), plan=PLAN_BYTES)
        raise ZeroDivisionError
    commit(here, "r", note(), plan=PLAN_BYTES)
    assert ask(tmp_path, "select data from plans") == [(PLAN_BYTES,)]


def test_a_plan_is_written_once(here: SqliteStore) -> None:
    commit(here, "r", note(), plan=PLAN_BYTES)
    seen = statements(here)
    commit(here, "s", note(), plan=PLAN_BYTES)
    assert not [each for each in seen if "plans" in each]


def test_whoever_found_nothing_finds_what_is_issued_later(here: SqliteStore) -> None:
    taken_at_once(here)
    issue(here, "s", order("b/1"))
    assert CAN not in here._tools.remembered.idle
    assert [lease.run for lease in claim(here, 2)] == ["s"]


def test_whoever_found_nothing_finds_what_is_handed_back(here: SqliteStore) -> None:
    lease = taken_at_once(here)
    assert here.hand_back(lease)
    with here.turn(["r"]) as turn:
        assert [each.generation for each in turn.claim(CAN, LEASE, 1)] == [2]


def test_nobody_is_known_to_find_nothing_while_something_waits_for_its_moment(
    here: SqliteStore, clock: FakeClock
) -> None:
    issue(here, "r", order("a/1", not_before=NOON + 1))
    with here.turn(["r"]) as turn:
        assert not turn.claim(CAN, LEASE, 1)
    clock.forward(1)
    with here.turn(["r"]) as turn:
        assert len(turn.claim(CAN, LEASE, 1)) == 1


def test_what_is_remembered_is_bounded(here: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "MANY", 3)
    for n in range(5):
        issue(here, f"r{n}", order("a/1"))
    assert len(here._tools.remembered.runs) <= 3
    assert [head(here, f"r{n}") for n in range(5)] == [1] * 5


def test_a_run_that_is_over_is_not_remembered(here: SqliteStore) -> None:
    commit(here, "r", note())
    commit(here, "r", note(), status=COMPLETED)
    assert here._tools.remembered.runs == {}
    assert head(here, "r") == 2
