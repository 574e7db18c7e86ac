"""Commands for work whose failure was final: `dlq list`, `show`, `redrive`."""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click
from msgspec import Struct, to_builtins

from refold.cli import exits, stored, words
from refold.cli import output as out
from refold.cli.commands.run import again
from refold.cli.options import db_option, output_option, who
from refold.core.read.dead_letters import DeadLetter, normalised
from refold.core.read.summary import Summary
from refold.core.state import COMPLETED
from refold.errors import Conflict, NotFound
from refold.runtime.mail import Reopen, RetryItems
from refold.stores.sqlite.store import SqliteStore

ALL = 1_000_000_000
LONG = 60  # characters of a message in a table


class Group(Struct, frozen=True):
    """Everything that failed in the same tool for the same reason."""

    fingerprint: str
    tool: str
    kind: str
    message: str
    commands: int
    runs: int
    last: int


@click.command("list")
@output_option
@db_option
def list_groups(output: str, db: str) -> None:
    """Reasons of failures that nothing handled, the latest first, with how much failed for each."""
    with stored.opened(db) as store:
        groups = list(_groups(store.dead_letters(limit=ALL)))
    if output != "table":
        out.put_json([{**to_builtins(each), "last": words.stamp(each.last)} for each in groups], output)
        return
    heads = ("FINGERPRINT", "COMMANDS", "RUNS", "TOOL", "KIND", "LAST", "MESSAGE")
    lines = [
        (
            each.fingerprint,
            str(each.commands),
            str(each.runs),
            each.tool,
            each.kind,
            words.moment(each.last),
            out.fitted(out.printable(each.message), LONG),
        )
        for each in groups
    ]
    out.put(out.table(heads, lines, out.has_colour(sys.stdout), out.terminal_width()))


def _groups(letters: Sequence[DeadLetter]) -> Iterator[Group]:
    by_reason: dict[str, list[DeadLetter]] = {}
    for each in letters:
        by_reason.setdefault(each.fingerprint, []).append(each)
    for fingerprint, found in by_reason.items():
        first = found[0]
        runs = {each.run for each in found}
        many = sum(each.count for each in found)
        message = normalised(first.message)
        yield Group(fingerprint, first.tool, first.kind, message, many, len(runs), max(each.at for each in found))


@click.command()
@click.argument("fingerprint")
@output_option
@db_option
def show(fingerprint: str, output: str, db: str) -> None:
    """What failed for a reason: each run, step and item.

    FINGERPRINT is what `dlq list` shows, or its beginning.
    """
    with stored.opened(db) as store:
        letters = _alike(store, fingerprint)
    if output != "table":
        out.put_json([{**to_builtins(each), "at": words.stamp(each.at)} for each in letters], output)
        return
    heads = ("RUN", "WORKFLOW", "STEP", "ITEMS", "AT", "MESSAGE")
    lines = [
        (
            each.name or each.run,
            each.workflow,
            f"{each.step}/{each.visit}",
            _items(each),
            words.moment(each.at),
            out.fitted(out.printable(each.message), LONG),
        )
        for each in letters
    ]
    out.put(out.table(heads, lines, out.has_colour(sys.stdout), out.terminal_width()))


def _items(letter: DeadLetter) -> str:
    more = ", …" if letter.count > len(letter.items) > 0 else ""
    return ", ".join(map(str, letter.items)) + more


def _alike(store: SqliteStore, text: str) -> list[DeadLetter]:
    """Those of one reason, by its fingerprint or the beginning of it."""
    exact = store.dead_letters(text, ALL)
    if exact:
        return list(exact)
    found = [each for each in store.dead_letters(limit=ALL) if text and each.fingerprint.startswith(text)]
    reasons = sorted({each.fingerprint for each in found})
    if not reasons:
        raise NotFound(f"nothing has failed with the fingerprint {text!r}; `refold dlq list` shows them")
    if len(reasons) > 1:
        raise Conflict(f"{text!r} may mean {', '.join(reasons)}")
    return found


@click.command()
@click.argument("fingerprints", nargs=-1, metavar="[FINGERPRINT]...")
@click.option("--run", "runs", multiple=True, metavar="RUN", help="This run, whatever has failed in it.")
@click.option("--all", "everything", is_flag=True, help="All that has failed.")
@click.option("--dry-run", is_flag=True, help="Only say which.")
@output_option
@db_option
def redrive(
    fingerprints: Sequence[str], runs: Sequence[str], everything: bool, dry_run: bool, output: str, db: str
) -> int:
    """Retry the runs in which something failed for these reasons, as `refold runs retry` would.

    A run that was started by another one goes on with that one. Nothing is executed here: a worker does it, or
    `refold runs resume`.
    """
    if not fingerprints and not runs and not everything:
        raise click.UsageError("say what: fingerprints, --run or --all")
    with stored.opened(db) as store:
        chosen = _chosen(store, fingerprints, runs, everything)
    told = [_object(row, "would be retried" if dry_run else _retried(db, row)) for row in chosen]
    if output != "table":
        out.put_json(told, output)
    for each in told if output == "table" else ():
        out.put(out.printable(f"{each['name'] or each['run']}  {each['what']}"))
    good = sum(each["what"] in ("retried", "would be retried") for each in told)
    out.tell(f"{good} of {len(told)} runs {'would be' if dry_run else 'were'} reopened")
    if good and not dry_run:
        out.tell(f"to execute one here: {again('RUN', db)}")
    return exits.OK if good == len(told) else exits.FAILED


def _chosen(store: SqliteStore, fingerprints: Sequence[str], runs: Sequence[str], everything: bool) -> list[Summary]:
    found = [each.run for each in store.dead_letters(limit=ALL)] if everything else []
    found += [each.run for text in fingerprints for each in _alike(store, text)]
    found += [stored.found(store, text).run for text in runs]
    tops = [_top(store, run) for run in dict.fromkeys(found)]
    return list({row.run: row for row in tops if row is not None}.values())


def _top(store: SqliteStore, run: str) -> Summary | None:
    """The run that nobody started as a child; through it the others go on."""
    row = store.summary(run)
    while row is not None and row.parent:
        row = store.summary(row.parent)
    return row


def _retried(db: str, row: Summary) -> str:
    from refold.wiring import open_intake

    try:
        with open_intake(db) as (intake, _):
            tolerated = row.status == COMPLETED  # only what failed is run again, and nothing that follows from it
            intake.send(row.run, RetryItems(by=who()) if tolerated else Reopen(who()))
    except (Conflict, NotFound) as error:
        return str(error)
    return "retried"


def _object(row: Summary, what: str) -> dict[str, Any]:
    return {"run": row.run, "name": row.name, "workflow": row.workflow, "status": row.status, "what": what}
