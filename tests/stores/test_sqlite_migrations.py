"""A file is brought up to date by numbered steps, and one from the future is refused."""

from pathlib import Path

import apsw
import pytest

from refold.core.read.summary import Summary
from refold.core.state import PAUSED, RUNNING
from refold.errors import Corrupt, Unusable
from refold.stores.sqlite.migrate import APPLICATION, migrate, migrations
from refold.stores.sqlite.store import SqliteStore
from tests.contracts.stores import NOON, FakeClock, claim_one, claimed_ids, commit, issue, note, order
from tests.contracts.stores import opened as contract
from tests.stores.sqlite_files import ask, opened

STEPS = {
    1: "create table one (x); insert into one values (1)",
    2: "alter table one add column y default 7",
    3: "create table three (x)",
}


@pytest.fixture
def db(tmp_path: Path) -> apsw.Connection:
    return apsw.Connection(str(tmp_path / "other.db"))


def tables(db: apsw.Connection) -> list[str]:
    return [name for (name,) in db.execute("select name from sqlite_master order by name")]


def test_migrations_are_numbered_from_one_without_a_gap() -> None:
    assert list(migrations()) == list(range(1, len(migrations()) + 1))


def test_every_table_has_a_namespace() -> None:
    db = apsw.Connection(":memory:")
    migrate(db, "here")
    for name in tables(db):
        if not name.startswith("sqlite_") and "_" not in name:
            columns = {column: default for _, column, _, _, default, _ in db.execute(f"pragma table_info({name})")}
            assert columns.get("namespace") == "'default'", name


def test_a_new_file_sees_every_step_once(db: apsw.Connection) -> None:
    migrate(db, "here", STEPS)
    migrate(db, "here", STEPS)
    assert tables(db) == ["one", "three"]
    assert db.execute("select * from one").fetchall() == [(1, 7)]
    assert (db.pragma("user_version"), db.pragma("application_id")) == (3, APPLICATION)


def test_an_older_file_sees_what_it_has_not_seen_yet(db: apsw.Connection) -> None:
    migrate(db, "here", {1: STEPS[1]})
    db.execute("insert into one values (2)")
    migrate(db, "here", STEPS)
    assert db.execute("select * from one").fetchall() == [(1, 7), (2, 7)]


def test_steps_that_fail_leave_the_file_as_it_was(db: apsw.Connection) -> None:
    migrate(db, "here", {1: STEPS[1]})
    with pytest.raises(Corrupt, match="cannot be migrated: no such column: nonsense"):
        migrate(db, "here", {**STEPS, 4: "create table four (x); select nonsense"})
    assert (tables(db), db.pragma("user_version")) == (["one"], 1)
    migrate(db, "here", STEPS)
    assert tables(db) == ["one", "three"]


