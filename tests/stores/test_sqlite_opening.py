"""A file is opened so that what is committed stays, or it is refused with one sentence that says what to do."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

import refold.stores.sqlite.file as file
from refold.errors import Corrupt, Unavailable, Unusable
from refold.stores.sqlite.locks import file_system_of, refuse_network
from refold.stores.sqlite.store import SqliteStore
from refold.stores.sqlite.views import examine
from tests.contracts.stores import FakeClock, claim_one, commit, issue, note, order
from tests.stores.sqlite_files import as_nobody, ask, in_child, modes, opened

MOUNTS = """\
/dev/vda / ext4 rw,relatime 0 0
proc /proc proc rw 0 0
server:/export /mnt/nfs nfs4 rw,vers=4.2 0 0
//nas/share /mnt/nas cifs rw 0 0
/dev/vdb /mnt/nas/local xfs rw 0 0
drvfs /mnt/c 9p rw 0 0
me@host:/ /home/me/far fuse.sshfs rw 0 0
/dev/fuse /home/me/near fuse.gocryptfs rw 0 0
server:/space /mnt/with\\040space nfs rw 0 0
tmpfs /mnt/covered nfs rw 0 0
tmpfs /mnt/covered tmpfs rw 0 0
short line
"""


def test_every_pragma_is_read_back_as_it_was_set(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        found = {name: store.file.db.pragma(name) for name in file.PRAGMAS}
        assert found == file.PRAGMAS
        assert (found["synchronous"], found["journal_mode"], found["wal_autocheckpoint"]) == (2, "wal", 0)


def test_a_pragma_that_is_not_obeyed_refuses_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(file.PRAGMAS, "synchronous", 17)  # which SQLite takes for another one
    with pytest.raises(Unusable, match="synchronous = 17"):
        SqliteStore(tmp_path / "refold.db", FakeClock())


def test_every_file_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with opened(tmp_path) as store:
            issue(store, "r", order())
            claim_one(store)
            names = [f"refold.db{end}" for end in ("", "-wal", "-shm", "-lock", "-door")]
            assert set(modes(tmp_path, names).values()) == {"0o600"}
            folder = tmp_path / "refold.db-workers"
            assert oct(folder.stat().st_mode & 0o777) == "0o700"
            assert set(modes(folder, os.listdir(folder)).values()) == {"0o600"}
    finally:
        os.umask(before)


def refuses(look: Callable[[], None]) -> bool:
    try:
        look()
    except Unusable:
        return True
    return False


@pytest.mark.parametrize("version", ["3.51.3", "3.51.10", "3.53.0", "3.54.1", "4.0"])
def test_a_sqlite_without_the_known_fault_is_taken(version: str) -> None:
    assert not refuses(lambda: file._refuse_library(version))


@pytest.mark.parametrize("version", ["3.7.0", "3.40.1", "3.51.2", "3.52.0"])
def test_a_sqlite_that_can_damage_its_file_is_refused(version: str) -> None:
    with pytest.raises(Unusable, match=f"SQLite {version} .* 3.51.3"):
        file._refuse_library(version)


def test_the_library_is_checked_before_the_file_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.40.1")
    with pytest.raises(Unusable):
        SqliteStore(tmp_path / "refold.db", FakeClock())
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/refold.db", "ext4"),
        ("/mnt/nfs/a/refold.db", "nfs4"),
        ("/mnt/nfs2/refold.db", "ext4"),
        ("/mnt/nas/refold.db", "cifs"),
        ("/mnt/nas/local/refold.db", "xfs"),
        ("/mnt/with space/refold.db", "nfs"),
        ("/mnt/covered/refold.db", "tmpfs"),
        ("/", "ext4"),
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount(path: str, kind: str) -> None:
    assert file_system_of(path, MOUNTS) == kind


@pytest.mark.parametrize("path", ["/mnt/nfs/x", "/mnt/nas/x", "/mnt/c/x", "/home/me/far/x", "/mnt/with space/x"])
def test_a_network_file_system_is_refused_and_postgres_is_named(path: str) -> None:
    with pytest.raises(Unusable, match=r"network file system .* Postgres"):
        refuse_network(path, MOUNTS)


@pytest.mark.parametrize("path", ["/var/x", "/mnt/nas/local/x", "/home/me/near/x", "/mnt/covered/x"])
def test_a_local_file_system_is_taken(path: str) -> None:
    assert not refuses(lambda: refuse_network(path, MOUNTS))


def test_a_machine_without_a_mount_table_has_no_network_file_systems() -> None:
    assert file_system_of("/mnt/nfs/x", "") == ""
    refuse_network("/mnt/nfs/x", "")


def test_the_store_asks_the_mount_table_of_its_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "mount_table", lambda: "server:/ / nfs rw 0 0\n")
    with pytest.raises(Unusable, match="Postgres"):
        SqliteStore(tmp_path / "refold.db", FakeClock())


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match=f"there is no folder {tmp_path}/nowhere: create it"):
        SqliteStore(tmp_path / "nowhere" / "refold.db", FakeClock())


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="is a folder"):
        SqliteStore(tmp_path, FakeClock())


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "refold.db"
    path.write_bytes(b"a shopping list, not a database\n" * 100)
    with pytest.raises(Corrupt, match=f"{path} is not a SQLite database"):
        SqliteStore(path, FakeClock())
    assert path.read_bytes() == b"a shopping list, not a database\n" * 100


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    db = apsw.Connection(str(tmp_path / "refold.db"))
    db.execute("create table recipes (name text)")
    db.close()
    before = (tmp_path / "refold.db").read_bytes()
    with pytest.raises(Unusable, match="another program"):
        SqliteStore(tmp_path / "refold.db", FakeClock())
    assert (tmp_path / "refold.db").read_bytes() == before


@pytest.mark.parametrize("mode", [0o555, 0o755])
def test_a_folder_in_which_nothing_can_be_written_is_named(tmp_path: Path, mode: int) -> None:
    """0o755: of somebody else."""
    folder = tmp_path / "folder"
    folder.mkdir(mode=mode)
    tmp_path.chmod(0o755)
    for each in tmp_path.parents:
        if each.stat().st_uid == os.getuid() and each != Path("/"):
            each.chmod(each.stat().st_mode | 0o055)

    def open_it() -> None:
        as_nobody()
        with pytest.raises(Unusable, match=f"write access .* the folder {folder}"):
            SqliteStore(folder / "refold.db", FakeClock())
        assert os.listdir(folder) == []

    (tmp_path / "out").mkdir(mode=0o777)
    (tmp_path / "out").chmod(0o777)
    in_child(tmp_path / "out", open_it)


def test_a_file_that_may_only_be_read_is_named(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        commit(store, "r", note())
    for each in (tmp_path, *tmp_path.parents):
        if each.stat().st_uid == os.getuid() and each != Path("/"):
            each.chmod(each.stat().st_mode | 0o055)
    (tmp_path / "refold.db").chmod(0o444)
    (tmp_path / "out").mkdir()
    (tmp_path / "out").chmod(0o777)

    def open_it() -> None:
        as_nobody()
        with pytest.raises(Unusable, match=r"refold.db cannot be opened for writing \(Permission denied\)"):
            SqliteStore(tmp_path / "refold.db", FakeClock())

    in_child(tmp_path / "out", open_it)


def test_another_spelling_of_the_path_is_the_same_file_with_the_same_locks(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    with opened(tmp_path) as store, opened(tmp_path / "link") as again:
        commit(store, "r", note())
        assert len(again.facts("r")) == 1
        assert store.file.path == again.file.path


def test_the_doctor_tells_what_the_connection_itself_says(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        commit(store, "r", note())
        health = examine(store.file, thorough=True)
    details = dict(health.details)
    assert (details["sqlite"], details["journal_mode"]) == (apsw.sqlite_lib_version(), "wal")
    assert (details["synchronous"], health.is_durable) == (2, True)
    assert (details["path"], details["mode"], health.damage) == (str(tmp_path / "refold.db"), "0o600", ())
    assert int(details["pages"]) > 10 and int(details["log_bytes"]) > 0 and health.schema >= 1


def test_a_closed_file_has_nothing_beside_it_but_its_locks(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        issue(store, "r", order())
        claim_one(store)
    assert sorted(os.listdir(tmp_path)) == ["refold.db", "refold.db-door", "refold.db-lock", "refold.db-workers"]
    assert os.listdir(tmp_path / "refold.db-workers") == []
    assert ask(tmp_path, "pragma integrity_check") == [("ok",)]


def test_a_forked_child_is_told_to_open_the_file_itself(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        commit(store, "r", note())

        def use_it() -> None:
            with pytest.raises(Unusable, match="before this process was forked"):
                store.facts("r")
            with pytest.raises(Unusable, match="before this process was forked"), store.turn(["r"]):
                pass

        in_child(tmp_path, use_it)
        commit(store, "r", note())
        assert len(store.facts("r")) == 2


def test_two_namespaces_of_one_file_know_nothing_of_each_other(tmp_path: Path) -> None:
    with opened(tmp_path) as one, opened(tmp_path, namespace="two") as two:
        issue(one, "r", order(), timers={"t": 0}, blobs={"h": b"one"})
        one.put_snapshot("r", b"one")
        assert list(two.facts("r")) == [] and two.views.runs().rows == [] and two.snapshot("r") is None
        assert two.due(10) == ([], None)
        with two.turn(["r"]) as turn:
            assert turn.head("r") == 0
        issue(two, "r", order("b/1"))
        assert claim_one(two).command.id == "b/1"
        assert claim_one(one).command.id == "a/1"


def test_refold_alone_does_not_import_sqlite() -> None:
    code = "import sys, refold; refold.open_engine, refold.Workflow; sys.exit('apsw' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_file_that_stays_locked_when_it_is_opened_is_unavailable(tmp_path: Path) -> None:
    with opened(tmp_path):
        pass
    other = apsw.Connection(str(tmp_path / "refold.db"))
    other.execute("pragma locking_mode = exclusive")
    other.execute("begin exclusive")
    with pytest.raises(Unavailable, match="another program has kept"):
        SqliteStore(tmp_path / "refold.db", FakeClock(), patience=0.1)
    other.close()
    with opened(tmp_path) as store:
        commit(store, "r", note())


def test_a_new_file_starts_empty_beside_the_locks_that_a_deleted_one_has_left(tmp_path: Path) -> None:
    """Who deletes a database by `rm -f refold.db*` leaves the folder with the locks of its workers."""
    store = SqliteStore(tmp_path / "refold.db", FakeClock())
    issue(store, "r", order())
    claim_one(store)
    held = store.file.life.name
    (tmp_path / "refold.db-workers" / f"{os.getpid()}-0a1b2c3d.lock").touch(0o600)  # of a process that was killed
    for each in tmp_path.glob("refold.db*"):
        if each.is_file():
            each.unlink()
    with opened(tmp_path) as new:
        issue(new, "r", order())
        assert claim_one(new) is not None
        store.close()  # of the deleted file: the new one keeps its log
        new.file.check_place()
        issue(new, "other", order())
        assert new.file.life.name != held and new.file.life.is_there(new.file.life.name)
