"""Commands that follow a run that another process executes: `runs watch`, `runs logs -f`."""

import gc
import sys
import time
from collections.abc import Iterator
from typing import Any

import click

from refold.cli import database, exits, words
from refold.cli import output as out
from refold.cli.options import output_option, progress_option, quiet_option, run_argument, store_option
from refold.cli.progress import screen
from refold.cli.tree import NO_PLAYBOOK
from refold.cli.unserved import nobody_text
from refold.core.read.summary import Summary, progress
from refold.core.state import PAUSED, TERMINAL
from refold.errors import Corrupt
from refold.ports import RunFilter, Views
from refold.queries.reading import RunReader
from refold.queries.runs import is_over, is_timed_out, list_runs, run_object
from refold.queries.workers import unserved

EVERY = 0.25  # seconds between two looks


@click.command()
@run_argument(required=False)
@click.option("--timeout", type=click.FloatRange(0), metavar="SECONDS", help="Give up after so long; exit code 124.")
@output_option
@progress_option
@quiet_option
@store_option
def watch(run: str | None, timeout: float | None, output: str, **how: Any) -> int:
    """Show the progress of a run until it is over.

    Any process may execute the run. Ctrl-C ends only the watching.
    """
    gc.enable()
    shown = screen(how["progress"], how["quiet"], NO_PLAYBOOK)
    with database.reading(how["db"]) as views:
        row = database.find_run(views, run)
        reading = RunReader(views, row.run)
        if row.status != PAUSED and unserved(views, [row]):
            shown.say(nobody_text(views, row, how["db"]))
        until = None if timeout is None else time.monotonic() + timeout
        graph, state = reading.read()
        try:
            while state.life not in TERMINAL:
                shown.show(progress(graph, state, words.now()))
                if until is not None and time.monotonic() >= until:
                    shown.say(f"not over after {timeout:g} s")
                    return exits.TIMED_OUT
                time.sleep(EVERY)
                graph, state = reading.read()
        finally:
            shown.close(progress(graph, state, state.ended_at or words.now()))
        if output != "table":
            out.print_json(run_object(views, graph, state, words.now()), output)
        return exits.code_of_run(state.life, is_timed_out(views, state))


@click.command()
@run_argument(required=False)
@click.option("-f", "--follow", is_flag=True, help="Continue until the run is over.")
@click.option("--step", metavar="STEP", help="Only what this step has printed.")
@click.option("--alone", is_flag=True, help="Without what the runs have printed that it has started.")
@click.option("--item", type=int, metavar="N", help="Only what this item of a list loop has printed, counted from 0.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Begin with the last N lines.")
@output_option
@store_option
def logs(
    run: str | None,
    follow: bool,
    step: str | None,
    alone: bool,
    item: int | None,
    tail: int | None,
    output: str,
    db: str,
) -> None:
    """Show what the steps of a run have printed.

    Lines of runs that it has started are among them, with the names of those runs. Times are in UTC; the date is shown
    where it changes.
    """
    gc.enable()
    with database.reading(db) as views:
        row = database.find_run(views, run)
        last, printer = dict[str, int](), _LogPrinter(output)
        while True:
            began = time.monotonic()
            over = is_over(views, row.run)  # before the lines are read, so that none is missed
            lines: list[dict[str, Any]] = []
            for each in (row, *(() if alone else _below(views, row))):
                for n, line in views.lines(each.run, last.get(each.run, 0)):
                    last[each.run] = n
                    if not _is_line(line):
                        where = f"table streams, key ({each.run!r}, {n}), column data"
                        views.report(Corrupt(f"{where}: it is not a line of a step"))
                    elif step in (None, line.get("step")) and item in (None, line.get("item")):
                        lines.append(line if each is row else {**line, "run": each.run, "name": each.name})
            lines.sort(key=lambda line: int(line.get("at", 0)))  # of one run they are in their order already
            for line in lines if tail is None else lines[max(len(lines) - tail, 0) :]:
                printer.put(line)
            tail = None  # what comes from now on is all shown
            if not follow or over:
                return
            time.sleep(max(EVERY, time.monotonic() - began))  # many child runs take a while to look at


def _below(views: Views, row: Summary) -> Iterator[Summary]:
    """The runs that a run has started, and those that they have started."""
    for child in list_runs(views, RunFilter(parent=row.run)):
        yield child
        yield from _below(views, child)


def _is_line(line: Any) -> bool:
    """Whether a worker can have written it; a file from somebody else may say anything."""
    return isinstance(line, dict) and isinstance(line.get("at", 0), int) and isinstance(line.get("attempt", 1), int)


class _LogPrinter:
    def __init__(self, output: str) -> None:
        self.output, self._date = output, ""

    def put(self, line: dict[str, Any]) -> None:
        if self.output != "table":
            out.print_json({**line, "at": words.stamp(line.get("at", 0))}, "jsonl")
            return
        date = words.moment(line.get("at", 0))[:10]
        if date != self._date and self._date:
            out.print_data(f"-- {date}")
        self._date = date
        _put_line(line)


def _put_line(line: dict[str, Any]) -> None:
    text = str(line.get("text", ""))
    text = out.printable(text) if out.is_terminal(sys.stdout) else text  # a line, exactly as the step printed it
    mark = " !" if line.get("stream") == "stderr" else "  "
    out.print_exact(f"{words.moment(line.get('at', 0))[11:]} {_who(line)}{mark} {text}")


def _who(line: dict[str, Any]) -> str:
    """The step, with the item, the try if it is not the first, and the run if it is a child run."""
    item, attempt = line.get("item"), line.get("attempt", 1)
    which = "" if item is None else f"[{item}]"
    run = f"{line['name'] or line['run'][:8]}/" if "run" in line else ""
    return out.printable(run + str(line.get("step", ""))) + which + (f" try {attempt}" if attempt != 1 else "")


COMMANDS = {"watch": watch, "logs": logs}
