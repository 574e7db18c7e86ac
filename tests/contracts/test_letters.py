"""A letter is there from the sender's commit to the receiver's; a blob belongs to its run."""

import pytest

from refold.core.commands import Letter, LetterBody, LetterCancel, LetterEnded, LetterPause, LetterResume, LetterStart
from refold.core.facts import Parent
from refold.core.outcomes import Blob, Failed, Fault, Succeeded
from refold.core.state import PAUSED
from refold.errors import NotFound
from refold.ports import Store
from tests.contracts.stores import commit, due_runs, letter, note, unread

BODIES: tuple[LetterBody, ...] = (
    LetterStart("hash", Parent("up", "c/1", "call"), {"x": [1, "ü"]}, 2),
    LetterEnded(Parent("up", "c/1"), Succeeded({"r": None}, Blob("h", 9)), {"tokens": 1.5}),
    LetterEnded(Parent("up", "c/1"), Failed(Fault("child_failed", "why", data={"step": "a"}))),
    LetterCancel("why"),
    LetterPause(),
    LetterResume(),
)


def blob(store: Store, run: str, hash: str) -> bytes:
    with store.turn([run]) as turn:
        return turn.blob(run, hash)


def test_a_run_has_no_letters_until_one_is_written(store: Store) -> None:
    commit(store, "r", note())
    assert unread(store, "r") == unread(store, "nobody") == []


def test_a_letter_reaches_its_receiver_alone(store: Store) -> None:
    commit(store, "sender", note(), letters=[letter("l", "r")])
    assert (unread(store, "r"), unread(store, "sender"), unread(store, "s")) == (["l"], [], [])


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_a_letter_comes_as_it_was_written(store: Store, body: LetterBody) -> None:
    sent = Letter(key="k", sender="sender", to="r", body=body)
    commit(store, "sender", note(), letters=[sent])
    with store.turn(["r"]) as turn:
        assert list(turn.letters("r")) == [sent]


def test_letters_come_in_the_order_in_which_they_were_written(store: Store) -> None:
    commit(store, "sender", note(), letters=[letter("z", "r"), letter("a", "r")])
    commit(store, "other", note(), letters=[letter("m", "r")])
    assert unread(store, "r") == ["z", "a", "m"]


def test_a_letter_written_twice_is_one_letter_and_keeps_its_place(store: Store) -> None:
    commit(store, "sender", note(), letters=[letter("one", "r", "first"), letter("two", "r"), letter("one", "r", "x")])
    commit(store, "sender", note(), letters=[letter("one", "r", "again")])
    with store.turn(["r"]) as turn:
        assert list(turn.letters("r")) == [letter("one", "r", "first"), letter("two", "r")]


def test_letters_of_one_key_to_two_receivers_are_two(store: Store) -> None:
    commit(store, "sender", note(), letters=[letter("k", "r"), letter("k", "s")])
    commit(store, "r", note(), read_letters=["k"])
    assert (unread(store, "r"), unread(store, "s")) == ([], ["k"])


def test_a_letter_is_gone_with_the_commit_that_read_it_and_the_others_stay(store: Store) -> None:
    commit(store, "sender", note(), letters=[letter(key, "r") for key in ("a", "b", "c")])
    commit(store, "r", note(), read_letters=["b"])
    assert unread(store, "r") == ["a", "c"]
    commit(store, "r", note(), read_letters=["c", "a"])
    assert unread(store, "r") == []


def test_reading_a_letter_that_is_not_there_harms_nobody(store: Store) -> None:
    commit(store, "sender", note(), letters=[letter("a", "r")])
    commit(store, "r", note(), read_letters=["never", "a"])
    commit(store, "s", note(), read_letters=["never"])
    assert (unread(store, "r"), due_runs(store)) == ([], [])


def test_a_letter_can_be_read_in_a_turn_without_facts(store: Store) -> None:
    commit(store, "sender", note(), letters=[letter("a", "r")])
    commit(store, "r", note())
    commit(store, "r", read_letters=["a"])
    assert unread(store, "r") == []


def test_a_run_with_letters_is_due_until_it_has_read_them(store: Store) -> None:
    commit(store, "r", note())
    commit(store, "sender", note(), letters=[letter("a", "r"), letter("b", "r")])
    assert due_runs(store) == ["r"]
    commit(store, "r", note(), read_letters=["a"])
    assert due_runs(store) == ["r"]
    commit(store, "r", note(), read_letters=["b"])
    assert due_runs(store) == []


def test_a_run_that_does_not_exist_yet_is_due_for_its_first_letter(store: Store) -> None:
    commit(store, "sender", note(), letters=[letter("start", "child")])
    assert due_runs(store) == ["child"]
    assert store.summary("child") is None
    commit(store, "child", note("started"), read_letters=["start"], expected=0)
    assert due_runs(store) == []


def test_a_paused_run_is_due_for_a_letter(store: Store) -> None:
    commit(store, "r", note(), status=PAUSED)
    commit(store, "sender", note(), letters=[letter("resume", "r")])
    assert due_runs(store) == ["r"]


def test_no_more_runs_are_due_than_asked_for(store: Store) -> None:
    commit(store, "sender", note(), letters=[letter("l", f"r{n}") for n in range(5)])
    assert len(due_runs(store, limit=3)) == 3
    assert sorted(due_runs(store, limit=9)) == [f"r{n}" for n in range(5)]


def test_a_run_can_write_to_itself_while_it_reads(store: Store) -> None:
    commit(store, "r", note(), letters=[letter("first", "r")])
    commit(store, "r", note(), read_letters=["first"], letters=[letter("second", "r")])
    assert unread(store, "r") == ["second"]


def test_a_letter_written_again_in_the_commit_that_reads_it_is_gone_too(store: Store) -> None:
    commit(store, "r", note(), letters=[letter("k", "r")])
    commit(store, "r", note(), read_letters=["k"], letters=[letter("k", "r")])
    assert unread(store, "r") == []


def test_a_blob_comes_back_byte_by_byte(store: Store) -> None:
    commit(store, "r", note(), blobs={"all": bytes(range(256)), "empty": b""})
    assert (blob(store, "r", "all"), blob(store, "r", "empty")) == (bytes(range(256)), b"")


def test_a_blob_is_there_for_its_own_run_alone(store: Store) -> None:
    commit(store, "r", note(), blobs={"h": b"r"})
    commit(store, "s", note())
    with pytest.raises(NotFound):
        blob(store, "s", "h")
    commit(store, "s", note(), blobs={"h": b"s"})
    assert (blob(store, "r", "h"), blob(store, "s", "h")) == (b"r", b"s")


def test_a_blob_that_was_never_written_is_not_found(store: Store) -> None:
    commit(store, "r", note(), blobs={"h": b"data"})
    for run, hash in (("r", "H"), ("r", ""), ("nobody", "h")):
        with pytest.raises(NotFound):
            blob(store, run, hash)


def test_a_blob_can_be_read_in_a_turn_of_another_run(store: Store) -> None:
    commit(store, "child", note(), blobs={"h": b"result"})
    with store.turn(["parent"]) as turn:
        assert turn.blob("child", "h") == b"result"


def test_a_blob_may_be_written_again(store: Store) -> None:
    commit(store, "r", note(), blobs={"h": b"same"})
    commit(store, "r", note(), blobs={"h": b"same"})
    assert blob(store, "r", "h") == b"same"
