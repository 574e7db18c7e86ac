"""Whoever only looks takes no lock, changes nothing, and sees what is committed."""

import fcntl
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import apsw
import pytest

from refold.errors import Unusable
from refold.stores.sqlite.migrate import SCHEMA, migrate, migrations
from refold.stores.sqlite.store import SqliteStore
from tests.contracts.stores import FakeClock, commit, issue, note, order
from tests.stores.sqlite_files import as_nobody, in_child, looking, opened, views_of


def names(folder: Path) -> dict[str, int]:
    return {name: (folder / name).stat().st_mtime_ns for name in os.listdir(folder)}


def test_a_reader_needs_no_lock_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        commit(store, "r", note())
    before = names(tmp_path)
    with open(tmp_path / "refold.db-lock") as lock, open(tmp_path / "refold.db-door") as door:
        for each in (lock, door):
            fcntl.flock(each, fcntl.LOCK_EX)
        with looking(tmp_path, patience=0.0) as reader:
            assert [row.run for row in reader.runs().rows] == ["r"]
            assert len(reader.facts("r")) == 1
    assert names(tmp_path) == before


def test_a_reader_sees_what_is_written_while_it_looks(tmp_path: Path) -> None:
    with opened(tmp_path):
        pass
    with looking(tmp_path) as reader:
        assert reader.runs().rows == []
        with opened(tmp_path) as store:
            commit(store, "one", note())
            assert [row.run for row in reader.runs().rows] == ["one"], "the log is not empty any more"
            commit(store, "two", note())
            assert len(reader.runs().rows) == 2
        assert len(reader.runs().rows) == 2
        with opened(tmp_path) as store:
            commit(store, "three", note())
        assert len(reader.runs().rows) == 3


def test_a_reader_looks_on_while_a_turn_is_under_way(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        commit(store, "r", note())
        with store.turn(["r"]) as turn:
            turn.head("r")
            with looking(tmp_path, patience=0.0) as reader:
                assert len(reader.facts("r")) == 1


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        issue(store, "r", order("a/1"))
    with looking(tmp_path) as reader, reader._connection() as file:
        with pytest.raises(Unusable, match="for reading only"):
            file.write("delete from facts", [()])
        with pytest.raises(apsw.ReadOnlyError):
            file.db.execute("delete from facts")


def test_readers_and_a_writer_at_once_never_see_half_of_a_file(tmp_path: Path) -> None:
    """Sessions of a writer come and go, each with its checkpoint at the end, while another looks."""
    with opened(tmp_path) as store:
        commit(store, "r0", note())
    over = threading.Event()

    def write() -> None:
        for n in range(1, 40):
            with opened(tmp_path) as store:
                commit(store, f"r{n}", note())
        over.set()

    thread = threading.Thread(target=write)
    thread.start()
    most = 0
    while not over.is_set():
        with looking(tmp_path) as reader:
            for _ in range(3):
                found = len(reader.runs().rows)
                assert found >= most
                most = found
    thread.join()
    with looking(tmp_path) as reader:
        assert len(reader.runs().rows) == 40


def open_to_others(folder: Path) -> None:
    for each in (folder, *folder.parents):
        if each.stat().st_uid == os.getuid() and each != Path("/"):
            each.chmod(each.stat().st_mode | 0o055)


def test_a_file_that_may_only_be_read_in_a_folder_that_may_only_be_read_can_be_looked_at(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with opened(folder) as store:
        commit(store, "r", note())
    open_to_others(folder)
    (folder / "refold.db").chmod(0o444)
    folder.chmod(0o555)
    (tmp_path / "out").mkdir()
    (tmp_path / "out").chmod(0o777)

    def look() -> None:
        as_nobody()
        with looking(folder) as reader:
            assert [row.run for row in reader.runs().rows] == ["r"]
        with pytest.raises(Unusable, match="cannot be opened for writing"):
            SqliteStore(folder / "refold.db", FakeClock())

    in_child(tmp_path / "out", look)


def test_what_a_killed_process_left_in_a_folder_that_may_only_be_read_is_told(tmp_path: Path) -> None:
    """Without shared memory the log cannot be read, and without the log the file would be an old one."""
    folder = tmp_path / "folder"
    folder.mkdir()
    with opened(tmp_path) as store:
        commit(store, "r", note())
        for end in ("", "-wal"):
            shutil.copy(tmp_path / f"refold.db{end}", folder)
    open_to_others(folder)
    for end in ("", "-wal"):
        (folder / f"refold.db{end}").chmod(0o444)
    folder.chmod(0o555)
    (tmp_path / "out").mkdir()
    (tmp_path / "out").chmod(0o777)

    def look() -> None:
        as_nobody()
        with pytest.raises(Unusable, match="holds changes that are not in it yet"):
            views_of(folder / "refold.db")

    in_child(tmp_path / "out", look)


def test_an_older_file_is_left_as_it_is_and_the_command_that_migrates_it_is_named(tmp_path: Path) -> None:
    assert os.path.isdir(SCHEMA)
    db = apsw.Connection(str(tmp_path / "refold.db"))
    migrate(db, "refold.db", {1: migrations()[1]})
    db.close()
    before = (tmp_path / "refold.db").read_bytes()
    with pytest.raises(Unusable, match=r"older Refold \(schema 1; .*`refold db migrate`"):
        views_of(tmp_path / "refold.db")
    assert (tmp_path / "refold.db").read_bytes() == before
    with opened(tmp_path), looking(tmp_path):
        pass


def test_a_newer_file_and_an_empty_one_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "refold.db").touch()
    with pytest.raises(Unusable, match="is empty"):
        views_of(tmp_path / "refold.db")
    with opened(tmp_path) as store:
        store.file.db.pragma("user_version", 99)
    with pytest.raises(Unusable, match="newer Refold"):
        views_of(tmp_path / "refold.db")


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(Unusable):
        views_of(tmp_path / "refold.db")
    assert os.listdir(tmp_path) == []


def test_a_name_with_signs_of_an_address_is_a_name(tmp_path: Path) -> None:
    """A file that is read as it lies there is opened by a URI."""
    folder = tmp_path / "a?b=c&d#e%20 f"
    folder.mkdir()
    with opened(folder) as store:
        commit(store, "r", note())
    with looking(folder) as reader:
        assert len(reader.runs().rows) == 1


def test_a_stopped_writer_keeps_no_reader_waiting(tmp_path: Path) -> None:
    """A process that was stopped in the middle of a turn, with its locks."""
    code = (
        "import os, signal, sys\n"
        "from tests.contracts.stores import FakeClock\n"
        "from refold.stores.sqlite.store import SqliteStore\n"
        "store = SqliteStore(sys.argv[1], FakeClock())\n"
        "with store.turn(['r']) as turn:\n"
        "    turn.head('r')\n"
        "    print('ready', flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGSTOP)\n"
    )
    with opened(tmp_path) as store:
        commit(store, "r", note())
    command = [sys.executable, "-c", code, str(tmp_path / "refold.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            with looking(tmp_path, patience=0.0) as reader:
                assert len(reader.facts("r")) == 1
        finally:
            process.kill()
