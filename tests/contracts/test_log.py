"""A store keeps each run's facts as they were written, numbered 1, 2, 3 without a gap, and what follows from them."""

from typing import Any, get_args

import pytest

from refold.core import codec
from refold.core.facts import (
    BodyWoke,
    BudgetExceeded,
    Bypassed,
    CallsAwaited,
    CallSettled,
    CancelAsked,
    ChildContinued,
    ChildEnded,
    ChildUsed,
    Dropped,
    Entered,
    EventsTaken,
    Fact,
    FanOutEntered,
    GateDecided,
    ItemsCancelled,
    ItemsGivenUp,
    ItemsIssued,
    ItemsReopened,
    ItemsRetried,
    ItemsSettled,
    LoopLeft,
    PageAsked,
    PageCame,
    PagesGivenUp,
    PageTaken,
    Parent,
    PassBegan,
    RequestAnswered,
    Routed,
    RunEnded,
    RunEnding,
    RunMigrated,
    RunPaused,
    RunReopened,
    RunResumed,
    RunStarted,
    RunTimedOut,
    SignalReceived,
    SignalTaken,
    Skipped,
    StepFault,
    StepIssued,
    StepSettled,
    Took,
    VisitFailed,
)
from refold.core.outcomes import (
    AddTo,
    AppendTo,
    Awaited,
    Blob,
    Cancelled,
    DeleteKey,
    Failed,
    Fault,
    Parked,
    PutIf,
    Report,
    Sent,
    SetKey,
    Succeeded,
    Suspended,
    TimedOut,
)
from refold.core.plan import Plan, Step, canonical, plan_hash
from refold.core.read.summary import Summary
from refold.core.state import COMPLETED, FAILED, PAUSED, RUNNING
from refold.errors import Conflict
from refold.ports import RunFilter, Store
from tests.contracts.stores import NOON, PLAN_BYTES, PLAN_HASH, FakeClock, commit, note, put

BLOB = Blob("0f" * 32, 70_000)
FAULT = Fault("http", "503", "HTTPError", "Traceback", 503, True, 1.5, {"body": [1, None]})
STEP_FAULT = StepFault("a", 1, "failed", FAULT)
WRITES = (SetKey("k", {"v": 1}), DeleteKey("d"), AddTo("n", 0.5), AppendTo("l", []), PutIf("p", 3, None))
REPORT = Report(
    attempt=1,
    outcome=Succeeded([1, {"a": None}], BLOB),
    item=3,
    worker="w",
    claimed_at=NOON,
    started_at=NOON + 1,
    losses=2,
    writes=WRITES,
    usage={"tokens": 1.0},
)
SAMPLES: tuple[Fact, ...] = (
    RunStarted("hash", {"q": "ü"}, "name", "key", Parent("up", "c/1", "call"), 2),
    StepIssued("a", 1, 2, {"x": [1, 2.5]}, NOON, NOON + 1, "go", "child"),
    StepSettled("a", 1, REPORT),
    StepSettled("a", 1, Report(1, Parked(NOON, "go", {"page": 3}, "later"))),
    StepSettled("a", 1, Report(1, Suspended((Awaited("key", NOON, "go", "plan", [1]),)))),
    FanOutEntered("a", 1, 2, [1, "two"], BLOB, {"path": 1}),
    ItemsIssued("a", 1, 0, 16, {"path": 1}),
    ItemsRetried("a", 1, ((0, 2, NOON), (3, 2, 0))),
    ItemsSettled("a", 1, (Report(1, Failed(FAULT), 0), Report(2, TimedOut(1.5), 1))),
    ItemsGivenUp("a", 1, (0, 2)),
    ItemsCancelled("a", 1, (0, 2), "ada", "item 1 failed", 3),
    ItemsReopened("a", 1, (0, 2), "ada"),
    PageAsked("a", 1, 2, 3, 7),
    PageCame("a", 1, 2, Report(1, Succeeded({"items": [1], "cursor": None}))),
    PageTaken("a", 1, 2, 1, {"at": 3}, (1,), ("x",), {0: ("y", "z")}),
    PagesGivenUp("a", 1, 2, Fault("connection", "away")),
    EventsTaken("a", 1, (((2, 0), (2, 1)), ((3, 0),))),
    VisitFailed("a", 2, FAULT, "Failed"),
    Routed(
        (
            Entered("a", 1),
            Took("a", 1, (0, 2), {"k": "v"}, FAULT),
            Bypassed("b", 1),
            Skipped(("c", "d")),
            Dropped(("e",)),
            PassBegan("h"),
            LoopLeft("h"),
        )
    ),
    SignalReceived("go", {"deep": [[[]]]}, "me"),
    SignalTaken("go", "a/1"),
    CallSettled("a/1", "key", Succeeded(0)),
    CallsAwaited("a/1", (Awaited("key", signal="go"),)),
    BodyWoke("a/1"),
    ChildEnded("child", "a/1", Cancelled("why"), "call", {"tokens": 2.0}),
    ChildUsed("child", "a/1", {"tokens": 2}, "k"),
    ChildContinued("child", "a/1", "next", "call", {"tokens": 3}),
    GateDecided("a", 1, "approve", "me", ["fine"]),
    RequestAnswered("r1", Sent("Answer", {"response": 1})),
    RunPaused("me"),
    RunResumed("me"),
    CancelAsked("why", "me"),
    RunTimedOut(1.5),
    RunEnding("failed", STEP_FAULT, ("a/1",), ("z",)),
    RunEnded("completed", {"r": 1}, BLOB, STEP_FAULT, (STEP_FAULT,)),
    RunReopened(("a",), ("b",), "ann", {"tokens": 9}),
    BudgetExceeded("tokens", 12, 10.5),
    RunMigrated("plan", "ann"),
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    0.1,
    1e300,
    2**53 + 1,
    2**63,
    -(2**70),
    "",
    " ",
    "\x00",
    "\n\t\\\"'%_;--",
    "naïve 日本語 🜲 e\u0301",
    "\u2028\ufeff\U0010ffff",
    [],
    {},
    {"": ""},
    [[{"a": [None, {}]}]],
    {"z": 1, "a": 2},
)


