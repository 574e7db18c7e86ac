"""Items of a loop: `runs items`, and the options by which other commands choose some of them."""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import click
from msgspec import json, to_builtins

from refold.cli import output as out
from refold.cli import stored, words
from refold.cli.options import budgets, db_option, output_option, run_argument, who
from refold.core.faults import fault_text
from refold.core.fold.fanout import settled
from refold.core.graph import Graph
from refold.core.read.items import STATES, ItemRow, LoopSeen, item_rows, items_in
from refold.core.read.loaded import has_keys, item_of_key
from refold.core.read.progress import pace
from refold.core.state import ISSUED, FanOut, RunState
from refold.errors import Conflict, InvalidValue, NotFound
from refold.runtime.mail import Reopen, RetryItems
from refold.runtime.reading import Reading, with_values
from refold.stores.sqlite.store import SqliteStore

F = TypeVar("F", bound=Callable[..., Any])
CHUNK = 500  # items read at once
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
    type=click.Choice(list(dict.fromkeys(STATES.values()))),
    help="Only those that stand so.",
)
@click.option("-n", "--limit", type=click.IntRange(1), help="How many at most (50 in a table, else all).")
@output_option
@db_option
def items(run: str, step: str | None, states: Sequence[str], limit: int | None, output: str, db: str) -> None:
    """What became of each item of a list loop.

    STEP is needed if the run has several loops.
    """
    with stored.opened(db) as store:
        row = stored.found(store, run)
        graph, state = Reading(store, row.run).read()
        s, fan = loop_of(graph, state, step or "")
        loop = LoopSeen(graph.name(s), state, fan, state.steps[s].life == ISSUED)
        chosen = items_in(loop, states)
        most = limit if limit is not None else 50 if output == "table" else len(chosen)
        rows = _rows(store, loop, chosen[:most])
        if output == "table":
            _put_table(_head(loop, state.ended_at or words.now()), list(rows), len(chosen))
        elif output == "jsonl":
            for each in rows:
                out.put_json(_object(each), output)
        else:
            out.put_json([_object(each) for each in rows], output)


def loop_of(graph: Graph, state: RunState, step: str) -> tuple[int, FanOut]:
    """The loop that is meant; raises if that is not clear."""
    loops = {graph.name(s): s for s, each in enumerate(graph.plan.steps) if each.loop is not None}
    if step and step not in loops:
        known = f"; loops are {', '.join(loops)}" if loops else ""
        raise NotFound(f"{graph.plan.name!r} has no list loop {step!r}{known}")
    if not loops:
        raise Conflict(f"{graph.plan.name!r} has no list loop, so there are no items")
    if not step and len(loops) > 1:
        raise Conflict(f"say which step: {', '.join(loops)}")
    s = loops[step or next(iter(loops))]
    fan = state.steps[s].fan
    if fan is None:
        raise Conflict(f"the run has not come to step {graph.name(s)!r}")
    return s, fan


def numbers_of(store: SqliteStore, run: str, step: str, items: Sequence[str]) -> tuple[str, tuple[int, ...]]:
    """The step, and the numbers of items that are named by number or key."""
    graph, state = Reading(store, run).read()
    s, fan = loop_of(graph, state, step)
    return graph.name(s), tuple(_number(store, run, fan, each) for each in items)


def another_try(
    store: SqliteStore, run: str, step: str, loop: str, items: Sequence[str], budget: Sequence[str]
) -> Reopen | RetryItems:
    """What `runs retry` asks of a run: to go on as a whole, or with items of a loop."""
    if not loop and not items:
        return Reopen(who(), step, budgets(budget))
    if step or budget:
        raise click.UsageError("items of a loop are chosen with --step and --item alone")
    loop, numbers = numbers_of(store, run, loop, items)
    return RetryItems(loop, numbers, who())


def _number(store: SqliteStore, run: str, fan: FanOut, text: str) -> int:
    """A key, where items have some; else a number."""
    if with_values(store, run, partial(has_keys, fan)):
        item = with_values(store, run, lambda loaded: item_of_key(fan, loaded, text))
        if item is None:
            raise NotFound(f"no item has the key {text!r}; `refold runs items` shows them")
        return item
    if not text.isdecimal():
        raise InvalidValue("item", f"{text!r} is no number, and the items of this loop have no keys")
    return int(text)


def _rows(store: SqliteStore, loop: LoopSeen, chosen: Sequence[int]) -> Iterator[ItemRow]:
    for first in range(0, len(chosen), CHUNK):
        yield from with_values(store, loop.state.run, partial(item_rows, loop, chosen[first : first + CHUNK]))


def _object(row: ItemRow) -> dict[str, Any]:
    told = {"item": row.item, "key": row.key or None, "status": row.status, "tries": row.tries, "value": row.value}
    told |= {"result": row.result, "error": to_builtins(row.error) if row.error is not None else None}
    return told | ({"run": row.run} if row.run else {})


def _head(loop: LoopSeen, now: int) -> str:
    """All items are counted, each once, as their rows have them."""
    fan = loop.fan
    speed, rest = pace(fan, now), fan.count - settled(fan) - fan.running
    waiting, cut = (rest, 0) if loop.is_running else (0, rest)
    counts = [(fan.done, "completed"), (fan.failed, "failed"), (fan.running, "running"), (waiting, "waiting")]
    counts += [(fan.skipped, "skipped"), (fan.cancelled + cut, "cancelled")]
    told = [f"{loop.step}: {fan.count}{'+' if speed.more else ''} items"]
    told += [f"{number} {name}" for number, name in counts if number]
    if speed.rate and fan.running:
        told.append(f"{speed.rate:.3g} per second")
        told += [f"{words.span(speed.left)} left"] if speed.left is not None else []
    return ", ".join(told)


def _put_table(head: str, rows: list[ItemRow], found: int) -> None:
    heads = ("ITEM", "KEY", "STATUS", "TRIES", "VALUE", "RESULT")
    lines = [
        (str(row.item), out.printable(row.key), row.status, str(row.tries or ""), _short(row.value), _came_of(row))
        for row in rows
    ]
    out.put(out.printable(head) + "\n\n" + out.table(heads, lines, out.has_colour(sys.stdout), out.terminal_width()))
    if found > len(rows):
        out.tell(f"{found - len(rows)} more; all of them: -o jsonl")


def _came_of(row: ItemRow) -> str:
    if row.error is not None:
        return out.fitted(out.printable(fault_text(row.error)), LONG)
    return row.run[:8] if row.run and row.status == "running" else _short(row.result)


def _short(value: Any) -> str:
    return "" if value is None else out.fitted(out.printable(json.encode(value).decode()), LONG)
