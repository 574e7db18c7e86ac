"""A run that is over can be removed, with all that belongs to it and nothing else."""

from typing import Any

import pytest

from refold.core.read.summary import Summary
from refold.core.state import CANCELLED, COMPLETED, FAILED, PAUSED, RUNNING
from refold.errors import Conflict, NotFound
from refold.ports import Store, Writes
from tests.contracts.stores import (
    NOON,
    PLAN_HASH,
    claim_one,
    claimed_ids,
    commit,
    due_keys,
    due_runs,
    holder,
    issue,
    letter,
    note,
    order,
    put,
    unread,
)


def remove(store: Store, *runs: str) -> None:
    with store.turn(runs) as turn:
        for run in runs:
            turn.remove(run)


def filled(store: Store, run: str) -> None:
    """A run with a row in every table, which is over."""
    issue(store, run, order("a/1"))
    lease = claim_one(store, runs=frozenset({run}))
    assert store.publish(lease, ["a line"])
    store.put_snapshot(run, b"snapshot")
    commit(store, run, note(), timers={"t": NOON}, letters=[letter("l", run)], blobs={"h": b"data"})
    commit(store, run, note("over"), status=COMPLETED)


def traces(store: Store, run: str) -> dict[str, Any]:
    with store.turn([run]) as turn:
        try:
            blob = turn.blob(run, "h")
        except NotFound:
            blob = b""
        head, claimed = turn.head(run), turn.claimed(run)
    return {
        "blob": blob,
        "head": head,
        "claimed": claimed,
        "facts": list(store.facts(run)),
        "summary": store.summary(run),
        "listed": [row.run for row in store.views.runs().rows if row.run == run],
        "snapshot": store.snapshot(run),
        "timers": due_keys(store, run),
        "letters": unread(store, run),
        "due": [each for each in due_runs(store) if each == run],
        "stream": list(store.views.lines(run)),
        "lease": holder(store, run, "a/1"),
    }


def test_nothing_of_a_removed_run_is_left(store: Store) -> None:
    filled(store, "r")
    assert all(traces(store, "r").values())
    remove(store, "r")
    assert not any(traces(store, "r").values())


def test_the_neighbours_of_a_removed_run_keep_everything(store: Store) -> None:
    for run in ("r", "r1", "s"):
        filled(store, run)
    before = traces(store, "r1"), traces(store, "s")
    remove(store, "r")
    assert (traces(store, "r1"), traces(store, "s")) == before


@pytest.mark.parametrize("status", [RUNNING, PAUSED, "waiting", "ending"])
def test_a_run_that_is_not_over_is_not_removed(store: Store, status: str) -> None:
    commit(store, "r", note(), status=status)
    with pytest.raises(Conflict, match=f"run r is {status}"):
        remove(store, "r")
    assert store.summary("r") is not None


@pytest.mark.parametrize("status", [COMPLETED, FAILED, CANCELLED])
def test_a_run_that_is_over_is_removed_however_it_ended(store: Store, status: str) -> None:
    commit(store, "r", note(), status=status)
    remove(store, "r")
    assert store.summary("r") is None


def test_a_run_that_is_not_there_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound, match="there is no run r"):
        remove(store, "r")


def child_of(store: Store, parent: str, run: str) -> None:
    row = Summary(run, "contract", PLAN_HASH, COMPLETED, parent=parent, created_at=NOON)
    commit(store, run, note(), summary=row)


def test_a_child_stays_as_long_as_its_parent_is_not_over(store: Store) -> None:
    commit(store, "boss", note())
    child_of(store, "boss", "kid")
    with pytest.raises(Conflict, match="run kid belongs to run boss, which is running"):
        remove(store, "kid")
    commit(store, "boss", note(), status=FAILED)
    remove(store, "kid")
    assert [row.run for row in store.views.runs().rows] == ["boss"]


def test_a_child_whose_parent_was_removed_is_removed_too(store: Store) -> None:
    commit(store, "boss", note(), status=COMPLETED)
    child_of(store, "boss", "kid")
    remove(store, "boss", "kid")
    assert list(store.views.runs().rows) == []


def test_a_removal_is_taken_back_with_its_turn(store: Store) -> None:
    for run in ("q", "r", "s"):
        filled(store, run)
    before = traces(store, "r"), [row.run for row in store.views.runs().rows], due_runs(store)
    with pytest.raises(ZeroDivisionError), store.turn(["r"]) as turn:
        turn.remove("r")
        assert turn.head("r") == 0
        raise ZeroDivisionError
    assert (traces(store, "r"), [row.run for row in store.views.runs().rows], due_runs(store)) == before


def test_a_refused_removal_changes_nothing_and_the_turn_goes_on(store: Store) -> None:
    filled(store, "over")
    commit(store, "r", note())
    with store.turn(["over", "r"]) as turn:
        put(turn, "r", note("more"))
        with pytest.raises(Conflict):
            turn.remove("r")
        turn.remove("over")
        put(turn, "r", note("and more"))
    assert ([fact for _, _, fact in store.facts("r")], store.summary("over")) == (
        [note(), note("more"), note("and more")],
        None,
    )


def test_the_id_of_a_removed_run_can_be_used_again(store: Store) -> None:
    filled(store, "r")
    with store.turn(["r"]) as turn:
        turn.remove("r")
        row = Summary("r", "contract", PLAN_HASH, RUNNING, created_at=turn.now)
        turn.write(Writes("r", "t", 0, turn.now, [note("anew")], row, commands={"a/1": order("a/1")}))
    assert [fact for _, _, fact in store.facts("r")] == [note("anew")]
    assert claimed_ids(store) == ["a/1"]


def test_whoever_held_a_command_of_a_removed_run_is_not_believed_by_its_namesake(store: Store) -> None:
    issue(store, "r", order("a/1"))
    late = claim_one(store)
    commit(store, "r", note(), status=CANCELLED, commands={"a/1": None})
    remove(store, "r")
    issue(store, "r", order("a/1"))
    assert claim_one(store).generation > late.generation
    assert store.publish(late, ["late"]) is False


def named(store: Store, run: str, name: str, status: str = RUNNING) -> None:
    row = Summary(run, "contract", PLAN_HASH, status, name=name, created_at=NOON)
    commit(store, run, note(), summary=row)


def called(store: Store, text: str, status: str | None = None, limit: int = 100) -> list[str]:
    return [row.run for row in store.views.called(text, status, limit)]


def test_runs_are_found_by_the_beginning_of_their_id_and_by_their_whole_name(store: Store) -> None:
    named(store, "ab1", "one")
    named(store, "ab2", "ab")
    named(store, "c_%", "ab1")
    assert called(store, "ab1") == ["c_%", "ab1"]
    assert called(store, "ab") == ["ab2", "ab1"]
    assert called(store, "on") == []
    assert called(store, "one") == ["ab1"]
    assert called(store, "_") == called(store, "%") == called(store, "b") == []
    assert called(store, "c_%") == ["c_%"]
    assert called(store, "") == ["c_%", "ab2", "ab1"]


def test_runs_that_are_called_so_can_be_chosen_by_status_and_the_newest_come_first(store: Store) -> None:
    named(store, "ab1", "x", COMPLETED)
    named(store, "ab2", "x")
    named(store, "ab3", "x")
    assert called(store, "ab", COMPLETED) == ["ab1"]
    assert called(store, "x", RUNNING) == ["ab3", "ab2"]
    assert called(store, "x", limit=1) == ["ab3"]
