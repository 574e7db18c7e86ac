"""What a turn does is done together or not at all, and the turn itself already sees it."""

from collections.abc import Callable
from typing import Any

import pytest

from refold.core.commands import HELD
from refold.core.plan import Plan, canonical, plan_hash
from refold.core.state import COMPLETED, PAUSED
from refold.errors import Conflict, NotFound
from refold.ports import Abilities, RunFilter, Store, StoreTurn
from tests.contracts.stores import (
    LEASE,
    NOON,
    PLAN_BYTES,
    FakeClock,
    claim,
    claim_one,
    claimed_ids,
    commit,
    due_runs,
    issue,
    letter,
    note,
    order,
    put,
    unread,
)

RUNS = ("one", "two", "new")
COMMANDS = ("a1", "a2", "a3", "a4", "b1", "b2", "n1", "later")
OTHER_PLAN = Plan(name="other", steps=())


def write_and_read_letters(turn: StoreTurn) -> None:
    put(turn, "two", note(), letters=[letter("third", "one")])
    put(turn, "one", note(), read_letters=["first", "third"])
    put(turn, "two", note(), letters=[letter("fourth", "one")])


def claim_and_remove(turn: StoreTurn) -> None:
    turn.claim(Abilities("v"), LEASE, 2)
    put(turn, "one", note(), commands={"a1": None, "a2": None, "a3": None})
    put(turn, "one", note(), commands={"a2": order("a2", priority=1)})
    turn.claim(Abilities("v"), LEASE, 2)


CHANGES: dict[str, Callable[[StoreTurn], object]] = {
    "facts": lambda turn: put(turn, "one", note("x"), note("y")),
    "a new run": lambda turn: put(turn, "new", note(), commands={"n1": order("n1")}),
    "a status": lambda turn: put(turn, "one", note(), status=PAUSED),
    "a command": lambda turn: put(turn, "two", note(), commands={"b2": order("b2")}),
    "a command with priority": lambda turn: put(turn, "two", note(), commands={"b2": order("b2", priority=9)}),
    "a command for later": lambda turn: put(turn, "two", note(), commands={"b2": order("b2", not_before=NOON + 1)}),
    "the removal of a waiting command": lambda turn: put(turn, "one", note(), commands={"a2": None}),
    "the removal of a claimed command": lambda turn: put(turn, "one", note(), commands={"a1": None}),
    "the removal of a run's only command": lambda turn: put(turn, "two", note(), commands={"b1": None}),
    "the removal of a command for later": lambda turn: put(turn, "one", note(), commands={"later": None}),
    "a waiting command issued again": lambda turn: put(turn, "one", note(), commands={"a2": order("a2", attempt=2)}),
    "a claimed command issued again": lambda turn: put(turn, "one", note(), commands={"a1": order("a1", attempt=2)}),
    "a held command issued again": lambda turn: put(turn, "one", note(), commands={"a4": order("a4", attempt=2)}),
    "a waiting command held": lambda turn: put(turn, "one", note(), commands={"a2": HELD}),
    "a claimed command held": lambda turn: put(turn, "one", note(), commands={"a1": HELD}),
    "a new timer": lambda turn: put(turn, "two", note(), timers={"new": NOON}),
    "a moved timer": lambda turn: put(turn, "one", note(), timers={"due": NOON + 9, "soon": NOON}),
    "a cleared timer": lambda turn: put(turn, "one", note(), timers={"due": None, "soon": None}),
    "a letter": lambda turn: put(turn, "one", note(), letters=[letter("third", "one"), letter("l", "new")]),
    "a letter read": lambda turn: put(turn, "one", note(), read_letters=["first"]),
    "letters written and read": write_and_read_letters,
    "a blob": lambda turn: put(turn, "one", note(), blobs={"new": b"new", "old": b"changed"}),
    "a plan": lambda turn: put(turn, "new", note(), plan=canonical(OTHER_PLAN)),
    "a claim": lambda turn: turn.claim(Abilities("v"), LEASE, 1),
    "many claims": lambda turn: turn.claim(Abilities("v"), LEASE, 100),
    "claims and removals": claim_and_remove,
}


def furnish(store: Store) -> None:
    """Two runs with a little of everything."""
    commands = {id: order(id) for id in ("a1", "a2", "a3", "a4")}
    commands["later"] = order("later", not_before=NOON + 1)
    commit(
        store,
        "one",
        note("start"),
        turn="first turn",
        commands=commands,
        timers={"due": NOON - 1, "soon": NOON + 1},
        blobs={"old": b"old"},
        plan=PLAN_BYTES,
    )
    commit(store, "one", note(), commands={"a4": HELD})
    claim(store, worker="w")
    issue(store, "two", order("b1"), letters=[letter("first", "one"), letter("second", "one")])


