"""The database file as commands use it: opened, and asked for a run by what people call it."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar

import click

from refold.cli import output, words
from refold.cli.exits import WrongRows
from refold.cli.settings import channel, server, usual_db
from refold.core.read.summary import Summary
from refold.errors import Conflict, NotFound, RefoldError
from refold.ports import Store, Views
from refold.queries import runs
from refold.stores.open import is_server, open_store, open_views, refuse_other_urls

_FOREIGN: ContextVar[Views | None] = ContextVar("refold_foreign_views", default=None)


@contextmanager
def in_place_of_files(views: Views) -> Iterator[None]:
    """Let commands that read a database file read these views, whatever file they name."""
    token = _FOREIGN.set(views)
    try:
        yield
    finally:
        _FOREIGN.reset(token)


def is_foreign() -> bool:
    """Whether the runs that a command reads were made elsewhere, so that no process here can continue them."""
    return _FOREIGN.get() is not None


@contextmanager
def reading(db: str, wrong: WrongRows | None = None) -> Iterator[Views]:
    """Open an existing file to read it: no lock is taken, and nothing is changed. Or ask a server."""
    foreign = _FOREIGN.get()
    if foreign is not None:
        yield foreign
        return
    if address := server():
        from refold.client.views import RemoteViews

        yield RemoteViews(channel(address))
        return
    check_exists(db)
    with closing(open_views(db, words.now, (wrong or wrong_rows()).report)) as views:
        yield views


@contextmanager
def writing(db: str) -> Iterator[Store]:
    """Open an existing file to change it."""
    check_exists(db)
    with closing(open_store(db, words.now, wrong_rows().report)) as store:
        yield store


def wrong_rows() -> WrongRows:
    """The wrong rows of this command. Without a command, as when a shell completes a name, they are not shown."""
    context = click.get_current_context(silent=True)
    return (context.find_object(WrongRows) if context is not None else None) or WrongRows()


def check_exists(db: str) -> None:
    """Only `refold run` creates a file."""
    refuse_other_urls(db)
    if not is_server(db) and not os.path.exists(db):
        raise NotFound(f"there is no database {db}: `refold run` makes one, --db names another")


def find_run(views: Views, text: str | None, changes: bool = False) -> Summary:
    """Find a run by its id, its name, or the beginning of its id; without a text the newest.

    A command that `changes` the run asks when several runs have the name; one that only looks takes the newest.
    """
    try:
        return runs.find_run(views, text, changes)
    except runs.AmbiguousRun as error:
        raise Conflict(_candidates(error)) from None


def _candidates(error: runs.AmbiguousRun) -> str:
    rows = list(zip(error.rows, error.statuses, strict=True))[: runs.CANDIDATES]
    shown = [f"{row.run}  {row.name}  {status}  {words.moment(row.created_at)}" for row, status in rows]
    lines = [f"  {output.printable(line)}" for line in shown]
    ellipsis = ["  … and more"] if len(error.rows) > runs.CANDIDATES else []
    head = f"error: {error.text!r} may mean several runs; type the id of the one you mean:"
    return "\n".join([head, *lines, *ellipsis])


def run_names(db: str | None, beginning: str) -> list[str]:
    """Names of runs for the completion of a shell, the newest first; an error must not disturb the user who types."""
    try:
        with reading(db or usual_db()) as views:
            names = [runs.run_label(row) for row in runs.list_runs(views, limit=100)]
    except RefoldError:
        return []
    return [name for name in names if name.startswith(beginning) and name.isprintable()]  # a shell gets them raw
