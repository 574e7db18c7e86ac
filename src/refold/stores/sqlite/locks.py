"""Keeps a database file safe between processes: its locks, the file system below it, and whether it was replaced.

One lock lets processes write one after the other, and one shows which processes are alive. SQLite's locks
and shared memory do not work over a network, so the file system is checked.

SQLite checks that a write-ahead log is intact, not that it belongs to the file next to it: if a database file is
replaced while its log stays, the log would be applied to the new file. So Refold notes how the file looked when Refold
last changed it, in the file of the writer's lock, which stays next to the database. Only checkpoints change the
database file itself, and only the process that holds that lock makes them. If the file looks different although no
checkpoint was running, another program has replaced it, for example by restoring a backup.

The note is valid only for the files it was written for: after a restart of the machine, or if the whole folder was
copied, the times and inodes of the files prove nothing, and the note is ignored.
"""

import os
import re
import stat
import threading
from contextlib import suppress

from msgspec import DecodeError, Struct, json

from refold.core.outcomes import Instant
from refold.errors import Unavailable, Unusable

NETWORKED = frozenset(
    {
        "9p",
        "acfs",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "pvfs2",
        "smb",
        "smb3",
        "smbfs",
        "vboxsf",
    }
)
NETWORKED_FUSE = frozenset({"ceph", "cephfs", "davfs", "glusterfs", "rclone", "s3fs", "smbnetfs", "sshfs"})

MOUNTS = "/proc/mounts"


def mount_table() -> str:
    """Return the mount table of this machine; empty if it cannot be read."""
    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as table:
            return table.read()
    except OSError:
        return ""


def file_system_of(path: str, mounts: str) -> str:
    """The type of the mount that holds an absolute path, by a table like /proc/mounts; empty if none does."""
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = _unescaped(fields[1])
        if len(point) >= len(best) and _holds(point, path):  # a later mount covers an earlier one on the same point
            best, kind = point, fields[2]
    return kind


def refuse_network(path: str, mounts: str) -> None:
    kind = file_system_of(path, mounts)
    if kind in NETWORKED or kind.removeprefix("fuse.") in NETWORKED_FUSE:
        raise Unusable(
            f"{path} is on a network file system ({kind}), where SQLite can lose data: put it on a local disk, "
            "or use Postgres as the store that machines share"
        )


def _holds(point: str, path: str) -> bool:
    return os.path.commonpath([point, path]) == point if point.startswith("/") else False


