"""One SQLite file, opened so that what is committed stays: its pragmas, its locks, and its errors by their names."""

import os
import weakref
from collections.abc import Sequence
from threading import RLock
from typing import Any, NoReturn

import apsw
from msgspec import Struct

from refold.errors import Ambiguous, Corrupt, RefoldError, Unavailable, Unusable
from refold.stores.sqlite import queries
from refold.stores.sqlite.locks import LifeLock, WriterLock
from refold.stores.sqlite.migrate import migrate, version_of
from refold.stores.sqlite.mounts import mount_table, refuse_network

OLDEST = (3, 51, 3)  # before it, two processes that checkpoint and write at once can damage the file
WITHDRAWN = (3, 52, 0)

CHECKPOINT_AT = 1000  # pages of 4 KB in the write-ahead log
TRUNCATE_AT = 16_000

PRAGMAS: dict[str, int | str] = {  # set and read back, for one that is not obeyed says nothing
    "journal_mode": "wal",
    "synchronous": 2,  # FULL: a commit is on the disk before anybody hears of it
    "fullfsync": 1,
    "checkpoint_fullfsync": 1,
    "wal_autocheckpoint": 0,  # whoever holds the lock does it
    "mmap_size": 0,
    "cell_size_check": 1,
    "trusted_schema": 0,
    "temp_store": 2,  # memory
}

Row = tuple[Any, ...]

_DAMAGED = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError, UnicodeDecodeError)
_UNAVAILABLE = (
    apsw.BusyError,
    apsw.LockedError,
    apsw.FullError,
    apsw.IOError,
    apsw.ReadOnlyError,
    apsw.CantOpenError,
    apsw.PermissionsError,
    apsw.ProtocolError,
    apsw.InterruptError,
    apsw.NoMemError,
)
_DAMAGED_READS = (apsw.SQLITE_IOERR_CORRUPTFS, apsw.SQLITE_IOERR_DATA)


