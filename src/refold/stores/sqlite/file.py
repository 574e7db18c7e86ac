"""One SQLite file, opened so that commits are durable: pragmas, locks, and SQLite's errors as Refold's."""

import os
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from threading import RLock
from typing import Any, NoReturn, TypeVar
from urllib.parse import quote

import apsw
from msgspec import Struct

from refold.errors import Ambiguous, Conflict, Corrupt, RefoldError, Unavailable, Unusable
from refold.stores.sqlite import queries
from refold.stores.sqlite.locks import (
    FileLook,
    LifeLock,
    Marker,
    WriterLock,
    boot_id,
    is_foreign,
    look_at,
    mount_table,
    refuse_network,
)
from refold.stores.sqlite.migrate import check_schema, migrate, refuse_for_reading, version_of

OLDEST = (3, 51, 3)  # older ones: two processes, one checkpointing, one writing, can damage the file
WITHDRAWN = (3, 52, 0)

CHECKPOINT_AT = 1000  # pages of 4 KB in the write-ahead log
TRUNCATE_AT = 16_000

PRAGMAS: dict[str, int | str] = {  # set and read back, because SQLite may ignore one silently
    "journal_mode": "wal",
    "synchronous": 2,  # FULL: a commit is on the disk before its caller continues
    "fullfsync": 1,
    "checkpoint_fullfsync": 1,
    "wal_autocheckpoint": 0,  # the process that holds the writer lock makes the checkpoints
    "mmap_size": 0,
    "cell_size_check": 1,
    "trusted_schema": 0,
    "temp_store": 2,  # memory
}

READING_PRAGMAS: dict[str, int] = {
    "query_only": 1,
    "synchronous": 2,
    "mmap_size": 0,
    "cell_size_check": 1,
    "trusted_schema": 0,
    "temp_store": 2,
}

BESIDE = ("-wal", "-shm", "-journal")  # the files that SQLite itself opens next to a database
JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
LOOKS = 5  # at a file that seems replaced: a process may be about to note that it is not
BETWEEN = 0.05  # seconds

T = TypeVar("T")
Row = tuple[Any, ...]

OnWrong = Callable[[Corrupt], object]
"""Gets each row that cannot be read, where the other rows are useful without it."""

