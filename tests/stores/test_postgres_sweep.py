"""PostgreSQL: one process sweeps at a time, an outage is nobody's loss, and what does not wait costs nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from refold.ports import Abilities, Limit
from refold.stores.postgres.store import PostgresStore
from tests.contracts.stores import (
    LEASE,
    FakeClock,
    change,
    claim,
    claim_one,
    claimed_ids,
    ids,
    issue,
    order,
    postgres_url,
)

SHARES = "select name, waiting from refold.shares where ns = %s order by name"
LANES = """
    select a.needs, a.waiting, a.floor > 0 from refold.lanes a join refold.shares s using (share)
    where s.ns = %s order by a.needs"""


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[PostgresStore]:
    store = PostgresStore(postgres_url(tmp_path), clock, clock.steady)
    yield store
    store.close()


@pytest.fixture
def other(tmp_path: Path, store: PostgresStore, clock: FakeClock) -> Iterator[PostgresStore]:
    other = PostgresStore(postgres_url(tmp_path), clock, clock.steady)
    yield other
    other.close()


def test_one_process_sweeps_in_each_interval(store: PostgresStore, other: PostgresStore, clock: FakeClock) -> None:
    assert [each.begin_sweep(1.0, LEASE) for each in (store, other, store)] == [True, False, False]
    clock.elapse(0.9)
    assert not other.begin_sweep(1.0, LEASE)
    clock.elapse(0.1)
    assert [each.begin_sweep(1.0, LEASE) for each in (other, store)] == [True, False]


def test_an_outage_of_the_server_is_nobodys_loss(store: PostgresStore, clock: FakeClock) -> None:
    issue(store, "r", order("a1"), order("a2"))
    claim_one(store, lease_for=3)
    assert store.begin_sweep(1.0, LEASE)
    clock.elapse(3)  # no outage: the sweep is late by less than five intervals
    assert store.begin_sweep(1.0, LEASE)
    store.expire(5)
    assert not store.views.leases("r")
    leases = claim(store, 2)
    store.extend("w", LEASE)
    assert [lease.losses for lease in leases] == [1, 0]
    clock.elapse(3600)
    assert store.begin_sweep(1.0, LEASE)
    store.expire(5)
    assert len(store.views.leases("r")) == 2, "their worker could not beat either"
    for _ in range(31):
        clock.elapse(1)
        assert store.begin_sweep(1.0, LEASE)
    store.expire(5)
    assert not store.views.leases("r"), "it could have for a whole lease time"


def test_a_share_and_a_lane_that_are_empty_are_not_looked_at_until_somebody_waits_there(
    store: PostgresStore, clock: FakeClock
) -> None:
    issue(store, "r", order("a1", share="a"), order("b1", tool="shell"))
    assert len(claimed_ids(store)) == 2
    store.begin_sweep(1.0, LEASE)
    ns = store.memory.ns
    assert store.session.rows(SHARES, ns) == [("", True), ("a", False)]
    assert {waiting for _, waiting, _ in store.session.rows(LANES, ns)} == {False}
    issue(store, "r", order("a2", share="a"), order("b2", tool="shell"))
    assert len(claimed_ids(store)) == 2


def test_what_a_worker_cannot_take_does_not_delay_what_it_can(store: PostgresStore) -> None:
    issue(store, "unfit", *(order(f"u{n}", tool="other") for n in range(3000)))
    for n in range(100):
        issue(store, f"unfit{n}", order("u", tool="body:old"))
    issue(store, "r", order("a1"), order("a2"))
    rows = "select count(*) from refold.commands where state = 'h' and ns = %s"
    can = Abilities("w", tools=frozenset({"noop"}))
    with store.turn([]) as turn:
        assert ids(turn.claim(can, LEASE, 5)) == ["a1", "a2"]
    assert store.session.rows(rows, store.memory.ns) == [(2,)]


def test_a_limit_that_another_claim_is_at_is_passed_over_and_tried_again_soon(
    store: PostgresStore, other: PostgresStore
) -> None:
    """A claim never waits for a lock."""
    store.set_limit(Limit(name="K", slots=5))
    issue(store, "r", order("k1", limit="K"), order("k2", limit="K"))
    issue(store, "s", order("free"))
    with store.turn([]) as turn:
        assert ids(turn.claim(Abilities("w"), LEASE, 1)) == ["k1"]
        with other.turn([]) as also:
            asked = also.ask(Abilities("v"), LEASE, 2)
        assert ids(asked.leases) == ["free"]
        assert asked.again == also.now
    assert claimed_ids(other) == ["k2"]


def test_processes_that_claim_together_never_exceed_a_limit(store: PostgresStore, other: PostgresStore) -> None:
    store.set_limit(Limit(name="K", slots=3))
    issue(store, "r", *(order(f"k{n}", limit="K") for n in range(40)))
    held: list[str] = []
    for n in range(60):
        each = (store, other)[n % 2]
        held += ids(claim(each, 2, "wv"[n % 2]))
        assert len(held) <= 3
        if len(held) == 3 or n % 3 == 0:
            for id in held[: n % 3 + 1]:
                change((other, store)[n % 2], "r", id, None)
            held = held[n % 3 + 1 :]


def test_a_share_that_another_process_gives_a_weight_has_it_in_every_queue(
    store: PostgresStore, other: PostgresStore
) -> None:
    issue(store, "r", order("x1", share="a", queue="x"))
    other.set_weight("a", 4)
    issue(store, "r", order("y1", share="a", queue="y"))
    weights = "select queue, weight from refold.shares where ns = %s and name = 'a' order by queue"
    assert store.session.rows(weights, store.memory.ns) == [("x", 4), ("y", 4)]
