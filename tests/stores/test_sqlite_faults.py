"""A full disk, a commit nobody can vouch for, a damaged file: nothing acked is lost, and nothing wrong is told."""

import random
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from refold.core.commands import HELD
from refold.core.facts import RunStarted
from refold.core.state import COMPLETED
from refold.errors import Ambiguous, Corrupt, NotFound, RefoldError, Unavailable
from refold.ports import RunFilter, Store
from refold.stores.sqlite.store import SqliteStore
from tests.contracts.stores import (
    NOON,
    PLAN_BYTES,
    PLAN_HASH,
    FakeClock,
    claim,
    claim_one,
    commit,
    holder,
    issue,
    letter,
    note,
    order,
    put,
)
from tests.stores.sqlite_files import ask, in_child, opened

LARGE = "x" * 20_000


def test_a_full_disk_loses_nothing_and_is_over_when_there_is_room_again(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        issue(store, "r", order("a1"))
        pages = store.file.db.pragma("page_count")
        store.file.db.pragma("max_page_count", pages + 10)
        kept = 1
        with pytest.raises(Unavailable, match=r"no space is left for .*refold.db") as refused:
            while True:
                commit(store, "r", note(LARGE))
                kept += 1
        assert not isinstance(refused.value, Ambiguous)
        assert len(store.facts("r")) == kept
        with pytest.raises(Unavailable):
            commit(store, "r", note(LARGE))
        assert holder(store, "r", "a1") is None
        store.file.db.pragma("max_page_count", 1_000_000)
        commit(store, "r", note(LARGE))
        assert len(store.facts("r")) == kept + 1
        assert claim_one(store).command.id == "a1"


def test_a_turn_whose_write_found_no_room_writes_nothing_even_if_it_goes_on(tmp_path: Path) -> None:
    """SQLite may have rolled back by itself; what follows must not be committed one by one."""
    with opened(tmp_path) as store:
        commit(store, "r", note())
        store.file.db.pragma("max_page_count", store.file.db.pragma("page_count") + 2)
        with pytest.raises(Unavailable), store.turn(["r", "s"]) as turn:
            with pytest.raises(Unavailable):
                _write_until_full(turn)
            with pytest.raises(Unavailable):
                put(turn, "s", note("small"))
                turn.facts("s")
        assert store.summary("s") is None
        assert len(store.facts("r")) == 1


def _write_until_full(turn: Any) -> None:
    for _ in range(100):
        put(turn, "r", note(LARGE))
        turn.facts("r")  # which must see it, so it is written now


def test_a_file_that_may_grow_no_further_is_a_full_disk_too(tmp_path: Path) -> None:
    def grow() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with opened(tmp_path) as store:
            commit(store, "r", note())
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
            kept, failures = 1, 0
            for _ in range(60):
                try:
                    commit(store, "r", note(LARGE))
                    kept += 1
                except Unavailable:
                    failures += 1
                assert len(store.facts("r")) == kept
            assert failures > 10
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, hard))
            commit(store, "r", note("room again"))
            assert len(store.facts("r")) == kept + 1
            print(kept, flush=True)

    kept = int(in_child(tmp_path, grow))
    with opened(tmp_path) as store:
        assert len(store.facts("r")) == kept + 1
    assert ask(tmp_path, "pragma integrity_check") == [("ok",)]


class FailingDisk(apsw.VFS):
    """Obeys until it is told to fail; then a sync of the log fails, before or after it was carried out."""

    def __init__(self) -> None:
        self.fails: Callable[[str], bool] = lambda what: False
        super().__init__("failing", base="unix")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return FailingFile(self, name, flags)


