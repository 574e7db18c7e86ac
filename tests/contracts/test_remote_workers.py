"""Workers without access to the store: whether they are alive, and lines that are published with a document."""

from pathlib import Path

import pytest

from refold.core.outcomes import SECOND
from refold.ports import Abilities, Store
from tests.contracts.stores import NOON, FakeClock, claim, claim_one, claimed_ids, issue, opened, order


def remote(worker: str = "far", seconds: float = 10) -> Abilities:
    return Abilities(worker, None, frozenset({"noop"}), alive_for=seconds)


def alive(store: Store) -> list[str]:
    return [each.can.worker for each in store.views.workers()]


def test_a_remote_worker_is_alive_for_a_while_after_each_sign_of_life(store: Store, clock: FakeClock) -> None:
    store.enrol(remote())
    assert alive(store) == ["far"]
    clock.at = NOON + 9 * SECOND
    store.enrol(remote())
    clock.at = NOON + 18 * SECOND
    assert alive(store) == ["far"]
    clock.at = NOON + 19 * SECOND
    assert alive(store) == []


def test_a_remote_worker_that_has_ended_is_seen_no_more_and_forgotten(store: Store) -> None:
    store.enrol(remote())
    store.enrol(remote(seconds=0))
    assert alive(store) == []
    assert store.forget_workers() == 1
    assert store.forget_workers() == 0


def test_a_claim_for_a_remote_worker_does_not_enrol_it(store: Store) -> None:
    issue(store, "r", order("a1"))
    assert len(claim(store, 1, "far", alive_for=10.0)) == 1
    assert alive(store) == []


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_remote_worker_keeps_its_leases_when_the_server_that_claimed_for_it_has_gone(
    kind: str, tmp_path: Path, clock: FakeClock
) -> None:
    with opened(kind, tmp_path / "store", clock) as first:
        issue(first, "r", order("a1"))
        first.enrol(remote())
        lease = claim_one(first, "far", alive_for=10.0)
    with opened(kind, tmp_path / "store", clock) as second:
        assert list(second.expire(5)) == []
        assert alive(second) == ["far"]
        assert [each.generation for each in second.extend("far", 30.0)] == [lease.generation]
        assert claimed_ids(second) == []


def test_only_a_living_remote_worker_is_offered_the_command_of_its_parked_body_first(
    store: Store, clock: FakeClock
) -> None:
    store.enrol(Abilities("v"))
    store.enrol(remote())
    parked = order("a1", prefer="far", prefer_until=NOON + 60 * SECOND)
    issue(store, "r", parked)
    assert claimed_ids(store, worker="v") == []
    assert claimed_ids(store, worker="far", alive_for=10.0) == ["a1"]


def test_lines_and_a_document_are_written_in_one_commit_or_not_at_all(store: Store) -> None:
    issue(store, "r", order("a1"))
    lease = claim_one(store)
    with store.turn(["r"]) as turn:
        assert turn.publish(lease, ["one", {"two": 2}])
        turn.put_document("count", "r", b"2")
    with pytest.raises(RuntimeError), store.turn(["r"]) as turn:
        assert turn.publish(lease, ["three"])
        turn.put_document("count", "s", b"3")
        raise RuntimeError
    assert list(store.views.lines("r")) == [(1, "one"), (2, {"two": 2})]
    assert store.views.document("count", "s") is None
    with store.turn(["r"]) as turn:
        assert turn.publish(lease, ["three"])
    store.hand_back(lease)
    with store.turn(["r"]) as turn:
        assert not turn.publish(lease, ["late"])
    assert [line for _, line in store.views.lines("r")] == ["one", {"two": 2}, "three"]
