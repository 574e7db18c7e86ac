"""Where a process kills itself: before or after its n-th commit, or at its n-th write to a file."""

import os
import time
from collections.abc import Callable
from threading import Lock
from typing import Any

import apsw

from tests.crash.processes import kill_myself

BEFORE, AFTER = "before", "after"


def die_at_commit(n: int, when: str) -> None:
    """In every connection opened from here on; the n-th commit of the process is its last, or nearly so."""
    commits = _Counter(n)

    def arm(db: apsw.Connection) -> None:
        committing: list[bool] = []

        def before() -> bool:
            if commits.is_due():
                if when == BEFORE:
                    kill_myself()
                committing.append(True)
            return False

        def after(_: dict[str, Any]) -> None:
            if committing:
                kill_myself()

        db.set_commit_hook(before, id="failpoint")
        db.trace_v2(apsw.SQLITE_TRACE_PROFILE, after, id="failpoint")  # told when a statement has ended

    apsw.connection_hooks.append(arm)


def die_at_write(n: int) -> None:
    """Before the n-th write, truncation, sync or deletion of any of the files."""
    operations = _Counter(n)

    def count(*_: object) -> None:
        if operations.is_due():
            kill_myself()

    become_disk("deadly", count)


def be_full(n: int, seconds: float, refusals: int = 3) -> None:
    """From the n-th write on nothing can be written, until somebody has made room; several tries have failed then."""
    operations = _Counter(n)
    until: list[float] = []
    refused: list[bool] = []

    def refuse(kind: str, *_: object) -> None:
        if kind != "write":
            return
        if operations.is_due():
            until.append(time.monotonic() + seconds)
        if until and (time.monotonic() < until[0] or len(refused) < refusals):
            refused.append(True)
            raise apsw.FullError("no space left on this device")

    become_disk("full", refuse)


def become_disk(name: str, tell: Callable[..., object]) -> None:
    """Everything SQLite opens from here on goes to `tell(operation, file, offset, data)`, then to the disk."""
    _KEPT.append(Disk(name, tell))


_KEPT: list["Disk"] = []  # SQLite does not keep them alive


class _Counter:
    """Every thread of the process counts."""

    def __init__(self, last: int) -> None:
        self._left, self._lock = last, Lock()

    def is_due(self) -> bool:
        with self._lock:
            self._left -= 1
            return self._left == 0


class Disk(apsw.VFS):
    """The system's file access with a listener; it becomes SQLite's default."""

    def __init__(self, name: str, tell: Callable[..., object]) -> None:
        self.tell, self.system = tell, apsw.vfs_names()[0]
        super().__init__(name, base=self.system, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return DiskFile(self.tell, self.system, name, flags)

    def xDelete(self, name: str, sync_folder: bool) -> None:
        self.tell("delete", os.path.basename(name), int(sync_folder), b"")
        super().xDelete(name, sync_folder)


class DiskFile(apsw.VFSFile):
    def __init__(self, tell: Callable[..., object], system: str, name: Any, flags: list[int]) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name or "temporary"
        self.tell, self.file = tell, os.path.basename(path)
        super().__init__(system, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        self.tell("write", self.file, offset, data)
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:
        self.tell("truncate", self.file, size, b"")
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:
        self.tell("sync", self.file, 0, b"")
        super().xSync(flags)
