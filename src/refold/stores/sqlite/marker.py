"""Notices a database file that was replaced while its write-ahead log stayed: the log would be applied over it.

SQLite checks that a write-ahead log is whole, not that it belongs to the file beside it. So Refold writes down what the
file looked like when Refold last changed it: in the file of the writer's lock, which stays beside the database. Only
checkpoints change the database file itself, and only whoever holds that lock makes one. If the file looks different
although no checkpoint was under way, another program has replaced it, for example by restoring a backup.

The note counts only for the files it was written for: after a restart of the machine, or where the whole folder was
copied, the times and numbers of the files say nothing, and neither does the note.
"""

import os

from msgspec import DecodeError, Struct, json

BOOT = "/proc/sys/kernel/random/boot_id"
LONGEST = 1000  # bytes of a note


class Look(Struct, frozen=True):
    """What can be seen of a file from outside."""

    device: int
    inode: int
    size: int
    changed: int  # nanoseconds


class Note(Struct, frozen=True):
    boot: str  # of the machine; another one says nothing about times after a loss of power
    own: int  # the inode of the file that holds this note, so that a copy of it is recognised
    database: Look | None  # None: a checkpoint is under way


def boot_id() -> str:
    """The same from one start of the machine to the next; empty where the machine does not say."""
    try:
        with open(BOOT, encoding="ascii") as file:
            return file.read().strip()
    except (OSError, ValueError):
        return ""  # then no note is written


def look_at(path: str) -> Look | None:
    try:
        seen = os.stat(path)
    except OSError:
        return None  # it is not there
    return Look(seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns)


class Marker:
    """The note in the file of a lock; writing it needs the lock, reading it does not."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path  # of the database
        self._descriptor = descriptor
        self._boot = boot_id()

    def begin(self) -> None:
        """The database file itself is about to be changed."""
        self._write(None)

    def end(self) -> None:
        """It is as Refold left it."""
        look = look_at(self.path)
        if look is not None:
            self._write(look)

    def _write(self, look: Look | None) -> None:
        if self._descriptor < 0 or not self._boot:
            return
        note = json.encode(Note(self._boot, os.fstat(self._descriptor).st_ino, look))
        os.pwrite(self._descriptor, note.ljust(LONGEST), 0)  # of one length, so that no reader sees half of it

    def is_foreign(self) -> bool:
        """Whether the file is another one than Refold left."""
        return self._descriptor >= 0 and is_foreign(self.path, self._descriptor, self._boot)


def is_foreign(path: str, descriptor: int, boot: str) -> bool:
    try:
        note = json.decode(os.pread(descriptor, LONGEST, 0), type=Note)
    except (OSError, DecodeError, UnicodeDecodeError):
        return False  # nothing was written down
    if not boot or note.boot != boot or note.own != os.fstat(descriptor).st_ino or note.database is None:
        return False
    look = look_at(path)
    return look is not None and look.device == note.database.device and look != note.database