_DAMAGED = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError)
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
    """A connection that several threads may use one after the other, and one transaction at a time.

    Opened for `reading` it takes no lock of Refold, creates, migrates and changes nothing, and works while a writer is
    stopped or hung. A file with an empty write-ahead log is read without SQLite's shared memory as well, so that it
    can be on a disk or in a folder where nothing can be written; as soon as a process has written, it is opened again.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        patience: float,
        vfs: str | None = None,
        *,
        reading: bool = False,
        on_wrong: OnWrong | None = None,
    ) -> None:
        self.path = os.path.realpath(path)
        self.patience = patience
        self.reading = reading
        self.on_wrong: OnWrong = on_wrong or _raise
        self.guard = RLock()  # a turn holds it from beginning to end
        self._vfs = vfs
        self._damage = ""
        self._elsewhere = ""  # the reason why this process must not use the file
        self._failure: RefoldError | None = None  # of this turn: after it, nothing more is written in this turn
        self._pages = 0  # in the write-ahead log
        self._checkpointed = 0  # pages there when a checkpoint was last tried
        self._still: tuple[FileLook | None, int] | None = None  # how a file that is read as immutable looked
        self._places: list[tuple[str, tuple[int, int]]] = []  # the files that are open, by their paths
        self._cursor: Any
        self.db: apsw.Connection
        _refuse_library(apsw.sqlite_lib_version())
        refuse_network(self.path, mount_table())
        self.life = LifeLock(f"{self.path}-workers")
        if reading:
            self._open_for_reading()
        else:
            self.lock = _create(self.path)
            self.marker = Marker(self.path, self.lock.descriptor)
            self._open()
        _forget_in_children(weakref.ref(self))

    def rows(self, query: str, bindings: Row) -> list[Row]:
        try:
            found: list[Row] = self._cursor.execute(query, bindings).fetchall()
        except UnicodeDecodeError:
            found = self._rows_of_bytes(query, bindings)
        except apsw.Error as error:
            if self._still is None or not self._has_been_written():  # else the read may have met a half-written file
                self._fail(error)
            return self.rows(query, bindings)
        if self._still is not None and self._has_been_written():
            return self.rows(query, bindings)
        return found

    def readable(self, read: Callable[[Row], T], rows: Iterable[Row]) -> list[T]:
        """Return the rows that can be read, and report the others, so that a damaged row affects only its own run."""
        return readable_rows(read, rows, self.on_wrong)

    def row(self, query: str, bindings: Row) -> Row | None:
        found = self.rows(query, bindings)
        return found[0] if found else None

    def is_logged(self) -> bool:
        """Whether the header of the file says that it has a write-ahead log. A connection that reads the file as
        immutable ignores the log and reports another mode. The header is read through SQLite, because opening and
        closing the file here would release the locks that SQLite has on it in this process."""
        header = apsw.VFSFile(self._vfs or "", self.path, [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
        try:
            return header.xRead(2, 18) == b"\x02\x02"
        finally:
            header.xClose()

    def _rows_of_bytes(self, query: str, bindings: Row) -> list[Row]:
        """Return the rows with text that is not UTF-8 as bytes, so that the reader of a row can name the column."""
        cursor = self.db.cursor()
        try:
            names = [f"c{n}" for n, _ in enumerate(cursor.execute(query, bindings).get_description())]
            columns = (f"typeof({name}), iif(typeof({name}) = 'text', cast({name} as blob), {name})" for name in names)
            text = f"with found ({', '.join(names)}) as ({query}) select {', '.join(columns)} from found"
            rows: list[Row] = cursor.execute(text, bindings).fetchall()
        except apsw.Error as error:
            self._fail(error)
        return [tuple(_text(*row[n : n + 2]) for n in range(0, len(row), 2)) for row in rows]

    def write(self, query: str, rows: Sequence[Row]) -> None:
        """Execute one statement for many rows; only inside a transaction."""
        if self.reading:
            raise Unusable(f"{self.path} was opened for reading only")
        if self._failure is not None:
            raise self._failure  # SQLite may have rolled back already; this write would then be committed alone
        try:
            self._cursor.executemany(query, rows)
        except apsw.Error as error:
            self._fail(error)

    def check_place(self) -> None:
        """Raise Unusable if the open file is no longer the file at its path. Costs two calls of `stat`."""
        if self._elsewhere:
            raise Unusable(self._elsewhere)
        for path, identity in self._places:
            if _identity(path) != identity:
                self._elsewhere = (
                    f"{path} is not the file that this process has opened: it was moved, deleted or replaced "
                    "meanwhile. Nothing more is written or acknowledged here, and what was written last may be lost "
                    "with the old file. Put the old file back with its -wal file, or start again with the new one"
                )
                raise Unusable(self._elsewhere)

    def begin(self) -> int:
        """Wait for the present writer, at most as long as the patience lasts; return the version of the data."""
        if self._damage:
            raise Corrupt(self._damage)
        if self._elsewhere:
            raise Unusable(self._elsewhere)
        self._failure = None
        waited = self.lock.take(self.patience)
        try:
            if waited:  # perhaps for long; else the check after the commit is early enough
                self.check_place()
            self._cursor.execute(queries.BEGIN)
            return self.version()
        except BaseException as error:
            self.lock.release()
            if isinstance(error, apsw.Error):
                self._fail(error)
            raise

    def version(self) -> int:
        """A number that grows with every commit of this connection, and when it first sees another one's commit."""
        return self.db.data_version()

    def commit(self) -> None:
        """Return when the transaction is on the disk; raise Ambiguous if that cannot be known."""
        if self._failure is not None:
            failure = self._failure
            self.roll_back()
            raise failure
        try:
            self._cursor.execute(queries.COMMIT)
            self.check_place()  # before the commit is reported: a deleted file is lost with this process
            if self._pages - self._checkpointed >= CHECKPOINT_AT:
                self._checkpoint()
        except apsw.Error as error:
            raise self._after_failed_commit(error) from error
        finally:
            self.lock.release()
        self.lock.ring()

    def roll_back(self) -> None:
        try:
            if self.db.in_transaction:
                self._cursor.execute(queries.ROLLBACK)
        except apsw.Error as error:
            self._failure = self._named(error)  # closing the connection ends the transaction in any case
        finally:
            self.lock.release()

    def compact(self) -> None:
        """Write the file again without free pages. Raises Unavailable if another writer does not end in time, or if
        the disk has no space for a second copy; the file is then as it was."""
        self.lock.take(self.patience)
        try:
            self.check_place()
            self.marker.begin()
            try:
                self._cursor.execute("vacuum")
                self.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            finally:
                self.marker.end()
        except apsw.Error as error:
            raise self._named(error) from error
        finally:
            self.lock.release()

    def backup(self, target: str) -> None:
        """Write what is committed to a new file; writers are not disturbed. The copy has its final name only when it
        is complete and on the disk. Raises Conflict or Unusable."""
        unfinished = f"{target}-unfinished"
        if os.path.lexists(target):
            raise Conflict(f"{target} exists: a backup replaces no file; name another one")
        try:
            os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # only the owner may read it
            try:
                self._copy_into(unfinished)
                _sync(unfinished)
                os.link(unfinished, target)  # fails if another process has written the target meanwhile
                _sync(os.path.dirname(os.path.abspath(target)))
            finally:
                os.unlink(unfinished)
        except FileExistsError as error:
            raise Conflict(f"{error.filename2 or error.filename} exists: remove it if no backup is running") from None
        except OSError as error:
            raise Unusable(f"{target} cannot be written: {error.strerror}") from error
        except apsw.FullError as error:
            raise Unusable(f"{target} cannot be written: no space is left for it") from error
        except apsw.Error as error:
            raise self._named(error) from error

    def _copy_into(self, path: str) -> None:
        """Write the copy again if the file was read as immutable and another process wrote to it meanwhile."""
        while True:
            self.db.pragma("query_only", 0)  # or the copy could not be written; the file itself was opened for reading
            try:
                self._cursor.execute("vacuum into ?", (path,))
            finally:
                self.db.pragma("query_only", READING_PRAGMAS["query_only"] if self.reading else 0)
            if self._still is None or not self._has_been_written():
                return
            os.truncate(path, 0)

    def close(self) -> None:
        with self.guard:
            if self.reading:
                if not self._elsewhere:
                    self.db.close()
                self.life.close()
                return
            taken = not self._elsewhere and self.lock.take_if_free()
            try:
                if taken:
                    self.marker.begin()  # the last connection that closes makes a checkpoint
                elif not self._elsewhere:
                    self.db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # another process is writing
                if not self._elsewhere or self._places:
                    self.db.close()
                if taken:
                    self.marker.end()
            except _UNAVAILABLE as error:
                from refold.logs import WARNING, event, logger  # loaded only where there is something to log

                event(logger("store"), WARNING, "last checkpoint failed", file=self.path, why=str(error))
                return  # everything is in the write-ahead log; the next process to open the file uses it
            finally:
                self.lock.close()
                self.life.close()

    def forget(self) -> None:
        """In a forked child: neither use the connection nor close it, because both would harm the parent."""
        inherited = _Kept(self.db)
        inherited.itself = inherited
        self._elsewhere = f"{self.path} was opened before this process was forked: open it again here"
        self._cursor = _Elsewhere(self._elsewhere)
        self._places, self._still = [], None
        self.guard = RLock()  # the old one may be held by a thread that does not exist in the child
        if not self.reading:
            self.lock.forget()
        self.life.forget()

    def _open(self) -> None:
        """Open or create the file under the lock, because two processes that create it together would collide."""
        try:
            self.lock.take(self.patience)
            try:
                _refuse_links(self.path)
                if _size(f"{self.path}-wal") and self.marker.is_foreign():
                    raise Unusable(_replaced(self.path))
                self.marker.begin()  # SQLite makes the -wal file now, and may change the database from a left one
                self.db = apsw.Connection(self.path, vfs=self._vfs)
                self._cursor = self.db.cursor()
                self.db.set_busy_timeout(round(self.patience * 1000))
                version_of(self.db, self.path)  # before anything is changed in a file that is not Refold's
                for name, value in PRAGMAS.items():
                    self.db.pragma(name, value)
                    if (got := self.db.pragma(name)) != value:
                        raise Unusable(f"{self.path}: SQLite does not take {name} = {value} and stays at {got}")
                self._prepare()
                self.db.set_wal_hook(self._note_pages)
                migrate(self.db, self.path)
                check_schema(self.db, self.path)
                self._remember_places()
                self.marker.end()
            finally:
                self.lock.release()
        except apsw.Error as error:
            raise self._refusal(error) from error
        except RefoldError:
            self.lock.close()
            raise

    def _prepare(self) -> None:
        self.db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)  # or bound values make SQLite prepare again each time
        self.db.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)  # Refold has none, so any trigger is foreign
        self.db.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0)
        self.db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)

    def _open_for_reading(self) -> None:
        """Open without a lock. A file whose log is empty is read as immutable, until a process writes to it."""
        _refuse_links(self.path)
        log = _size(f"{self.path}-wal")
        self._still = None if log else (look_at(self.path), log)
        if log and _seems_foreign(self.path):
            raise Unusable(_replaced(self.path))
        try:
            uri = f"file:{quote(self.path)}?mode=ro" + ("" if self._still is None else "&immutable=1")
            flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
            self.db = apsw.Connection(uri, flags=flags, vfs=self._vfs)
            self._cursor = self.db.cursor()
            self.db.set_busy_timeout(round(self.patience * 1000))
            for name, value in READING_PRAGMAS.items():
                self.db.pragma(name, value)
            self._prepare()
            refuse_for_reading(self.db, self.path)
            check_schema(self.db, self.path)
        except apsw.Error as error:
            if self._still is not None and self._still != _stillness(self.path):
                self._open_for_reading()  # it was being written
                return
            raise self._refusal(error) from error
        self._remember_places()

    def _has_been_written(self) -> bool:
        """Whether a file that was read as immutable was changed meanwhile; if so, open it again, for sharing."""
        if self._still == _stillness(self.path):
            return False
        self.check_place()
        self.db.close()
        self._open_for_reading()
        return True

    def _remember_places(self) -> None:
        """Remember which files are open. The log stays the same file as long as any process has it open."""
        paths = [self.path] if self._still is not None else [self.path, f"{self.path}-wal"]
        found = [(path, _identity(path)) for path in paths]
        self._places = [(path, identity) for path, identity in found if identity is not None]

    def _note_pages(self, _db: apsw.Connection, _name: str, pages: int) -> int:
        self._pages = pages
        if pages < self._checkpointed:
            self._checkpointed = 0  # the log was restarted
        return apsw.SQLITE_OK

    def _checkpoint(self) -> None:
        """Make a checkpoint. A failure harms nothing: everything is in the log, and the next checkpoint tries again."""
        self._checkpointed = self._pages
        self.marker.begin()
        try:
            if self._pages < TRUNCATE_AT:
                self.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            else:
                self.db.set_busy_timeout(0)  # do not wait for readers
                self.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.Error as error:
            if isinstance(error, _DAMAGED):
                self._named(error)
        finally:
            self.marker.end()
            self.db.set_busy_timeout(round(self.patience * 1000))

    def _fail(self, error: Exception) -> NoReturn:
        self._failure = self._named(error)
        raise self._failure from error

    def _named(self, error: Exception) -> Any:
        """Translate an error of SQLite to the one that says what the caller should do; a bug stays as it is."""
        if isinstance(error, _DAMAGED) or getattr(error, "extendedresult", 0) in _DAMAGED_READS or _misses(error):
            self._damage = (
                f"{self.path} is damaged ({error}); nothing more is written to it. Keep a copy of the file with its "
                f'-wal file, then save what is readable: sqlite3 {self.path} ".recover" | sqlite3 recovered.db'
            )
            return Corrupt(self._damage)
        if getattr(error, "extendedresult", 0) == apsw.SQLITE_CONSTRAINT_DATATYPE:
            return Corrupt(f"{self.path}: a stored row does not fit its table ({error}); `refold db rebuild` mends it")
        if isinstance(error, apsw.BusyError | apsw.LockedError):
            return Unavailable(f"another program has kept {self.path} locked for {self.patience:g} s")
        if isinstance(error, apsw.FullError):
            return Unavailable(f"no space is left for {self.path}: nothing was written; make room and try again")
        if isinstance(error, _UNAVAILABLE):
            return Unavailable(f"{self.path} cannot be read or written now: {error}")
        return error

    def _after_failed_commit(self, error: apsw.Error) -> Exception:
        """A commit that could not be written is certainly not there; one that could not be synced may be."""
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
        """The error of a file that cannot be opened: what is wrong with it, and what to do."""
        if not self.reading:
            self.lock.close()
        named: Exception = self._named(error)
        if isinstance(error, apsw.NotADBError):
            return Corrupt(f"{self.path} is not a SQLite database: give Refold a file of its own, or restore this one")
        if isinstance(error, apsw.ReadOnlyError | apsw.CantOpenError | apsw.PermissionsError):
            return Unusable(_no_reading(self.path, error) if self.reading else _no_access(self.path, error))
        return named