def test_a_file_of_a_newer_refold_is_refused_by_name_and_left_alone(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        commit(store, "r", note())
        store.file.db.pragma("user_version", 99)
    before = (tmp_path / "refold.db").read_bytes()
    with pytest.raises(Unusable, match=f"refold.db was written by a newer Refold .schema 99; .* {max(migrations())}"):
        SqliteStore(tmp_path / "refold.db", FakeClock())
    assert (tmp_path / "refold.db").read_bytes() == before
    assert ask(tmp_path, "pragma user_version") == [(99,)]


SINCE = {  # takes back what a migration has done
    12: """drop index commands_first; drop index commands_waiting; drop index commands_limited;
        drop table weights; drop table limits;
        alter table commands drop column share; alter table commands drop column lim;
        alter table commands drop column lane;
        create index commands_first on commands (namespace, queue, executor, priority desc, turn)
            where turn is not null;
        create index commands_waiting on commands (namespace, run, queue, executor, priority desc, place)
            where state = 'waiting';""",
    11: "drop table feed;",
    10: "drop index runs_by_parent; alter table runs drop column parent;",
    9: """drop index commands_first; drop index commands_waiting; alter table commands drop column executor;
        create index commands_first on commands (namespace, queue, priority desc, turn) where turn is not null;
        create index commands_waiting on commands (namespace, run, queue, priority desc, place)
            where state = 'waiting';""",
    8: "drop table documents;",
    7: """drop index runs_by_change; alter table runs drop column change; drop table removed_changes;""",
    6: """drop index runs_by_workflow; drop index runs_by_name; drop index runs_by_key; drop table labels;
        alter table runs drop column workflow; alter table runs drop column name; alter table runs drop column key;""",
    5: "drop table marks;",
    4: "alter table commands drop column hand_backs;",
}


def take_back(folder: Path, version: int) -> None:
    """Make a file of this schema out of one of the present schema."""
    db = apsw.Connection(str(folder / "refold.db"))
    for number in range(max(SINCE), version, -1):
        db.execute(SINCE[number])
    db.pragma("user_version", version)
    db.close()


def test_runs_of_an_older_file_count_as_changed_in_the_order_of_their_starts(tmp_path: Path) -> None:
    clock = FakeClock()
    with contract("sqlite", tmp_path, clock) as store:
        for run in ("later", "first"):
            moment = NOON + (run == "later")
            commit(store, run, note(), summary=Summary(run, "contract", "hash", RUNNING, created_at=moment))
    take_back(tmp_path, 6)
    with contract("sqlite", tmp_path, clock) as store:
        assert list(store.views.changed((0, 0)).heads.items()) == [("first", 1), ("later", 1)]
        position = store.views.changed().position
        commit(store, "new", note())
        assert list(store.views.changed(position).heads) == ["new"]


def test_commands_of_a_file_in_which_hand_backs_were_not_counted_are_taken_up(tmp_path: Path) -> None:
    clock = FakeClock()
    with contract("sqlite", tmp_path, clock) as store:
        issue(store, "r", order("a1"), order("a2"))
        claim_one(store)
    take_back(tmp_path, 3)
    with contract("sqlite", tmp_path, clock) as store:
        lease = claim_one(store)
        assert lease.command.id == "a2"
        assert store.hand_back(lease)
        assert claim_one(store).command.id == "a2"
    with contract("sqlite", tmp_path, clock) as store:
        assert ask(tmp_path, "select id, hand_backs from commands order by id") == [("a1", 0), ("a2", 1)]
        assert {each.command.id for each in store.extend("w", 30)} == {"a1", "a2"}


def test_commands_of_a_file_without_executors_are_taken_up_and_new_ones_have_theirs(tmp_path: Path) -> None:
    clock = FakeClock()
    with contract("sqlite", tmp_path, clock) as store:
        issue(store, "r", order("a1"), order("a2"))
    take_back(tmp_path, 8)
    full = (("interpreter", 0),)
    with contract("sqlite", tmp_path, clock) as store:
        issue(store, "s", order("b1", executor="interpreter"), order("b2"))
        assert sorted(claimed_ids(store, places=full)) == ["a1", "a2", "b2"]
        assert claimed_ids(store) == ["b1"]


def test_commands_of_a_file_without_shares_wait_in_the_lanes_of_their_tools(tmp_path: Path) -> None:
    clock = FakeClock()
    with contract("sqlite", tmp_path, clock) as store:
        tools = ("http", "shell", "http", "[odd")
        issue(store, "r", *(order(f"r{n}", tool=tool) for n, tool in enumerate(tools)))
        issue(store, "s", order("s0", executor="interpreter"), order("s1", priority=1), order("s2"))
        issue(store, "p", order("p0"))
        commit(store, "p", note(), status=PAUSED)
    take_back(tmp_path, 11)
    clock.elapse(1)
    with contract("sqlite", tmp_path, clock) as store:
        assert claimed_ids(store, tools=frozenset({"shell", "[odd"})) == ["r1", "r3"]
        issue(store, "r", order("r4", tool="http"))
        assert claimed_ids(store) == ["s1", "s0", "r0", "s2", "r2", "r4"]
        commit(store, "p", note(), status=RUNNING)
        assert claimed_ids(store) == ["p0"]