class File:
    """A connection that several threads may use one after the other, and one transaction at a time."""

    def __init__(self, path: str | os.PathLike[str], patience: float, vfs: str | None = None) -> None:
        self.path = os.path.realpath(path)
        self.patience = patience
        self.guard = RLock()  # a turn holds it from beginning to end
        self._damage = ""
        self._elsewhere = ""  # why this process must leave the file alone
        self._failure: RefoldError | None = None  # of this turn: nothing more is written in it
        self._pages = 0  # in the write-ahead log
        self._checkpointed = 0  # pages there when a checkpoint was last tried
        self._cursor: Any
        _refuse_library(apsw.sqlite_lib_version())
        refuse_network(self.path, mount_table())
        self.life = LifeLock(f"{self.path}-workers")
        self.lock = _create(self.path)
        self._open(vfs)
        _forget_in_children(weakref.ref(self))

    def rows(self, query: str, bindings: Row) -> list[Row]:
        try:
            found: list[Row] = self._cursor.execute(query, bindings).fetchall()
            return found
        except (apsw.Error, UnicodeDecodeError) as error:
            self._fail(error)

    def row(self, query: str, bindings: Row) -> Row | None:
        try:
            found: list[Row] = self._cursor.execute(query, bindings).fetchall()
        except (apsw.Error, UnicodeDecodeError) as error:
            self._fail(error)
        return found[0] if found else None

    def write(self, query: str, rows: Sequence[Row]) -> None:
        """One statement, many rows; only inside a transaction."""
        if self._failure is not None:
            raise self._failure  # SQLite may have rolled back already, and this would be written by itself
        try:
            self._cursor.executemany(query, rows)
        except apsw.Error as error:
            self._fail(error)

    def begin(self) -> int:
        """Waits for whoever writes now, as long as the patience lasts; returns the version of the data."""
        if self._damage:
            raise Corrupt(self._damage)
        if self._elsewhere:
            raise Unusable(self._elsewhere)
        self._failure = None
        self.lock.take(self.patience)
        try:
            self._cursor.execute(queries.BEGIN)
            return self.version()
        except BaseException as error:
            self.lock.release()
            if isinstance(error, apsw.Error):
                self._fail(error)
            raise

    def version(self) -> int:
        """Grows with every commit of this connection, and when it first sees that another one has written."""
        return self.db.data_version()

    def commit(self) -> None:
        """Returns when it is on the disk; raises Ambiguous if nobody can tell whether it is."""
        if self._failure is not None:
            failure = self._failure
            self.roll_back()
            raise failure
        try:
            self._cursor.execute(queries.COMMIT)
            if self._pages - self._checkpointed >= CHECKPOINT_AT:
                self._checkpoint()
        except apsw.Error as error:
            raise self._after_failed_commit(error) from error
        finally:
            self.lock.release()

    def roll_back(self) -> None:
        try:
            if self.db.in_transaction:
                self._cursor.execute(queries.ROLLBACK)
        except apsw.Error as error:
            self._failure = self._named(error)  # the transaction is over all the same once the connection is closed
        finally:
            self.lock.release()

    def close(self) -> None:
        with self.guard:
            try:
                if not self._elsewhere:
                    self.db.close()
            except _UNAVAILABLE:
                return  # everything is in the log, and whoever opens the file next goes on with it
            finally:
                self.lock.close()
                self.life.close()

    def forget(self) -> None:
        """In a forked child: neither use the connection nor close it, for both would harm the parent."""
        inherited = _Kept(self.db)
        inherited.itself = inherited
        self._elsewhere = f"{self.path} was opened before this process was forked: open it again here"
        self._cursor = _Elsewhere(self._elsewhere)
        self.guard = RLock()  # the other one may be held by a thread that is not here
        self.lock.forget()
        self.life.forget()

    def _open(self, vfs: str | None) -> None:
        """Under the lock, for two that make a new file at once would be in each other's way."""
        self.lock.take(self.patience)
        try:
            self.db = apsw.Connection(self.path, vfs=vfs)
            self._cursor = self.db.cursor()
            self.db.set_busy_timeout(round(self.patience * 1000))
            version_of(self.db, self.path)  # before anything is changed in a file of somebody else
            for name, value in PRAGMAS.items():
                self.db.pragma(name, value)
                if (got := self.db.pragma(name)) != value:
                    raise Unusable(f"{self.path}: SQLite does not take {name} = {value} and stays at {got}")
            self.db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)  # or bound values make SQLite prepare anew each time
            self.db.set_wal_hook(self._note_pages)
            migrate(self.db, self.path)
        except apsw.Error as error:
            raise self._refusal(error) from error
        finally:
            self.lock.release()

    def _note_pages(self, _db: apsw.Connection, _name: str, pages: int) -> int:
        self._pages = pages
        if pages < self._checkpointed:
            self._checkpointed = 0  # the log begins anew
        return apsw.SQLITE_OK

    def _checkpoint(self) -> None:
        """What fails here fails nobody: everything is in the log, and the next one will try again."""
        self._checkpointed = self._pages
        try:
            if self._pages < TRUNCATE_AT:
                self.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            else:
                self.db.set_busy_timeout(0)  # readers may stay; nobody waits for them
                self.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.Error as error:
            if isinstance(error, _DAMAGED):
                self._named(error)
        finally:
            self.db.set_busy_timeout(round(self.patience * 1000))

    def _fail(self, error: Exception) -> NoReturn:
        self._failure = self._named(error)
        raise self._failure from error

    def _named(self, error: Exception) -> Any:
        """The error by what the catcher should do; a bug keeps its own name."""
        if isinstance(error, _DAMAGED) or getattr(error, "extendedresult", 0) in _DAMAGED_READS or _misses(error):
            self._damage = (
                f"{self.path} is damaged ({error}); nothing more is written to it. Keep a copy of the file with its "
                f'-wal file, then save what is readable: sqlite3 {self.path} ".recover" | sqlite3 recovered.db'
            )
            return Corrupt(self._damage)
        if isinstance(error, apsw.BusyError | apsw.LockedError):
            return Unavailable(f"another program has kept {self.path} locked for {self.patience:g} s")
        if isinstance(error, apsw.FullError):
            return Unavailable(f"no space is left for {self.path}: nothing was written; make room and try again")
        if isinstance(error, _UNAVAILABLE):
            return Unavailable(f"{self.path} cannot be read or written now: {error}")
        return error

    def _after_failed_commit(self, error: apsw.Error) -> Exception:
        """A commit that could not write is surely not there; one that could not be synced may be."""
        named: Exception = self._named(error)
        try:
            if self.db.in_transaction:
                self._cursor.execute(queries.ROLLBACK)
        except apsw.Error:
            return Ambiguous(f"{named}; it was to be committed and could not be taken back")
        if isinstance(named, Unavailable) and isinstance(error, apsw.IOError):
            return Ambiguous(f"{named}; it was being committed")
        return named

    def _refusal(self, error: apsw.Error) -> Exception:
        """At the door: what is wrong with the file, and what to do."""
        self.lock.close()
        named: Exception = self._named(error)
        if isinstance(error, apsw.NotADBError):
            return Corrupt(f"{self.path} is no SQLite database: give Refold a file of its own, or restore this one")
        if isinstance(error, apsw.ReadOnlyError | apsw.CantOpenError | apsw.PermissionsError):
            return Unusable(_no_access(self.path, error))
        return named


def _misses(error: Exception) -> bool:
    """Every query is a constant that fits the schema, so it is the schema that is not what it was."""
    return isinstance(error, apsw.SQLError) and str(error).startswith(("no such", "no query solution", "malformed"))


class _Kept(Struct, gc=False):
    """Holds on to a connection for ever: a circle that no collector sees."""

    db: apsw.Connection
    itself: Any = None


class _Elsewhere:
    """In the place of a cursor that must not be used here."""

    def __init__(self, why: str) -> None:
        self._why = why

    def execute(self, *_: Any) -> NoReturn:
        raise Unusable(self._why)

    executemany = execute


def _refuse_library(version: str) -> None:
    numbers = tuple(int(part) for part in version.split("."))
    if numbers < OLDEST or numbers == WITHDRAWN:
        oldest = ".".join(map(str, OLDEST))
        raise Unusable(f"SQLite {version} can damage its files: install an apsw that brings {oldest} or newer")


def _create(path: str) -> WriterLock:
    """For its owner's eyes only; SQLite gives the files beside it the same mode."""
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise Unusable(f"there is no folder {folder}: create it, or choose another place for {os.path.basename(path)}")
    if os.path.isdir(path):
        raise Unusable(f"{path} is a folder: name a file")
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        return WriterLock(path)
    except OSError as error:
        raise Unusable(_no_access(path, error.strerror)) from error


def _no_access(path: str, why: object) -> str:
    return (
        f"{path} cannot be opened for writing ({why}): this user needs write access to the file and to the folder "
        f"{os.path.dirname(path)}"
    )


def _forget_in_children(reference: "weakref.ref[File]") -> None:
    """A lock is shared with every forked child, so one that outlives its parent would keep the lock taken."""

    def forget() -> None:
        file = reference()
        if file is not None:
            file.forget()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forget)