def numbers(store: Store, run: str) -> list[int]:
    return [number for number, _, _ in store.facts(run)]


def told(store: Store, run: str) -> list[Fact]:
    return [fact for _, _, fact in store.facts(run)]


def test_a_run_nobody_wrote_to_has_no_facts(store: Store) -> None:
    with store.turn(["r"]) as turn:
        assert turn.head("r") == 0
        assert list(turn.facts("r")) == []
    assert list(store.facts("r")) == []
    assert store.summary("r") is None


def test_facts_are_numbered_from_one_without_a_gap_over_turns_of_any_size(store: Store) -> None:
    for size in (1, 3, 0, 2):
        commit(store, "r", *(note(str(size)) for _ in range(size)))
    assert numbers(store, "r") == [1, 2, 3, 4, 5, 6]


def test_each_run_has_its_own_numbers(store: Store) -> None:
    for run in ("r", "s", "r", "s", "s"):
        commit(store, run, note(run))
    assert (numbers(store, "r"), numbers(store, "s")) == ([1, 2], [1, 2, 3])
    assert told(store, "s") == [note("s")] * 3


def test_a_turn_sees_the_facts_of_the_turn_before(store: Store) -> None:
    commit(store, "r", note("first"), note("second"))
    with store.turn(["r"]) as turn:
        assert turn.head("r") == 2
        assert [fact for _, _, fact in turn.facts("r")] == [note("first"), note("second")]


@pytest.mark.parametrize("expected", [0, 1, 3, 100])
def test_a_write_that_expects_another_head_is_a_conflict_and_writes_nothing(store: Store, expected: int) -> None:
    commit(store, "r", note("first"), note("second"))
    with pytest.raises(Conflict), store.turn(["r"]) as turn:
        put(turn, "r", note("wrong"), expected=expected, status=FAILED, timers={"t": NOON})
    assert told(store, "r") == [note("first"), note("second")]
    assert store.views.runs(RunFilter(FAILED)).rows == []
    assert store.due(10) == ([], None)