def readable_rows(read: Callable[[Row], T], rows: Iterable[Row], on_wrong: OnWrong) -> list[T]:
    """Return the rows that can be read, and report each other row."""
    results: list[T] = []
    for row in rows:
        try:
            results.append(read(row))
        except Corrupt as error:
            on_wrong(error)
    return results


def _misses(error: Exception) -> bool:
    """Every query is a constant that fits the schema, so an error of this kind means that the schema was changed."""
    return isinstance(error, apsw.SQLError) and str(error).startswith(("no such", "no query solution", "malformed"))


def _raise(error: Corrupt) -> NoReturn:
    raise error


def _text(kind: str, value: Any) -> Any:
    """Decode text; text that is not UTF-8 stays bytes."""
    if kind != "text":
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value  # the reader of the column refuses it


def _sync(path: str) -> None:
    """Return when the file, or the names in the folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        seen = os.stat(path)
    except OSError:
        return None  # the file does not exist
    return seen.st_dev, seen.st_ino


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0  # the file does not exist


def _stillness(path: str) -> tuple[FileLook | None, int]:
    return look_at(path), _size(f"{path}-wal")


def _seems_foreign(path: str) -> bool:
    """Look several times: without the lock, a process may be between a checkpoint and its note about it."""
    try:
        descriptor = os.open(f"{path}-lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False  # without a lock file there is no note
    try:
        boot = boot_id()
        for _ in range(LOOKS):
            if not is_foreign(path, descriptor, boot):
                return False
            time.sleep(BETWEEN)
        return True
    finally:
        os.close(descriptor)


def _replaced(path: str) -> str:
    return (
        f"{path} and {path}-wal do not belong together: one of them was replaced or put there, and the -wal file holds "
        f"changes of another database. To use the file as it is now, for example a restored backup, "
        f"move {path}-wal and {path}-shm away. If they belong to it, because another program has made a checkpoint, "
        f"remove {path}-lock"
    )


def _refuse_links(path: str) -> None:
    """Refuse links next to the file: SQLite would follow them, and a journal can name any file for SQLite to open."""
    for end in BESIDE:
        if os.path.islink(path + end):
            raise Unusable(f"{path}{end} is a link: remove it, for it could lead to any file")
    try:
        with open(f"{path}-journal", "rb") as journal:
            journal.seek(-min(len(JOURNAL_MAGIC), os.fstat(journal.fileno()).st_size), os.SEEK_END)
            named = journal.read() == JOURNAL_MAGIC
    except OSError:
        return  # there is no file, or SQLite will report what is wrong with it
    if named:
        raise Unusable(f"{path}-journal names another file; Refold does not make such journals: move it away")


class _Kept(Struct, gc=False):
    """Keeps a connection until the process ends: a reference cycle that the garbage collector does not see."""

    db: apsw.Connection
    itself: Any = None


class _Elsewhere:
    """Replaces a cursor that must not be used in this process."""

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
    """Create the file, readable by its owner only; SQLite gives the files next to it the same mode."""
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


def _no_reading(path: str, why: object) -> str:
    if _size(f"{path}-wal"):
        return (
            f"{path} cannot be read ({why}): {path}-wal holds changes that are not in it yet, and to read them "
            f"this user needs write access to the folder {os.path.dirname(path)}, or a copy of both files elsewhere"
        )
    return f"{path} cannot be read ({why}): this user needs read access to it"


def _forget_in_children(reference: "weakref.ref[File]") -> None:
    """A lock is shared with every forked child, so a child that outlives its parent would keep the lock taken."""

    def forget() -> None:
        file = reference()
        if file is not None:
            file.forget()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forget)
