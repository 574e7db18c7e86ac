"""Commands for work whose failure was final: `dlq list`, `show`, `redrive`."""

import sys
from collections.abc import Sequence
from typing import Any

import click
from msgspec import to_builtins

from refold.cli import database, exits, words
from refold.cli import output as out
from refold.cli.options import follow_option, output_option, store_option, who
from refold.cli.settings import db_argument
from refold.cli.steering import steering
from refold.core.read.dead_letters import DeadLetter
from refold.core.read.summary import Summary
from refold.core.state import COMPLETED
from refold.errors import Conflict, NotFound
from refold.queries.dead_letters import failure_groups, letters_of, runs_to_retry
from refold.runtime.mail import Reopen, RetryItems

LONG = 60  # characters of a message in a table
FEW = 10  # items of a dead letter in a table


@click.command("list")
@output_option
@store_option
def list_groups(output: str, db: str) -> None:
    """List the reasons of failures that nothing handled.

    The latest come first; each is shown with the number of its failures. Those that were dismissed are left out.
    """
    with database.reading(db) as views:
        groups = list(failure_groups(views))
    if output != "table":
        out.print_json([{**to_builtins(group), "last": words.stamp(group.last)} for group in groups], output)
        return
    if not groups:
        out.print_message("there is no dead letter")
        return
    heads = ("FINGERPRINT", "COMMANDS", "RUNS", "STEP", "KIND", "LAST", "MESSAGE")
    lines = [
        (
            group.fingerprint,
            str(group.commands),
            str(group.runs),
            _first(group.steps),
            group.kind,
            words.moment(group.last),
            out.truncated(out.printable(group.message), LONG),
        )
        for group in groups
    ]
    out.print_data(out.table(heads, lines, out.has_colour(sys.stdout), out.terminal_width()))


@click.command()
@click.argument("fingerprint")
@output_option
@store_option
def show(fingerprint: str, output: str, db: str) -> None:
    """Show what failed for a reason: each run, step and item.

    FINGERPRINT is what `dlq list` shows, or its beginning.
    """
    with database.reading(db) as views:
        letters = letters_of(views, fingerprint)
    if output != "table":
        out.print_json([{**to_builtins(letter), "at": words.stamp(letter.at)} for letter in letters], output)
        return
    heads = ("RUN", "WORKFLOW", "STEP", "ITEMS", "AT", "MESSAGE")
    lines = [
        (
            letter.name or letter.run,
            letter.workflow,
            f"{letter.step}/{letter.visit}",
            _items(letter),
            words.moment(letter.at),
            out.truncated(out.printable(letter.message), LONG),
        )
        for letter in letters
    ]
    out.print_data(out.table(heads, lines, out.has_colour(sys.stdout), out.terminal_width()))


def _first(steps: Sequence[str]) -> str:
    return steps[0] + (f" and {len(steps) - 1} more" if len(steps) > 1 else "")


def _items(letter: DeadLetter) -> str:
    """The first items, by their keys if they have some."""
    shown = [str(each) for each in letter.keys or letter.items][:FEW]
    return ", ".join(shown) + (", …" if letter.count > len(shown) > 0 else "")


@click.command()
@click.argument("fingerprints", nargs=-1, required=True, metavar="FINGERPRINT...")
@store_option
def dismiss(fingerprints: Sequence[str], db: str) -> None:
    """Take reasons off the list.

    What failed for them until now needs nobody. Runs and their failures stay as they are. What fails for the same
    reason later is listed again.
    """
    with database.reading(db) as views:
        chosen = dict.fromkeys(letters_of(views, text)[0].fingerprint for text in fingerprints)
    with steering(db) as there:
        there.dismiss(list(chosen))
    out.print_message(f"dismissed: {', '.join(chosen)}")


@click.command()
@click.argument("fingerprints", nargs=-1, metavar="[FINGERPRINT]...")
@click.option("--run", "runs", multiple=True, metavar="RUN", help="This run, whatever has failed in it.")
@follow_option
@click.option("--all", "everything", is_flag=True, help="All that has failed.")
@click.option("--dry-run", is_flag=True, help="Only say which.")
@output_option
@store_option
def redrive(
    fingerprints: Sequence[str],
    runs: Sequence[str],
    follow: bool,
    everything: bool,
    dry_run: bool,
    output: str,
    db: str,
) -> int:
    """Retry the runs in which something failed for these reasons.

    Each run is retried as by `refold runs retry`; a run that was started by another run continues together with that
    run. In a run that completed because it tolerated failures only the items are run again, and it keeps its result;
    with --follow the steps behind them are visited again. Nothing is executed here: a worker does it, or `refold runs
    resume --all`.
    """
    if not fingerprints and not runs and not everything:
        raise click.UsageError("say what: fingerprints, --run or --all")
    with database.reading(db) as views:
        chosen = runs_to_retry(views, fingerprints, runs, everything)
    results = [_object(row, "would be retried" if dry_run else _retried(db, row, follow)) for row in chosen]
    if output != "table":
        out.print_json(results, output)
    for result in results if output == "table" else ():
        out.print_data(out.printable(f"{result['name'] or result['run']}  {result['what']}"))
    retried = sum(result["what"] in ("retried", "would be retried") for result in results)
    out.print_message(f"{'would be reopened' if dry_run else 'reopened'}: {retried} of {len(results)}")
    if retried and not dry_run:
        out.print_message(f"to execute them here: refold runs resume --all{db_argument(db)}; or start `refold worker`")
    return exits.OK if retried == len(results) else exits.FAILED


def _retried(db: str, row: Summary, follow: bool) -> str:
    try:
        with steering(db) as there:
            tolerated = row.status == COMPLETED  # only what failed is run again
            there.send(row.run, RetryItems(by=who(), follow=follow) if tolerated else Reopen(who()))
    except (Conflict, NotFound) as error:
        return str(error)
    return "retried"


def _object(row: Summary, what: str) -> dict[str, Any]:
    return {"run": row.run, "name": row.name, "workflow": row.workflow, "status": row.status, "what": what}


COMMANDS = {"list": list_groups, "show": show, "redrive": redrive, "dismiss": dismiss}
