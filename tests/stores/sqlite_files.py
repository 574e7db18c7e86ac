"""A SQLite store in a folder of the test, and what its file says without the store's help."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw

from refold.stores.clock import StoreClock
from refold.stores.sqlite.store import SqliteStore
from refold.stores.sqlite.views import SqliteViews
from tests.contracts.stores import FakeClock
from tests.crash.processes import ended, fork

NOBODY = 65534


@contextmanager
def opened(folder: Path, clock: FakeClock | None = None, **how: Any) -> Iterator[SqliteStore]:
    store = SqliteStore(folder / "refold.db", clock or FakeClock(), **how)
    try:
        yield store
    finally:
        store.close()


def views_of(path: Path, **how: Any) -> SqliteViews:
    """Views on a file; raises what is wrong with the file."""
    return SqliteViews(path, StoreClock(FakeClock()), **how).open()


@contextmanager
def looking(folder: Path, **how: Any) -> Iterator[SqliteViews]:
    """Views on the file, without a store."""
    with closing(views_of(folder / "refold.db", **how)) as views:
        yield views


def ask(folder: Path, query: str, *bindings: Any) -> list[tuple[Any, ...]]:
    """By a connection of its own."""
    db = apsw.Connection(str(folder / "refold.db"))
    try:
        return db.execute(query, bindings).fetchall()
    finally:
        db.close()


def in_child(folder: Path, work: Callable[[], object]) -> str:
    """What a process of its own says; it must end well."""
    output = folder / "output"
    code = ended(fork(work, output), 60.0, output)
    said = output.read_text()
    assert code == 0, said
    return said


def as_nobody() -> None:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def modes(folder: Path, names: Sequence[str]) -> dict[str, str]:
    return {name: oct((folder / name).stat().st_mode & 0o777) for name in names}