def _unescaped(point: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(code, character)
    return point


try:
    import fcntl
except ImportError:  # without such file locks, SQLite's own lock and the leases' expiry have to do
    fcntl = None  # type: ignore[assignment]


UNTIL = "until:"
ALIVE_UNTIL = re.compile(rf"{UNTIL}[0-9]{{1,18}}", re.ASCII)
"""What stands in the place of a lock for a remote worker: the moment until which it is alive."""

LOCK_NAME = re.compile(r"[1-9][0-9]{0,9}-[0-9a-f]{8}\.lock", re.ASCII)
"""The names that `LifeLock.take` makes. A database from elsewhere may hold any text, so no other name is accepted."""


class WriterLock:
    """Lets one process after the other write.

    Two locks make it fair: a process that waits for the second holds the first, so one that has just written must queue
    behind it instead of being the fastest to take the second again. A thread of its own waits if there is something to
    wait for, because a thread that waits for a file lock cannot be interrupted, and the holder may never release it.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._door = self._room = -1
        self._thread: threading.Thread | None = None
        self._wanted = threading.Semaphore(0)
        self._taken = threading.Event()
        self._guard = threading.Lock()  # of the two below
        self._waits = False  # the thread is waiting, and no other thread touches the locks
        self._given_up = False  # the caller no longer waits, so the thread releases what it gets
        if fcntl is not None:
            self._door, self._room = _open_private(f"{path}-door"), _open_private(f"{path}-lock")

    def take(self, patience: float) -> bool:
        """Take the lock; return whether it had to be waited for."""
        if fcntl is None or (not self._waits and self._take_at_once()):
            return False
        with self._guard:
            self._given_up = False
            if not self._waits:
                self._send_thread()
        if not self._taken.wait(patience):
            self._give_up(patience)
        self._waits = False
        return True

    def take_if_free(self) -> bool:
        """Take the lock if no process has it; return whether it is taken now. Never waits."""
        return fcntl is None or (self._room >= 0 and not self._waits and self._take_at_once())

    @property
    def descriptor(self) -> int:
        """The descriptor of the file that writers lock; -1 if there is none."""
        return self._room

    def release(self) -> None:
        if self._room >= 0:
            fcntl.flock(self._room, fcntl.LOCK_UN)

    def ring(self) -> None:
        """Wake the processes that wait for what others write (`bell.py`)."""
        if self._door >= 0:
            with suppress(OSError):  # the disk is full: a ring that is lost costs a look
                os.pwrite(self._door, b".", 0)

    def close(self) -> None:
        with self._guard:
            waits = self._waits  # then the thread needs them, and they are closed when the process ends
        if not waits:
            self.forget()

    def forget(self) -> None:
        """In a forked child: the parent keeps what it has."""
        self._guard = threading.Lock()
        for descriptor in (self._door, self._room):
            if descriptor >= 0:
                os.close(descriptor)
        self._door = self._room = -1

    def _take_at_once(self) -> bool:
        if not _lock(self._door, wait=False):
            return False
        taken = _lock(self._room, wait=False)
        fcntl.flock(self._door, fcntl.LOCK_UN)
        return taken

    def _send_thread(self) -> None:
        self._waits = True
        self._taken.clear()
        if self._thread is None:
            self._thread = threading.Thread(target=self._wait, name="refold-writer-lock", daemon=True)
            self._thread.start()
        self._wanted.release()

    def _wait(self) -> None:
        while self._wanted.acquire():
            _lock(self._door, wait=True)
            _lock(self._room, wait=True)
            fcntl.flock(self._door, fcntl.LOCK_UN)
            with self._guard:
                if self._given_up:
                    self._waits = False
                    self.release()
                else:
                    self._taken.set()

    def _give_up(self, patience: float) -> None:
        with self._guard:
            self._given_up = not self._taken.is_set()
        if self._given_up:
            raise Unavailable(f"another process has been writing to {self.path} for {patience:g} s and does not end")


def alive_until(moment: Instant) -> str:
    return f"{UNTIL}{moment}"


class LifeLock:
    """Held as long as the process runs; a process that finds it free knows that the holder is dead."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = os.fspath(folder)
        self.name = ""  # the name by which other processes find it
        self._descriptor = -1

    def take(self) -> None:
        if self._descriptor >= 0 or fcntl is None:
            return
        with suppress(FileExistsError):  # another process has created it
            os.mkdir(self.folder, 0o700)
        if os.path.islink(self.folder):
            raise Unusable(
                f"{self.folder} is a link: remove it, because Refold keeps its locks only next to the database"
            )
        self.name = f"{os.getpid()}-{os.urandom(4).hex()}.lock"
        self._descriptor = _open_private(self._file(self.name))
        _lock(self._descriptor, wait=True)

    def is_free(self, name: str) -> bool:
        """Whether the holder is dead. A lock whose file does not exist proves nothing."""
        if fcntl is None or not self._is_own(name):
            return False
        try:
            descriptor = os.open(self._file(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return stat.S_ISREG(os.fstat(descriptor).st_mode) and _lock(descriptor, wait=False)
        finally:
            os.close(descriptor)

    def is_held(self, name: str, now: Instant) -> bool:
        """Whether the worker is alive that has enrolled with this lock, or with a moment if it is a remote one."""
        if ALIVE_UNTIL.fullmatch(name) is not None:
            return int(name.removeprefix(UNTIL)) > now
        return self.is_there(name) and not self.is_free(name)

    def is_there(self, name: str) -> bool:
        return self._is_own(name) and os.path.exists(self._file(name))

    def remove(self, name: str) -> None:
        """Remove the lock of a process that has ended."""
        if self._is_own(name):
            with suppress(FileNotFoundError):  # another process was faster
                os.unlink(self._file(name))

    def _is_own(self, name: str) -> bool:
        """Whether it is a name that Refold creates, in a folder that is really next to the database.

        The names come from the database file. Anything else there, such as `../../x` or `/etc/passwd`, is data from
        the writer of the file, and is neither opened nor removed.
        """
        return LOCK_NAME.fullmatch(name) is not None and not os.path.islink(self.folder)

    def _file(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def close(self) -> None:
        self.remove(self.name)
        self.forget()

    def forget(self) -> None:
        """In a forked child: the parent keeps what it has."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self.name = -1, ""


def _lock(descriptor: int, wait: bool) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False  # another process holds it
    return True


def _open_private(path: str) -> int:
    """Open a file for its owner only, never through a link, which could lead anywhere."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


BOOT = "/proc/sys/kernel/random/boot_id"
LONGEST = 1000  # bytes of a note


class FileLook(Struct, frozen=True):
    """How a file looks from outside, without reading it."""

    device: int
    inode: int
    size: int
    changed: int  # nanoseconds


class WalNote(Struct, frozen=True):
    boot: str  # of the machine: after a power loss, times prove nothing
    own: int  # the inode of the file that holds this note, so that a copy of it is recognised
    database: FileLook | None  # None: it is being opened, or a checkpoint is running
    log: int = -1  # the inode of the -wal file; 0: there was none, -1: not known


def boot_id() -> str:
    """Return an id that stays the same until the machine is restarted; empty if there is none."""
    try:
        with open(BOOT, encoding="ascii") as file:
            return file.read().strip()
    except (OSError, ValueError):
        return ""  # then no note is written


def look_at(path: str) -> FileLook | None:
    try:
        seen = os.stat(path)
    except OSError:
        return None  # the file does not exist
    return FileLook(seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns)


class Marker:
    """The note in the file of a lock; writing it needs the lock, reading it does not."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path  # of the database
        self._descriptor = descriptor
        self._boot = boot_id()

    def begin(self) -> None:
        """Note that the database file itself will be changed now."""
        self._write(None)

    def end(self) -> None:
        """Note how the database file looks after the change."""
        look = look_at(self.path)
        if look is not None:
            self._write(look)

    def _write(self, look: FileLook | None) -> None:
        if self._descriptor < 0 or not self._boot:
            return
        log = look_at(f"{self.path}-wal")
        own = os.fstat(self._descriptor).st_ino
        note = json.encode(WalNote(self._boot, own, look, 0 if log is None else log.inode))
        os.pwrite(self._descriptor, note.ljust(LONGEST), 0)  # always the same length, so that no reader sees half of it

    def is_foreign(self) -> bool:
        """Whether the file, or the -wal file next to it, is not the one that Refold last changed."""
        return self._descriptor >= 0 and is_foreign(self.path, self._descriptor, self._boot)


def is_foreign(path: str, descriptor: int, boot: str) -> bool:
    try:
        note = json.decode(os.pread(descriptor, LONGEST, 0), type=WalNote)
    except (OSError, DecodeError, UnicodeDecodeError):
        return False  # there is no note
    if not boot or note.boot != boot or note.own != os.fstat(descriptor).st_ino or note.database is None:
        return False
    look, log = look_at(path), look_at(f"{path}-wal")
    if look is None or look.device != note.database.device:
        return False
    return look != note.database or (log is not None and note.log >= 0 and log.inode != note.log)
