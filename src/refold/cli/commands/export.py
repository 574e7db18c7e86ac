"""The command `refold runs export`: a whole run in one file, to import it or to look at it."""

import sys

import click
from msgspec import json

from refold.cli import database, words
from refold.cli import output as out
from refold.cli.options import run_argument, store_option
from refold.cli.settings import channel, server
from refold.errors import Unusable
from refold.ports import Views
from refold.queries.runs import run_label
from refold.runtime.archive import export_run

STDOUT = "-"


@click.command()
@run_argument()
@click.option("-o", "--output", metavar="FILE", help="Where to write it (run-ID.json or run-ID.html; - is stdout).")
@click.option("--html", "as_html", is_flag=True, help="A page to look at, which needs no server and no network.")
@store_option
def export(run: str, output: str | None, as_html: bool, db: str) -> None:
    """Write a whole run into one file.

    `refold ui FILE` shows it, and the API imports it. With --html it is a page that a browser opens by itself, and that
    shows the run at any moment; what would make it larger than 20 MB is left out, values first. Secrets are as the log
    has them.
    """
    left_out: tuple[str, ...] = ()
    with database.reading(db) as views:
        row = database.find_run(views, run)
        if address := server():
            data, left_out = _from_server(address, row.run, as_html)
        elif as_html:
            data, left_out = _page_of(views, row.run)
    if not server() and not as_html:
        with database.writing(db) as store:
            data = export_run(store, row.run, {})
    path = output or f"run-{row.run}.{'html' if as_html else 'json'}"
    if path == STDOUT:
        sys.stdout.buffer.write(data)
        return
    try:
        with open(path, "wb") as file:
            file.write(data)
    except OSError as error:
        raise Unusable(f"{path} cannot be written: {error.strerror}") from None
    without = f", without {' and '.join(left_out)}" if left_out else ""
    out.print_message(f"{run_label(row)} is in {path} ({words.size(len(data))}{without})")


def _from_server(address: str, run: str, as_html: bool) -> tuple[bytes, tuple[str, ...]]:
    """Return what the server exports, and what it left out of a page."""
    from refold.client.connection import NAMESPACE, segment

    there, path = channel(address), f"{NAMESPACE}/runs/{segment(run)}/export"
    if not as_html:
        return there.get(path).body, ()
    told = json.decode(there.get(path, [("as", "size")]).body)
    return there.get(path, [("as", "html")]).body, tuple(told["left_out"])


def _page_of(views: Views, run: str) -> tuple[bytes, tuple[str, ...]]:
    """Return the page, and what was left out of it."""
    import asyncio

    from refold.server.offline import record_run
    from refold.server.recording import one_file

    recording = asyncio.run(record_run(views, run))
    return one_file(recording), recording.left_out
