"""Numbered SQL files bring a database file up to date; one from a newer Refold is refused by name."""

import os
import re
from collections.abc import Mapping
from functools import cache

import apsw

from refold.errors import Corrupt, Unusable
from refold.stores.sqlite import queries

SCHEMA = os.path.join(os.path.dirname(__file__), "schema")
APPLICATION = 0x5246_4C44  # "RFLD", so that the file command and this one know whose file it is


def migrations() -> dict[int, str]:
    """Number -> SQL."""
    names = sorted(each for each in os.listdir(SCHEMA) if each.endswith(".sql"))
    return {int(name.removesuffix(".sql")): _text(os.path.join(SCHEMA, name)) for name in names}


@cache
def newest() -> int:
    """The number of the last migration of this release."""
    return max(migrations())


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
    before = version_of(db, path)
    if before == max(steps):
        return
    db.execute(queries.BEGIN)
    try:
        _apply(db, path, steps)
    except BaseException:
        db.execute(queries.ROLLBACK)
        raise
    db.execute(queries.COMMIT)
    from refold.logs import INFO, event, logger  # not loaded where there is nothing to say

    words = "database file migrated" if before else "database file made"
    event(logger("store"), INFO, words, file=path, before=before, schema=max(steps))


def refuse_for_reading(db: apsw.Connection, path: str) -> None:
    """A file is only looked at, never migrated by that, so it must have the schema of this release."""
    version = version_of(db, path)
    if version > newest():
        raise Unusable(_newer(path, version, newest()))
    if version == 0:
        raise Unusable(f"{path} is empty: `refold run` makes a database of it")
    if version < newest():
        raise Unusable(
            f"{path} was written by an older Refold (schema {version}; this one reads {newest()}): "
            "`refold db migrate` brings it up to date"
        )


def check_schema(db: apsw.Connection, path: str) -> None:
    """A file from somebody else can have triggers, views, and tables that are not what their names say.

    Tables of another purpose that somebody has added are left alone.
    """
    expected = _expected()
    missing = dict(expected)
    for kind, name, table, sql in db.execute("select type, name, tbl_name, sql from sqlite_schema"):
        what = f"{kind} {name!r}"
        if (kind, name) in expected:
            made = missing.pop((kind, name), "")
            if sql != made and _tokens(sql) != _tokens(made):  # an older release may have had other comments in it
                raise Corrupt(f"{path}: {what} is not as Refold makes it; nothing in this file can be trusted")
        elif kind in ("trigger", "view") or (kind == "table" and _tokens(sql)[:2] == ("create", "virtual")):
            raise Unusable(f"{path} has a {what}, which Refold has not made: remove it, or do not use this file")
        elif kind == "index" and ("table", table) in expected and sql is not None:
            raise Unusable(f"{path} has an {what} on table {table!r}, which Refold has not made: remove it")
    for kind, name in missing:
        raise Corrupt(f"{path}: {kind} {name!r} is missing")


@cache
def _expected() -> Mapping[tuple[str, str], str]:
    """What the migrations make: type and name, and the text that SQLite keeps."""
    db = apsw.Connection(":memory:")
    for _, step in sorted(migrations().items()):
        db.execute(step)
    made = db.execute("select type, name, sql from sqlite_schema where sql is not null").fetchall()
    db.close()
    return {(str(kind), str(name)): str(sql) for kind, name, sql in made}


_TOKEN = re.compile(
    r"""(?P<left_out> \s+ | --[^\n]* | /\*.*?(?:\*/|\Z) )
    | '(?:[^']|'')*' | "(?:[^"]|"")*" | `(?:[^`]|``)*` | \[[^]]*\] | \w+ | .""",
    re.VERBOSE | re.DOTALL,
)


def _tokens(sql: str | None) -> tuple[str, ...]:
    found = _TOKEN.finditer(sql or "")
    return tuple(each[0].lower() if each[0][0].isalpha() else each[0] for each in found if each["left_out"] is None)


def _newer(path: str, version: int, newest: int) -> str:
    return f"{path} was written by a newer Refold (schema {version}; this one knows {newest}): upgrade this one"


def _apply(db: apsw.Connection, path: str, steps: Mapping[int, str]) -> None:
    """Another process may have been here while this one waited, so it is judged again."""
    version, newest = version_of(db, path), max(steps)
    if version > newest:
        raise Unusable(_newer(path, version, newest))
    for number in sorted(steps):
        if number > version:
            _take_step(db, path, number, steps[number])
    db.pragma("application_id", APPLICATION)
    db.pragma("user_version", newest)


def _take_step(db: apsw.Connection, path: str, number: int, step: str) -> None:
    try:
        db.execute(step)
    except apsw.SQLError as error:  # the steps are constants that fit each other
        raise Corrupt(f"{path} is not what its schema {number - 1} says, and cannot be migrated: {error}") from error


def _tables(db: apsw.Connection) -> int:
    return int(db.execute("select count(*) from sqlite_master").get)
