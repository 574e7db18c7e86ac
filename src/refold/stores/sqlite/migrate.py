"""Numbered SQL files bring a database file up to date; one from a newer Refold is refused by name."""

import os
from collections.abc import Mapping

import apsw

from refold.errors import Unusable
from refold.stores.sqlite import queries

SCHEMA = os.path.join(os.path.dirname(__file__), "schema")
APPLICATION = 0x5246_4C44  # "RFLD", so that the file command and this one know whose file it is


def migrations() -> dict[int, str]:
    """Number -> SQL."""
    names = sorted(each for each in os.listdir(SCHEMA) if each.endswith(".sql"))
    return {int(name.removesuffix(".sql")): _text(os.path.join(SCHEMA, name)) for name in names}


def _text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def version_of(db: apsw.Connection, path: str) -> int:
    """The last migration that the file has seen; refuses a file of somebody else."""
    version, application = int(db.pragma("user_version")), int(db.pragma("application_id"))
    if application not in (0, APPLICATION) or (application == 0 and _tables(db)):
        raise Unusable(f"{path} is a SQLite database of another program: give Refold a file of its own")
    return version


def migrate(db: apsw.Connection, path: str, steps: Mapping[int, str] | None = None) -> None:
    """All that is missing, in one transaction."""
    steps = steps or migrations()
    if version_of(db, path) == max(steps):
        return
    db.execute(queries.BEGIN)
    try:
        _apply(db, path, steps)
    except BaseException:
        db.execute(queries.ROLLBACK)
        raise
    db.execute(queries.COMMIT)


def _apply(db: apsw.Connection, path: str, steps: Mapping[int, str]) -> None:
    """Another process may have been here while this one waited, so it is judged again."""
    version, newest = version_of(db, path), max(steps)
    if version > newest:
        raise Unusable(
            f"{path} was written by a newer Refold (schema {version}; this one knows {newest}): upgrade this one"
        )
    for number in sorted(steps):
        if number > version:
            db.execute(steps[number])
    db.pragma("application_id", APPLICATION)
    db.pragma("user_version", newest)


def _tables(db: apsw.Connection) -> int:
    return int(db.execute("select count(*) from sqlite_master").get)
