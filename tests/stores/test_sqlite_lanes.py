"""The lanes as they stand in the file: in each, the first waiting command of every run has the run's turn."""

from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis.stateful import invariant, run_state_machine_as_test

from refold.core.commands import HELD
from refold.core.state import PAUSED, RUNNING
from refold.ports import Abilities
from refold.stores.sqlite.store import SqliteStore
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
from tests.contracts.test_store_model import StoreMachine
from tests.stores.sqlite_files import ask, opened

FIRST = """
    select count(*) from commands c join runs using (namespace, run)
    where state = 'waiting' and status <> 'paused' and (turn is null) = (place = (
        select min(place) from commands d
        where d.run = c.run and d.queue = c.queue and d.priority = c.priority and d.state = 'waiting'))"""
IDLE = """
    select count(*) from commands join runs using (namespace, run)
    where turn is not null and (state <> 'waiting' or status = 'paused')"""


def out_of_turn(store: SqliteStore) -> tuple[int, int]:
    """First commands without a turn and others with one; turns of commands that nobody may claim."""
    rows = [store.file.rows(query, ()) for query in (FIRST, IDLE)]
    return rows[0][0][0], rows[1][0][0]


def test_whatever_happens_the_first_command_of_each_run_in_a_lane_has_the_turn() -> None:
    class Machine(StoreMachine):
        def __init__(self) -> None:
            super().__init__("sqlite")

        @invariant()
        def turns_are_with_the_first(self) -> None:
            assert isinstance(self.store, SqliteStore)
            assert out_of_turn(self.store) == (0, 0)

    run_state_machine_as_test(Machine, settings=settings(max_examples=60, stateful_step_count=30))


def test_runs_take_turns_however_many_there_are(tmp_path: Path) -> None:
    """More than are read at once, and more than once round."""
    with opened(tmp_path) as store:
        for n in range(30):
            issue(store, f"r{n:02}", *(order(f"{n:02}-{m}") for m in range(3)))
        expected = [f"{n:02}-{m}" for m in range(3) for n in range(30)]
        assert ids(claim(store, 47)) == expected[:47]
        got = [claim_one(store).command.id for _ in range(20)]
        assert got == expected[47:67]
        assert claimed_ids(store) == expected[67:]


def test_claims_of_one_turn_go_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        for run in "rst":
            issue(store, run, *(order(f"{run}{n}") for n in range(20)))
        with store.turn([]) as turn:
            got = [turn.claim(Abilities("w"), LEASE, 1)[0].command.id for _ in range(9)]
            other = ids(turn.claim(Abilities("v"), LEASE, 3))
        assert got == ["r0", "s0", "t0", "r1", "s1", "t1", "r2", "s2", "t2"]
        assert other == ["r3", "s3", "t3"]


def test_what_a_turn_issues_stands_behind_what_waits_already(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        issue(store, "old", order("o1"), order("o2"))
        with store.turn(["new"]) as turn:
            put(turn, "new", note(), commands={"n1": order("n1"), "n2": order("n2"), "h1": order("h1", priority=1)})
            got = ids(turn.claim(Abilities("w"), LEASE, 10))
        assert got == ["h1", "o1", "n1", "o2", "n2"]


def test_what_several_runs_issue_in_one_turn_goes_round_by_round(tmp_path: Path) -> None:
    with opened(tmp_path) as store, store.turn([]) as turn:
        put(turn, "r", note(), commands={id: order(id) for id in ("r1", "r2", "r3")})
        put(turn, "s", note(), commands={"s1": order("s1"), "S1": order("S1", priority=1), "s2": order("s2")})
        put(turn, "t", note(), commands={"t1": order("t1", tool="shell"), "t2": order("t2")}, status=PAUSED)
        assert ids(turn.claim(Abilities("w"), LEASE, 10)) == ["S1", "r1", "s1", "r2", "s2", "r3"]


def test_what_was_claimed_before_it_was_ever_stored_is_stored_as_leased(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        with store.turn(["r"]) as turn:
            put(turn, "r", note(), commands={"a1": order("a1"), "a2": order("a2")})
            turn.claim(Abilities("w"), LEASE, 1)
        rows = ask(tmp_path, "select id, state, worker, generation, turn is null from commands order by id")
        assert rows == [("a1", "leased", "w", 1, 1), ("a2", "waiting", None, 0, 0)]


def test_a_command_that_comes_back_first_takes_the_turn_of_its_run(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        issue(store, "r", *(order(f"r{n}") for n in range(4)))
        issue(store, "s", *(order(f"s{n}") for n in range(4)))
        leases = claim(store, 4)  # r0 s0 r1 s1
        for lease in leases[::-1]:
            assert store.hand_back(lease)
        assert out_of_turn(store) == (0, 0)
        assert sorted(claimed_ids(store, limit=4)) == ["r0", "r1", "s0", "s1"]


def test_the_next_one_inherits_the_turn_of_a_command_that_is_withdrawn(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        for run in "rst":
            issue(store, run, order(f"{run}1"), order(f"{run}2"))
        change(store, "r", "r1", None)
        change(store, "s", "s1", HELD)
        assert claimed_ids(store, limit=3) == ["r2", "s2", "t1"]


def test_a_run_that_goes_on_after_a_pause_stands_behind_the_others(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        for run in "rst":
            issue(store, run, order(f"{run}1"), order(f"{run}2"), order(f"{run}3", priority=1))
        commit(store, "r", note(), status=PAUSED)
        assert out_of_turn(store) == (0, 0)
        commit(store, "r", note(), status=RUNNING)
        assert out_of_turn(store) == (0, 0)
        assert claimed_ids(store) == ["s3", "t3", "r3", "s1", "t1", "r1", "s2", "t2", "r2"]


def test_commands_that_wait_for_their_moment_cost_nothing_until_then(tmp_path: Path) -> None:
    clock = FakeClock()
    with opened(tmp_path, clock) as store:
        issue(store, "r", order("r1", not_before=NOON + 5), order("r2"), order("r3", not_before=NOON + 9))
        assert claimed_ids(store) == ["r2"]
        clock.at = NOON + 5
        issue(store, "s", order("s1"))
        assert sorted(claimed_ids(store)) == ["r1", "s1"]
        assert ask(tmp_path, "select id, state from commands where state = 'later'") == [("r3", "later")]


def test_numbers_grow_even_if_the_clock_stands_still(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        issue(store, "r", *(order(f"a{n}") for n in range(100)))
        places = [place for (place,) in ask(tmp_path, "select place from commands")]
        assert len(set(places)) == 100


def test_a_moment_that_no_column_can_hold_is_the_last_one_there_is(tmp_path: Path) -> None:
    far: Any = 10**30
    with opened(tmp_path) as store:
        issue(store, "r", order("a1", not_before=far), order("a2"), timers={"t": far})
        assert claimed_ids(store) == ["a2"]
        assert store.due(10) == ([], 2**63 - 1)
