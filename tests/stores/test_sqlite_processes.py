"""Several processes share a file: each comes to its turn, nobody sees a lock, and a dead one holds nothing."""

import fcntl
import os
import signal
import threading
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import apsw
import pytest

from refold.errors import Unavailable
from refold.ports import Abilities
from refold.stores.sqlite.locks import LifeLock, WriterLock
from refold.stores.sqlite.store import SqliteStore
from tests.alive import within
from tests.contracts.stores import NOON, FakeClock, claim, claim_one, claimed_ids, commit, holder, issue, note, order
from tests.crash.processes import ended, fork, kill
from tests.stores.sqlite_files import ask, opened

PROCESSES, APPENDS = 4, 150


def wall() -> int:
    return time.time_ns() // 1000


def append(folder: Path, name: str) -> None:
    """As fast as it can, once all are there."""
    store = SqliteStore(folder / "refold.db", wall)
    (folder / f"ready {name}").touch()
    assert within(60, lambda: len(list(folder.glob("ready *"))) == PROCESSES)
    for _ in range(APPENDS):
        with store.turn(["shared"]) as turn:
            head = turn.head("shared")
        commit(store, name, note(str(head)))
        commit(store, "shared", note(name))
    store.close()


def test_processes_that_write_at_once_each_get_their_turn_and_lose_nothing(tmp_path: Path) -> None:
    with opened(tmp_path):
        pass
    output = tmp_path / "output"
    pids = [fork(lambda name=f"p{n}": append(tmp_path, name), output) for n in range(PROCESSES)]  # type: ignore[misc]
    assert [ended(pid, 250.0, output) for pid in pids] == [0] * PROCESSES, output.read_text()
    with opened(tmp_path) as store:
        assert [len(store.facts(f"p{n}")) for n in range(PROCESSES)] == [APPENDS] * PROCESSES
        shared = [fact for _, _, fact in store.facts("shared")]
    assert len(shared) == PROCESSES * APPENDS
    names = [next(n for n in range(PROCESSES) if fact == note(f"p{n}")) for fact in shared]
    done = Counter[int]()
    for name in names:  # until the first has done its part; SQLite's own lock lets one wait for as long as others come
        done[name] += 1
        if done[name] == APPENDS:
            break
    assert min(done[n] for n in range(PROCESSES)) > APPENDS / 3, done
    assert ask(tmp_path, "pragma integrity_check") == [("ok",)]


def test_whoever_waits_for_the_lock_comes_before_whoever_had_it(tmp_path: Path) -> None:
    """Each takes it again the moment it lets go; they alternate all the same."""
    log: list[str] = []
    start = threading.Barrier(2)
    left: list[str] = []

    def work(name: str) -> None:
        lock, door = WriterLock(str(tmp_path / "file")), os.open(tmp_path / "file-door", os.O_RDWR | os.O_CREAT)
        start.wait()
        for _ in range(40):
            lock.take(60.0)
            log.append(name)
            assert within(60, lambda: bool(left) or is_locked(door)), "the other one does not wait"
            lock.release()
        left.append(name)
        os.close(door)
        lock.close()

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    runs = [a != b for a, b in pairwise(log)]
    assert sum(runs[:60]) > 40


