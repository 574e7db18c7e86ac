"""File locks between processes: one lets processes write one after the other, one shows which processes are alive."""

import os
import re
import stat
import threading
from contextlib import suppress

from refold.errors import Unavailable, Unusable

try:
    import fcntl
except ImportError:  # without such file locks, SQLite's own lock and the leases' expiry have to do
    fcntl = None  # type: ignore[assignment]


LOCK_NAME = re.compile(r"[1-9][0-9]{0,9}-[0-9a-f]{8}\.lock", re.ASCII)
"""The names that `LifeLock.take` makes. A file from somebody else can say anything, so no other name is believed."""


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
            raise Unusable(f"{self.folder} is a link: remove it, for Refold keeps its locks beside the database only")
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