def photo(store: Store) -> dict[str, Any]:
    """Everything the port lets one see without changing it."""

    def blob(turn: StoreTurn, run: str, hash: str) -> bytes | None:
        try:
            return turn.blob(run, hash)
        except NotFound:
            return None

    seen: dict[str, Any] = {"due": store.due(100), "rows": list(store.views.runs().rows)}
    seen["plan"] = store.plan(plan_hash(OTHER_PLAN))
    seen["logs"] = {run: (list(store.facts(run)), store.summary(run)) for run in RUNS}
    seen["turns"] = {run: [store.turn_of(run, n) for n in range(1, 9)] for run in RUNS}
    with store.turn(RUNS) as turn:
        for run in RUNS:
            seen[run] = {
                "log": (turn.head(run), list(turn.facts(run))),
                "letters": list(turn.letters(run)),
                "timers": list(turn.due_timers(run)),
                "claimed": turn.claimed(run),
                "leases": [turn.lease(run, command) for command in COMMANDS],
                "blobs": [blob(turn, run, hash) for hash in ("old", "new")],
            }
    return seen


class Mishap(BaseException):
    pass


@pytest.mark.parametrize("change", CHANGES)
def test_a_turn_that_fails_leaves_nothing_behind(store: Store, twin: Store, clock: FakeClock, change: str) -> None:
    furnish(store)
    furnish(twin)
    with pytest.raises(Mishap), store.turn(RUNS) as turn:
        CHANGES[change](turn)
        raise Mishap
    assert photo(store) == photo(twin)
    assert claim(store, 1) == claim(twin, 1)  # in the same order, too
    clock.forward(1)
    assert claim(store, 100) == claim(twin, 100)
    assert photo(store) == photo(twin)


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_the_test_before_can_be_seen(store: Store, twin: Store, change: str) -> None:
    furnish(store)
    furnish(twin)
    with store.turn(RUNS) as turn:
        CHANGES[change](turn)
    assert (photo(store), claim(store, 100)) != (photo(twin), claim(twin, 100))


@pytest.mark.parametrize("error", [ValueError, Conflict, KeyboardInterrupt, GeneratorExit, Mishap])
def test_any_error_takes_the_turn_back_and_comes_through(store: Store, error: type[BaseException]) -> None:
    mishap = error("mishap")
    with pytest.raises(error) as caught, store.turn(["r"]) as turn:
        put(turn, "r", note())
        raise mishap
    assert caught.value is mishap
    assert store.summary("r") is None


def test_a_store_goes_on_after_a_turn_that_failed(store: Store) -> None:
    with pytest.raises(Mishap), store.turn(["r"]) as turn:
        put(turn, "r", note("lost"), turn="lost")
        raise Mishap
    commit(store, "r", note("kept"), turn="kept")
    assert list(store.facts("r")) == [(1, NOON, note("kept"))]
    assert store.turn_of("r", 1) == "kept"


def test_a_turn_that_only_reads_changes_nothing(store: Store, twin: Store) -> None:
    furnish(store)
    furnish(twin)
    for _ in range(3):
        photo(store)
    with store.turn(RUNS):
        pass
    assert photo(store) == photo(twin)
    assert claim(store, 100) == claim(twin, 100)


def test_a_turn_sees_the_facts_it_wrote_itself(store: Store) -> None:
    with store.turn(["r"]) as turn:
        put(turn, "r", note("first"), expected=0, turn="id")
        put(turn, "r", note("second"), expected=1, turn="id")
        assert turn.head("r") == 2
        assert list(turn.some_facts("r", [2])) == [(2, NOON, note("second"))]
    assert [number for number, _, _ in store.facts("r")] == [1, 2]


def test_a_turn_sees_its_own_letters_timers_and_blobs(store: Store) -> None:
    with store.turn(["child", "parent"]) as turn:
        put(turn, "child", note(), letters=[letter("l", "parent")], blobs={"h": b"data"}, timers={"t": NOON})
        assert [each.key for each in turn.letters("parent")] == ["l"]
        assert turn.blob("child", "h") == b"data"
        assert list(turn.due_timers("child")) == ["t"]
        put(turn, "parent", note(), read_letters=["l"])
        assert list(turn.letters("parent")) == []
    assert unread(store, "parent") == []


def test_a_turn_can_claim_what_it_issued_itself(store: Store) -> None:
    with store.turn(["r"]) as turn:
        put(turn, "r", note(), commands={"a1": order("a1")})
        (lease,) = turn.claim(Abilities("w"), LEASE, 5)
        assert turn.lease("r", "a1") == lease
        assert turn.claimed("r") == {"a1"}


def test_a_turn_can_settle_one_command_and_claim_the_next(store: Store) -> None:
    issue(store, "r", order("a1"))
    first = claim_one(store)
    with store.turn(["r"]) as turn:
        put(turn, "r", note(), commands={first.command.id: None, "a2": order("a2")})
        (second,) = turn.claim(Abilities("w"), LEASE, 1)
        assert turn.lease("r", "a1") is None
    assert second.command.id == "a2"
    assert claimed_ids(store) == []


