"""PostgreSQL: commits whose answer is lost, memories that are wrong, sessions that break, servers left behind."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from refold.core.state import COMPLETED
from refold.errors import Outdated, TailLost, Unavailable, Unreachable
from refold.ports import Abilities, Hint, Writes
from refold.stores.postgres import queries
from refold.stores.postgres.connection import Statement
from refold.stores.postgres.store import PostgresStore
from tests.alive import within
from tests.contracts.stores import FakeClock, claim_one, commit, issue, note, order, postgres_url, put

CAN = Abilities("w")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return postgres_url(tmp_path)


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    clock = FakeClock()
    store = PostgresStore(url, clock, clock.steady)
    yield store
    store.close()


@pytest.fixture
def other(url: str, store: PostgresStore) -> Iterator[PostgresStore]:
    """Another process on the same tables."""
    clock = FakeClock()
    other = PostgresStore(url, clock, clock.steady)
    yield other
    other.close()


Run = Callable[[Sequence[Statement]], list[list[Any]]]


def closes(statements: Sequence[Statement]) -> bool:
    return any(sql == queries.CLOSE for sql, _ in statements)


def lose_the_answer(store: PostgresStore, patch: pytest.MonkeyPatch) -> None:
    """The next commit is carried out, and its connection breaks before the answer comes."""
    run: Run = store.session.run

    def lossy(statements: Sequence[Statement]) -> list[list[Any]]:
        result = run(statements)
        if closes(statements):
            patch.setattr(store.session, "run", run)
            store.session.raw.close()
            store.session._note_lost()
            raise Unreachable("the connection broke")
        return result

    patch.setattr(store.session, "run", lossy)


def test_a_commit_whose_answer_was_lost_is_found(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_the_answer(store, monkeypatch)
    with pytest.raises(Unavailable):
        commit(store, "r", note(), turn="t1")
    assert store.was_applied("r", 1, "t1")
    assert not store.was_applied("r", 1, "t2")
    assert not store.was_applied("r", 2, "t1")


def test_a_commit_that_is_still_under_way_is_ended_before_the_answer(store: PostgresStore) -> None:
    """Its session is waiting for something else, and would commit after the process has read that it did not."""
    commit(store, "r", note())
    with psycopg.connect(store.address.url) as late:
        pid, started = late.execute(
            "select pid, backend_start from pg_stat_activity where pid = pg_backend_pid()"
        ).fetchone() or (0, None)
        rid = store.memory.runs["r"].rid
        late.execute("select 1 from refold.runs where rid = %s for update", (rid,))
        late.execute(
            "insert into refold.facts (rid, number, at, kind, data, turn) values (%s, 2, 0, 'x', '{}', 'late')", (rid,)
        )
        store.session.lost.append((pid, started))
        assert not store.was_applied("r", 2, "late")
        with pytest.raises(psycopg.OperationalError):
            late.commit()
    assert len(store.facts("r")) == 1


def settle(store: PostgresStore, hint: Hint, turn: str = "plain") -> None:
    with store.turn_from({"r": hint}) as plain:
        put(plain, "r", note("settled"), expected=hint.head, turn=turn, commands={"a1": None}, summary=row(store))


def row(store: PostgresStore) -> Any:
    return store.views.summary("r")


def leased(store: PostgresStore) -> Hint:
    issue(store, "r", order("a1"))
    return Hint(1, {"a1": claim_one(store).generation})


def test_a_plain_turn_is_one_round_trip(store: PostgresStore) -> None:
    hint, summary = leased(store), row(store)
    before = store.trips
    with store.turn_from({"r": hint}) as turn:
        assert (turn.head("r"), list(turn.letters("r")), list(turn.due_timers("r"))) == (1, [], [])
        assert turn.generations("r", ["a1"]) == {"a1": hint.held["a1"]}
        parts = {"commands": {"a1": None, "a2": order("a2")}, "new": ["a2"], "summary": summary}
        turn.write(Writes(run="r", turn="t", expected=1, at=turn.now, facts=[note("settled")], **parts))
        asked = turn.ask(CAN, 30.0, 1)
    assert store.trips == before + 1
    assert [lease.command.id for lease in asked.leases] == ["a2"]
    assert len(store.facts("r")) == 2


def test_a_plain_turn_on_a_log_that_has_grown_writes_nothing(store: PostgresStore, other: PostgresStore) -> None:
    hint = leased(store)
    commit(other, "r", note("from another process"))
    with pytest.raises(Outdated):
        settle(store, hint)
    assert [fact for _, _, fact in store.facts("r")] == [note("issued"), note("from another process")]
    assert store.views.leases("r")[0].command == "a1"


def test_a_plain_turn_with_a_lease_that_has_moved_on_writes_nothing(store: PostgresStore, other: PostgresStore) -> None:
    hint = leased(store)
    with other.turn(["r"]) as turn:
        lease = turn.lease("r", "a1")
    assert lease is not None and other.hand_back(lease)
    with pytest.raises(Outdated):
        settle(store, hint)
    assert len(store.facts("r")) == 1


def test_a_plain_turn_on_a_run_that_was_removed_writes_nothing(store: PostgresStore, other: PostgresStore) -> None:
    commit(store, "r", note())
    summary = row(store)
    commit(other, "r", note(), status=COMPLETED)
    with other.turn(["r"]) as turn:
        turn.remove("r")
    with pytest.raises(Outdated), store.turn_from({"r": Hint(1)}) as plain:
        put(plain, "r", note("late"), expected=1, summary=summary)
    assert list(store.facts("r")) == []


def test_a_plain_turn_that_has_to_read_opens_and_verifies(store: PostgresStore, other: PostgresStore) -> None:
    hint = leased(store)
    with store.turn_from({"r": hint}) as turn:
        assert turn.claimed("r") == {"a1"}
    commit(other, "r", note("from another process"))
    with pytest.raises(Outdated), store.turn_from({"r": hint}) as turn:
        turn.claimed("r")


def test_a_session_that_was_ended_is_opened_again(store: PostgresStore, other: PostgresStore) -> None:
    hint = leased(store)
    other.session.rows("select pg_terminate_backend(%s::int, 5000)", store.session.pid)
    with pytest.raises((Unavailable, Outdated)):
        settle(store, hint, "first")
    assert not store.was_applied("r", 2, "first")
    settle(store, hint, "second")
    assert store.turn_of("r", 2) == "second"


def test_a_turn_whose_connection_breaks_does_not_continue_on_another(store: PostgresStore) -> None:
    """The other one holds no locks."""
    commit(store, "r", note())
    with pytest.raises(Unreachable, match="in the middle of a turn"), store.turn(["r"]) as turn:
        assert turn.head("r") == 1
        store.session.drop()
        put(turn, "r", note("without a lock"))
    assert len(store.facts("r")) == 1


def test_a_log_that_has_lost_its_last_facts_is_named_and_others_continue(store: PostgresStore) -> None:
    commit(store, "r", note(), note())
    commit(store, "s", note())
    store.session.rows("delete from refold.facts where rid = %s and number = 2", store.memory.runs["r"].rid)
    with pytest.raises(TailLost, match="run r has 1 facts on this server, and 2 were acknowledged"):
        commit(store, "r", note())
    commit(store, "s", note())
    assert len(store.facts("s")) == 2


def test_a_server_that_was_left_behind_gets_no_writes(store: PostgresStore) -> None:
    commit(store, "r", note())
    assert store._place is not None
    store._place = (store._place[0], store._place[1] + 1)
    store.session.drop()
    with pytest.raises(Unreachable, match="a server that was left behind gets no writes"):
        commit(store, "r", note())


def test_processes_that_start_one_run_together_start_it_once(store: PostgresStore, other: PostgresStore) -> None:
    with pytest.raises(Outdated), store.turn(["r"]) as turn:
        put(turn, "r", note("second"))
        commit(other, "r", note("first"))
    assert [fact for _, _, fact in store.facts("r")] == [note("first")]


def test_a_process_that_died_is_noticed_by_its_lock_and_not_by_its_lease(url: str) -> None:
    worker, sweeper = PostgresStore(url), PostgresStore(url)
    worker.listen(lambda rings: None)
    issue(worker, "r", order("a1"))
    assert worker.bell.is_held
    age = "select extract(epoch from clock_timestamp() - pg_postmaster_start_time()) > 10"
    assert within(30, lambda: sweeper.session.rows(age)[0][0]), "all locks are free for a while after a restart"
    claim_one(worker, lease_for=600)
    assert list(sweeper.expire(5)) == []
    worker.bell.close()  # the server frees the lock of a session that has ended
    suspected = "select 1 from refold.workers where ns = %s and suspect_at is not null"

    def is_suspected() -> bool:
        sweeper.expire(5)
        return bool(sweeper.session.rows(suspected, sweeper.memory.ns))

    assert within(30, is_suspected)
    assert sweeper.views.leases("r"), "a lock that is free once proves nothing"
    sweeper.session.rows("update refold.workers set suspect_at = suspect_at - 3000000 where suspect_at is not null")
    sweeper.expire(5)
    assert not sweeper.views.leases("r")
    assert claim_one(sweeper, "v").losses == 1
    worker.close()
    sweeper.close()
