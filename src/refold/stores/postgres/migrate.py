"""Brings the tables of a store up to date: numbered files, each in a transaction of its own, under one lock."""

import time
from importlib.resources import files

import psycopg
from psycopg import errors as pg

from refold.errors import Unusable
from refold.stores.postgres import queries
from refold.stores.postgres.address import Address, read_address
from refold.stores.postgres.connection import Session, in_schema, store_error

LOCK = 7_402_735_011
PATIENCE = 60.0  # seconds for which a migration waits for the locks that it needs
LOCK_TIMEOUT = "2s"  # for one attempt: turns queue behind a migration that waits


def newest() -> int:
    return max(number for number, _ in _files())


def _files() -> list[tuple[int, str]]:
    folder = files("refold.stores.postgres").joinpath("schema")
    named = [each.name for each in folder.iterdir() if each.name.endswith(".sql")]
    return sorted((int(name[:4]), name) for name in named)


def _text(name: str) -> str:
    return files("refold.stores.postgres").joinpath("schema", name).read_text("utf-8")


def stored_version(session: Session) -> int:
    """0: there are no tables yet."""
    there = session.rows("select to_regclass(%s) is not null", f"{session.address.schema}.schema_version")[0][0]
    return int(session.rows("select coalesce(max(version), 0) from refold.schema_version")[0][0]) if there else 0


def refuse_newer(version: int, address: Address) -> None:
    if version > newest():
        raise Unusable(
            f"{address.shown} has schema {version}, and this release of Refold knows {newest()}: upgrade Refold"
        )


def migrate_server(url: str) -> int:
    """Bring the tables of a server up to date; return their version."""
    session = Session(read_address(url))
    try:
        with session.guard:
            return migrate(session)
    finally:
        session.close()


def check_version(session: Session, make: bool = False) -> int:
    """Raises Unusable if the tables are not those of this release; `make`: they are created if there are none."""
    version, address = stored_version(session), session.address
    refuse_newer(version, address)
    if version == 0 and make:
        return migrate(session)
    if version == 0:
        raise Unusable(
            f"{address.shown} has no tables of Refold in the schema {address.schema}: run `refold db migrate`"
        )
    if version < newest():
        raise Unusable(f"{address.shown} has schema {version}, which is older than {newest()}: run `refold db migrate`")
    return version


def migrate(session: Session) -> int:
    """Return the version. Several processes may call it at the same time; the schema is made if it is not there."""
    version, address = stored_version(session), session.address
    refuse_newer(version, address)
    for number, name in _files():
        if number > version:
            _apply(session, number, _text(name))
    _renumber(session)
    return newest()


def _renumber(session: Session) -> None:
    """A restored dump has the transactions of another server: its facts get one of this server."""
    if session.rows(queries.FOREIGN_TRANSACTIONS):
        session.run([(queries.BEGIN, ()), (queries.UNLIMITED, ()), (queries.RENUMBER, ()), (queries.COMMIT, ())])


def _apply(session: Session, number: int, text: str) -> None:
    began = time.monotonic()
    while True:
        connection = session.raw
        try:
            with connection.transaction():
                connection.execute(f"select pg_advisory_xact_lock({LOCK})", prepare=False)
                connection.execute("set local statement_timeout = 0", prepare=False)
                connection.execute(f"set local lock_timeout = '{LOCK_TIMEOUT}'", prepare=False)
                if number == 1:
                    _make_schema(session, connection)
                done = connection.execute(
                    in_schema("select 1 from refold.schema_version where version >= %s", session.address.schema),
                    (number,),
                    prepare=False,
                ).fetchone()
                if done is None:
                    connection.execute(in_schema(text, session.address.schema), prepare=False)
                    connection.execute(
                        in_schema("insert into refold.schema_version (version) values (%s)", session.address.schema),
                        (number,),
                        prepare=False,
                    )
            return
        except (pg.LockNotAvailable, pg.QueryCanceled) as error:
            if time.monotonic() - began > PATIENCE:
                raise store_error(error, session.address) from error
        except psycopg.Error as error:
            raise store_error(error, session.address) from error


def _make_schema(session: Session, connection: "psycopg.Connection[object]") -> None:
    schema = session.address.schema
    there = connection.execute("select to_regnamespace(%s) is not null", (schema,), prepare=False).fetchone()
    assert there is not None
    if not there[0]:  # type: ignore[index]
        connection.execute(f"create schema {schema}", prepare=False)
    connection.execute(
        f"create table if not exists {schema}.schema_version"
        " (version int primary key, at timestamptz not null default now())",
        prepare=False,
    )
