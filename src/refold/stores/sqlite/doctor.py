"""What there is to know about a store's file when something is wrong, or might be."""

import os

import apsw
from msgspec import Struct

from refold.stores.sqlite.file import File
from refold.stores.sqlite.mounts import file_system_of, mount_table


class Findings(Struct, frozen=True):
    """Read back from the connection itself, not from what it was asked for."""

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
            journal_mode=pragma("journal_mode"),
            synchronous=pragma("synchronous"),
            page_size=pragma("page_size"),
            pages=pragma("page_count"),
            log_bytes=os.path.getsize(log) if os.path.exists(log) else 0,
            mode=oct(os.stat(file.path).st_mode & 0o777),
            damage=() if check == ["ok"] else tuple(check),
        )
