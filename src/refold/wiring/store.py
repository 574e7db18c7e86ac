"""Opens the store of a process, and files for commands that execute nothing."""

import os
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from refold.core.expressions import Values
from refold.errors import Corrupt, InvalidValue
from refold.logs import WARNING, event, logger
from refold.names import a
from refold.ports import FleetBell, Store
from refold.runtime.mailroom import Intake
from refold.runtime.turn import TurnOptions, Turns
from refold.runtime.turn_thread import InCaller, TurnThread
from refold.stores.clock import machine_steady
from refold.stores.memory import MemoryStore
from refold.stores.open import open_store
from refold.wiring.world import language, wall

if TYPE_CHECKING:
    from refold.runtime.copy_runs import Copied

log = logger("store")
REPORTED = 1000  # rows, at most


class RowLog:
    """Logs each unreadable row once. Its own run reports the error too, and the other runs continue."""

    def __init__(self) -> None:
        self._reported: set[str] = set()

    def report(self, error: Corrupt) -> None:
        text = str(error)
        if text not in self._reported and len(self._reported) < REPORTED:
            self._reported.add(text)
            event(log, WARNING, text.encode("unicode_escape").decode())  # escaped, because the text comes from the file


@asynccontextmanager
async def kept_in(
    store: Store | None, db: str | os.PathLike[str] | None, doorbell: str = ""
) -> AsyncIterator[tuple[Store, InCaller | TurnThread]]:
    """Yield the store and where its turns run. A file gets a thread of its own, so that it cannot block the loop.
    `doorbell` is the address by which the processes of a server ring each other; those of a file need none."""
    _check(store, db)
    if db is None:
        in_caller = InCaller()
        try:
            yield store if store is not None else MemoryStore(wall, machine_steady()), in_caller
        finally:
            in_caller.close()
        return
    advance = TurnThread()
    try:
        file = await advance(lambda: open_store(db, wall, RowLog().report, _fleet_bell(doorbell)))
        try:
            yield file, advance
        finally:
            await advance(file.close)
    finally:
        advance.close()


def _fleet_bell(doorbell: str) -> Callable[[str], FleetBell] | None:
    if not doorbell:
        return None
    from refold.doorbells.nats import nats_bell

    return partial(nats_bell, doorbell)


def _check(store: Store | None, db: str | os.PathLike[str] | None) -> None:
    if db is not None and store is not None:
        raise InvalidValue("store", "there is `db` too; a run is kept in one of them, so give one of them")
    if db is not None and not isinstance(db, str | os.PathLike):
        raise InvalidValue("db", f"it is the path of a file, and this is {a(type(db).__name__)}")
    if store is not None and not callable(getattr(store, "turn", None)):
        raise InvalidValue(
            "store", f"{a(type(store).__name__)} is not a store; it lacks what refold.ports.Store describes"
        )


@contextmanager
def open_intake(db: str | os.PathLike[str]) -> Iterator[tuple[Intake, Store]]:
    """Yield an intake for the runs of a file. Nothing is executed: the process that serves a run finds its mail."""
    store = open_store(db, wall, RowLog().report)
    turns = Turns(store, Values(), random.random, lambda: os.urandom(16).hex(), TurnOptions(languages=language))
    try:
        yield Intake(turns), store
    finally:
        store.close()


def copy_database(source: str, target: str, on_copied: Callable[[str], object]) -> "Copied":
    """Copy every run of a database into another one. Raises Conflict if workers of one of them are running."""
    from refold.runtime.copy_runs import Copy

    with closing(open_store(source, wall, RowLog().report)) as first, closing(open_store(target, wall)) as second:
        return Copy(first, second, Values(), language, lambda: os.urandom(16).hex()).all(on_copied)


def rebuild_file(
    db: str | os.PathLike[str], on_wrong: Callable[[Corrupt], object] | None = None
) -> dict[str, Exception | None]:
    """Rebuild from the logs of a file all that follows from them; return each run with its error, or None."""
    from refold.runtime.rebuild import rebuild

    store = open_store(db, wall, on_wrong)
    try:
        return rebuild(store, Values(), language)
    finally:
        store.close()
