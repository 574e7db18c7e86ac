"""Any text is a name, values may be large, and a claim costs the same however much waits."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refold.core.commands import HELD, Command
from refold.core.state import RUNNING
from refold.ports import RunFilter, Store
from tests.contracts.stores import (
    NOON,
    FakeClock,
    claim,
    claim_one,
    claimed_ids,
    commit,
    due_keys,
    due_runs,
    holder,
    issue,
    letter,
    note,
    opened,
    order,
    put,
    unread,
)

NAMES = {
    "empty": "",
    "blank": " ",
    "blanks around": " a ",
    "slash": "a/b//c#d",
    "SQL": "'; drop table facts; -- %_\\",
    "lines": "a\nb\tc",
    "number": "0",
    "word": "None",
    "unicode": "日本語 🜲 ß İ",
    "combining": "e\u0301",
    "outermost": "\U0010ffff\ufeff\u200b",
    "long": "long " * 2_000,
}
DIFFERENT = (
    "",
    " ",
    "  ",
    "a",
    "A",
    "a ",
    " a",
    "\u00e9",
    "e\u0301",
    "E",
    "ss",
    "ß",
    "1",
    "1.0",
    "01",
    "a%",
    "a_",
    "None",
)
SIZES = (100, 10_000)


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_any_text_names_a_run_and_all_that_belongs_to_it(store: Store, name: str) -> None:
    commit(
        store,
        name,
        note(name, name),
        turn=name,
        commands={name: order(name, queue=name, tool=name, input=name)},
        timers={name: NOON},
        letters=[letter(name, name, name, sender=name)],
        blobs={name: b"data"},
    )
    store.put_snapshot(name, b"snapshot")
    lease = claim_one(store, worker=name, queues=(name,), tools=frozenset({name}), runs=frozenset({name}))
    assert (lease.run, lease.command.id, lease.worker) == (name, name, name)
    assert holder(store, name, name) == lease
    assert store.publish(lease, [name])
    assert list(store.extend(name, 30)) == [lease]
    assert list(store.views.lines(name)) == [(1, name)]
    assert list(store.facts(name)) == [(1, NOON, note(name, name))]
    assert store.turn_of(name, 1) == name
    assert [row.run for row in store.views.runs().rows] == [name]
    assert store.snapshot(name) == b"snapshot"
    assert (due_runs(store), due_keys(store, name), unread(store, name)) == ([name], [name], [name])
    with store.turn([name]) as turn:
        assert turn.blob(name, name) == b"data"
        assert turn.claimed(name) == {name}
    assert store.hand_back(lease)
    commit(store, name, note(), commands={name: None}, timers={name: None}, read_letters=[name])
    assert (due_runs(store), claimed_ids(store, queues=(name,))) == ([], [])


@pytest.mark.parametrize("name", ["", " ", "0"])
def test_a_worker_of_any_name_loses_its_lease_like_others(store: Store, clock: FakeClock, name: str) -> None:
    issue(store, "r", order("a1"))
    lease = claim_one(store, worker=name)
    assert claimed_ids(store, worker="other") == []
    clock.forward(31)
    assert list(store.expire(5)) == []
    assert store.hand_back(lease) is False
    assert claim_one(store, worker="other").generation == 2


def test_names_that_only_look_alike_are_different(store: Store) -> None:
    for n, name in enumerate(DIFFERENT):
        commit(store, name, note(name), commands={each: order(each, input=[name, each]) for each in DIFFERENT})
        commit(store, name, note("second"), timers={name: NOON - n}, blobs={name: name.encode()})
    leases = claim(store, len(DIFFERENT) ** 2 + 1)
    assert len(leases) == len(DIFFERENT) ** 2
    assert all(lease.command.input == [lease.run, lease.command.id] for lease in leases)
    assert due_runs(store) == list(reversed(DIFFERENT))
    for name in DIFFERENT:
        assert [fact for _, _, fact in store.facts(name)] == [note(name), note("second")]
        with store.turn([name]) as turn:
            assert turn.claimed(name) == set(DIFFERENT)
            assert turn.blob(name, name) == name.encode()


def test_a_run_and_its_command_are_not_confused_with_others_that_read_the_same(store: Store) -> None:
    issue(store, "a", order("b/c"))
    issue(store, "a/b", order("c"))
    commit(store, "a", note(), commands={"b/c": None})
    assert [(lease.run, lease.command.id) for lease in claim(store, 5)] == [("a/b", "c")]


def test_a_fact_may_be_a_megabyte(store: Store) -> None:
    large = {"text": "ü" * 500_000, "list": list(range(100_000))}
    commit(store, "r", note("small"), note("large", large), note("small"))
    assert list(store.facts("r", after=1, limit=1)) == [(2, NOON, note("large", large))]
    with store.turn(["r"]) as turn:
        assert list(turn.some_facts("r", [2])) == [(2, NOON, note("large", large))]


def test_blobs_snapshots_inputs_letters_and_lines_may_be_megabytes(store: Store) -> None:
    data, text = bytes(range(256)) * 8_192, "x" * 1_000_000
    commit(store, "r", note(), blobs={"h": data}, commands={"a1": order("a1", input=text)})
    commit(store, "r", note(), letters=[letter("l", "r", text)])
    store.put_snapshot("r", data)
    lease = claim_one(store)
    assert store.publish(lease, [text, text])
    assert (lease.command.input, store.snapshot("r")) == (text, data)
    assert [line for _, line in store.views.lines("r")] == [text, text]
    with store.turn(["r"]) as turn:
        assert turn.blob("r", "h") == data
        assert list(turn.letters("r")) == [letter("l", "r", text)]


def test_a_turn_may_hold_thousands_of_facts_commands_timers_and_letters(store: Store) -> None:
    many = [f"{n:05}" for n in range(5_000)]
    commit(
        store,
        "r",
        *(note(each) for each in many),
        commands={each: order(each) for each in many},
        timers={each: NOON for each in many},
        letters=[letter(each, "s") for each in many],
    )
    assert [fact for _, _, fact in store.facts("r")] == [note(each) for each in many]
    assert due_keys(store, "r") == many
    assert unread(store, "s") == many
    assert claimed_ids(store, limit=10_000) == many
    assert len(store.extend("w", 30)) == 5_000


def test_thousands_of_runs_may_share_a_turn(store: Store) -> None:
    runs = [f"r{n:04}" for n in range(2_000)]
    with store.turn(runs) as turn:
        for run in runs:
            put(turn, run, note(run), commands={"a1": order("a1", input=run)})
    assert sorted(row.run for row in store.views.runs(RunFilter(RUNNING), limit=10_000).rows) == runs
    assert [lease.run for lease in claim(store, 10_000)] == runs


def of_one_run(store: Store, size: int) -> None:
    issue(store, "big", *(order(f"a{n}") for n in range(size)))


def of_many_runs(store: Store, size: int) -> None:
    for first in range(0, size, 1_000):
        with store.turn([]) as turn:
            for n in range(first, min(first + 1_000, size)):
                put(turn, f"r{n}", note(), commands={"a1": order("a1")})


def beside(store: Store, size: int, **fields: object) -> None:
    """So many that nobody can claim, and enough to claim."""
    issue(store, "big", *(order(f"a{n}", **fields) for n in range(size)))
    issue(store, "small", *(order(f"b{n}") for n in range(100)))


def beside_held(store: Store, size: int) -> None:
    beside(store, size, priority=1)
    held: dict[str, Command | object] = {f"a{n}": HELD for n in range(size)}
    commit(store, "big", note(), commands=held)


def beside_claimed(store: Store, size: int) -> None:
    beside(store, size, priority=1)
    claim(store, size, "other")


BACKLOGS: dict[str, Callable[[Store, int], None]] = {
    "of one run": of_one_run,
    "of many runs": of_many_runs,
    "for later": lambda store, size: beside(store, size, not_before=NOON + 1, priority=1),
    "of another queue": lambda store, size: beside(store, size, queue="other", priority=1),
    "held": beside_held,
    "claimed": beside_claimed,
}


def cost_of_a_claim(store: Store, **can: Any) -> float:
    """The best of ten rounds of ten claims, so that a busy machine does not count."""

    def round_of_ten() -> float:
        began = time.process_time()
        leases = [claim_one(store, **can) for _ in range(10)]
        spent = time.process_time() - began
        assert len({(lease.run, lease.command.id) for lease in leases}) == 10
        return spent

    return min(round_of_ten() for _ in range(10))


@pytest.mark.parametrize("backlog", BACKLOGS)
def test_a_claim_stays_cheap_however_much_waits(kind: str, tmp_path: Path, clock: FakeClock, backlog: str) -> None:
    costs = []
    for size in SIZES:
        with opened(kind, tmp_path / str(size), clock) as store:
            BACKLOGS[backlog](store, size)
            costs.append(cost_of_a_claim(store))
    assert costs[1] < 10 * costs[0]


def test_a_worker_of_one_run_does_not_pay_for_the_others(kind: str, tmp_path: Path, clock: FakeClock) -> None:
    costs = []
    for size in SIZES:
        with opened(kind, tmp_path / str(size), clock) as store:
            of_many_runs(store, size)
            issue(store, "mine", *(order(f"m{n}") for n in range(100)))
            costs.append(cost_of_a_claim(store, runs=frozenset({"mine"})))
    assert costs[1] < 10 * costs[0]
