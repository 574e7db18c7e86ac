"""Opens a store, or views on one, by its address: today the path of a SQLite file."""

import os
from collections.abc import Callable

from refold.core.outcomes import Instant
from refold.errors import Corrupt
from refold.ports import Store, Views
from refold.stores.clock import StoreClock, machine_steady

Now = Callable[[], Instant]
"""What the machine's clock shows."""

OnWrong = Callable[[Corrupt], object]
"""Hears of rows that cannot be read where others are of use without them; without it they are raised."""


def open_store(db: str | os.PathLike[str], now: Now, on_wrong: OnWrong | None = None) -> Store:
    """Open a store for writing; a file that is not there is created, an older one is brought up to date."""
    from refold.stores.sqlite.store import SqliteStore

    return SqliteStore(db, now, machine_steady(), on_wrong=on_wrong)


def open_views(db: str | os.PathLike[str], now: Now, on_wrong: OnWrong | None = None) -> Views:
    """Open a store for reading only: no lock is taken, and no file is created or changed."""
    from refold.stores.sqlite.views import SqliteViews

    return SqliteViews(db, StoreClock(now, machine_steady()), on_wrong=on_wrong).open()
