"""Items of a loop: `runs items`, and the options by which other commands choose some of them."""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
from msgspec import json

from refold.cli import database, words
from refold.cli import output as out
from refold.cli.options import budgets, output_option, run_argument, store_option, who
from refold.core.faults import fault_text
from refold.core.fold.fanout import settled
from refold.core.plan import WorkerWork
from refold.core.read.items import QUEUED, STATES, ItemRow, LoopSeen, items_in
from refold.core.read.summary import pace
from refold.core.state import ISSUED, ITEM_RUNNING
from refold.ports import Views
from refold.queries.items import find_loop, item_numbers, item_object, rows_of
from refold.queries.reading import RunReader
from refold.runtime.mail import Reopen, RetryItems

F = TypeVar("F", bound=Callable[..., Any])
LONG = 60  # characters of a value in a table


def step_option(command: F) -> F:
    """`--step STEP`."""
    about = "The list loop whose items are meant; needed if there are several."
    return click.option("--step", default="", metavar="STEP", help=about)(command)


def item_option(command: F) -> F:
    """`--item N|KEY`."""
    about = "Only this item, by its number or its key; can be given several times."
    return click.option("--item", "items", multiple=True, metavar="N|KEY", help=about)(command)


@click.command()
@run_argument()
@click.argument("step", required=False)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([QUEUED, *dict.fromkeys(STATES.values())]),
    help="Only items in this state.",
)
@click.option("-n", "--limit", type=click.IntRange(1), help="How many at most (50 in a table, else all).")
@output_option
@store_option
def items(run: str, step: str | None, states: Sequence[str], limit: int | None, output: str, db: str) -> None:
    """Show the state of each item of a list loop.

    STEP is needed if the run has several loops.
    """
    with database.reading(db) as views:
        row = database.find_run(views, run)
        graph, state = RunReader(views, row.run).read()
        s, fan = find_loop(graph, state, step or "")
        claimed = frozenset(each.command for each in views.leases(row.run) if each.is_alive)
        by_workers = isinstance(graph.step(s).work, WorkerWork)
        loop = LoopSeen(graph.name(s), state, fan, state.steps[s].life == ISSUED, claimed if by_workers else None)
        chosen = items_in(loop, states)
        most = limit if limit is not None else 50 if output == "table" else len(chosen)
        rows = rows_of(views, loop, chosen[:most])
        if output == "table":
            _print_table(_head(loop, state.ended_at or words.now()), list(rows), len(chosen))
        elif output == "jsonl":
            for each in rows:
                out.print_json(item_object(each), output)
        else:
            out.print_json([item_object(each) for each in rows], output)


def another_try(
    views: Views, run: str, step: str, loop: str, items: Sequence[str], follow: bool, budget: Sequence[str]
) -> Reopen | RetryItems:
    """What `runs retry` asks of a run: to continue as a whole, or with items of a loop."""
    if not loop and not items:
        if follow:
            raise click.UsageError("--follow goes with --step or --item: it visits the steps behind a loop again")
        return Reopen(who(), step, budgets(budget))
    if step or budget:
        raise click.UsageError("items of a loop are chosen with --step and --item alone")
    loop, numbers = item_numbers(views, run, loop, items)
    return RetryItems(loop, numbers, who(), follow)


def _head(loop: LoopSeen, now: int) -> str:
    """All items are counted, each once, as their rows have them."""
    fan = loop.fan
    speed, rest = pace(fan, now), fan.count - settled(fan) - fan.running
    waiting, cut = (rest, 0) if loop.is_running else (0, rest)
    issued = Counter(loop.status(item) for item, life in enumerate(fan.status) if life == ITEM_RUNNING)
    counts = [(fan.done, "completed"), (fan.failed, "failed"), (issued["running"], "running")]
    counts += [(issued[QUEUED], QUEUED), (waiting + issued["waiting"], "waiting")]
    counts += [(fan.skipped, "skipped"), (fan.cancelled + cut, "cancelled")]
    parts = [f"{loop.step}: {fan.count}{'+' if speed.more else ''} items"]
    parts += [f"{number} {name}" for number, name in counts if number]
    if speed.rate and fan.running:
        parts.append(f"{speed.rate:.3g} per second")
        parts += [f"{words.span(speed.left)} left"] if speed.left is not None else []
    return ", ".join(parts)


def _print_table(head: str, rows: list[ItemRow], count: int) -> None:
    heads = ("ITEM", "KEY", "STATUS", "TRIES", "VALUE", "RESULT")
    lines = [
        (str(row.item), out.printable(row.key), row.status, str(row.tries or ""), _short(row.value), _came_of(row))
        for row in rows
    ]
    if not lines:
        out.print_data(out.printable(head))
        out.print_message("no item has this state")
        return
    out.print_data(
        out.printable(head) + "\n\n" + out.table(heads, lines, out.has_colour(sys.stdout), out.terminal_width())
    )
    if count > len(rows):
        out.print_message(f"{count - len(rows)} more; all of them: -o jsonl")


def _came_of(row: ItemRow) -> str:
    if row.error is not None:
        return out.truncated(out.printable(fault_text(row.error)), LONG)
    return row.run[:8] if row.run and row.status == "running" else _short(row.result)


def _short(value: Any) -> str:
    return "" if value is None else out.truncated(out.printable(json.encode(value).decode()), LONG)
