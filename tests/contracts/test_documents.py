"""Documents: small things that belong to no run, each changed only by a writer who has seen its last version."""

import threading
from pathlib import Path

import pytest

from refold.errors import Conflict, InvalidValue
from refold.ports import MOST_DATA, Document, Store
from tests.contracts.stores import NOON, FakeClock, commit, note, opened
from tests.contracts.stores import put as write_facts
from tests.contracts.test_views import elsewhere

SECOND = 1_000_000


def put(store: Store, kind: str, id: str, data: bytes = b"{}", version: int = 0, due: int | None = None) -> int:
    with store.turn([]) as turn:
        return turn.put_document(kind, id, data, version, due)


def delete(store: Store, kind: str, id: str, version: int) -> None:
    with store.turn([]) as turn:
        turn.delete_document(kind, id, version)


def names(store: Store, kind: str, after: str = "", limit: int = 100) -> list[str]:
    return [each.id for each in store.views.documents(kind, after, limit)]


def due_names(store: Store, kind: str, limit: int = 100) -> tuple[list[str], int | None]:
    documents, next_due = store.views.due_documents(kind, limit)
    return [each.id for each in documents], next_due


def test_a_document_reads_as_it_was_put(store: Store) -> None:
    version = put(store, "schedule", "nightly", b"\x00any bytes\xff", due=NOON + 5)
    expected = Document("schedule", "nightly", version, b"\x00any bytes\xff", NOON + 5)
    assert store.views.document("schedule", "nightly") == expected
    with store.turn([]) as turn:
        assert turn.document("schedule", "nightly") == expected
    assert store.views.document("schedule", "weekly") is None
    assert store.views.document("calendar", "nightly") is None


def test_a_put_takes_the_version_that_it_has_seen(store: Store) -> None:
    first = put(store, "schedule", "a", b"1")
    second = put(store, "schedule", "a", b"2", first)
    assert second > first > 0
    for version in (0, first, second + 1):
        with pytest.raises(Conflict, match=r"schedule a"):
            put(store, "schedule", "a", b"3", version)
    stored = store.views.document("schedule", "a")
    assert stored is not None and stored.data == b"2"


def test_a_document_that_is_not_there_has_version_0(store: Store) -> None:
    with pytest.raises(Conflict, match=r"schedule a was deleted"):
        put(store, "schedule", "a", b"1", 7)
    with pytest.raises(Conflict, match=r"schedule a was deleted"):
        delete(store, "schedule", "a", 7)


def test_a_document_is_deleted_by_its_version(store: Store) -> None:
    first = put(store, "schedule", "a")
    second = put(store, "schedule", "a", b"2", first)
    with pytest.raises(Conflict, match=r"changed meanwhile"):
        delete(store, "schedule", "a", first)
    delete(store, "schedule", "a", second)
    assert store.views.document("schedule", "a") is None


def test_a_document_that_is_made_again_is_another_one(store: Store, clock: FakeClock) -> None:
    first = put(store, "schedule", "a")
    delete(store, "schedule", "a", first)
    clock.elapse(0.001)
    assert put(store, "schedule", "a") > first
    with pytest.raises(Conflict):
        delete(store, "schedule", "a", first)


def test_documents_are_listed_in_the_order_of_their_ids_part_by_part(store: Store) -> None:
    for id in ("b", "a/2", "a/10", "é", "Z", "a"):
        put(store, "schedule", id)
    put(store, "calendar", "c")
    order = sorted(["b", "a/2", "a/10", "é", "Z", "a"], key=lambda id: id.encode())
    assert names(store, "schedule") == order
    assert names(store, "schedule", limit=2) == order[:2]
    assert names(store, "schedule", after=order[1], limit=2) == order[2:4]
    assert names(store, "schedule", after=order[-1]) == []


def test_documents_are_found_when_their_moment_has_come(store: Store, clock: FakeClock) -> None:
    put(store, "schedule", "later", due=NOON + 30 * SECOND)
    put(store, "schedule", "soon", due=NOON + 10 * SECOND)
    put(store, "schedule", "never")
    put(store, "calendar", "another kind", due=NOON - SECOND)
    assert due_names(store, "schedule") == ([], NOON + 10 * SECOND)
    clock.elapse(10)
    assert due_names(store, "schedule") == (["soon"], NOON + 30 * SECOND)
    clock.elapse(90)
    assert due_names(store, "schedule") == (["soon", "later"], None)
    assert due_names(store, "schedule", limit=1) == (["soon"], None)


