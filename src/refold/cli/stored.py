"""The database file as commands use it: opened, and asked for a run by whatever people call it."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager

import click

from refold.cli import output, words
from refold.cli.wrong import WrongRows
from refold.core.read.summary import Summary
from refold.core.state import TERMINAL
from refold.errors import Conflict, NotFound
from refold.names import meant
from refold.stores.clock import machine_steady
from refold.stores.sqlite.store import SqliteStore

LISTED = 10  # candidates that are named
KNOWN = 1000  # newest runs among which a mistyped name is looked for


@contextmanager
def opened(db: str, wrong: WrongRows | None = None) -> Iterator[SqliteStore]:
    """A file that is there, to look at: no lock is taken, and nothing is changed."""
    check_there(db)
    with closing(
        SqliteStore(db, words.now, machine_steady(), reading=True, on_wrong=(wrong or wrong_rows()).report)
    ) as store:
        yield store


@contextmanager
def changed(db: str) -> Iterator[SqliteStore]:
    """A file that is there, to write to."""
    check_there(db)
    with closing(SqliteStore(db, words.now, machine_steady(), on_wrong=wrong_rows().report)) as store:
        yield store


def wrong_rows() -> WrongRows:
    """Those of this command; where there is none, as when a shell completes a name, nobody is told."""
    context = click.get_current_context(silent=True)
    return (context.find_object(WrongRows) if context is not None else None) or WrongRows()


def check_there(db: str) -> None:
    """Only `run` makes one."""
    if not os.path.exists(db):
        raise NotFound(f"there is no database {db}: `refold run` makes one, --db names another")


def found(store: SqliteStore, text: str | None) -> Summary:
    """By its id, its name, or the beginning of its id; the newest if nothing is said."""
    if text is None:
        return _newest(store)
    exact = store.summary(text) if text else None
    if exact is not None:
        return exact
    rows = store.summaries(called=text, limit=LISTED + 1) if text else ()
    named = [row for row in rows if row.name == text]
    if len(rows) == 1 or len(named) == 1:
        return (named or list(rows))[0]
    if not rows:
        raise NotFound(_nothing_like(store, text))
    raise Conflict(_ambiguous(text, named or list(rows)))


def unfinished(store: SqliteStore) -> Summary:
    """The newest that somebody started and that is not over."""
    for row in store.summaries(limit=KNOWN):
        if row.status not in TERMINAL and not row.parent:
            return row
    raise NotFound("every run is over")


def called(row: Summary) -> str:
    """What to type to mean this run."""
    return row.name or row.run


def _newest(store: SqliteStore) -> Summary:
    rows = store.summaries(limit=KNOWN)
    row = next((row for row in rows if not row.parent), None) or next(iter(rows), None)
    if row is None:
        raise NotFound("there are no runs yet")
    return row


def _nothing_like(store: SqliteStore, text: str) -> str:
    rows = store.summaries(limit=KNOWN)
    guess = meant(text, (name for row in rows for name in (row.name, row.run) if name))
    hint = f"did you mean {guess}?" if guess else "`refold runs list` shows them"
    return f"there is no run {text!r}; {hint}"


def _ambiguous(text: str, rows: list[Summary]) -> str:
    shown = [f"{row.run}  {row.name}  {row.status}  {words.moment(row.created_at)}" for row in rows[:LISTED]]
    lines = [f"  {output.printable(each)}" for each in shown]
    more = ["  … and more"] if len(rows) > LISTED else []
    return "\n".join([f"error: {text!r} may mean several runs:", *lines, *more])
