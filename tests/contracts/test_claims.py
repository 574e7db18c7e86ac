"""Which command a worker gets: by priority, then run by run, then as issued; and what it never gets."""

from typing import Any

import pytest

from refold.core.commands import HELD, Command
from refold.core.outcomes import SECOND, Succeeded
from refold.core.state import COMPLETED, PAUSED, RUNNING
from refold.ports import Abilities, Store
from tests.contracts.stores import (
    LEASE,
    NOON,
    PLAN_HASH,
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


def test_an_empty_store_gives_nothing(store: Store) -> None:
    assert list(claim(store)) == []


def test_a_lease_tells_all_a_worker_needs(store: Store) -> None:
    command = order(
        "a/1/7",
        tool="http",
        item=7,
        input={"url": "ü"},
        queue="q",
        priority=3,
        not_before=NOON,
        timeout=2.5,
        progress=[1],
        recorded={"key": Succeeded({"page": 1})},
    )
    issue(store, "r", command)
    lease = claim_one(store, worker="me", lease_for=0.25, queues=("q",))
    assert (lease.run, lease.command, lease.worker, lease.plan) == ("r", command, "me", PLAN_HASH)
    assert (lease.generation, lease.losses) == (1, 0)
    assert (lease.claimed_at, lease.until, lease.deadline) == (NOON, NOON + 250_000, NOON + 2_500_000)


def test_a_command_without_a_timeout_has_no_deadline(store: Store) -> None:
    issue(store, "r", order())
    assert claim_one(store).deadline is None


def test_a_claimed_command_is_not_given_to_another(store: Store) -> None:
    issue(store, "r", order("a1"))
    claim_one(store, worker="w")
    assert list(claim(store, worker="v")) == list(claim(store, worker="w")) == []


def test_a_claim_gives_no_more_than_the_limit(store: Store) -> None:
    issue(store, "r", *(order(f"a{n}") for n in range(5)))
    assert [len(claim(store, limit)) for limit in (0, 2, 2, 2, 2)] == [0, 2, 2, 1, 0]


def test_commands_of_a_run_go_in_the_order_of_issue(store: Store) -> None:
    issue(store, "r", order("z"), order("b"), order("m"))
    issue(store, "r", order("a"))
    assert claimed_ids(store) == ["z", "b", "m", "a"]


def test_single_claims_and_one_for_all_give_the_same_order(store: Store, twin: Store) -> None:
    for each in (store, twin):
        issue(each, "r", order("a1"), order("a2", priority=1), order("a3"))
        issue(each, "s", order("b1"), order("b2", priority=1))
    assert [claim_one(store).command.id for _ in range(5)] == claimed_ids(twin)


def test_the_higher_priority_goes_first_across_runs_and_times_of_issue(store: Store) -> None:
    issue(store, "r", order("low", priority=-5), order("normal"))
    issue(store, "s", order("high", priority=7), order("higher", priority=10))
    issue(store, "t", order("highest", priority=100))
    assert claimed_ids(store) == ["highest", "higher", "high", "normal", "low"]


def test_runs_of_a_lane_take_turns(store: Store) -> None:
    issue(store, "r", *(order(f"a{n}") for n in (1, 2, 3)))
    issue(store, "s", *(order(f"b{n}") for n in (1, 2)))
    issue(store, "t", order("c1"))
    assert claimed_ids(store) == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_runs_take_turns_in_each_priority_by_itself(store: Store) -> None:
    issue(store, "r", order("a1"), order("a2"), order("A1", priority=1), order("A2", priority=1))
    issue(store, "s", order("b1"), order("b2"), order("B1", priority=1), order("B2", priority=1))
    assert claimed_ids(store) == ["A1", "B1", "A2", "B2", "a1", "b1", "a2", "b2"]


def test_a_new_run_waits_for_no_more_than_one_command_of_each_other(store: Store) -> None:
    issue(store, "r", *(order(f"a{n}") for n in range(50)))
    issue(store, "s", *(order(f"b{n}") for n in range(50)))
    claim(store, 21)
    issue(store, "new", order("n1"))
    assert "n1" in claimed_ids(store, limit=3)


def test_a_run_that_issues_more_does_not_jump_the_queue(store: Store) -> None:
    issue(store, "r", order("a1"))
    issue(store, "s", order("b1"), order("b2"))
    got = []
    for n in range(2, 6):  # a chain: settle one, issue the next, claim again
        lease = claim_one(store)
        got.append(lease.command.id)
        change(store, lease.run, lease.command.id, None)
        if lease.run == "r":
            issue(store, "r", order(f"a{n}"))
    assert [id[0] for id in got] == ["a", "b", "a", "b"]


def test_a_worker_gets_commands_of_its_queues_alone(store: Store) -> None:
    issue(store, "r", order("a1"), order("g1", queue="gpu", priority=9), order("e1", queue=""))
    assert claimed_ids(store) == ["a1"]
    assert claimed_ids(store, queues=()) == []
    assert claimed_ids(store, queues=("GPU", "gpu ")) == []
    assert claimed_ids(store, queues=("gpu",)) == ["g1"]
    assert claimed_ids(store, queues=("",)) == ["e1"]


def test_priority_counts_across_queues_and_then_the_workers_order_of_queues(store: Store) -> None:
    issue(store, "r", order("x1", queue="x"), order("y1", queue="y"), order("z1", queue="z", priority=1))
    issue(store, "s", order("x2", queue="x"), order("y2", queue="y"))
    assert claimed_ids(store, queues=("y", "x", "z")) == ["z1", "y1", "y2", "x1", "x2"]


@pytest.mark.parametrize("runs", [None, frozenset("rs")])
def test_a_worker_of_all_queues_gets_what_waits_in_any(store: Store, runs: frozenset[str] | None) -> None:
    issue(store, "r", order("b1", queue="b"), order("a1", queue="a"), order("z1", queue="z", priority=1))
    issue(store, "s", order("b2", queue="b"), order("e1", queue=""))
    issue(store, "t", order("t1", queue="t"))
    mine = ["z1", "e1", "a1", "b1", "b2"]
    assert claimed_ids(store, queues=None, runs=runs) == (mine if runs is not None else [*mine, "t1"])
    assert claimed_ids(store, queues=None, runs=runs) == []


def test_a_worker_gets_commands_for_its_tools_alone(store: Store) -> None:
    issue(store, "r", order("h1", tool="http"), order("s1", tool="shell"), order("h2", tool="http"))
    assert claimed_ids(store, tools=frozenset()) == []
    assert claimed_ids(store, tools=frozenset({"shell", "other"})) == ["s1"]
    assert claimed_ids(store, tools=None) == ["h1", "h2"]


def test_a_command_of_high_priority_for_another_tool_blocks_nobody(store: Store) -> None:
    issue(store, "r", order("s1", tool="shell", priority=9), order("h1", tool="http"))
    assert claimed_ids(store, tools=frozenset({"http"})) == ["h1"]


def test_a_worker_gets_commands_of_the_runs_it_serves_alone(store: Store) -> None:
    for run in ("r", "s", "t"):
        issue(store, run, order(f"{run}1"), order(f"{run}2"))
    assert claimed_ids(store, runs=frozenset()) == []
    assert claimed_ids(store, runs=frozenset({"s", "nobody"})) == ["s1", "s2"]
    assert claimed_ids(store, runs=frozenset({"t", "r"})) == ["r1", "t1", "r2", "t2"]


def test_a_command_waits_for_its_moment(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1", not_before=NOON + 1_000_000))
    clock.at = NOON + 999_999
    assert claimed_ids(store) == []
    clock.at = NOON + 1_000_000
    assert claimed_ids(store) == ["a1"]


def test_a_command_whose_moment_is_past_can_be_claimed_at_once(store: Store) -> None:
    issue(store, "r", order("a1", not_before=NOON), order("a2", not_before=1))
    assert claimed_ids(store) == ["a1", "a2"]


def test_a_command_for_later_blocks_nobody_and_then_has_its_place(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("high", priority=9, not_before=NOON + 1), order("a1", not_before=NOON + 1), order("a2"))
    issue(store, "r", order("a3"))
    assert claim_one(store).command.id == "a2"
    clock.at += 1
    assert claimed_ids(store) == ["high", "a1", "a3"]


def test_a_command_issued_again_follows_its_new_moment(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("sooner", not_before=NOON + 9), order("later", not_before=NOON + 1))
    issue(store, "r", order("sooner", not_before=NOON + 1), order("later", not_before=NOON + 9))
    clock.at = NOON + 1
    assert claimed_ids(store) == ["sooner"]
    clock.at = NOON + 9
    assert claimed_ids(store) == ["later"]


def test_a_command_issued_again_follows_its_new_queue_and_priority(store: Store) -> None:
    issue(store, "r", order("a1", queue="x"), order("a2"), order("a3", priority=9))
    issue(store, "r", order("a1", priority=9), order("a3", queue="x"))
    assert claimed_ids(store) == ["a1", "a2"]
    assert claimed_ids(store, queues=("x",)) == ["a3"]


def test_a_command_issued_again_stands_behind_the_others_of_its_run(store: Store) -> None:
    issue(store, "r", order("a1"), order("a2"), order("a3"))
    issue(store, "r", order("a1", attempt=2))
    assert claimed_ids(store) == ["a2", "a3", "a1"]


def test_a_held_command_cannot_be_claimed_until_it_is_issued_again(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1"), order("a2", not_before=NOON + 1))
    change(store, "r", "a1", HELD)
    change(store, "r", "a2", HELD)
    clock.at += 1
    assert claimed_ids(store) == []
    issue(store, "r", order("a1", attempt=2), order("a2", attempt=2))
    assert claimed_ids(store) == ["a1", "a2"]


def test_holding_a_command_that_does_not_exist_makes_none(store: Store) -> None:
    issue(store, "r", order("a1"))
    change(store, "r", "a2", HELD)
    assert claimed_ids(store) == ["a1"]


@pytest.mark.parametrize("not_before", [0, NOON + 1])
def test_a_removed_command_cannot_be_claimed(store: Store, clock: FakeClock, not_before: int) -> None:
    issue(store, "r", order("a1", not_before=not_before), order("a2"))
    change(store, "r", "a1", None)
    change(store, "r", "never there", None)
    clock.at += 1
    assert claimed_ids(store) == ["a2"]


def test_commands_of_a_paused_run_wait_until_it_goes_on(store: Store) -> None:
    issue(store, "r", order("a1"), order("a2"))
    issue(store, "s", order("b1"))
    commit(store, "r", note(), status=PAUSED)
    assert claimed_ids(store) == ["b1"]
    commit(store, "r", note(), status=RUNNING)
    assert claimed_ids(store) == ["a1", "a2"]


def test_a_run_can_be_paused_and_go_on_many_times_and_gives_each_command_once(store: Store) -> None:
    issue(store, "r", *(order(f"a{n}") for n in range(4)))
    got = []
    for _ in range(4):
        commit(store, "r", note(), status=PAUSED)
        assert claimed_ids(store) == []
        commit(store, "r", note(), status=RUNNING)
        got.append(claim_one(store).command.id)
    assert got == ["a0", "a1", "a2", "a3"]


def test_a_run_paused_in_its_first_turn_gives_nothing(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1"), order("a2", not_before=NOON + 1), status=PAUSED)
    clock.at += 1
    assert claimed_ids(store) == []


def test_the_same_ids_in_two_runs_are_two_commands(store: Store) -> None:
    issue(store, "r", order("a1", input="r"))
    issue(store, "s", order("a1", input="s"))
    change(store, "r", "a1", None)
    assert [(lease.run, lease.command.input) for lease in claim(store, 5)] == [("s", "s")]


def test_commands_of_a_run_that_ended_can_be_cleared_in_its_last_turn(store: Store) -> None:
    issue(store, "r", order("a1"), order("a2"))
    claim_one(store)
    commit(store, "r", note(), status=COMPLETED, commands={"a1": None, "a2": None})
    assert claimed_ids(store) == []
    with store.turn(["r"]) as turn:
        assert turn.claimed("r") == frozenset()


def test_a_holder_who_changes_its_input_changes_nothing_for_the_next(store: Store) -> None:
    given = {"list": [1]}
    issue(store, "r", order("a1", input=given))
    given["list"].append(2)
    lease = claim_one(store)
    lease.command.input["list"].append(3)
    assert store.hand_back(lease)
    assert claim_one(store).command.input == {"list": [1]}


def parked(id: str = "a1", by: str = "w", seconds: float = 1, **fields: Any) -> Command:
    """A command whose parked body a worker holds."""
    return order(id, prefer=by, prefer_until=NOON + round(seconds * SECOND), **fields)


def test_the_worker_that_holds_a_parked_body_is_offered_its_command_first(store: Store) -> None:
    for worker in "wv":
        store.enrol(Abilities(worker))
    issue(store, "r", parked("a1"), order("a2"))
    assert claimed_ids(store, worker="v") == ["a2"]
    assert claimed_ids(store, worker="w") == ["a1"]


def test_any_worker_may_have_the_command_of_a_parked_body_after_a_second(store: Store, clock: FakeClock) -> None:
    store.enrol(Abilities("w"))
    issue(store, "r", parked(seconds=1))
    clock.at = NOON + SECOND - 1
    assert claimed_ids(store, worker="v") == []
    clock.at = NOON + SECOND
    assert claimed_ids(store, worker="v") == ["a1"]


def test_a_command_of_a_parked_body_blocks_no_other_command_of_its_run_or_lane(store: Store) -> None:
    store.enrol(Abilities("w"))
    issue(store, "r", *(parked(f"p{n}") for n in range(9)), order("a1"), parked("high", priority=3))
    issue(store, "s", parked("q1"), order("b1"))
    assert sorted(claimed_ids(store, worker="v")) == ["a1", "b1"]
    assert len(claimed_ids(store, worker="w")) == 11


def test_a_command_that_its_preferred_worker_hands_back_is_still_that_workers(store: Store, clock: FakeClock) -> None:
    store.enrol(Abilities("w"))
    issue(store, "r", parked())
    store.hand_back(claim_one(store, worker="w"))
    assert claimed_ids(store, worker="v") == []
    clock.at = NOON + SECOND
    assert claimed_ids(store, worker="v") == ["a1"]


def test_a_command_that_is_issued_and_claimed_in_one_turn_goes_to_its_preferred_worker(store: Store) -> None:
    for worker in "wv":
        store.enrol(Abilities(worker))
    with store.turn(["r"]) as turn:
        put(turn, "r", note(), commands={"a1": parked()})
        assert list(turn.claim(Abilities("v"), LEASE, 5)) == []
        assert ids(turn.claim(Abilities("w"), LEASE, 5)) == ["a1"]


def test_the_order_does_not_change_when_workers_come_with_different_abilities(store: Store) -> None:
    issue(store, "r", order("h1", tool="http"), order("s1", tool="shell"), order("h2", tool="http"))
    issue(store, "s", order("h3", tool="http"), order("s2", tool="shell"))
    assert ids(claim(store, 1, tools=frozenset({"shell"}))) == ["s1"]
    assert ids(claim(store, 1, tools=frozenset({"shell"}))) == ["s2"]
    assert claimed_ids(store) == ["h1", "h3", "h2"]


FULL = (("interpreter", 0),)


def test_a_command_whose_executor_has_no_free_place_is_passed_over(store: Store) -> None:
    issue(store, "r", order("code1", executor="interpreter", priority=9), order("web", priority=1))
    issue(store, "s", order("code2", executor="interpreter"))
    assert claimed_ids(store, places=FULL) == ["web"]
    assert claimed_ids(store, places=FULL) == []
    assert claimed_ids(store, places=(("interpreter", 1),)) == ["code1"]
    assert claimed_ids(store) == ["code2"]


def test_one_claim_takes_no_more_than_there_are_places_and_fills_the_slots_with_the_rest(store: Store) -> None:
    issue(store, "r", *(order(f"code{n}", executor="interpreter") for n in range(4)), order("web1"), order("web2"))
    leases = claim(store, 5, places=(("interpreter", 2),))
    assert sorted(ids(leases)) == ["code0", "code1", "web1", "web2"]
    assert {lease.command.id: lease.command.executor for lease in leases}["code0"] == "interpreter"


def test_commands_of_the_same_turn_are_passed_over_too(store: Store) -> None:
    with store.turn(["r"]) as turn:
        put(turn, "r", note(), commands={each: order(each, executor="interpreter") for each in ("a", "b", "c")})
        leases = turn.claim(Abilities("w", places=(("interpreter", 1),)), LEASE, 10)
        more = turn.claim(Abilities("w", places=FULL), LEASE, 10)
    assert (ids(leases), ids(more), claimed_ids(store)) == (["a"], [], ["b", "c"])


def test_a_worker_without_a_free_place_is_not_remembered_as_one_that_finds_nothing(store: Store) -> None:
    issue(store, "r", order("code", executor="interpreter"))
    for places, found in ((FULL, []), (FULL, []), ((("interpreter", 1),), ["code"])):
        with store.turn(["s"]) as turn:
            put(turn, "s", note())
            assert ids(turn.claim(Abilities("w", places=places), LEASE, 5)) == found


def test_the_run_whose_turn_comes_first_is_served_first_whatever_executor_it_needs(store: Store) -> None:
    for n in range(6):
        issue(store, f"r{n}", order(f"c{n}", executor="interpreter" if n % 2 else ""))
    assert claimed_ids(store, 4) == ["c0", "c1", "c2", "c3"]
    assert [claim_one(store).command.id for _ in range(2)] == ["c4", "c5"]


def test_priority_and_queue_come_before_the_executor(store: Store) -> None:
    issue(
        store, "r", order("late", queue="b"), order("code", queue="a", executor="interpreter"), order("low", queue="a")
    )
    issue(store, "s", order("first", queue="b", priority=1, executor="interpreter"))
    assert claimed_ids(store, queues=("a", "b")) == ["first", "code", "low", "late"]


def test_a_paused_run_keeps_its_commands_of_every_executor(store: Store) -> None:
    issue(store, "r", order("code", executor="interpreter"), order("web"))
    commit(store, "r", note(), status=PAUSED)
    assert claimed_ids(store) == []
    commit(store, "r", note(), status=RUNNING)
    assert sorted(claimed_ids(store)) == ["code", "web"]


def test_a_command_that_starts_later_or_was_handed_back_keeps_its_executor(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("later", executor="interpreter", not_before=NOON + 5_000_000))
    clock.forward(6)
    assert claimed_ids(store, places=FULL) == []
    lease = claim_one(store)
    store.hand_back(lease)
    assert claimed_ids(store, places=FULL) == []
    assert claim_one(store, runs=frozenset({"r"})).command.executor == "interpreter"


def test_a_worker_of_one_run_passes_over_what_has_no_place(store: Store) -> None:
    issue(store, "r", order("code", executor="interpreter"), order("web"))
    only = frozenset({"r"})
    assert claimed_ids(store, places=FULL, runs=only) == ["web"]
    assert claimed_ids(store, places=FULL, runs=only) == []
    assert claimed_ids(store, runs=only) == ["code"]
