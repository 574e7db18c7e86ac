"""The generation of a lease voids every late word of a former holder: report, hand-back, line, heartbeat."""

from collections.abc import Callable

import pytest

from refold.core.commands import HELD
from refold.ports import Lease, Store
from tests.contracts.stores import (
    FakeClock,
    change,
    claim,
    claim_one,
    claimed_ids,
    commit,
    holder,
    issue,
    note,
    order,
    put,
)

Move = Callable[[Store, FakeClock, Lease], object]


def hand_back(store: Store, clock: FakeClock, lease: Lease) -> None:
    assert store.hand_back(lease)


def run_out(store: Store, clock: FakeClock, lease: Lease) -> None:
    clock.at = lease.until
    assert list(store.expire(5)) == []


def issue_again(store: Store, clock: FakeClock, lease: Lease) -> None:
    issue(store, lease.run, order(lease.command.id, attempt=2))


def hold(store: Store, clock: FakeClock, lease: Lease) -> None:
    change(store, lease.run, lease.command.id, HELD)


def remove(store: Store, clock: FakeClock, lease: Lease) -> None:
    change(store, lease.run, lease.command.id, None)


def claimed_by(worker: str) -> Move:
    return lambda store, clock, lease: claim_one(store, worker)


MOVED_ON: dict[str, tuple[Move, ...]] = {
    "handed back": (hand_back,),
    "handed back and claimed": (hand_back, claimed_by("v")),
    "handed back and claimed by the same": (hand_back, claimed_by("w")),
    "lost": (run_out,),
    "lost and claimed": (run_out, claimed_by("v")),
    "lost and claimed by the same": (run_out, claimed_by("w")),
    "issued again": (issue_again,),
    "issued again and claimed": (issue_again, claimed_by("w")),
    "held": (hold,),
    "held, issued again and claimed": (hold, issue_again, claimed_by("w")),
    "removed": (remove,),
}


def move_on(how: str, store: Store, clock: FakeClock, lease: Lease) -> None:
    for move in MOVED_ON[how]:
        move(store, clock, lease)


@pytest.mark.parametrize("how", MOVED_ON)
def test_a_late_report_is_refused_once_the_lease_has_moved_on(store: Store, clock: FakeClock, how: str) -> None:
    issue(store, "r", order("a1"))
    late = claim_one(store)
    move_on(how, store, clock, late)
    now = holder(store, "r", "a1")
    assert now is None or now.generation > late.generation


@pytest.mark.parametrize("how", MOVED_ON)
def test_a_stale_hand_back_is_refused_and_changes_nothing(store: Store, clock: FakeClock, how: str) -> None:
    issue(store, "r", order("a1"))
    late = claim_one(store)
    move_on(how, store, clock, late)
    before = holder(store, "r", "a1")
    assert store.hand_back(late) is False
    assert holder(store, "r", "a1") == before


@pytest.mark.parametrize("how", MOVED_ON)
def test_a_stale_publisher_is_refused(store: Store, clock: FakeClock, how: str) -> None:
    issue(store, "r", order("a1"))
    late = claim_one(store)
    assert store.publish(late, ["in time"]) is True
    move_on(how, store, clock, late)
    assert store.publish(late, ["late"]) is False
    assert list(store.views.lines("r")) == [(1, "in time")]


@pytest.mark.parametrize("how", ["handed back", "lost", "issued again", "held", "removed"])
def test_a_heartbeat_does_not_bring_back_a_lease_that_has_moved_on(store: Store, clock: FakeClock, how: str) -> None:
    issue(store, "r", order("a1"))
    move_on(how, store, clock, claim_one(store))
    assert list(store.extend("w", 30)) == []
    assert holder(store, "r", "a1") is None


