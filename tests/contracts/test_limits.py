"""Shares take turns by their weights; limits hold at every instant, whatever workers do."""

import random
from collections import Counter
from typing import Any

import pytest

from refold.core.commands import RATE, rate_limit
from refold.core.outcomes import SECOND
from refold.core.state import PAUSED, RUNNING
from refold.errors import InvalidValue
from refold.ports import Abilities, Limit, Store
from tests.contracts.stores import (
    LEASE,
    NOON,
    FakeClock,
    change,
    claim,
    claim_one,
    claimed_ids,
    commit,
    ids,
    issue,
    note,
    order,
    put,
)


def singly(store: Store, count: int, **can: Any) -> list[str]:
    """Claim one command after the other."""
    return [claim_one(store, **can).command.id for _ in range(count)]


def shares_of(taken: list[str]) -> Counter[str]:
    return Counter(id[0] for id in taken)


def backlog(store: Store, count: int, *shares: str, run: str = "") -> None:
    for share in shares:
        issue(store, run + share, *(order(f"{share}{n}", share=share) for n in range(count)))


def settle_all(store: Store, *runs: str, limit: int) -> None:
    """End what is leased, so that later claims do not grow."""
    for run in runs:
        with store.turn([run]) as turn:
            gone = sorted(turn.claimed(run))[:limit]
            put(turn, run, note(), commands=dict.fromkeys(gone))


def test_shares_take_turns(store: Store) -> None:
    backlog(store, 3, "a", "b")
    assert singly(store, 6) == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_one_claim_for_many_gives_the_order_of_single_claims(store: Store, twin: Store) -> None:
    for each in (store, twin):
        each.set_weight("b", 3)
        backlog(each, 9, "a", "b", "c")
    one = singly(store, 5) + ids(claim(store, 7)) + singly(store, 3) + claimed_ids(store)
    assert one == singly(twin, 27)
    assert one[:10] == ["a0", "b0", "b1", "b2", "c0", "a1", "b3", "b4", "b5", "c1"]


def test_shares_are_served_by_their_weights(store: Store) -> None:
    store.set_weight("b", 2)
    store.set_weight("c", 5)
    backlog(store, 80, "a", "b", "c")
    assert shares_of(singly(store, 80)) == {"a": 10, "b": 20, "c": 50}
    assert shares_of(ids(claim(store, 40))) == {"a": 5, "b": 10, "c": 25}


def test_a_small_share_does_not_wait_for_a_large_one(store: Store) -> None:
    backlog(store, 500, "big")
    backlog(store, 10, "small")
    taken = singly(store, 20)
    small = [at for at, id in enumerate(taken, 1) if id.startswith("s")]
    assert len(small) == 10
    assert all(at <= 2 * k for k, at in enumerate(small, 1))


def test_in_a_share_runs_take_turns(store: Store) -> None:
    issue(store, "r", *(order(each, share="a") for each in ("a1", "a2", "a3")))
    issue(store, "s", order("b1", share="a"))
    issue(store, "t", order("c1", share="b"))
    assert singly(store, 5) == ["a1", "c1", "b1", "a2", "a3"]


def test_runs_without_a_share_are_one_share(store: Store) -> None:
    for run in ("r", "s"):
        issue(store, run, *(order(f"{run}{n}") for n in range(3)))
    issue(store, "t", *(order(f"t{n}", share="t") for n in range(3)))
    taken = singly(store, 6)
    assert taken == ["r0", "t0", "s0", "t1", "r1", "t2"]


def test_priority_comes_before_shares(store: Store) -> None:
    backlog(store, 101, "a")
    singly(store, 100)
    issue(store, "s", order("a-high", share="a", priority=1))
    issue(store, "t", order("b-low", share="b"))
    assert singly(store, 1) == ["a-high"]


def test_each_queue_and_priority_has_rounds_of_its_own(store: Store) -> None:
    """Else a claim elsewhere would set the round back, and a share could wait for ever."""
    backlog(store, 6, "b", "c")
    taken = []
    for n in range(6):
        issue(store, "high", order(f"a{n}", share="a", priority=1))
        taken += singly(store, 2)
    assert shares_of(taken) == {"a": 6, "b": 3, "c": 3}


def test_a_share_whose_commands_a_worker_cannot_take_is_passed_over(store: Store) -> None:
    issue(store, "r", *(order(f"a{n}", share="a", tool="shell") for n in range(5)))
    backlog(store, 2, "b")
    assert claimed_ids(store, tools=frozenset({"noop"})) == ["b0", "b1"]


def test_a_limit_gives_no_more_than_its_slots(store: Store) -> None:
    store.set_limit(Limit(name="K", slots=2))
    issue(store, "r", *(order(id, limit="K") for id in ("K1", "K2", "K3")), order("N"))
    leases = claim(store, 4)
    assert ids(leases) == ["K1", "K2", "N"]
    change(store, "r", "K1", None)
    assert claimed_ids(store) == ["K3"]