def test_a_run_that_nobody_started_has_no_second_fact(store: Store) -> None:
    with pytest.raises(Conflict), store.turn(["r"]) as turn:
        put(turn, "r", note("wrong"), expected=1)
    assert store.summary("r") is None


def test_of_two_starts_of_one_run_the_second_is_a_conflict(store: Store) -> None:
    commit(store, "r", note("first"), expected=0)
    with pytest.raises(Conflict):
        commit(store, "r", note("second"), expected=0)
    assert told(store, "r") == [note("first")]


def test_no_number_is_lost_to_a_conflict(store: Store) -> None:
    commit(store, "r", note("first"))
    with pytest.raises(Conflict):
        commit(store, "r", note("wrong"), expected=0)
    commit(store, "r", note("second"), expected=1)
    assert list(store.facts("r")) == [(1, NOON, note("first")), (2, NOON, note("second"))]


def test_the_samples_hold_every_kind_of_fact() -> None:
    assert {type(fact) for fact in SAMPLES} == set(get_args(Fact))


@pytest.mark.parametrize("fact", SAMPLES, ids=lambda fact: type(fact).__name__)
def test_a_fact_comes_back_as_it_was_written(store: Store, fact: Fact) -> None:
    commit(store, "r", fact)
    (back,) = told(store, "r")
    assert back == fact
    assert codec.encode_fact(back) == codec.encode_fact(fact)


def test_values_come_back_with_their_types(store: Store) -> None:
    commit(store, "r", *(note("value", value) for value in VALUES))
    assert [repr(fact) for fact in told(store, "r")] == [repr(note("value", value)) for value in VALUES]


def test_facts_keep_the_time_of_their_write(store: Store, clock: FakeClock) -> None:
    commit(store, "r", note("first"), note("second"))
    clock.forward(1.5)
    commit(store, "r", note("third"))
    commit(store, "r", note("fourth"), at=NOON + 7)
    assert [at for _, at, _ in store.facts("r")] == [NOON, NOON, NOON + 1_500_000, NOON + 7]


def test_facts_can_be_read_from_a_number_on(store: Store) -> None:
    commit(store, "r", *(note(str(n)) for n in range(1, 6)))
    assert list(store.facts("r", after=3)) == [(4, NOON, note("4")), (5, NOON, note("5"))]
    assert list(store.facts("r", after=5)) == list(store.facts("r", after=50)) == []
    with store.turn(["r"]) as turn:
        assert list(turn.facts("r", 3)) == list(store.facts("r", 3))


def test_a_reader_gets_no_more_facts_than_it_asked_for(store: Store) -> None:
    commit(store, "r", *(note(str(n)) for n in range(1, 6)))
    assert [n for n, _, _ in store.facts("r", after=1, limit=2)] == [2, 3]
    assert [n for n, _, _ in store.facts("r", after=4, limit=2)] == [5]
    assert list(store.facts("r", limit=0)) == []


def test_single_facts_come_in_order_of_number(store: Store) -> None:
    commit(store, "r", *(note(str(n)) for n in range(1, 6)))
    with store.turn(["r"]) as turn:
        assert list(turn.some_facts("r", {5, 2})) == [(2, NOON, note("2")), (5, NOON, note("5"))]
        assert list(turn.some_facts("r", [4, 1, 4])) == [(1, NOON, note("1")), (4, NOON, note("4"))]
        assert list(turn.some_facts("r", ())) == []


def test_single_facts_that_do_not_exist_are_left_out(store: Store) -> None:
    commit(store, "r", note("first"), note("second"))
    with store.turn(["r"]) as turn:
        assert list(turn.some_facts("r", [0, 2, 3])) == [(2, NOON, note("second"))]
        assert list(turn.some_facts("nobody", [1])) == []


def test_a_reader_who_changes_what_it_read_changes_nothing_for_the_next(store: Store) -> None:
    value = {"list": [1]}
    commit(store, "r", note("value", value))
    value["list"].append(2)
    for fact in told(store, "r"):
        assert isinstance(fact, SignalReceived)
        fact.value["list"].append(3)
    assert told(store, "r") == [note("value", {"list": [1]})]