def test_the_generation_grows_by_one_with_every_claim_whatever_lies_between(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1"))
    generations = []
    for between in ("handed back", "lost", "issued again", "held", "handed back"):
        lease = claim_one(store)
        generations.append(lease.generation)
        move_on(between, store, clock, lease)
        if between == "held":
            issue(store, "r", order("a1", attempt=3))
    assert generations == [1, 2, 3, 4, 5]
    assert claim_one(store).generation == 6


def test_generations_of_different_commands_have_nothing_to_do_with_each_other(store: Store) -> None:
    issue(store, "r", order("a1"), order("a2"))
    issue(store, "s", order("a1"))
    for _ in range(3):
        store.hand_back(claim_one(store, runs=frozenset({"r"})))
    assert claim_one(store, runs=frozenset({"s"})).generation == 1


def test_the_turn_can_tell_who_holds_what(store: Store) -> None:
    issue(store, "r", order("a1"), order("a2"))
    issue(store, "s", order("b1"))
    leases = {lease.command.id: lease for lease in (*claim(store, 2, "w"), *claim(store, 1, "v"))}
    issue(store, "r", order("a3"))
    with store.turn(["r", "s"]) as turn:
        assert {id: turn.lease(lease.run, id) for id, lease in leases.items()} == leases
        assert [sorted(turn.claimed(run)) for run in "rst"] == [["a1", "a2"], ["b1"], []]
        assert turn.lease("r", "a3") is turn.lease("r", "b1") is turn.lease("t", "a1") is None


def test_a_command_handed_back_is_free_at_once_and_nothing_is_counted(store: Store) -> None:
    issue(store, "r", order("a1"), order("a2"))
    first = claim_one(store)
    assert store.hand_back(first) is True
    again = claim_one(store, "v")
    assert (again.command, again.worker, again.losses) == (first.command, "v", 0)


def test_a_command_handed_back_or_lost_keeps_its_place(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1"), order("a2"), order("a3"), order("a4"))
    first, _ = claim(store, 2)
    clock.forward(10)
    assert store.hand_back(first)
    clock.forward(21)
    assert list(store.expire(5)) == []
    assert claimed_ids(store) == ["a1", "a2", "a3", "a4"]


def test_a_hand_back_is_accepted_once(store: Store) -> None:
    issue(store, "r", order("a1"))
    lease = claim_one(store)
    assert [store.hand_back(lease) for _ in range(3)] == [True, False, False]


def test_holding_a_command_frees_its_lease_and_keeps_its_generation(store: Store) -> None:
    issue(store, "r", order("a1"))
    claim_one(store)
    change(store, "r", "a1", HELD)
    assert holder(store, "r", "a1") is None
    assert list(store.extend("w", 30)) == []
    issue(store, "r", order("a1", attempt=2))
    lease = claim_one(store)
    assert (lease.generation, lease.command.attempt) == (2, 2)


def test_published_lines_are_numbered_from_one_in_each_run(store: Store) -> None:
    issue(store, "r", order("a1"), order("a2"))
    issue(store, "s", order("b1"))
    first, other, second = claim(store, 3)
    assert store.publish(first, ["one", {"two": [2]}])
    assert store.publish(second, [None])
    assert store.publish(first, [])
    assert store.publish(other, [""])
    assert list(store.views.lines("r")) == [(1, "one"), (2, {"two": [2]}), (3, None)]
    assert list(store.views.lines("r", after=2)) == [(3, None)]
    assert list(store.views.lines("r", after=1, limit=1)) == [(2, {"two": [2]})]
    assert list(store.views.lines("r", after=3)) == list(store.views.lines("nobody")) == []
    assert list(store.views.lines("s")) == [(1, "")]


def test_publishing_is_no_fact(store: Store) -> None:
    issue(store, "r", order("a1"))
    store.publish(claim_one(store), ["line"])
    with store.turn(["r"]) as turn:
        assert turn.head("r") == 1


def test_a_publisher_who_changes_its_line_later_changes_nothing(store: Store) -> None:
    issue(store, "r", order("a1"))
    line = {"list": [1]}
    assert store.publish(claim_one(store), [line])
    line["list"].append(2)
    store.views.lines("r")[0][1]["list"].append(3)
    assert list(store.views.lines("r")) == [(1, {"list": [1]})]


def test_lines_that_come_with_a_turn_stand_behind_those_that_were_published(store: Store) -> None:
    issue(store, "r", order("a1"))
    store.publish(claim_one(store), ["one"])
    commit(store, "r", note("settled"), lines=["two", {"three": 3}])
    assert list(store.views.lines("r")) == [(1, "one"), (2, "two"), (3, {"three": 3})]


def test_lines_of_a_turn_that_is_taken_back_were_never_there(store: Store) -> None:
    issue(store, "r", order("a1"), lines=["one"])
    with pytest.raises(KeyError), store.turn(["r"]) as turn:
        put(turn, "r", note("more"), lines=["two"])
        raise KeyError
    assert list(store.views.lines("r")) == [(1, "one")]
