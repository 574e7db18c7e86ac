"""Commands for the database file: `doctor`, `db info`, `db check`, `db rebuild`."""

import os
import platform
import shutil
import sys
from collections.abc import Iterator

import click
from msgspec import Struct, to_builtins

from refold import __version__
from refold.cli import exits, stored, words
from refold.cli import output as out
from refold.cli.options import db_option, output_option
from refold.cli.wrong import WrongRows
from refold.core.outcomes import SECOND
from refold.errors import RefoldError
from refold.runtime.reading import Reading
from refold.stores.sqlite.doctor import abilities, count, examine, holders, living
from refold.stores.sqlite.store import SqliteStore

OLDEST_PYTHON = (3, 11)
LITTLE = 100 * 1024 * 1024  # bytes that should be free
ALL = 1_000_000_000

MANY = 1000  # runs of each status that are looked at
UNDER_WAY = ("running", "waiting", "paused", "ending")


class Finding(Struct, frozen=True):
    """One thing that was looked at; `state` is ok, warning or error."""

    about: str
    state: str
    detail: str


@click.command()
@output_option
@db_option
def doctor(output: str, db: str) -> int:
    """Look for what could go wrong: versions, clock, disk, permissions, and the file itself."""
    found = [*_of_machine(db), *_of_file(db)]
    if output != "table":
        out.put_json([to_builtins(each) for each in found], output)
    else:
        out.put(out.table(("", "STATE", "DETAIL"), [(each.about, each.state, each.detail) for each in found]))
    return exits.FAILED if any(each.state == "error" for each in found) else exits.OK


def _of_machine(db: str) -> Iterator[Finding]:
    yield Finding("refold", "ok", __version__)
    good = sys.version_info >= OLDEST_PYTHON
    yield Finding("python", "ok" if good else "error", f"{platform.python_version()} on {platform.system()}")
    year = words.moment(words.now())[:4]
    yield Finding("clock", "ok" if year >= "2026" else "error", words.moment(words.now()))
    folder = os.path.dirname(os.path.abspath(db))
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        yield Finding("disk", "error", f"{folder}: {error.strerror}")
        return
    yield Finding("disk", "ok" if free > LITTLE else "warning", f"{free // 2**20} MiB free in {folder}")
    writable = os.access(folder, os.W_OK)
    yield Finding("folder", "ok" if writable else "error", f"{folder} is {'' if writable else 'not '}writable")


def _of_file(db: str) -> Iterator[Finding]:
    if not os.path.exists(db):
        yield Finding("database", "ok", f"{db} is not there yet; `refold run` makes it")
        return
    try:
        with stored.opened(db) as store:
            yield from _of_store(store)
    except RefoldError as error:
        yield Finding("database", "error", str(error))


def _of_store(store: SqliteStore) -> Iterator[Finding]:
    seen = examine(store.file, thorough=True)
    yield Finding("sqlite", "ok", seen.sqlite)
    yield Finding("database", "ok", f"{seen.path}, schema {seen.schema}, {seen.pages * seen.page_size // 1024} KiB")
    yield Finding("file system", "ok", seen.file_system or "unknown")
    safe = seen.journal_mode == "wal" and seen.synchronous == 2
    yield Finding("durability", "ok" if safe else "error", f"{seen.journal_mode}, synchronous {seen.synchronous}")
    private = seen.mode == "0o600"
    yield Finding("permissions", "ok" if private else "warning", f"{seen.mode}{'' if private else ', not 0o600'}")
    yield Finding("integrity", "error" if seen.damage else "ok", "; ".join(seen.damage[:3]) or "every page reads well")
    ahead = (store.now() - words.now()) / SECOND
    if ahead > 1:
        why = f"the file's time is {words.span(ahead)} ahead of the machine's clock, which was set back"
        yield Finding("clock", "warning", f"{why}; what is to wait for some seconds still does")
    newest = next(iter(store.summaries(limit=1)), None)
    if newest is not None and newest.created_at > words.now() + SECOND:
        yield Finding(
            "clock", "error", f"run {newest.run} was started in the future: {words.moment(newest.created_at)}"
        )
    for row in (each for status in UNDER_WAY for each in store.summaries(status, MANY) if each.stuck):
        yield Finding("run", "error", f"{row.name or row.run} is stuck: {row.stuck}")
    yield Finding("workers", "ok", ", ".join(living(store)) or "none lives")


@click.command()
@output_option
@db_option
def info(output: str, db: str) -> None:
    """What the file is, and how much is in it."""
    with stored.opened(db) as store:
        seen = {**to_builtins(examine(store.file)), "rows": count(store), "workers": list(living(store))}
    del seen["damage"]
    if output != "table":
        out.put_json(seen, output)
        return
    rows = seen.pop("rows")
    lines = [
        (key.replace("_", " "), ", ".join(value) if isinstance(value, list) else str(value))
        for key, value in seen.items()
    ]
    lines += [(f"rows of {table}", str(size)) for table, size in rows.items()]
    out.put("\n".join(out.table(("", ""), lines).splitlines()[1:]))


@click.command()
@output_option
@db_option
def check(output: str, db: str) -> int:
    """Read everything: each page of the file, each fact of each log, and fold every run."""
    wrong: list[dict[str, str]] = []
    rows_wrong = WrongRows()
    with stored.opened(db, rows_wrong) as store:
        wrong += [{"run": "", "problem": each} for each in examine(store.file, thorough=True).damage]
        rows = store.summaries(limit=ALL)
        for row in rows:
            try:
                _, state = Reading(store, row.run).read()
                if state.seq != row.seq:
                    wrong.append({"run": row.run, "problem": f"its log has {state.seq} facts, its row says {row.seq}"})
            except RefoldError as error:
                wrong.append({"run": row.run, "problem": str(error)})
        store.dead_letters(limit=ALL)
        abilities(store)
        holders(store)
    wrong += [{"run": "", "problem": each} for each in rows_wrong.errors]
    if output != "table":
        out.put_json({"runs": len(rows), "problems": wrong}, output)
    for each in wrong if output == "table" else ():
        out.put(f"{out.printable(each['run'] or 'file')}: {out.printable(each['problem'])}")
    out.tell(f"{len(rows)} runs read, {len(wrong)} problems")
    return exits.UNREACHABLE if wrong else exits.OK


@click.command()
@db_option
def migrate(db: str) -> None:
    """Bring the file up to date with this release of Refold.

    Commands that write do that by themselves; those that only look leave an older file as it is and name this one.
    """
    with stored.changed(db) as store:
        seen = examine(store.file)
    out.tell(f"{seen.path} has schema {seen.schema}")


@click.command()
@output_option
@db_option
def rebuild(output: str, db: str) -> int:
    """Make every row, command and timer again from the logs alone."""
    from refold.wiring import rebuild_file

    stored.check_there(db)
    told = rebuild_file(db, stored.wrong_rows().report)
    wrong = {run: str(error) for run, error in told.items() if error is not None}
    if output != "table":
        out.put_json({"runs": len(told), "problems": wrong}, output)
    for run, problem in wrong.items() if output == "table" else ():
        out.put(f"{out.printable(run)}: {out.printable(problem)}")
    out.tell(f"{len(told) - len(wrong)} of {len(told)} runs were rebuilt")
    return exits.UNREACHABLE if wrong else exits.OK
