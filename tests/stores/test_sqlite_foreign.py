"""A file from somebody else is data: nothing in it leads to another file, and what is wrong in it is named."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import apsw
import pytest
from msgspec import json, msgpack

from refold.core.state import RUNNING
from refold.errors import Corrupt, Unusable
from refold.ports import ALL_RUNS, RunFilter
from refold.stores.sqlite.locks import LifeLock
from refold.stores.sqlite.store import SqliteStore
from tests.contracts.stores import NOON, FakeClock, claim, claim_one, commit, issue, note, order
from tests.stores.sqlite_files import ask, looking, opened, views_of

OPENERS: dict[bool, Callable[[Path], object]] = {
    False: lambda path: SqliteStore(path, FakeClock()),
    True: views_of,
}
"""By whether the file is opened for reading only."""


def put_worker(folder: Path, lock: str, tools: str = "[]") -> None:
    ask(folder, "insert into workers values ('default', 'foreign', ?, ?, null)", lock, tools)


@pytest.mark.parametrize(
    "name", ["{outside}", "../outside", "../../{folder}/outside", "1-00000000.lock/../../outside", "", ".", "x.lock"]
)
def test_a_lock_that_a_file_names_is_neither_opened_nor_removed_elsewhere(tmp_path: Path, name: str) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "inside"
    outside.write_text("precious")
    folder.mkdir()
    (folder / "refold.db-workers").mkdir()
    with opened(folder) as store:
        issue(store, "r", order("a/1"))
        claim_one(store, worker="foreign")
    ask(folder, "delete from workers")
    put_worker(folder, name.format(outside=outside, folder=tmp_path.name))
    before = os.stat(outside)
    clock = FakeClock()
    clock.forward(1000)
    with opened(folder, clock, on_wrong=lambda error: None) as store:
        store.expire(5)
        store.views.workers()
        store.forget_workers()
    assert os.stat(outside) == before
    assert outside.read_text() == "precious"


def test_only_names_that_refold_makes_are_locks(tmp_path: Path) -> None:
    life, other = LifeLock(tmp_path / "workers"), LifeLock(tmp_path / "workers")
    life.take()
    assert life.is_there(life.name) and other.is_free(life.name) is False
    for name in ("1-zzzzzzzz.lock", "0-00000000.lock", "1-00000000.lock\n", "-1-00000000.lock", "notes.txt"):
        (tmp_path / "workers" / name).touch()
        assert (other.is_there(name), other.is_free(name)) == (False, False)
        other.remove(name)
        assert (tmp_path / "workers" / name).exists()
    life.close()


def test_a_folder_of_locks_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    victim = tmp_path / "elsewhere" / "1-00000000.lock"
    victim.touch()
    (tmp_path / "refold.db-workers").symlink_to(tmp_path / "elsewhere")
    with opened(tmp_path) as store:
        issue(store, "r", order("a/1"))
        put_worker(tmp_path, victim.name)
        with pytest.raises(Unusable, match="is a link"):
            claim_one(store)
        store.expire(5)
    assert os.listdir(tmp_path / "elsewhere") == [victim.name]


@pytest.mark.parametrize("end", ["-wal", "-shm", "-journal", "-lock", "-door"])
def test_a_link_beside_the_file_is_not_followed(tmp_path: Path, end: str) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    with opened(folder):
        pass
    beside = folder / f"refold.db{end}"
    beside.unlink(missing_ok=True)
    beside.symlink_to(tmp_path / "made")
    with pytest.raises(Unusable):
        SqliteStore(folder / "refold.db", FakeClock())
    assert not (tmp_path / "made").exists()


def test_a_journal_that_names_another_file_is_refused_before_sqlite_opens_it(tmp_path: Path) -> None:
    with opened(tmp_path):
        pass
    (tmp_path / "victim").write_bytes(b"")
    magic, name = bytes.fromhex("d9d505f920a163d7"), str(tmp_path / "victim").encode()
    tail = name + len(name).to_bytes(4) + sum(name).to_bytes(4) + magic
    (tmp_path / "refold.db-journal").write_bytes(magic.ljust(512, b"\x00") + bytes(4) + tail)
    for reading in (False, True):
        with pytest.raises(Unusable, match="names another file"):
            OPENERS[reading](tmp_path / "refold.db")
    assert (tmp_path / "victim").exists()


SCHEMAS = {
    "a trigger": "create trigger t after insert on facts begin delete from runs; end",
    "a view": "create view v as select * from facts",
    "a virtual table": "create virtual table v using fts5(a)",
    "an index": "create index i on facts (length(data))",
    "another table under its name": "alter table facts rename to f; create table facts (a)",
    "a column": "alter table runs add column more text",
    "a table that is gone": "drop table dead",
    "an index that is gone": "drop index runs_by_age",
}


@pytest.mark.parametrize("reading", [False, True])
@pytest.mark.parametrize("what", SCHEMAS)
def test_a_schema_that_refold_has_not_made_is_refused(tmp_path: Path, what: str, reading: bool) -> None:
    with opened(tmp_path):
        pass
    ask(tmp_path, SCHEMAS[what])
    with pytest.raises((Unusable, Corrupt), match=r"refold\.db"):
        OPENERS[reading](tmp_path / "refold.db")


def test_a_table_of_another_purpose_is_left_alone(tmp_path: Path) -> None:
    with opened(tmp_path):
        pass
    ask(tmp_path, "create table mine (a); create index by_a on mine (a)")
    with opened(tmp_path) as store:
        commit(store, "r", note())


def test_other_comments_and_spaces_in_the_schema_are_the_same_schema(tmp_path: Path) -> None:
    with opened(tmp_path):
        pass
    db = sqlite3.connect(tmp_path / "refold.db")
    db.execute("pragma writable_schema = on")
    db.execute("update sqlite_schema set sql = replace(sql, '-- the number of its last fact', '  -- other words')")
    db.commit()
    db.close()
    assert "other words" in ask(tmp_path, "select sql from sqlite_schema where name = 'runs'")[0][0]
    with opened(tmp_path) as store:
        commit(store, "r", note())


def forged(folder: Path, table: str, sealed: str, change: str, *bindings: Any) -> None:
    """A change with a seal that fits it."""
    ask(folder, change, *bindings)
    if table == "commands":
        ask(folder, "update commands set hand_backs = 0")  # a seal has no part for them then
    for row in ask(folder, f"select {sealed} from {table}"):
        columns = [each.strip() for each in sealed.split(",")]
        where = " and ".join(f"{each} is ?" for each in columns)
        ask(folder, f"update {table} set seal = ? where {where}", crc32(msgpack.encode(row)), *row)


RUN = "run, head, status, created_at, summary"
FACT = "run, number, at, data, turn"
COMMAND = (
    "run, id, queue, priority, tool, place, not_before, plan, state, generation, losses, worker, until, deadline, "
    "beat_at, claimed_at, data"
)
Read = Callable[[SqliteStore], object]


def lease_of(store: SqliteStore) -> object:
    with store.turn(["r"]) as turn:
        return turn.lease("r", "a/1")


WRONG: dict[str, tuple[str, str, str, Any, Read, str]] = {  # table, sealed, change, value, read, what is named
    "a summary": ("runs", RUN, "update runs set summary = ?", b"{", lambda s: s.summary("r"), "summary"),
    "a summary of another run": (
        "runs",
        RUN,
        "update runs set summary = ? where run = 'r'",
        json.encode({"run": "other", "workflow": "w", "plan": "p", "status": "running"}),
        lambda s: s.summary("r"),
        "summary",
    ),
    "a head": ("runs", RUN, "update runs set head = ? where run = 'r'", -1, lambda s: s.summary("r"), "head"),
    "a fact": ("facts", FACT, "update facts set data = ?", b'{"type":7}', lambda s: s.facts("r"), "data"),
    "a command": ("commands", COMMAND, "update commands set data = ?", b"[]", lambda s: claim(s, 1), "data"),
    "a state": ("commands", COMMAND, "update commands set state = ?", "odd", lambda s: lease_of(s), "state"),
    "a line": ("streams", "run, n, data", "update streams set data = ?", b"{", lambda s: s.views.lines("r"), "data"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_row_with_a_forged_seal_is_named_by_table_key_and_column(tmp_path: Path, what: str) -> None:
    table, sealed, change, value, read, column = WRONG[what]
    with opened(tmp_path) as store:
        issue(store, "r", order("a/1"), order("a/2"))
        store.publish(claim_one(store), [{"text": "x"}])
        store.hand_back(claim_one(store))
    forged(tmp_path, table, sealed, change, value)
    with opened(tmp_path) as store, pytest.raises(Corrupt, match=rf"table {table}.*column {column}"):
        read(store)


def test_a_head_that_no_log_can_have_is_an_error_and_no_lack_of_memory(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        commit(store, "r", note())
    forged(tmp_path, "runs", RUN, "update runs set head = ?", 4_600_000_000_000_000_000)
    with opened(tmp_path) as store:
        with pytest.raises(Corrupt, match="not all of the facts"):
            store.facts("r")
        with pytest.raises(Corrupt, match="only 1 are there"), store.turn(["r"]) as turn:
            turn.facts("r")


def test_text_that_is_no_utf_8_is_named_and_hides_no_other_row(tmp_path: Path) -> None:
    wrong: list[Corrupt] = []
    with opened(tmp_path) as store:
        for run in ("r", "s"):
            commit(store, run, note())
    ask(tmp_path, "update runs set status = cast(x'ff' as text) where run = 'r'")
    with opened(tmp_path, on_wrong=wrong.append) as store:
        assert [row.run for row in store.views.runs().rows] == ["s"]
        assert "table runs, key ('r'), column status: b'\\xff' is not text" in str(wrong[0])
        commit(store, "t", note())  # the file itself is not damaged


@pytest.mark.parametrize("wanted", [ALL_RUNS, RunFilter(status=RUNNING)])
def test_a_list_goes_on_behind_a_run_whose_id_is_no_utf_8(tmp_path: Path, wanted: RunFilter) -> None:
    with opened(tmp_path) as store:
        for run in ("q", "r", "s"):
            commit(store, run, note())
    ask(tmp_path, "update runs set run = cast(x'72ff' as text) where run = 'r'")
    listed: list[str] = []
    wrong: list[Corrupt] = []
    with opened(tmp_path, on_wrong=wrong.append) as store:
        page = store.views.runs(wanted, limit=1)
        for _ in range(2):
            listed += (row.run for row in page.rows)
            assert page.more
            page = store.views.runs(wanted, page.after, limit=1)
        listed += (row.run for row in page.rows)
        assert not page.more
    assert sorted(listed) == ["q", "s"]
    assert [str(each) for each in wrong] == ["table runs, key (b'r\\xff'), column run: it is not text in UTF-8"]


def test_a_value_of_another_type_than_its_column_is_named(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        commit(store, "r", note())
    db = sqlite3.connect(tmp_path / "refold.db")
    db.execute("pragma writable_schema = on")
    sql = db.execute("select sql from sqlite_schema where name = 'runs'").fetchone()[0]
    db.execute("update sqlite_schema set sql = replace(sql, 'strict, ', '') where name = 'runs'")
    db.execute("pragma schema_version = 4711")
    db.commit()
    db.close()
    ask(tmp_path, "update runs set head = 'many'")
    db = sqlite3.connect(tmp_path / "refold.db")
    db.execute("pragma writable_schema = on")
    db.execute("update sqlite_schema set sql = ? where name = 'runs'", (sql,))
    db.commit()
    db.close()
    with opened(tmp_path) as store, pytest.raises(Corrupt, match="column head: 'many' is not an integer"):
        store.summary("r")


def test_rows_that_are_wrong_stop_no_other_run(tmp_path: Path) -> None:
    """Timers, leases, and commands at the front of the lane."""
    wrong: list[Corrupt] = []
    with opened(tmp_path) as store:
        for run in ("bad", "worse", "good"):
            issue(store, run, order("a/1"), order("a/2"), timers={"t": NOON - 1})
    ask(tmp_path, "update timers set due = due - 1 where run = 'bad'")
    ask(tmp_path, "update commands set tool = 'other' where run = 'bad'")
    forged(tmp_path, "commands", COMMAND, "update commands set data = ? where run = 'worse'", b"{")
    ask(tmp_path, "update commands set seal = 0 where run = 'bad'")
    with opened(tmp_path, on_wrong=wrong.append) as store:
        runs, _ = store.due(10)
        assert {"bad", "good"} <= set(runs), "its own turn says what is wrong with it"
        found = [lease.run for lease in claim(store, 10)]
        assert found == ["good", "good"]
        assert {"timer t of run bad", "command a/1 of run bad"} <= {str(each).split(" is not")[0] for each in wrong}
        assert any("table commands, key ('worse', 'a/1'), column data" in str(each) for each in wrong)
        ask(tmp_path, "update commands set until = 1, state = 'leased', worker = 'w' where run = 'bad'")
        assert store.expire(5) == []
        assert [lease.run for lease in store.views.leases() if lease.is_alive] == ["good", "good"]


def test_a_worker_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    wrong: list[Corrupt] = []
    with opened(tmp_path) as store:
        issue(store, "r", order("a/1"))
        claim_one(store, worker="lives")
        name = store.file.life.name
        put_worker(tmp_path, name, "{")
        with looking(tmp_path, on_wrong=wrong.append) as reader:
            assert {worker.can.worker for worker in reader.workers()} == {"lives"}
    assert "table workers, key ('foreign'), column tools" in str(wrong[0])


def test_a_migration_that_does_not_fit_names_the_file(tmp_path: Path) -> None:
    with opened(tmp_path):
        pass
    ask(tmp_path, "pragma user_version = 1")
    with pytest.raises(Corrupt, match=r"refold\.db is not what its schema 1 says"):
        SqliteStore(tmp_path / "refold.db", FakeClock())


def copy(folder: Path, *ends: str) -> None:
    """Of the file and what is beside it, to a backup."""
    for end in ("", *ends):
        shutil.copy(folder / f"refold.db{end}", folder / f"backup{end}")


def leave_a_log(folder: Path, run: str) -> None:
    """As a killed process does: what it has written is in the log, and not in the file."""
    pid = os.fork()
    if pid == 0:
        store = SqliteStore(folder / "refold.db", FakeClock())
        commit(store, run, note())
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize("reading", [False, True])
@pytest.mark.parametrize("how", ["copied over", "put in its place"])
def test_a_backup_that_is_restored_beside_the_log_of_what_was_there_is_refused(
    tmp_path: Path, how: str, reading: bool
) -> None:
    with opened(tmp_path) as store:
        commit(store, "kept", note())
    copy(tmp_path)
    leave_a_log(tmp_path, "later")
    if how == "copied over":
        (tmp_path / "refold.db").write_bytes((tmp_path / "backup").read_bytes())
    else:
        os.replace(tmp_path / "backup", tmp_path / "refold.db")
    with pytest.raises(Unusable, match=r"refold\.db-wal do not belong together"):
        OPENERS[reading](tmp_path / "refold.db")
    for end in ("-wal", "-shm"):
        (tmp_path / f"refold.db{end}").unlink()
    with opened(tmp_path) as store:
        assert [row.run for row in store.views.runs().rows] == ["kept"]


@pytest.mark.parametrize("reading", [False, True])
def test_the_log_of_another_file_that_was_put_beside_a_closed_one_is_refused(tmp_path: Path, reading: bool) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with opened(other) as store:
        commit(store, "foreign", note())
    leave_a_log(other, "foreign too")
    with opened(tmp_path) as store:
        commit(store, "kept", note())
    shutil.copy(other / "refold.db-wal", tmp_path)
    with pytest.raises(Unusable, match=r"refold\.db-wal do not belong together"):
        OPENERS[reading](tmp_path / "refold.db")
    (tmp_path / "refold.db-wal").unlink()
    with opened(tmp_path) as store:
        assert [row.run for row in store.views.runs().rows] == ["kept"]


def test_the_log_of_a_killed_process_is_taken_as_it_is(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        commit(store, "one", note())
    leave_a_log(tmp_path, "two")
    leave_a_log(tmp_path, "three")
    with looking(tmp_path) as reader:
        assert {row.run for row in reader.runs().rows} == {"one", "two", "three"}
    with opened(tmp_path) as store:
        assert {row.run for row in store.views.runs().rows} == {"one", "two", "three"}


def test_a_copy_of_the_file_with_its_log_is_taken_as_it_is(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        commit(store, "one", note())
    leave_a_log(tmp_path, "two")
    copied = tmp_path / "copied"
    copied.mkdir()
    for end in ("", "-wal", "-lock"):
        shutil.copy(tmp_path / f"refold.db{end}", copied)
    with opened(copied) as store:
        assert {row.run for row in store.views.runs().rows} == {"one", "two"}


def test_a_process_that_is_killed_in_a_checkpoint_leaves_a_file_that_can_be_opened(tmp_path: Path) -> None:
    """The file has changed and its note says that this was under way."""
    with opened(tmp_path) as store:
        commit(store, "one", note())

    pid = os.fork()
    if pid == 0:
        store = SqliteStore(tmp_path / "refold.db", FakeClock())
        commit(store, "two", note())
        store.file.marker.begin()
        store.file.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    with opened(tmp_path) as store:
        assert {row.run for row in store.views.runs().rows} == {"one", "two"}


def test_checkpoints_of_this_process_are_no_replacement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refold.stores.sqlite.file.CHECKPOINT_AT", 1)
    with opened(tmp_path) as store:
        for n in range(5):
            commit(store, f"run {n}", note())
            with looking(tmp_path) as reader:
                assert len(reader.runs().rows) == n + 1
    leave_a_log(tmp_path, "last")
    with opened(tmp_path) as store:
        assert len(store.views.runs().rows) == 6


GONE: dict[str, Callable[[Path], object]] = {
    "moved": lambda folder: os.rename(folder / "refold.db", folder / "other.db"),
    "deleted": lambda folder: os.unlink(folder / "refold.db"),
    "replaced": lambda folder: shutil.move(shutil.copy(folder / "refold.db", folder / "backup"), folder / "refold.db"),
    "without its log": lambda folder: os.unlink(folder / "refold.db-wal"),
}


@pytest.mark.parametrize("how", GONE)
def test_a_file_that_is_gone_from_its_path_acknowledges_nothing_more(tmp_path: Path, how: str) -> None:
    with opened(tmp_path) as store:
        commit(store, "r", note())
        GONE[how](tmp_path)
        with pytest.raises(Unusable, match="moved, deleted or replaced"):
            commit(store, "r", note())
        with pytest.raises(Unusable, match="moved, deleted or replaced"):
            store.due(10)


def test_a_file_that_goes_during_a_turn_is_noticed_before_the_turn_is_acknowledged(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        commit(store, "r", note())
        with pytest.raises(Unusable, match="moved, deleted or replaced"), store.turn(["r"]) as turn:
            turn.head("r")
            os.rename(tmp_path / "refold.db", tmp_path / "other.db")
