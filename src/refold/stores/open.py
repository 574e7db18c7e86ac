"""Opens a store, or views on one, by its address: the path of a SQLite file, or the URL of a PostgreSQL database."""

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from refold.core.outcomes import Instant
from refold.errors import Corrupt, Unusable
from refold.ports import FleetBell, Store, Views
from refold.stores.clock import StoreClock, machine_steady

if TYPE_CHECKING:
    from refold.stores.postgres.store import PostgresStore

Now = Callable[[], Instant]
"""What the machine's clock shows."""

OnWrong = Callable[[Corrupt], object]
"""Hears of rows that cannot be read where others are of use without them; without it they are raised."""

URL = re.compile(r"postgres(ql)?://", re.IGNORECASE)
OTHER_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)


def is_server(db: str | os.PathLike[str]) -> bool:
    """Whether this is the address of a server, and not the path of a file."""
    return isinstance(db, str) and URL.match(db) is not None


def shown_address(db: str | os.PathLike[str]) -> str:
    """The address as it may be printed and logged: without a password."""
    text = os.fspath(db)
    if not is_server(text):
        return text
    from refold.stores.postgres.address import without_password

    return without_password(text)


def open_store(
    db: str | os.PathLike[str],
    now: Now,
    on_wrong: OnWrong | None = None,
    fleet_bell: Callable[[str], FleetBell] | None = None,
) -> Store:
    """Open a store for writing; a file or tables that are not there are created, and an older file is brought up to
    date. Older tables on a server are refused: `refold db migrate` updates them. `fleet_bell` gives the bell of a
    namespace on a server, in place of the server's own."""
    if is_server(db):
        return _postgres(os.fspath(db), on_wrong, fleet_bell)
    refuse_other_urls(db)
    from refold.stores.sqlite.store import SqliteStore

    return SqliteStore(db, now, machine_steady(), on_wrong=on_wrong)


def open_views(db: str | os.PathLike[str], now: Now, on_wrong: OnWrong | None = None) -> Views:
    """Open a store for reading only: no lock is taken, and nothing is created or changed."""
    if is_server(db):
        _check_driver()
        from refold.stores.postgres.views import open_postgres_views

        return open_postgres_views(os.fspath(db), on_wrong)
    refuse_other_urls(db)
    from refold.stores.sqlite.views import SqliteViews

    return SqliteViews(db, StoreClock(now, machine_steady()), on_wrong=on_wrong).open()


def migrate_store(db: str, now: Now, on_wrong: OnWrong | None = None) -> Store:
    """Open a store and bring it up to date."""
    if is_server(db):
        _check_driver()
        from refold.stores.postgres.migrate import migrate_server

        migrate_server(db)
    return open_store(db, now, on_wrong)


def _postgres(url: str, on_wrong: OnWrong | None, fleet_bell: Callable[[str], FleetBell] | None) -> "PostgresStore":
    _check_driver()
    from refold.stores.postgres.store import PostgresStore

    return PostgresStore(url, on_wrong=on_wrong, fleet_bell=fleet_bell)


def _check_driver() -> None:
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise Unusable(
            f"a database on PostgreSQL needs the package psycopg ({error}): install refold[postgres]"
        ) from error


def refuse_other_urls(db: str | os.PathLike[str]) -> None:
    """Raises Unusable."""
    if isinstance(db, str) and not is_server(db) and OTHER_URL.match(db) is not None and not os.path.exists(db):
        kind = db.partition("://")[0]
        raise Unusable(f"{kind}:// is not a kind of database that Refold knows; give a path, or postgresql://...")
