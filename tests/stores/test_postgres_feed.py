"""The feed on PostgreSQL while transactions are committed in another order than they began."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from refold.errors import InvalidValue, Unusable
from refold.stores.postgres.migrate import migrate_server
from refold.stores.postgres.store import PostgresStore
from tests.contracts.stores import commit, note, postgres_url
from tests.contracts.test_feed import read
from tests.postgres_server import server_url

TX = "update refold.facts set tx = %s::text::xid8 where rid = %s and number = %s"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PostgresStore]:
    with closing(PostgresStore(postgres_url(tmp_path))) as store:
        yield store


@pytest.fixture
def other() -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(server_url()) as connection:
        yield connection


def rid_of(store: PostgresStore, run: str) -> int:
    return int(store.session.rows("select rid from refold.runs where ns = %s and run = %s", store.memory.ns, run)[0][0])


def transaction_now(store: PostgresStore) -> int:
    return int(store.session.rows("select pg_current_xact_id()::text::bigint")[0][0])


def test_a_commit_that_becomes_visible_late_is_not_missed(store: PostgresStore, other: psycopg.Connection[Any]) -> None:
    """A reader who remembers the last position would pass over it."""
    commit(store, "early", note())
    rid = rid_of(store, "early")
    other.execute(
        "insert into refold.facts (rid, number, at, kind, data, turn, tx)"
        " select rid, 2, at, kind, data, turn, pg_current_xact_id() from refold.facts where rid = %s",
        (rid,),
    )
    commit(store, "late", note())
    seen, cursor = read(store)
    assert seen == [("early", 1)], "what came later waits for the transaction that is still running"
    other.commit()
    assert read(store, cursor)[0] == [("early", 2), ("late", 1)]


@pytest.mark.parametrize("limit", [1, 2, 500])
def test_turns_whose_transactions_began_in_the_other_order_come_in_the_order_of_the_run(
    store: PostgresStore, limit: int
) -> None:
    """A transaction has its number before it waits for the lock of a run."""
    for _ in range(6):
        commit(store, "r", note(), note())
        commit(store, "s", note())
    rid = rid_of(store, "r")
    numbers = [transaction_now(store) for _ in range(4)]
    for first, tx in ((3, 3), (5, 2), (7, 0), (9, 1)):  # 3 and 5 were committed before 7, and 9 after it
        store.session.rows(TX, str(numbers[tx]), rid, first)
    store.session.rows("select pg_current_xact_id()")
    seen, _ = read(store, "", limit)
    assert [number for run, number in seen if run == "r"] == list(range(1, 13))
    assert len(seen) == len(set(seen)) == 18


def test_a_restored_dump_is_named_until_it_was_migrated_and_old_cursors_are_refused(tmp_path: Path) -> None:
    url = f"{postgres_url(tmp_path)}&refold_schema=restored"
    with closing(PostgresStore(url)) as store:
        commit(store, "r", note())
        commit(store, "r", note())
        _, cursor = read(store)
        store.session.rows(
            TX.replace("refold.", "restored."), str(transaction_now(store) * 1000), rid_of(store, "r"), 2
        )
        with pytest.raises(Unusable, match="run `refold db migrate`"):
            store.views.feed(cursor)
        migrate_server(url)
        assert read(store)[0] == [("r", 1), ("r", 2)]
        kind, system, table, *rest = cursor.split(".")
        with pytest.raises(InvalidValue, match="was restored"):
            store.views.feed(".".join([kind, system, str(int(table) + 1), *rest]))
        store.session.rows("drop schema restored cascade")
