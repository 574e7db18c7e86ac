"""Commands for shares and limits: `shares list|set`, `limits list|set|remove`."""

import re
import sys
from collections.abc import Sequence

import click
from msgspec import to_builtins

from refold.cli import database, exits, words
from refold.cli import output as out
from refold.cli.options import output_option, store_option
from refold.cli.steering import steering
from refold.core.commands import RATE as OF_LOOPS
from refold.errors import InvalidValue, NotFound
from refold.ports import MOST_WEIGHT, Limit, LimitUse

RATE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) ?/ ?([smh])")
SECONDS = {"s": 1, "m": 60, "h": 3600}


@click.command("list")
@output_option
@store_option
def list_shares(output: str, db: str) -> None:
    """List the shares that have a weight or something to do."""
    with database.reading(db) as views:
        shares = list(views.shares())
    if output != "table":
        out.print_json(to_builtins(shares), output)
        return
    if not shares:
        out.print_message("there is no share: a step or a run names one, as `share: acme`")
        return
    lines = [(out.printable(each.name), str(each.weight), str(each.waiting), str(each.leased)) for each in shares]
    _print(("SHARE", "WEIGHT", "WAITING", "RUNNING"), lines)


@click.command("set")
@click.argument("share")
@click.argument("weight", type=click.IntRange(1, MOST_WEIGHT))
@store_option
def set_share(share: str, weight: int, db: str) -> None:
    """Set how many steps of a share are taken in a round, from 1 to 1000.

    Shares of the same queue and priority take turns, each with as many steps as its weight. The new weight counts from
    the next turn of the share.
    """
    with steering(db) as there:
        there.set_weight(share, None if weight == 1 else weight)
    out.print_message(f"share {out.printable(share)} has the weight {weight}")


@click.command("list")
@output_option
@store_option
def list_limits(output: str, db: str) -> None:
    """List the limits, with what they allow now."""
    with database.reading(db) as views:
        uses = [use for use in views.limits() if not use.limit.name.startswith(OF_LOOPS)]  # without those of loops
    if output != "table":
        shown = [{**to_builtins(each), "again": words.stamp(each.again) if each.again else None} for each in uses]
        out.print_json(shown, output)
        return
    if not uses:
        out.print_message("there is no limit: `refold limits set NAME --slots 4` makes one")
        return
    heads = ("LIMIT", "SLOTS", "RATE", "BURST", "RUNNING", "WAITING", "NEXT")
    _print(heads, [_limit_line(each) for each in uses])


def _limit_line(use: LimitUse) -> tuple[str, ...]:
    limit = use.limit
    full = limit.slots is not None and use.leased >= limit.slots
    again = "when one has ended" if full else words.moment(use.again) if use.again else "now"
    slots, rate = "" if limit.slots is None else str(limit.slots), limit.rate
    shown = ("", "") if rate is None else (f"{rate:g}/s", f"{limit.burst:g}")
    return (out.printable(limit.name), slots, *shown, str(use.leased), str(use.waiting), again)


@click.command("set")
@click.argument("name")
@click.option("--slots", type=click.IntRange(0), metavar="N", help="How many steps may run at a time; 0: none.")
@click.option("--rate", metavar="N/s", help="How many steps may start, as 20/s, 100/m or 5/h.")
@click.option("--burst", type=float, default=1.0, metavar="N", help="How many may start at once after a pause (1).")
@store_option
def set_limit(name: str, slots: int | None, rate: str | None, burst: float, db: str) -> None:
    """Set a limit, in place of what it was.

    It counts for all steps that name it, whatever their run or queue, from the next one that is taken. Those that are
    running continue.
    """
    if slots is None and rate is None:
        raise click.UsageError("say --slots, --rate, or both")
    with steering(db) as there:
        there.set_limit(Limit(name=name, slots=slots, rate=None if rate is None else _rate(rate), burst=burst))
    out.print_message(f"limit {out.printable(name)} is set")


def _rate(text: str) -> float:
    found = RATE.fullmatch(text.strip())
    if found is None:
        raise InvalidValue("--rate", f"{text!r} is not a rate, such as 20/s, 100/m or 5/h")
    return float(found[1]) / SECONDS[found[2]]


@click.command("remove")
@click.argument("name")
@store_option
def remove_limit(name: str, db: str) -> int:
    """Remove a limit: steps that name it are not limited."""
    with steering(db) as there:
        is_removed = there.remove_limit(name)
    if not is_removed:
        raise NotFound(f"there is no limit {name!r}")
    out.print_message(f"limit {out.printable(name)} is removed")
    return exits.OK


def _print(heads: Sequence[str], lines: Sequence[tuple[str, ...]]) -> None:
    out.print_data(out.table(heads, lines, out.has_colour(sys.stdout), out.terminal_width()))


SHARES = {"list": list_shares, "set": set_share}
LIMITS = {"list": list_limits, "set": set_limit, "remove": remove_limit}