def test_runs_of_one_turn_commit_together(store: Store) -> None:
    with store.turn(["r", "s"]) as turn:
        put(turn, "r", note("r"), commands={"a1": order("a1")})
        put(turn, "s", note("s"), status=COMPLETED)
    assert [row.run for row in store.views.runs(RunFilter(COMPLETED)).rows] == ["s"]
    assert len(store.facts("r")) == len(store.facts("s")) == 1
    assert claimed_ids(store) == ["a1"]


def test_runs_of_one_turn_fail_together(store: Store) -> None:
    commit(store, "s", note())
    with pytest.raises(Conflict), store.turn(["r", "s"]) as turn:
        put(turn, "r", note(), commands={"a1": order("a1")}, letters=[letter("l", "s")])
        put(turn, "s", note(), expected=0)
    assert store.summary("r") is None
    assert len(store.facts("s")) == 1
    assert claimed_ids(store) == []
    assert due_runs(store) == []


def test_a_run_with_a_conflict_is_left_out_and_its_neighbours_commit(store: Store) -> None:
    commit(store, "b", note())
    with store.turn(["a", "b", "c"]) as turn:
        put(turn, "a", note())
        with pytest.raises(Conflict):
            put(turn, "b", note(), expected=0, commands={"b1": order("b1")}, timers={"t": NOON})
        put(turn, "c", note())
    assert [len(store.facts(run)) for run in "abc"] == [1, 1, 1]
    assert claimed_ids(store) == []
    assert due_runs(store) == []


@pytest.mark.parametrize("value", [object(), "\ud800"], ids=["no JSON", "lone surrogate"])
@pytest.mark.parametrize("place", ["fact", "command", "letter"])
def test_a_write_with_a_value_that_cannot_be_kept_is_left_out_whole(
    store: Store, twin: Store, value: Any, place: str
) -> None:
    furnish(store)
    furnish(twin)
    with store.turn(RUNS) as turn:
        put(turn, "two", note("before"))
        with pytest.raises((TypeError, ValueError)):
            put(
                turn,
                "one",
                note("good"),
                note("bad", value if place == "fact" else None),
                commands={"a1": None, "a2": HELD, "n1": order("n1", input=value if place == "command" else None)},
                timers={"due": None, "new": NOON},
                letters=[letter("third", "one"), letter("bad", "one", value if place == "letter" else "")],
                read_letters=["first"],
                blobs={"new": b"new"},
                plan=canonical(OTHER_PLAN),
                status=PAUSED,
            )
        put(turn, "two", note("after"))
    commit(twin, "two", note("before"))
    commit(twin, "two", note("after"), turn="turn")
    assert photo(store)["one"] == photo(twin)["one"]
    assert photo(store)["due"] == photo(twin)["due"]
    assert [fact for _, _, fact in store.facts("two")] == [fact for _, _, fact in twin.facts("two")]
    assert store.plan(plan_hash(OTHER_PLAN)) is None
    assert claim(store, 100) == claim(twin, 100)


def test_time_is_the_worlds_when_the_turn_begins_and_stands_still_until_it_ends(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1"), order("a2", not_before=NOON + 1), timers={"t": NOON + 1})
    with store.turn(["r"]) as turn:
        clock.forward(5)
        assert turn.now == NOON
        assert list(turn.due_timers("r")) == []
        (lease,) = turn.claim(Abilities("w"), 1.0, 5)
    assert (lease.claimed_at, lease.until) == (NOON, NOON + 1_000_000)
    with store.turn([]) as turn:
        assert turn.now == NOON + 5_000_000


def test_the_stores_clock_never_goes_back(store: Store, clock: FakeClock) -> None:
    issue(store, "r", order("a1", not_before=NOON + 5_000_000), timers={"t": NOON + 5_000_000})
    clock.forward(10)
    with store.turn([]) as turn:
        assert turn.now == NOON + 10_000_000
    clock.forward(-3600)
    with store.turn([]) as turn:
        assert turn.now == NOON + 10_000_000
    assert claim_one(store, lease_for=1.0).until == NOON + 11_000_000
    assert [lease.until for lease in store.extend("w", 2.0)] == [NOON + 12_000_000]
    assert due_runs(store) == ["r"]


def test_a_clock_that_was_put_back_goes_on_when_the_world_has_caught_up(store: Store, clock: FakeClock) -> None:
    clock.forward(10)
    commit(store, "r", note())
    clock.forward(-4)
    commit(store, "r", note())
    clock.forward(4.5)
    commit(store, "r", note())
    assert [at - NOON for _, at, _ in store.facts("r")] == [10_000_000, 10_000_000, 10_500_000]
