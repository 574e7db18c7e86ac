"""A lease lives from heartbeat to heartbeat; one that runs out is a loss, and too many losses are reported."""

from refold.core.commands import HELD
from refold.core.state import PAUSED, RUNNING
from refold.ports import HAND_BACKS, Expired, Store
from refold.worker.leases import place
from tests.contracts.stores import (
    NOON,
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
)

ALLOWED = 5


def lose(store: Store, clock: FakeClock, times: int) -> None:
    """So many workers take the command and are never heard of again."""
    for _ in range(times):
        claim_one(store)
        clock.forward(31)
        assert list(store.expire(ALLOWED)) == []


def test_one_heartbeat_is_for_all_the_worker_holds_and_for_nobody_elses(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1"), order("a2"))
    issue(store, "s", order("b1"), order("b2"))
    claim(store, 3, "w")
    (other,) = claim(store, 1, "v")
    clock.forward(10)
    kept = store.extend("w", 60.5)
    assert sorted((lease.command.id, lease.generation) for lease in kept) == [("a1", 1), ("a2", 1), ("b1", 1)]
    assert {lease.until for lease in kept} == {NOON + 70_500_000}
    assert {lease.claimed_at for lease in kept} == {NOON}
    assert [holder(store, lease.run, lease.command.id) for lease in kept] == list(kept)
    assert holder(store, other.run, other.command.id) == other
    assert list(store.extend("nobody", 60)) == []


def test_a_lease_that_is_extended_does_not_run_out(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1"))
    claim_one(store, lease_for=30)
    for _ in range(10):
        clock.forward(20)
        assert len(store.extend("w", 30)) == 1
        assert list(store.expire(ALLOWED)) == []
        assert claimed_ids(store) == []


def test_a_lease_runs_out_at_its_moment_and_not_before(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1"))
    lease = claim_one(store, lease_for=30)
    clock.at = lease.until - 1
    assert list(store.expire(ALLOWED)) == []
    assert holder(store, "r", "a1") == lease
    clock.at = lease.until
    assert list(store.expire(ALLOWED)) == []
    assert holder(store, "r", "a1") is None
    assert claim_one(store, "v").losses == 1


def test_a_lease_that_ran_out_is_its_holders_until_it_is_taken_back(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1"))
    lease = claim_one(store)
    clock.forward(100)
    assert claimed_ids(store) == []
    assert holder(store, "r", "a1") == lease
    assert store.publish(lease, ["still here"]) is True
    assert [each.until for each in store.extend("w", 30)] == [NOON + 130_000_000]
    assert list(store.expire(0)) == []


def test_only_leases_that_ran_out_are_taken_back(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1"), order("a2"))
    claim_one(store, "w", lease_for=10)
    claim_one(store, "v", lease_for=20)
    clock.forward(15)
    store.expire(ALLOWED)
    with store.turn(["r"]) as turn:
        assert turn.claimed("r") == {"a2"}


def test_every_lost_lease_is_counted(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1"))
    lose(store, clock, 3)
    assert claim_one(store).losses == 3


def test_losses_live_on_when_the_command_is_handed_back_or_issued_again_or_held(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1"))
    lose(store, clock, 2)
    store.hand_back(claim_one(store))
    issue(store, "r", order("a1", attempt=2))
    change(store, "r", "a1", HELD)
    issue(store, "r", order("a1", attempt=3))
    assert claim_one(store).losses == 2


def test_a_command_lost_more_often_than_allowed_is_reported_and_not_freed(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1"), order("a2"))
    change(store, "r", "a2", None)
    lose(store, clock, ALLOWED)
    last = claim_one(store)
    clock.forward(31)
    reported = Expired("r", "a1", last.generation)
    assert list(store.expire(ALLOWED)) == [reported]
    assert list(store.expire(ALLOWED)) == [reported]  # until a turn has dealt with it
    assert claimed_ids(store) == []
    assert holder(store, "r", "a1") == last
    change(store, "r", "a1", None)
    assert list(store.expire(ALLOWED)) == []


def test_where_no_loss_is_allowed_the_first_is_reported(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1"))
    claim_one(store)
    assert list(store.expire(0)) == []
    clock.forward(31)
    assert list(store.expire(0)) == [Expired("r", "a1", 1)]


def test_a_heartbeat_that_comes_before_the_turn_saves_a_reported_lease(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1"))
    claim_one(store)
    clock.forward(31)
    assert len(store.expire(0)) == 1
    assert len(store.extend("w", 30)) == 1
    assert list(store.expire(0)) == []


def test_a_holder_that_lives_on_past_its_deadline_is_reported(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1", timeout=10))
    lease = claim_one(store, lease_for=30)
    assert lease.deadline == NOON + 10_000_000
    for at in (lease.deadline - 1, lease.deadline):
        clock.at = at
        assert len(store.extend("w", 30)) == 1
        assert list(store.expire(ALLOWED)) == []
    clock.at += 1
    assert list(store.expire(ALLOWED)) == []  # no sign of life since: it may be dead, and that would be a loss
    assert len(store.extend("w", 30)) == 1
    reported = [Expired("r", "a1", 1)]
    assert list(store.expire(ALLOWED)) == reported
    assert len(store.extend("w", 30)) == 1
    assert list(store.expire(ALLOWED)) == reported  # until a turn has dealt with it
    assert claimed_ids(store) == []
    change(store, "r", "a1", None)
    assert list(store.expire(ALLOWED)) == []


def test_a_timeout_is_no_loss_even_if_the_holder_dies_after_it(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1", timeout=10))
    claim_one(store)
    clock.forward(20)
    store.extend("w", 5)
    clock.forward(20)
    assert list(store.expire(ALLOWED)) == [Expired("r", "a1", 1)]
    issue(store, "r", order("a1", attempt=2, timeout=10))
    assert claim_one(store).losses == 0


def test_a_holder_that_died_before_its_deadline_is_a_loss_whenever_it_is_found(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1", timeout=40))
    claim_one(store, lease_for=30)
    clock.forward(100)
    assert list(store.expire(ALLOWED)) == []
    assert claim_one(store).losses == 1


def test_a_lease_tells_the_last_sign_of_life(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1"))
    lease = claim_one(store)
    assert lease.beat_at == NOON
    clock.forward(10)
    assert [each.beat_at for each in store.extend("w", 30)] == [NOON + 10_000_000]
    clock.forward(10)
    assert store.hand_back(lease)
    assert claim_one(store).beat_at == NOON + 20_000_000


def test_a_sign_of_life_of_one_holder_does_not_count_for_the_next(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1", timeout=10))
    lease = claim_one(store)
    clock.forward(11)
    store.extend("w", 30)
    assert len(store.expire(ALLOWED)) == 1
    assert store.hand_back(lease)
    claim_one(store)
    assert list(store.expire(ALLOWED)) == []


def test_a_worker_lost_before_the_timeout_is_a_loss(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1", timeout=60))
    claim_one(store, lease_for=5)
    clock.forward(6)
    assert list(store.expire(ALLOWED)) == []
    again = claim_one(store)
    assert (again.losses, again.deadline) == (1, clock.at + 60_000_000)


def test_every_claim_has_the_whole_timeout(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1", timeout=10))
    store.hand_back(claim_one(store))
    clock.forward(9)
    claim_one(store)
    clock.forward(9)
    assert list(store.expire(ALLOWED)) == []


def test_a_timeout_counts_from_the_start_that_the_holder_tells_of(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1", timeout=10), order("a2", timeout=10))
    lease, other = claim(store, 2)
    for _ in range(5):  # its body has not started
        clock.forward(9)
        kept = store.extend("w", 30, {place(each): 10.0 for each in (lease, other)})
        assert [each.deadline for each in kept] == 2 * [clock.at + 10_000_000]
        assert list(store.expire(ALLOWED)) == []
    clock.forward(9)
    store.extend("w", 30, {place(lease): 4.5, place(other): 10.0})
    clock.forward(4)
    store.extend("w", 30, {place(lease): 0.5, place(other): 6.0})
    assert list(store.expire(ALLOWED)) == []
    clock.forward(1)
    store.extend("w", 30, {place(lease): -0.5, place(other): 5.0})
    assert [each.command for each in store.expire(ALLOWED)] == [lease.command.id]


def test_what_a_former_holder_tells_of_its_start_moves_nothing(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1", timeout=10))
    former = claim_one(store)
    store.hand_back(former)
    claim_one(store)
    clock.forward(11)
    store.extend("w", 30, {place(former): 10.0})
    assert len(store.expire(ALLOWED)) == 1


def test_a_holder_that_dies_before_its_body_has_started_is_a_loss(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1", timeout=10))
    lease = claim_one(store)
    clock.forward(20)
    store.extend("w", 30, {place(lease): 10.0})
    clock.forward(31)
    assert list(store.expire(ALLOWED)) == []
    assert claim_one(store).losses == 1


def test_a_command_that_waits_does_not_time_out(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1", timeout=10), order("a2", timeout=10))
    store.hand_back(claim_one(store))
    clock.forward(1000)
    assert list(store.expire(ALLOWED)) == []


def test_all_that_expired_is_reported_at_once(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1", timeout=1), order("a2"))
    issue(store, "s", order("b1", timeout=1))
    claim(store, 2, "w")
    claim_one(store, "v")
    clock.forward(31)
    store.extend("w", 30)
    assert sorted(each.command for each in store.expire(0)) == ["a1", "a2", "b1"]


def test_leases_of_a_paused_run_live_on_and_run_out(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1"))
    claim_one(store)
    commit(store, "r", note(), status=PAUSED)
    assert len(store.extend("w", 30)) == 1
    clock.forward(31)
    assert list(store.expire(ALLOWED)) == []
    assert claimed_ids(store) == []
    commit(store, "r", note(), status=RUNNING)
    assert claim_one(store).losses == 1


def test_a_held_command_does_not_expire(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1", timeout=1))
    claim_one(store)
    change(store, "r", "a1", HELD)
    clock.forward(1000)
    assert list(store.expire(0)) == []
    assert claimed_ids(store) == []


def test_a_hundred_hand_backs_of_one_command_are_a_loss(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1"), order("a2"))
    change(store, "r", "a2", None)
    for _ in range(HAND_BACKS - 1):
        assert store.hand_back(claim_one(store))
        assert list(store.expire(ALLOWED)) == []
    last = claim_one(store)
    assert last.losses == 0
    assert store.hand_back(last)
    assert claimed_ids(store) == []  # until the next look
    assert list(store.expire(ALLOWED)) == []
    assert claim_one(store).losses == 1


def test_hand_backs_are_counted_on_when_a_command_is_issued_again(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1"))
    for attempt in range(1, HAND_BACKS):
        assert store.hand_back(claim_one(store))
        issue(store, "r", order("a1", attempt=attempt + 1))
    assert store.hand_back(claim_one(store))
    store.expire(ALLOWED)
    assert claim_one(store).losses == 1


def test_a_lease_that_was_given_up_is_a_loss_and_nobody_can_extend_or_report_it(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1"))
    lease = claim_one(store)
    assert store.hand_back(lease, lost=True)
    assert list(store.extend("w", 30)) == []
    assert store.publish(lease, ["x"]) is False
    assert store.hand_back(lease) is False
    with store.turn(["r"]) as turn:
        assert turn.generations("r", ["a1"]) == {}
    assert list(store.expire(ALLOWED)) == []
    again = claim_one(store)
    assert (again.losses, again.generation) == (1, lease.generation + 1)


def test_a_command_that_is_given_up_too_often_is_reported(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1"))
    for _ in range(ALLOWED):
        assert store.hand_back(claim_one(store), lost=True)
        assert list(store.expire(ALLOWED)) == []
    last = claim_one(store)
    assert store.hand_back(last, lost=True)
    assert list(store.expire(ALLOWED)) == [Expired("r", "a1", last.generation)]
    assert claimed_ids(store) == []
