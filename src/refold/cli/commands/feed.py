"""The command `refold feed`: every fact of every run, for programs that follow them."""

import gc
import time

import click

from refold.cli import database
from refold.cli import output as out
from refold.cli.options import db_option
from refold.core import times
from refold.queries.history import fact_data

EVERY = 0.25  # seconds between two looks
NOW = "now"


@click.command()
@click.option("--from", "cursor", default="", metavar="CURSOR", help="Begin behind this cursor, or at `now`.")
@click.option("-f", "--follow", is_flag=True, help="Wait for facts to come, until Ctrl-C.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="End after so many facts.")
@db_option
def feed(cursor: str, follow: bool, limit: int | None, db: str) -> None:
    """Print every fact of every run, a line of JSON each.

    Each fact comes once, those of a run in their order. `cursor` in the last line that you have used is where to begin
    the next time.
    """
    gc.enable()
    left = limit if limit is not None else -1
    with database.reading(db) as views:
        if cursor == NOW:
            cursor = views.feed_end()
        while left:
            facts = views.feed(cursor, 500)
            for each in facts if left < 0 else facts[:left]:
                cursor, left = each.cursor, left - 1
                where = {"run": each.run, "number": each.number, "at": times.stamp(each.at)}
                out.print_json({**where, **fact_data(each.fact), "cursor": each.cursor}, "jsonl")
            if not facts and not follow:
                return
            if not facts:
                time.sleep(EVERY)
