"""The feed: every fact once for each cursor, those of a run in their order."""

import random

import pytest

from refold.core.state import COMPLETED
from refold.errors import InvalidValue
from refold.ports import Store
from tests.contracts.stores import change, commit, note, order, put


def read(store: Store, cursor: str = "", limit: int = 500) -> tuple[list[tuple[str, int]], str]:
    """Everything behind a cursor, and the cursor behind it."""
    found: list[tuple[str, int]] = []
    while facts := store.views.feed(cursor, limit):
        found += [(each.run, each.number) for each in facts]
        cursor = facts[-1].cursor
    return found, cursor


def test_the_facts_of_all_runs_come_once_in_the_order_of_their_commits(store: Store) -> None:
    for run in ("b", "a", "b", "b", "a"):
        commit(store, run, note(f"{run} one"), note(f"{run} two"))
    found, cursor = read(store)
    assert found == [("b", 1), ("b", 2), ("a", 1), ("a", 2), *(("b", n) for n in range(3, 7)), ("a", 3), ("a", 4)]
    assert read(store, cursor) == ([], cursor)
    commit(store, "b", note("last"))
    assert read(store, cursor)[0] == [("b", 7)]


def test_a_fact_of_the_feed_is_that_of_the_log_with_its_moment(store: Store) -> None:
    commit(store, "r", note("first", {"a": [1, None]}))
    (found,) = store.views.feed()
    assert [(found.number, found.at, found.fact)] == list(store.facts("r"))


@pytest.mark.parametrize("seed", range(5))
def test_every_cursor_continues_where_its_fact_was(store: Store, seed: int) -> None:
    """Runs that write one after the other and together, small pages, and readers that stop at any fact."""
    chance = random.Random(seed)
    runs = [f"r{n}" for n in range(4)]
    cursor, seen = "", list[tuple[str, int]]()
    for _ in range(30):
        with store.turn(runs) as turn:
            for run in chance.sample(runs, chance.choice([1, 1, 1, 2, 4])):
                put(turn, run, *(note(str(n)) for n in range(chance.randint(1, 3))), turn=f"t{chance.random()}")
        if chance.random() < 0.5:
            page = store.views.feed(cursor, chance.choice([1, 2, 5]))
            kept = page[: chance.randint(0, len(page))]
            seen += [(each.run, each.number) for each in kept]
            cursor = kept[-1].cursor if kept else cursor
    seen += read(store, cursor, chance.choice([1, 3, 500]))[0]
    for run in runs:
        head = len(store.facts(run))
        assert [number for each, number in seen if each == run] == list(range(1, head + 1))
    assert read(store, "", 1)[0] == read(store)[0], "whatever the size of the pages"


def test_the_end_of_the_feed_is_behind_what_there_is(store: Store) -> None:
    assert read(store, store.views.feed_end())[0] == []
    commit(store, "r", note("before"))
    commit(store, "s", note("before"))
    end = store.views.feed_end()
    commit(store, "r", note("behind"))
    assert read(store, end)[0] == [("r", 2)]


def test_a_run_that_is_removed_leaves_the_feed_and_its_name_begins_again(store: Store) -> None:
    commit(store, "other", note())
    commit(store, "r", note(), status=COMPLETED)
    _, cursor = read(store)
    with store.turn(["r"]) as turn:
        turn.remove("r")
    assert read(store)[0] == [("other", 1)] and read(store, cursor)[0] == []
    commit(store, "other", note())
    commit(store, "r", note("again"))
    assert read(store, cursor)[0] == [("other", 2), ("r", 1)]
    assert read(store)[0] == [("other", 1), ("other", 2), ("r", 1)]


def test_a_rebuild_brings_no_fact_again(store: Store) -> None:
    for run in ("a", "b", "a"):
        commit(store, run, note())
    before, cursor = read(store)
    with store.turn([]) as turn:
        for run in turn.forget():
            put(turn, run)
    assert read(store, cursor)[0] == []
    for run in ("a", "b", "a"):
        commit(store, run, note())
    assert read(store, cursor)[0] == [("a", 3), ("b", 2), ("a", 4)]
    assert sorted(read(store)[0]) == sorted([*before, ("a", 3), ("b", 2), ("a", 4)])


def test_what_is_not_written_is_not_in_the_feed(store: Store) -> None:
    commit(store, "r", note())
    with pytest.raises(RuntimeError), store.turn(["r", "s"]) as turn:
        put(turn, "r", note())
        put(turn, "s", note())
        raise RuntimeError
    change(store, "r", "a/1", order())
    assert read(store)[0] == [("r", 1), ("r", 2)]


@pytest.mark.parametrize("cursor", ["x", "s", "s.1", "p.1.2.3", "m.a.b", "s.1.-2", "q.1.2.3.4.5.6", "s.²."])
def test_what_is_not_a_cursor_is_refused_by_name(store: Store, cursor: str) -> None:
    with pytest.raises(InvalidValue, match="is not a cursor of this database"):
        store.views.feed(cursor)


def test_a_cursor_of_another_database_is_refused(store: Store) -> None:
    commit(store, "r", note())
    kind, *numbers = store.views.feed()[0].cursor.split(".")
    with pytest.raises(InvalidValue, match="empty cursor"):
        store.views.feed(".".join([kind, *(f"9{number}" for number in numbers)]))
