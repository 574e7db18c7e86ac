"""Who lives, who holds what, and which rows nobody needs: read from the file and its locks."""

from pathlib import Path

from refold.stores.sqlite.doctor import count, examine, forget_workers, holders, living
from refold.stores.sqlite.store import SqliteStore
from tests.contracts.stores import NOON, claim_one, issue, order
from tests.stores.sqlite_files import opened


def test_whoever_has_claimed_lives_until_its_file_is_closed(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        issue(store, "r", order("a/1"))
        assert living(store) == ()
        with opened(tmp_path) as other:
            claim_one(other, worker="w")
            assert living(store) == ("w",)
            assert holders(store) == [("r", "a/1", "w", NOON + 30_000_000)]
        assert living(store) == ()
        assert holders(store) == [], "a lease of the dead is held by nobody"


def test_workers_that_have_ended_are_forgotten_and_others_are_not(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        issue(store, "r", order("a/1"), order("a/2"), order("a/3"))
        for worker in ("gone", "holds"):
            with opened(tmp_path) as other:
                lease = claim_one(other, worker=worker)
                if worker == "gone":
                    other.hand_back(lease)
        claim_one(store, worker="lives")
        assert forget_workers(store) == 1
        assert workers(store) == ["holds", "lives"]


def workers(store: SqliteStore) -> list[str]:
    return sorted(row[0] for row in store.file.rows("select worker from workers", ()))


def test_rows_are_counted_by_table(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        issue(store, "r", order("a/1"))
        counted = count(store)
        assert (counted["runs"], counted["facts"], counted["commands"], counted["timers"]) == (1, 1, 1, 0)


def test_an_examination_reads_back_what_the_connection_does(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        seen = examine(store.file, thorough=True)
        assert (seen.journal_mode, seen.synchronous, seen.mode, seen.damage) == ("wal", 2, "0o600", ())