def test_the_moment_of_a_document_moves_with_each_put(store: Store, clock: FakeClock) -> None:
    version = put(store, "schedule", "a", due=NOON + SECOND)
    version = put(store, "schedule", "a", version=version, due=NOON + 9 * SECOND)
    clock.elapse(2)
    assert due_names(store, "schedule") == ([], NOON + 9 * SECOND)
    put(store, "schedule", "a", version=version)
    clock.elapse(20)
    assert due_names(store, "schedule") == ([], None)


def test_a_turn_sees_its_own_documents_and_readers_see_them_after_its_commit(store: Store) -> None:
    with store.turn([]) as turn:
        version = turn.put_document("schedule", "a", b"1")
        seen = turn.document("schedule", "a")
        assert seen is not None and seen.data == b"1"
        assert elsewhere(lambda: store.views.document("schedule", "a")) is None
        assert elsewhere(lambda: store.views.documents("schedule")) == []
        assert turn.put_document("schedule", "a", b"2", version) > version
    stored = store.views.document("schedule", "a")
    assert stored is not None and stored.data == b"2"


def test_documents_and_facts_are_one_commit(store: Store) -> None:
    version = put(store, "schedule", "a", b"before", due=NOON)
    gone = put(store, "schedule", "b")
    with pytest.raises(ZeroDivisionError), store.turn(["r"]) as turn:
        write_facts(turn, "r", note())
        turn.put_document("schedule", "a", b"after", version)
        turn.put_document("schedule", "new", b"", due=NOON)
        turn.delete_document("schedule", "b", gone)
        raise ZeroDivisionError
    stored = store.views.document("schedule", "a")
    assert stored is not None and (stored.data, stored.version) == (b"before", version)
    assert names(store, "schedule") == ["a", "b"]
    assert store.views.facts("r") == []
    with store.turn(["r"]) as turn:
        write_facts(turn, "r", note())
        turn.put_document("schedule", "a", b"after", version)
    stored = store.views.document("schedule", "a")
    assert stored is not None and stored.data == b"after"
    assert len(store.views.facts("r")) == 1


def test_a_turn_continues_after_a_refused_put(store: Store) -> None:
    put(store, "schedule", "a", b"1")
    with store.turn([]) as turn:
        with pytest.raises(Conflict):
            turn.put_document("schedule", "a", b"2")
        with pytest.raises(Conflict):
            turn.delete_document("schedule", "a", 1)
        turn.put_document("schedule", "b", b"3")
    assert names(store, "schedule") == ["a", "b"]
    stored = store.views.document("schedule", "a")
    assert stored is not None and stored.data == b"1"


def test_a_document_is_small(store: Store) -> None:
    put(store, "schedule", "largest", b"x" * MOST_DATA)
    with pytest.raises(InvalidValue, match=str(MOST_DATA + 1)):
        put(store, "schedule", "larger", b"x" * (MOST_DATA + 1))
    assert names(store, "schedule") == ["largest"]


@pytest.mark.parametrize("place", [("", "a"), ("a", ""), ("a", "b\0c")])
def test_a_document_has_a_kind_and_an_id(store: Store, place: tuple[str, str]) -> None:
    with pytest.raises(InvalidValue):
        put(store, *place)


def test_forgetting_what_follows_from_logs_keeps_documents(store: Store) -> None:
    put(store, "schedule", "a")
    commit(store, "r", note())
    with store.turn([]) as turn:
        turn.forget()
    assert names(store, "schedule") == ["a"]
    assert store.views.sizes()["documents"] == 1


def test_of_many_writers_with_the_same_version_one_wins(tmp_path: Path, clock: FakeClock) -> None:
    """Each writer has a connection of its own."""
    won: list[int] = []
    with opened("sqlite", tmp_path, clock) as first:
        version = put(first, "schedule", "a")

        def write(n: int) -> None:
            with opened("sqlite", tmp_path, clock) as store:
                try:
                    put(store, "schedule", "a", str(n).encode(), version)
                except Conflict:
                    return
                won.append(n)

        threads = [threading.Thread(target=write, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stored = first.views.document("schedule", "a")
    assert stored is not None and [int(stored.data)] == won