def test_the_first_fact_of_a_turn_carries_the_turns_id(store: Store) -> None:
    commit(store, "r", note(), note(), turn="one")
    commit(store, "r", note(), turn="two")
    commit(store, "s", note(), turn="three")
    assert [store.turn_of("r", n) for n in (1, 2, 3)] == ["one", None, "two"]
    assert store.turn_of("s", 1) == "three"


def test_a_number_without_a_fact_has_no_turn(store: Store) -> None:
    commit(store, "r", note(), note(), turn="one")
    assert [store.turn_of("r", n) for n in (-1, 0, 3)] == [None, None, None]
    assert store.turn_of("nobody", 1) is None


def test_a_turn_without_facts_leaves_the_log_alone(store: Store) -> None:
    commit(store, "r", note(), turn="one")
    commit(store, "r", turn="two", status=PAUSED)
    assert numbers(store, "r") == [1]
    assert store.turn_of("r", 1) == "one"
    row = store.summary("r")
    assert row is not None and row.status == PAUSED


def test_a_summary_is_the_newest_one_written(store: Store) -> None:
    full = Summary("r", "flow", PLAN_HASH, FAILED, "näme", "key", "parent", NOON, NOON + 5, 2, STEP_FAULT)
    commit(store, "r", note(), status=RUNNING)
    commit(store, "r", note(), summary=full)
    assert store.summary("r") == full
    assert list(store.views.runs().rows) == [full]


def test_summaries_come_newest_first_whatever_happened_to_them_since(store: Store, clock: FakeClock) -> None:
    for run in ("b", "a", "c"):
        commit(store, run, note())
        clock.forward(1)
    commit(store, "b", note(), status=COMPLETED)
    assert [row.run for row in store.views.runs().rows] == ["c", "a", "b"]
    assert [row.run for row in store.views.runs(limit=2).rows] == ["c", "a"]
    assert list(store.views.runs(limit=0).rows) == []


def test_summaries_can_be_chosen_by_status(store: Store, clock: FakeClock) -> None:
    for run, status in (("a", RUNNING), ("b", FAILED), ("c", RUNNING), ("d", RUNNING)):
        commit(store, run, note(), status=status)
        clock.forward(1)
    commit(store, "c", note(), status=FAILED)
    assert [row.run for row in store.views.runs(RunFilter(FAILED)).rows] == ["c", "b"]
    assert [row.run for row in store.views.runs(RunFilter(RUNNING), limit=1).rows] == ["d"]
    assert list(store.views.runs(RunFilter(PAUSED)).rows) == []


def test_runs_of_one_moment_are_all_listed_once(store: Store) -> None:
    for n in range(10):
        commit(store, f"r{n}", note())
    assert sorted(row.run for row in store.views.runs().rows) == [f"r{n}" for n in range(10)]


def test_a_run_has_no_snapshot_until_one_is_put(store: Store) -> None:
    commit(store, "r", note())
    assert store.snapshot("r") is None
    assert store.snapshot("nobody") is None


def test_a_snapshot_comes_back_byte_by_byte_and_the_newest_counts(store: Store) -> None:
    commit(store, "r", note())
    commit(store, "s", note())
    data = bytes(range(256))
    store.put_snapshot("r", b"")
    assert store.snapshot("r") == b""
    store.put_snapshot("r", data)
    assert (store.snapshot("r"), store.snapshot("s")) == (data, None)
    assert numbers(store, "r") == [1]


def test_a_plan_is_found_by_its_hash(store: Store) -> None:
    other = Plan(name="öther", steps=(Step(name="b"),))
    assert store.plan(PLAN_HASH) is None
    commit(store, "r", note(), plan=PLAN_BYTES)
    commit(store, "s", note(), plan=canonical(other))
    commit(store, "t", note(), plan=PLAN_BYTES)
    assert store.plan(PLAN_HASH) == PLAN_BYTES
    assert store.plan(plan_hash(other)) == canonical(other)
    assert store.plan("") is None


def test_a_plan_can_be_put_before_any_run_has_it(store: Store) -> None:
    store.put_plan(PLAN_HASH, PLAN_BYTES)
    store.put_plan(PLAN_HASH, PLAN_BYTES)
    assert store.plan(PLAN_HASH) == PLAN_BYTES
    assert list(store.views.runs().rows) == []
