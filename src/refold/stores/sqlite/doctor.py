"""What there is to know about a store's file when something is wrong, or might be."""

import os
from collections.abc import Mapping

import apsw
from msgspec import Struct, json

from refold.core.outcomes import Instant
from refold.ports import Abilities
from refold.stores.sqlite import columns, queries
from refold.stores.sqlite.columns import Values, malformed
from refold.stores.sqlite.file import File
from refold.stores.sqlite.locks import LOCK_NAME
from refold.stores.sqlite.mounts import file_system_of, mount_table
from refold.stores.sqlite.rows import read_queued
from refold.stores.sqlite.store import SqliteStore


class Findings(Struct, frozen=True):
    """Read back from the connection and the file, not from what was asked for."""

    path: str
    sqlite: str
    file_system: str
    schema: int
    journal_mode: str
    synchronous: int  # 2 is FULL
    page_size: int
    pages: int
    log_bytes: int  # in the write-ahead log
    mode: str  # of the file
    damage: tuple[str, ...] = ()


def examine(file: File, thorough: bool = False) -> Findings:
    """`thorough` reads every page."""
    with file.guard:
        pragma = file.db.pragma
        check = [str(row[0]) for row in file.rows("pragma integrity_check", ())] if thorough else []
        log = f"{file.path}-wal"
        return Findings(
            path=file.path,
            sqlite=apsw.sqlite_lib_version(),
            file_system=file_system_of(file.path, mount_table()),
            schema=pragma("user_version"),
            journal_mode=_journal_mode(file.path) or pragma("journal_mode"),
            synchronous=pragma("synchronous"),
            page_size=pragma("page_size"),
            pages=pragma("page_count"),
            log_bytes=os.path.getsize(log) if os.path.exists(log) else 0,
            mode=oct(os.stat(file.path).st_mode & 0o777),
            damage=() if check == ["ok"] else tuple(check),
        )


def _journal_mode(path: str) -> str:
    """As the file itself says it: a connection that only looks may not need the log, and then says otherwise."""
    with open(path, "rb") as file:
        return "wal" if file.read(20)[18:] == b"\x02\x02" else ""


def living(store: SqliteStore) -> tuple[str, ...]:
    """Workers that have claimed something and whose processes have not ended since."""
    life = store.file.life
    with store.file.guard:
        rows = store.file.rows(queries.WORKERS, (store.namespace, ""))
    found = store.file.readable(_worker, rows)
    return tuple(worker for worker, lock in found if life.is_there(lock) and not life.is_free(lock))


def _worker(row: Values) -> tuple[str, str]:
    columns.WORKERS.check(row[:1], row)
    if row[1] and LOCK_NAME.fullmatch(row[1]) is None:
        raise malformed("workers", row[:1], "lock", f"{row[1]!r} is not the name of a lock")
    return row[0], row[1]


def abilities(store: SqliteStore) -> Mapping[str, Abilities]:
    """Of each that lives; its tools are None if it has not said."""
    with store.file.guard:
        rows = store.file.rows(queries.ABILITIES, (store.namespace,))
    alive = frozenset(living(store))
    found = store.file.readable(_abilities, (row for row in rows if row[0] in alive))
    return {each.worker: each for each in found}


def _abilities(row: Values) -> Abilities:
    columns.ABILITIES.check(row[:1], row)
    worker, tools, queues = row
    can_tools = columns.ABILITIES.decoded((worker,), "tools", _names, tools)
    can_queues = columns.ABILITIES.decoded((worker,), "queues", _names, queues)
    return Abilities(worker, can_queues, None if can_tools is None else frozenset(can_tools))


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else json.decode(text, type=tuple[str, ...])


def enrol(store: SqliteStore, can: Abilities) -> None:
    """Before it has claimed anything, or because it can take more than before."""
    with store.turn([]) as turn:
        turn.enrol(can)


def holders(store: SqliteStore) -> list[tuple[str, str, str, Instant]]:
    """Every lease of somebody who lives: run, command, worker, and when it runs out."""
    alive = frozenset(living(store))
    with store.file.guard:
        rows = store.file.rows(queries.LEASES, (store.namespace,))
    leased = store.file.readable(read_queued, rows)
    return [(each.run, each.id, each.worker, each.until) for each in leased if each.worker in alive and each.worker]


def plans(store: SqliteStore, beginning: str, limit: int = 10) -> list[str]:
    """Hashes that begin so."""
    with store.file.guard:
        rows = store.file.rows(queries.PLANS, (store.namespace, len(beginning), beginning, limit))
    return [hash for (hash,) in rows if type(hash) is str]


def count(store: SqliteStore) -> dict[str, int]:
    """Rows by table, and bytes of the file."""
    tables = (
        "runs",
        "facts",
        "commands",
        "timers",
        "letters",
        "blobs",
        "snapshots",
        "streams",
        "dead",
        "plans",
        "workers",
    )
    with store.file.guard:
        return {each: store.file.rows(f"select count(*) from {each}", ())[0][0] for each in tables}


def forget_workers(store: SqliteStore) -> int:
    """Rows of workers that have ended in good order and hold nothing."""
    life = store.file.life
    with store.turn([]) as turn:
        turn.begin()
        busy = {row[11] for row in store.file.rows(queries.LEASES, (store.namespace,))}
        rows = store.file.readable(_worker, store.file.rows(queries.WORKERS, (store.namespace, "")))
        gone = [(store.namespace, *row) for row in rows if row[0] not in busy and not life.is_there(row[1])]
        store.file.write(queries.REMOVE_WORKER, gone)
    return len(gone)
