"""Commands that change runs that others may be executing: `runs pause`, `cancel`, `signal`, `prune`."""

from collections.abc import Iterator

import click

from refold.cli import out, stored, words
from refold.cli.items import item_option, numbers_of, step_option
from refold.cli.options import db_option, inputs, output_option, run_argument, value_of, who
from refold.cli.shown import row_object
from refold.core.codec import check_value
from refold.core.durations import seconds
from refold.core.outcomes import SECOND, Instant
from refold.core.state import CANCELLED, COMPLETED, FAILED, TERMINAL
from refold.core.summary import Summary
from refold.errors import Conflict, NotFound
from refold.runtime.mail import Cancel, CancelItems, Pause, Signal
from refold.stores.sqlite.doctor import forget_workers
from refold.stores.sqlite.store import SqliteStore

BATCH = 100  # runs removed in one commit
ALL = 1_000_000_000


@click.command()
@run_argument()
@db_option
def pause(run: str, db: str) -> None:
    """Hand out nothing more of a run; what is at work finishes.

    `refold runs resume` lifts the pause.
    """
    name = _send(db, run, Pause(who()))
    out.tell(f"{name} is paused; to go on: refold runs resume {name}")


@click.command()
@run_argument()
@click.option("--reason", default="", metavar="TEXT", help="Kept with the run.")
@step_option
@item_option
@db_option
def cancel(run: str, reason: str, step: str, items: tuple[str, ...], db: str) -> None:
    """End a run; what is at work is stopped, finalizers still run.

    With --item only that item of a list loop is cancelled, and the others go on.
    """
    if items:
        with stored.opened(db) as store:
            step, numbers = numbers_of(store, stored.found(store, run).run, step, items)
        name = _send(db, run, CancelItems(step, numbers, who()))
        out.tell(f"{name}: {', '.join(items)} of {step} cancelled")
        return
    if step:
        raise click.UsageError("--step goes with --item; a step as a whole is not cancelled")
    name = _send(db, run, Cancel(reason, who()))
    out.tell(f"{name} is asked to end")


@click.command()
@run_argument()
@click.argument("name")
@click.argument("value", required=False)
@click.option("-i", "--input", "pairs", multiple=True, metavar="K=V", help="The value as an object, key by key.")
@output_option
@db_option
def signal(run: str, name: str, value: str | None, pairs: tuple[str, ...], output: str, db: str) -> None:
    """Send a signal to a run: to the step that waits for it, or to the next that will.

    The VALUE is JSON, or else text.
    """
    if value is not None and pairs:
        raise click.UsageError("VALUE and -i exclude each other")
    if not name:
        raise click.UsageError("a signal has a name")
    told = inputs(pairs, None) if pairs else None if value is None else value_of(value)
    check_value(told, "value")
    called = _send(db, run, Signal(name, told, who()))
    if output != "table":
        out.put_json({"name": called, "signal": name, "value": told}, output)
        return
    out.tell(f"{called} has got the signal {name!r}")


def _send(db: str, text: str, mail: Pause | Cancel | CancelItems | Signal) -> str:
    from refold.wiring import open_intake

    with stored.opened(db) as store:
        row = stored.found(store, text)
    name = stored.called(row)
    if row.status in TERMINAL:
        raise Conflict(f"run {name} is {row.status}")
    with open_intake(db) as (intake, _):
        intake.send(row.run, mail)
    return name


@click.command()
@click.option("--older-than", required=True, metavar="AGE", help="Ended longer ago than this: 30d, 12h.")
@click.option("--dry-run", is_flag=True, help="Only say which.")
@output_option
@db_option
def prune(older_than: str, dry_run: bool, output: str, db: str) -> None:
    """Remove runs that are over, with everything that belongs to them."""
    before = words.now() - round(seconds(older_than) * SECOND)
    with stored.opened(db) as store:
        rows = list(_over(store, before))
    if not dry_run:
        with stored.changed(db) as store:
            rows = _remove(store, rows)
            forget_workers(store)
    if output != "table":
        out.put_json([row_object(row) for row in rows], output)
        return
    for row in rows:
        out.put(out.printable(f"{row.run}  {row.name}  {row.status}  {words.moment(row.ended_at)}"))
    out.tell(f"{len(rows)} runs {'would be' if dry_run else 'were'} removed")


def _over(store: SqliteStore, before: Instant) -> Iterator[Summary]:
    """Those whose parents, if they have one, go too or are over."""
    for status in (COMPLETED, FAILED, CANCELLED):
        for row in store.summaries(status, ALL):
            if row.ended_at <= before and not _is_wanted(store, row):
                yield row


def _is_wanted(store: SqliteStore, row: Summary) -> bool:
    parent = store.summary(row.parent) if row.parent else None
    return parent is not None and parent.status not in TERMINAL


def _remove(store: SqliteStore, rows: list[Summary]) -> list[Summary]:
    """Some may have gone or come to life meanwhile."""
    removed = []
    for start in range(0, len(rows), BATCH):
        batch = rows[start : start + BATCH]
        with store.turn([row.run for row in batch]) as turn:
            for row in batch:
                try:
                    turn.remove(row.run)
                except (NotFound, Conflict):
                    continue
                removed.append(row)
    return removed
