"""Who lives, who holds what, and which rows nobody needs: read from the file and its locks."""

from pathlib import Path

from refold.ports import Leased
from refold.stores.sqlite.store import SqliteStore
from tests.contracts.stores import NOON, claim_one, issue, order
from tests.stores.sqlite_files import opened


def test_whoever_has_claimed_lives_until_its_file_is_closed(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        issue(store, "r", order("a/1"))
        assert living(store) == []
        with opened(tmp_path) as other:
            claim_one(other, worker="w")
            assert living(store) == ["w"]
            assert store.views.leases() == [Leased("r", "a/1", "w", NOON + 30_000_000, True, NOON)]
        assert living(store) == []
        assert [lease.is_alive for lease in store.views.leases()] == [False], "no worker holds a lease of the dead"


def living(store: SqliteStore) -> list[str]:
    return [worker.can.worker for worker in store.views.workers()]


def test_workers_that_have_ended_are_forgotten_and_others_are_not(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        issue(store, "r", order("a/1"), order("a/2"), order("a/3"))
        for worker in ("gone", "holds"):
            with opened(tmp_path) as other:
                lease = claim_one(other, worker=worker)
                if worker == "gone":
                    other.hand_back(lease)
        claim_one(store, worker="lives")
        assert store.forget_workers() == 1
        assert workers(store) == ["holds", "lives"]


def workers(store: SqliteStore) -> list[str]:
    return sorted(row[0] for row in store.file.rows("select worker from workers", ()))


def test_rows_are_counted_by_table(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        issue(store, "r", order("a/1"))
        counted = store.views.sizes()
        assert (counted["runs"], counted["facts"], counted["commands"], counted["timers"]) == (1, 1, 1, 0)


def test_an_examination_reads_back_what_the_connection_does(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        seen = store.views.health(thorough=True)
        details = seen.details
        assert (details["journal_mode"], details["synchronous"], details["mode"]) == ("wal", 2, "0o600")
        assert (seen.is_durable, seen.is_writable, seen.damage) == (True, True, ())