def is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def test_a_lock_that_another_program_holds_for_seconds_reaches_nobody(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        commit(store, "r", note())
        ready, enough = tmp_path / "ready", tmp_path / "enough"

        def hold() -> None:
            db = apsw.Connection(str(tmp_path / "refold.db"))
            db.execute("begin immediate")
            ready.touch()
            assert within(60, enough.exists)
            db.execute("commit")

        pid = fork(hold, tmp_path / "output")
        assert within(60, ready.exists)
        assert len(store.facts("r")) == 1  # whoever only reads does not wait
        waiting = threading.Thread(target=lambda: commit(store, "r", note()))
        waiting.start()
        waiting.join(1.5)
        assert waiting.is_alive()
        enough.touch()
        waiting.join(60)
        assert not waiting.is_alive()
        assert ended(pid, 60.0, tmp_path / "output") == 0
        assert len(store.facts("r")) == 2


def test_a_lock_that_another_program_never_gives_back_is_unavailable_and_then_not_any_more(tmp_path: Path) -> None:
    with opened(tmp_path, patience=0.2) as store:
        other = apsw.Connection(str(tmp_path / "refold.db"))
        other.execute("begin immediate")
        with pytest.raises(Unavailable, match=r"another program has kept .*refold.db locked for 0.2 s"):
            commit(store, "r", note("lost"))
        other.execute("rollback")
        other.close()
        commit(store, "r", note("kept"))
        assert [fact for _, _, fact in store.facts("r")] == [note("kept")]


def test_a_process_that_stops_in_the_middle_of_a_turn_makes_others_say_so_and_go_on_later(tmp_path: Path) -> None:
    ready = tmp_path / "ready"

    def stop_inside() -> None:
        with opened(tmp_path) as store, store.turn(["s"]):
            ready.touch()
            os.kill(os.getpid(), signal.SIGSTOP)

    with opened(tmp_path) as store:
        pid = fork(stop_inside, tmp_path / "output")
        assert within(60, ready.exists)
        store.file.patience = 0.15
        for _ in range(3):
            with pytest.raises(Unavailable, match="another process has been writing"):
                commit(store, "r", note())
        os.kill(pid, signal.SIGCONT)
        assert ended(pid, 60.0, tmp_path / "output") == 0
        assert within(60, lambda: _commits(store))
        commit(store, "r", note())
        assert len(store.facts("r")) == 2
        with opened(tmp_path, patience=60.0) as another:  # the lock is not kept by one who gave up
            commit(another, "r", note())


def _commits(store: SqliteStore) -> bool:
    try:
        commit(store, "r", note())
    except Unavailable:
        return False
    return True


def claim_and_wait(folder: Path, ready: Path) -> None:
    store = SqliteStore(folder / "refold.db", FakeClock())
    claim(store, 2, "doomed")
    ready.touch()
    time.sleep(3600)


def test_the_leases_of_a_killed_process_are_losses_at_once(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    with opened(tmp_path) as store:
        issue(store, "r", order("a1"), order("a2"), order("a3"))
        pid = fork(lambda: claim_and_wait(tmp_path, ready), tmp_path / "output")
        assert within(60, ready.exists)
        mine = claim_one(store, "mine")
        assert list(store.expire(5)) == []
        held = holder(store, "r", "a1")
        assert held is not None and held.worker == "doomed"
        kill(pid)
        assert list(store.expire(5)) == []
        assert holder(store, "r", "a1") is holder(store, "r", "a2") is None
        assert holder(store, "r", mine.command.id) == mine
        again = claim(store, 5, "mine")
        assert [(lease.command.id, lease.generation, lease.losses) for lease in again] == [("a1", 2, 1), ("a2", 2, 1)]
        assert ask(tmp_path, "select worker from workers") == [("mine",)]
        assert len(os.listdir(tmp_path / "refold.db-workers")) == 1


def test_a_dead_holder_that_was_one_loss_too_many_is_reported_as_run_out(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    with opened(tmp_path) as store:
        issue(store, "r", order("a1"))
        pid = fork(lambda: claim_and_wait(tmp_path, ready), tmp_path / "output")
        assert within(60, ready.exists)
        kill(pid)
        (expired,) = store.expire(0)
        held = holder(store, "r", "a1")
        assert held is not None and held.generation == expired.generation
        with store.turn(["r"]) as turn:
            assert held.until <= turn.now  # so that the turn that gives it up can see that it is over
        assert list(store.expire(0)) == [expired]


def test_a_living_process_keeps_its_leases_however_often_others_look(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    with opened(tmp_path) as store:
        issue(store, "r", order("a1"))
        pid = fork(lambda: claim_and_wait(tmp_path, ready), tmp_path / "output")
        assert within(60, ready.exists)
        os.kill(pid, signal.SIGSTOP)  # even one that does not move
        for _ in range(20):
            assert list(store.expire(0)) == []
        assert holder(store, "r", "a1") is not None
        kill(pid)


def test_a_child_that_outlives_its_parent_does_not_keep_its_locks(tmp_path: Path) -> None:
    ready, parent_ready = tmp_path / "ready", tmp_path / "parent"

    def outlive() -> None:
        ready.touch()
        time.sleep(3600)

    def parent() -> None:
        store = SqliteStore(tmp_path / "refold.db", FakeClock())
        claim_one(store, "doomed")
        with store.turn(["s"]):
            parent_ready.write_text(str(fork(outlive, tmp_path / "child")))
            time.sleep(3600)

    with opened(tmp_path, patience=60.0) as store:
        issue(store, "r", order("a1"))
        pid = fork(parent, tmp_path / "output")
        assert within(60, lambda: ready.exists() and parent_ready.exists() and bool(parent_ready.read_text()))
        kill(pid)
        try:
            assert list(store.expire(5)) == []
            assert claim_one(store, "heir").losses == 1
        finally:
            os.kill(int(parent_ready.read_text()), signal.SIGKILL)


def test_a_lock_whose_file_is_gone_says_nothing(tmp_path: Path) -> None:
    life = LifeLock(tmp_path / "workers")
    life.take()
    other = LifeLock(tmp_path / "workers")
    assert other.is_free(life.name) is False
    assert other.is_free("never.lock") is False
    assert other.is_free("") is False
    name = life.name
    life.forget()
    assert other.is_free(name) is True


def test_whoever_writes_keeps_the_log_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refold.stores.sqlite.file.CHECKPOINT_AT", 50)
    with opened(tmp_path) as store:
        for n in range(200):
            commit(store, "r", note("x" * 500, n))
        assert (tmp_path / "refold.db-wal").stat().st_size < 120 * 4200
        assert (tmp_path / "refold.db").stat().st_size > 100_000


def test_a_log_that_a_reader_has_kept_long_is_cut_when_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refold.stores.sqlite.file.CHECKPOINT_AT", 20)
    monkeypatch.setattr("refold.stores.sqlite.file.TRUNCATE_AT", 100)
    with opened(tmp_path) as store:
        commit(store, "r", note())
        reader = apsw.Connection(str(tmp_path / "refold.db"))
        looking = reader.execute("select 1 from runs union all select 2")
        next(looking)
        store.file.patience = 3600.0
        for n in range(100):
            commit(store, "r", note("x" * 500, n))  # nobody waits for the reader
        assert (tmp_path / "refold.db-wal").stat().st_size > 150 * 4096
        looking.close()
        reader.close()
        for n in range(30):
            commit(store, "r", note("x" * 500, n))
        assert (tmp_path / "refold.db-wal").stat().st_size < 100 * 4200
        assert len(store.facts("r")) == 131


def test_the_command_of_a_body_that_was_parked_in_a_dead_process_is_claimed_at_once(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    with opened(tmp_path) as store:
        issue(store, "r", order("a1"), order("a2"))
        pid = fork(lambda: claim_and_wait(tmp_path, ready), tmp_path / "output")
        assert within(60, ready.exists)
        other = holder(store, "r", "a1")
        assert other is not None
        parked = order("a2", prefer=other.worker, prefer_until=NOON + 1_000_000)
        issue(store, "r", parked)
        assert claimed_ids(store) == []
        kill(pid)
        assert claimed_ids(store) == ["a2"]


def test_the_command_of_a_body_that_was_parked_by_a_closed_engine_is_claimed_at_once(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        with opened(tmp_path) as other:
            other.enrol(Abilities("closed"))
            issue(store, "r", order("a1", prefer="closed", prefer_until=NOON + 1_000_000))
            assert claimed_ids(store) == []
        assert claimed_ids(store) == ["a1"]