def test_a_limit_counts_over_runs_queues_and_shares(store: Store) -> None:
    store.set_limit(Limit(name="K", slots=2))
    for run, share, queue in (("r", "a", "x"), ("s", "b", "y"), ("t", "", "x")):
        issue(store, run, *(order(f"{run}{n}", limit="K", share=share, queue=queue) for n in range(2)))
    assert len(claimed_ids(store, queues=("x",))) == 2
    assert claimed_ids(store, queues=("y", "x")) == []


def test_a_used_up_limit_keeps_nobody_else_waiting(store: Store) -> None:
    store.set_limit(Limit(name="K", slots=1))
    issue(store, "r", *(order(f"k{n}", limit="K", priority=5) for n in range(200)))
    assert singly(store, 1) == ["k0"]
    assert claimed_ids(store) == []
    issue(store, "s", order("else"))
    assert claimed_ids(store) == ["else"]


def test_a_limit_that_no_operator_has_set_limits_nothing(store: Store) -> None:
    issue(store, "r", *(order(f"k{n}", limit="K") for n in range(3)))
    assert claimed_ids(store) == ["k0", "k1", "k2"]


def test_no_instant_has_more_leases_than_slots_and_lost_ones_are_free_again(store: Store, clock: FakeClock) -> None:
    store.set_limit(Limit(name="K", slots=5))
    for run in "rst":
        issue(store, run, *(order(f"{run}{n}", limit="K") for n in range(80)))
    chance, held = random.Random(7), list[tuple[str, str]]()
    for n in range(60):
        held += [(lease.run, lease.command.id) for lease in claim(store, chance.randint(1, 4), f"w{n % 4}")]
        assert len(store.views.leases()) == len(held) <= 5
        chance.shuffle(held)
        for run, id in [held.pop() for _ in range(chance.randint(0, len(held)))]:
            change(store, run, id, None)
    assert len(store.views.leases()) == len(held)
    claim(store, 5)
    clock.elapse(LEASE + 1)
    assert claimed_ids(store) == []
    store.expire(5)
    assert len(claimed_ids(store)) == 5


def test_a_rate_gives_tokens_by_the_stores_clock(store: Store, clock: FakeClock) -> None:
    store.set_limit(Limit(name="K", rate=20, burst=5))
    issue(store, "r", *(order(f"k{n}", limit="K") for n in range(100)))
    taken = []
    for seconds in (0, 0.049, 0.05, 10):
        clock.at = NOON + round(seconds * SECOND)
        taken.append(len(claimed_ids(store)))
    assert taken == [5, 0, 1, 5]