class FailingFile(apsw.VFSFile):
    def __init__(self, disk: FailingDisk, name: Any, flags: list[int]) -> None:
        self.disk = disk
        super().__init__("unix", name, flags)

    def xSync(self, flags: int) -> None:
        if self.disk.fails("sync"):
            raise apsw.IOError("the disk did not answer")
        super().xSync(flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        if self.disk.fails("write"):
            raise apsw.IOError("the disk did not answer")
        super().xWrite(data, offset)


@pytest.fixture
def disk() -> Iterator[FailingDisk]:
    disk = FailingDisk()
    yield disk
    disk.unregister()


@contextmanager
def failing(disk: FailingDisk, what: str, times: int = 10**9) -> Iterator[None]:
    left = [times]

    def fails(operation: str) -> bool:
        if operation == what and left[0] > 0:
            left[0] -= 1
            return True
        return False

    disk.fails = fails
    try:
        yield
    finally:
        disk.fails = lambda what: False


def test_a_commit_that_could_not_be_synced_is_ambiguous_and_the_log_tells(tmp_path: Path, disk: FailingDisk) -> None:
    with opened(tmp_path, vfs="failing") as store:
        commit(store, "r", note("before"), turn="before")
        with failing(disk, "sync", 1), pytest.raises(Ambiguous, match=r"refold.db"):
            commit(store, "r", note("perhaps"), turn="perhaps")
        applied = store.turn_of("r", 2) == "perhaps"
        assert len(store.facts("r")) == 1 + applied
        commit(store, "r", note("after"), turn="after")
        assert [store.turn_of("r", n) for n in range(1, 3 + applied)] == ["before", *["perhaps"] * applied, "after"]


def test_a_claim_of_an_ambiguous_commit_is_held_by_nobody_or_by_the_claimer(tmp_path: Path, disk: FailingDisk) -> None:
    with opened(tmp_path, vfs="failing") as store:
        issue(store, "r", order("a1"))
        with failing(disk, "sync", 1), pytest.raises(Ambiguous):
            claim_one(store, "w")
        held = holder(store, "r", "a1")
        assert held is None or held.worker == "w"
        if held is None:
            assert claim_one(store, "v").generation == 1


def test_a_commit_that_could_not_be_written_leaves_the_store_able_to_go_on(tmp_path: Path, disk: FailingDisk) -> None:
    with opened(tmp_path, vfs="failing") as store:
        commit(store, "r", note("before"))
        for _ in range(3):
            with failing(disk, "write"), pytest.raises(Unavailable):
                commit(store, "r", note("lost"))
        commit(store, "r", note("after"))
        assert [fact for _, _, fact in store.facts("r")] == [note("before"), note("after")]


def test_a_read_that_fails_is_unavailable_and_not_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as store:
        commit(store, "r", note())
        cursor = store.file._cursor

        class Broken:
            def execute(self, *_: Any) -> None:
                raise apsw.IOError("unplugged")

        monkeypatch.setattr(store.file, "_cursor", Broken())
        with pytest.raises(Unavailable, match="unplugged"):
            store.facts("r")
        monkeypatch.setattr(store.file, "_cursor", cursor)
        assert len(store.facts("r")) == 1
        commit(store, "r", note())


def furnish(store: Store) -> None:
    """A little of everything, in many pages."""
    for n in range(40):
        run = f"run {n}"
        commit(
            store,
            run,
            RunStarted(PLAN_HASH, {"n": n, "text": "y" * 300}),
            plan=PLAN_BYTES,
            commands={id: order(id, input=[n, id], priority=n % 3) for id in ("a1", "a2", "a3")},
            timers={"soon": NOON - n, "later": NOON + n + 1},
            blobs={"h": bytes([n]) * 3_000},
            letters=[letter("l", f"run {n + 1}", f"from {n}")],
        )
        commit(store, run, note("held", n), commands={"a3": HELD})
        store.put_snapshot(run, b"snapshot %d" % n * 20)
    for lease in claim(store, 20):
        store.publish(lease, [lease.run, {"line": lease.command.id}])
    commit(store, "run 3", note("over"), status=COMPLETED)


def reads(store: Store) -> Iterator[Any]:
    """Everything a reader or a worker can be told, one by one."""
    yield lambda: store.plan(PLAN_HASH)
    yield lambda: list(store.views.runs(limit=100).rows)
    yield lambda: list(store.views.runs(RunFilter(COMPLETED)).rows)
    yield lambda: store.due(100)
    for n in range(40):
        yield lambda run=f"run {n}": list(store.facts(run))
        yield lambda run=f"run {n}": store.summary(run)
        yield lambda run=f"run {n}": store.snapshot(run)
        yield lambda run=f"run {n}": list(store.views.lines(run))
        yield lambda run=f"run {n}": in_turn(store, run)
    yield lambda: sorted((each.run, repr(each.command)) for each in claim(store, 200))


def in_turn(store: Store, run: str) -> Any:
    with store.turn([run]) as turn:
        leases = [turn.lease(run, id) for id in ("a1", "a2", "a3")]
        seen = (turn.head(run), list(turn.facts(run)), list(turn.due_timers(run)), turn.claimed(run), leases)
        return seen, turn.letters(run), turn.blob(run, "h")


def answers(path: Path) -> list[Any]:
    """What it says, or the names of the errors it says instead."""
    try:
        store = SqliteStore(path, FakeClock())
    except RefoldError as error:
        return [type(error)]
    said: list[Any] = []
    try:
        for read in reads(store):
            try:
                said.append(read())
            except RefoldError as error:
                said.append(type(error))
    finally:
        store.close()
    return said


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("furnished")
    with opened(folder) as store:
        furnish(store)
    return folder / "refold.db"


def is_honest(said: Any, truth: Any) -> bool:
    """The truth, or an error with a name. A snapshot is a cache: none is as good as the right one."""
    return said == truth or said in (Corrupt, Unavailable, NotFound) or (said is None and isinstance(truth, bytes))


def is_part(said: Any, truth: Any) -> bool:
    """Something may be missing that only an index leads to, and then the doctor knows it; nothing is wrong."""
    if isinstance(truth, tuple):
        return isinstance(said, tuple) and all(is_part(*pair) for pair in zip(said, truth, strict=True))
    if isinstance(truth, list | frozenset):
        return isinstance(said, list | frozenset) and all(each in truth or each is None for each in said)
    return bool(said == truth or said is None or (isinstance(truth, int) and said > truth))


def is_seen_by_the_doctor(path: Path) -> bool:
    db = apsw.Connection(str(path))
    try:
        return db.execute("pragma integrity_check").fetchall() != [("ok",)]
    except apsw.CorruptError:
        return True
    finally:
        db.close()


@pytest.mark.parametrize("seed", range(50))
def test_a_flipped_bit_is_noticed_or_harmless(furnished: Path, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    truth = answers(Path(shutil.copy(furnished, tmp_path / "whole.db")))
    damaged = tmp_path / "damaged.db"
    data = bytearray(furnished.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    damaged.write_bytes(data)
    seen = is_seen_by_the_doctor(Path(shutil.copy(damaged, tmp_path / "seen.db")))
    said = answers(damaged)
    if len(said) == 1:
        assert issubclass(said[0], RefoldError)
        return
    wrong = [(each, right) for each, right in zip(said, truth, strict=True) if not is_honest(each, right)]
    assert not wrong or (seen and all(is_part(*pair) for pair in wrong))


@pytest.mark.parametrize("part", [0.001, 0.1, 0.37, 0.5, 0.73, 0.9, 0.99])
def test_a_file_that_was_cut_off_is_noticed(furnished: Path, tmp_path: Path, part: float) -> None:
    cut = tmp_path / "cut.db"
    data = furnished.read_bytes()
    cut.write_bytes(data[: round(len(data) * part)])
    truth, said = answers(Path(shutil.copy(furnished, tmp_path / "whole.db"))), answers(cut)
    errors = [each for each in said if isinstance(each, type)]
    assert errors and all(issubclass(each, RefoldError) for each in errors)
    if len(said) > 1:
        wrong = [(each, right) for each, right in zip(said, truth, strict=True) if not is_honest(each, right)]
        assert wrong == []


def test_after_damage_was_found_nothing_more_is_written(furnished: Path, tmp_path: Path) -> None:
    damaged = Path(shutil.copy(furnished, tmp_path / "damaged.db"))
    data = bytearray(damaged.read_bytes())
    for (page,) in ask(furnished.parent, "select pageno from dbstat where name = 'facts'"):
        data[page * 4096 - 4096 : page * 4096 - 3996] = b"\xff" * 100
    damaged.write_bytes(data)
    store = SqliteStore(damaged, FakeClock())
    with pytest.raises(Corrupt, match=r"damaged.db is damaged .*\.recover"):
        for read in reads(store):
            read()
    before = damaged.read_bytes(), (tmp_path / "damaged.db-wal").stat().st_size
    for _ in range(3):
        with pytest.raises(Corrupt, match=str(damaged)):
            commit(store, "new", note())
        with pytest.raises(Corrupt, match=str(damaged)):
            store.put_plan("hash", b"data")
    assert (damaged.read_bytes(), (tmp_path / "damaged.db-wal").stat().st_size) == before
    store.close()


CHANGES: dict[str, tuple[str, Callable[[Store], object]]] = {
    "a fact": ("update facts set data = replace(data, 'held', 'held?') where number = 2", lambda s: s.facts("run 5")),
    "the time of a fact": ("update facts set at = at + 1", lambda s: s.facts("run 5")),
    "a turn": ("update facts set turn = 'other'", lambda s: s.turn_of("run 5", 1)),
    "a fact that is gone": ("delete from facts where number = 1", lambda s: s.facts("run 5")),
    "a row": ("update runs set summary = replace(summary, 'contract', 'contrast')", lambda s: s.summary("run 5")),
    "a status": ("update runs set status = 'failed'", lambda s: s.views.runs(RunFilter("failed")).rows),
    "a head": ("update runs set head = 1", lambda s: commit(s, "run 5", note())),
    "a row that is gone": ("delete from runs", lambda s: commit(s, "run 5", note(), expected=0)),
    "the end of a log": ("delete from facts where number = 2", lambda s: in_turn(s, "run 5")),
    "a command": ("update commands set data = replace(data, '[', '[7,')", lambda s: claim(s, 1)),
    "a tool": ("update commands set tool = 'other'", lambda s: claim(s, 1)),
    "a generation": ("update commands set generation = 7", lambda s: claim(s, 1)),
    "a timer": ("update timers set due = due - 1", lambda s: s.due(10)),
    "a letter": ("update letters set data = replace(data, 'from', 'to')", lambda s: in_turn(s, "run 5")),
    "a blob": ("update blobs set data = zeroblob(9)", lambda s: in_turn(s, "run 5")),
    "a plan": ("update plans set data = replace(data, 'contract', 'contrast')", lambda s: s.plan(PLAN_HASH)),
    "a line": ("update streams set data = '1'", lambda s: s.views.lines("run 5")),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_row_that_was_changed_behind_the_stores_back_is_named(furnished: Path, tmp_path: Path, what: str) -> None:
    shutil.copy(furnished, tmp_path / "refold.db")
    change, read = CHANGES[what]
    if "data = " in change or "summary = " in change:
        change = change.replace("replace(", "cast(replace(cast(").replace("(data,", "(data as text),")
        change = change.replace("(summary,", "(summary as text),").replace("')", "') as blob)").replace("'1'", "x'31'")
    ask(tmp_path, change)
    with opened(tmp_path) as store:
        with pytest.raises(Corrupt):
            read(store)
        commit(store, "unharmed", note())  # the others go on


def test_a_snapshot_that_was_changed_is_left_aside(furnished: Path, tmp_path: Path) -> None:
    shutil.copy(furnished, tmp_path / "refold.db")
    ask(tmp_path, "update snapshots set data = x'00'")
    with opened(tmp_path) as store:
        assert store.snapshot("run 5") is None