def test_a_claim_says_when_a_rate_allows_more(store: Store) -> None:
    store.set_limit(Limit(name="K", rate=20, burst=1))
    issue(store, "r", *(order(f"k{n}", limit="K") for n in range(3)))
    moments = []
    for _ in range(2):
        with store.turn([]) as turn:
            asked = turn.ask(Abilities("w"), LEASE, 5)
        moments.append((len(asked.leases), asked.again))
    assert moments == [(1, NOON + SECOND // 20), (0, NOON + SECOND // 20)]


def test_a_clock_that_is_set_back_brings_no_tokens_and_takes_none(store: Store, clock: FakeClock) -> None:
    store.set_limit(Limit(name="K", rate=1, burst=3))
    issue(store, "r", *(order(f"k{n}", limit="K") for n in range(9)))
    assert len(claimed_ids(store, limit=1)) == 1
    clock.forward(-3600)
    assert len(claimed_ids(store)) == 2
    assert claimed_ids(store) == []
    clock.elapse(1)
    assert len(claimed_ids(store)) == 1


def test_a_thousand_commands_of_a_used_up_limit_do_not_delay_another(store: Store) -> None:
    store.set_limit(Limit(name="K", slots=1))
    issue(store, "r", *(order(f"k{n}", limit="K") for n in range(1000)))
    assert len(claimed_ids(store)) == 1
    issue(store, "s", order("s1"))
    assert claimed_ids(store, limit=1) == ["s1"]


def test_a_hand_back_frees_the_slot_and_keeps_the_token(store: Store, clock: FakeClock) -> None:
    store.set_limit(Limit(name="K", slots=1, rate=1, burst=2))
    issue(store, "r", order("k1", limit="K"), order("k2", limit="K"))
    assert store.hand_back(claim_one(store))
    assert store.hand_back(claim_one(store))
    assert claimed_ids(store) == []
    clock.elapse(1)
    assert claimed_ids(store) == ["k1"]


def test_a_limit_of_zero_holds_until_it_is_raised(store: Store) -> None:
    store.set_limit(Limit(name="K", slots=0))
    issue(store, "r", order("k1", limit="K"), order("k2", limit="K"))
    assert claimed_ids(store) == []
    (use,) = store.views.limits()
    assert (use.limit, use.leased, use.waiting) == (Limit(name="K", slots=0), 0, 2)
    store.set_limit(Limit(name="K", slots=1))
    assert claimed_ids(store) == ["k1"]
    assert store.remove_limit("K")
    assert not store.remove_limit("K")
    assert claimed_ids(store) == ["k2"]


def test_a_run_that_continues_is_behind_the_others_of_each_lane(store: Store) -> None:
    issue(store, "r", *(order(f"r{n}", share="a") for n in range(50)), order("rk", share="a", limit="K"))
    issue(store, "s", *(order(f"s{n}", share="a") for n in range(9)))
    commit(store, "r", note(), status=PAUSED)
    assert ids(claim(store, 4)) == ["s0", "s1", "s2", "s3"]
    commit(store, "r", note(), status=RUNNING)
    assert singly(store, 5) == ["s4", "r0", "s5", "r1", "s6"]


def test_many_retries_that_fall_due_together_do_not_delay_another_run(store: Store, clock: FakeClock) -> None:
    issue(store, "r", *(order(f"r{n}", not_before=NOON + 1) for n in range(1000)))
    issue(store, "s", order("s1", not_before=NOON + 1))
    clock.at = NOON + 1
    assert "s1" in ids(claim(store, 2))


def test_a_new_weight_counts_from_the_next_turn_of_its_share(store: Store) -> None:
    store.set_weight("a", 2)
    backlog(store, 9, "a", "b")
    taken = singly(store, 1)
    store.set_weight("a", 3)
    assert taken + singly(store, 7) == ["a0", "a1", "b0", "a2", "a3", "a4", "b1", "a5"]
    store.set_weight("a", None)
    assert singly(store, 4) == ["a6", "a7", "b2", "a8"]


def test_a_turn_that_fails_leaves_the_round_and_the_tokens_as_they_were(store: Store) -> None:
    store.set_limit(Limit(name="K", rate=1, burst=1))
    issue(store, "r", order("k0", share="a", limit="K"), order("k1", share="a"))
    backlog(store, 2, "b")
    with pytest.raises(RuntimeError), store.turn([]) as turn:
        assert ids(turn.claim(Abilities("w"), LEASE, 2)) == ["k0", "b0"]
        raise RuntimeError
    assert singly(store, 3) == ["k0", "b0", "k1"]


def test_a_command_that_is_issued_and_claimed_in_one_turn_counts_for_its_limit(store: Store) -> None:
    store.set_limit(Limit(name="K", slots=1))
    for run in ("r", "s"):
        with store.turn([run]) as turn:
            put(turn, run, note(), commands={f"{run}1": order(f"{run}1", limit="K"), f"{run}2": order(f"{run}2")})
            asked = turn.ask(Abilities("w"), LEASE, 5)
        assert ids(asked.leases) == (["r1", "r2"] if run == "r" else ["s2"])


def test_the_rate_of_a_loop_is_a_limit_that_goes_with_its_run(store: Store, clock: FakeClock) -> None:
    name = rate_limit("r", "each", 1)
    issue(store, "r", *(order(f"k{n}", limit=name, rate=10.0) for n in range(3)))
    assert [len(claimed_ids(store)), len(claimed_ids(store))] == [1, 0]
    clock.elapse(0.1)
    assert claimed_ids(store) == ["k1"]
    with pytest.raises(InvalidValue, match="one of a loop with a rate"):
        store.set_limit(Limit(name=name, slots=1))


def test_shares_and_limits_are_shown(store: Store) -> None:
    store.set_weight("b", 2)
    store.set_weight("c", 3)
    store.set_limit(Limit(name="K", slots=1, rate=0.5, burst=1))
    store.set_limit(Limit(name="J", slots=9))
    issue(store, "r", order("a1", share="a", limit="K"), order("a2", share="a", limit="K"), order("b1", share="b"))
    claim(store, 1)
    assert [(each.name, each.weight, each.waiting, each.leased) for each in store.views.shares()] == [
        ("a", 1, 1, 1),
        ("b", 2, 1, 0),
        ("c", 3, 0, 0),
    ]
    uses = [(each.limit.name, each.leased, each.waiting, each.again) for each in store.views.limits()]
    assert uses == [("J", 0, 0, None), ("K", 1, 1, NOON + 2 * SECOND)]


@pytest.mark.parametrize(
    "limit",
    [
        Limit(name="K"),
        Limit(name="", slots=1),
        Limit(name="K", slots=-1),
        Limit(name="K", rate=0.0),
        Limit(name="K", rate=1.0, burst=0.5),
        Limit(name="K", rate=float("nan")),
        Limit(name="k" * 1025, slots=1),
        Limit(name=f"{RATE}a loop", slots=1),
    ],
)
def test_a_limit_that_means_nothing_is_refused(store: Store, limit: Limit) -> None:
    with pytest.raises(InvalidValue):
        store.set_limit(limit)
    assert store.views.limits() == []


@pytest.mark.parametrize("share, weight", [("a", 0), ("a", 1001), ("", 2), ("a\0", 2)])
def test_a_weight_that_means_nothing_is_refused(store: Store, share: str, weight: int) -> None:
    with pytest.raises(InvalidValue):
        store.set_weight(share, weight)
    assert store.views.shares() == []
