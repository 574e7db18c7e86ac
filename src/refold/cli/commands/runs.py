"""Commands of `refold runs` that show a run, steer it, record it or remove it."""

import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click
from msgspec import convert, json

from refold.cli import database, words
from refold.cli import output as out
from refold.cli.commands.export import export
from refold.cli.commands.items import item_option, step_option
from refold.cli.options import inputs, label_option, labels_of, output_option, run_argument, store_option, value_of, who
from refold.cli.settings import db_argument
from refold.cli.steering import steering
from refold.cli.unserved import NO_PROCESS, how_to_execute, tell_if_unserved
from refold.core.codec import check_value
from refold.core.faults import fault_text
from refold.core.graph import Graph
from refold.core.outcomes import SECOND, Fault
from refold.core.read.fact_text import fact_text
from refold.core.read.summary import Summary
from refold.core.state import PAUSED, RUNNING, TERMINAL, RunState
from refold.core.times import seconds
from refold.errors import Conflict
from refold.ports import RunFilter, Views
from refold.queries import runs as queries
from refold.queries.history import record_object
from refold.queries.items import first_failure, item_numbers
from refold.queries.reading import RunReader
from refold.queries.runs import (
    QUEUED,
    RunList,
    error_text,
    held_runs,
    moment,
    part_of_runs,
    removable_runs,
    row_object,
    run_label,
    run_object,
    shown_status,
    with_started,
)
from refold.queries.why import reason_object, run_reasons, stuck_reasons, unserved_steps
from refold.queries.workers import unserved
from refold.runtime.mail import Cancel, CancelItems, Pause, Signal

STATUSES = ("queued", "running", "waiting", "paused", "ending", "completed", "failed", "cancelled", "continued")
STYLES = {
    "completed": "green",
    "continued": "green",
    "failed": "red",
    "cancelled": "red",
    "paused": "yellow",
    "waiting": "yellow",
}
LONG = 60  # characters of a result in a table
CHILDREN = 50  # that are shown with their parent
SHOWN = 20  # runs in a table
NOBODY = "no worker"  # beside the status of a run that no process executes


@click.command("list")
@click.option("--status", type=click.Choice(STATUSES), help="Only runs with this status.")
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option("--name", metavar="NAME", help="Only runs of this name.")
@click.option("--key", metavar="KEY", help="Only runs with this key.")
@label_option("Only runs with this label; can be repeated.")
@click.option("--error", default="", metavar="TEXT", help="Only failed runs with this in their error.")
@click.option("--parent", metavar="RUN", help="Only runs that this run has started.")
@click.option("--children", is_flag=True, help="Also runs that other runs have started.")
@click.option("--unserved", is_flag=True, help="Only runs that are not over and that no process executes.")
@click.option("--since", metavar="TIME", help="Started then or later: 2026-01-31T12:00:00Z, or 2h for two hours ago.")
@click.option("--until", metavar="TIME", help="Started before then.")
@click.option("-n", "--limit", type=click.IntRange(1), help=f"How many at most ({SHOWN}; all with -o json).")
@click.option("--cursor", default="", metavar="CURSOR", help="Continue a list that was cut.")
@output_option
@store_option
def list_runs(limit: int | None, cursor: str, output: str, db: str, **asked: Any) -> None:
    """List the runs that match every option, the newest first.

    Runs that other runs have started are left out, unless --children or --parent asks for them. A run is queued while
    no worker executes anything of it, although one could. If there are more than the limit, a message on stderr has the
    cursor with which the list continues.
    """
    after = queries.read_cursor(cursor)
    with database.reading(db) as views:
        wanted, held = _filter(views, asked), held_runs(views)
        keep = _keeps(views, asked, held)
        if limit is None and output != "table":
            rows = RunList(filter(keep, queries.list_runs(views, wanted, after=after)))
        else:
            rows = part_of_runs(views, wanted, limit or SHOWN, after, keep)
        alone: set[str] = set() if database.is_foreign() else unserved(views, rows)
    if output != "table":
        out.print_json([{**row_object(row, _status(row, held)), "served": _served(row, alone)} for row in rows], output)
    else:
        out.print_data(_listed(rows, bool(asked["labels"]), held, alone))
    if not rows and output == "table":
        out.print_message("no run matches")
    if rows.cursor:
        out.print_message(f"there are more; to continue: --cursor {rows.cursor}")
    if alone and output == "table":
        which = "1 of these runs" if len(alone) == 1 else f"{len(alone)} of these runs"
        out.print_message(f"no process executes {which}; to execute: refold worker{db_argument(db)}")


def _filter(views: Views, asked: dict[str, Any]) -> RunFilter:
    now = views.now()
    parent = database.find_run(views, asked["parent"]).run if asked["parent"] else None if asked["children"] else ""
    return RunFilter(
        RUNNING if asked["status"] == QUEUED else asked["status"],
        asked["workflow"],
        asked["name"],
        asked["key"],
        tuple(sorted(labels_of(asked["labels"]).items())),
        moment(asked["since"], now),
        moment(asked["until"], now),
        parent,
        asked["error"],
    )


def _keeps(views: Views, asked: dict[str, Any], held: frozenset[str]) -> Callable[[Summary], bool] | None:
    """Return what the stored rows do not say: whether a run is executed, and whether it could be. None: nothing of it
    was asked for."""
    status = asked["status"] if asked["status"] in (QUEUED, RUNNING) else None
    if status is None and not asked["unserved"]:
        return None
    return lambda row: (
        status in (None, _status(row, held)) and (not asked["unserved"] or row.run in unserved(views, [row]))
    )


def _status(row: Summary, held: frozenset[str]) -> str:
    return shown_status(row.status, row.run in held)


def _served(row: Summary, alone: set[str]) -> bool | None:
    """Whether a process would execute the run; None: it is over."""
    return None if row.status in TERMINAL else row.run not in alone


def _listed(rows: list[Summary], with_labels: bool, held: frozenset[str], alone: set[str]) -> str:
    now = words.now()
    lines = [
        (
            row.name,
            row.run[:8],
            row.workflow,
            _status(row, held) + (f" ({NOBODY})" if row.run in alone else ""),
            words.moment(row.created_at),
            _took(row, now),
        )
        for row in rows
    ]
    heads: tuple[str, ...] = ("NAME", "ID", "WORKFLOW", "STATUS", "STARTED", "TOOK")
    if with_labels or any(row.labels for row in rows):
        heads = (*heads, "LABELS")
        return _table(heads, [(*line, _labels(row)) for line, row in zip(lines, rows, strict=True)])
    return _table(heads, lines)


def _labels(row: Summary) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(row.labels.items()))


def _table(heads: tuple[str, ...], lines: Sequence[tuple[str, ...]]) -> str:
    return out.table(heads, lines, out.has_colour(sys.stdout), out.terminal_width())


def _took(row: Summary, now: int) -> str:
    return words.took(row.created_at, row.ended_at or now)


@click.command()
@run_argument(required=False)
@click.option("--graph", is_flag=True, help="Draw the workflow with the status of each step.")
@output_option
@store_option
def show(run: str | None, graph: bool, output: str, db: str) -> None:
    """Show the status of a run and of its steps, and its result.

    BEGAN and TOOK are of the work of a step, without its wait for a worker. A worker reports them at the end of the
    work, so a step that was cancelled while it ran has none.
    """
    with database.reading(db) as views:
        row = database.find_run(views, run)
        drawn, state = RunReader(views, row.run).read()
        seen = run_object(views, drawn, state, words.now())
        cause = first_failure(views, drawn, state)
        stuck = unserved_steps(views, row, drawn, state, words.now())
        children = part_of_runs(views, RunFilter(parent=row.run), CHILDREN)
        held, alone = held_runs(views), not database.is_foreign() and bool(unserved(views, [row]))
        how = how_to_execute(views, row, db) if alone else ""
    waits = [words.why(reason, words.now()) for reason in stuck_reasons(row)]
    waits += [f"{reason.step}: {words.why(reason, words.now())}" for reason in stuck]
    if waits:
        seen["stuck"] = waits
    seen["served"] = None if row.status in TERMINAL else not alone
    seen["children"] = [row_object(each, _status(each, held)) for each in sorted(children, key=_by_start)]
    if graph:
        out.print_data(_drawn(drawn, seen))
    elif output != "table":
        out.print_json(seen, output)
    else:
        _put_run(seen, state, cause)
        if children.cursor:
            out.print_message(f"there are more children: refold runs list --parent {shlex.quote(run_label(row))}")
        if alone and state.life != PAUSED and not state.paused:
            out.print_message(f"{NO_PROCESS} {run_label(row)}; to execute it: {how}")


def _by_start(row: Summary) -> tuple[int, str]:
    return row.created_at, row.name


def _drawn(graph: Graph, seen: dict[str, Any]) -> str:
    from refold.playbooks.draw import draw

    return draw(graph.plan, {name: step["status"] for name, step in seen["steps"].items()}).rstrip("\n")


def _put_run(seen: dict[str, Any], state: RunState, cause: str) -> None:
    colour, width = out.has_colour(sys.stdout), out.terminal_width()
    status = out.styled(seen["status"], STYLES.get(seen["status"], "cyan"), colour)
    lines = [
        f"{out.styled(out.printable(seen['name'] or seen['id']), 'bold', colour)}  {status}",
        f"run       {out.printable(seen['id'])}",
        f"workflow  {out.printable(seen['workflow'])}",
        *([f"continued by {seen['continued_by']}"] if seen["continued_by"] else []),
        *([f"continues {seen['continues']}"] if seen["continues"] else []),
        *([f"key       {out.printable(seen['key'])}"] if seen["key"] else []),
        *(f"label     {out.printable(f'{name}={value}')}" for name, value in sorted(seen["labels"].items())),
        f"started   {words.moment(state.started_at)}",
    ]
    if state.ended_at:
        lines.append(f"took      {words.took(state.started_at, state.ended_at)}")
    own = _lane(seen["queueing"])
    lines += [f"waits in  {own}"] if own else []
    lines += [f"used      {out.printable(unit)} {amount:g}" for unit, amount in seen["usage"].items()]
    lines += [f"waits     {out.printable(each)}" for each in seen.get("stuck", ())]
    lines += [f"cancelled {out.printable(seen['cancel_reason'])}"] if seen["cancel_reason"] else []
    if state.error is not None:
        lines.append(f"error     {out.styled(out.printable(error_text(state.error)), 'red', colour)}")
        lines += [f"because   {out.printable(cause)}"] if cause else []
    elif state.life in TERMINAL:
        lines.append(f"result    {_short(seen['result'])}")
    heads = ("STEP", "STATUS", "VISITS", "TRIES", "BEGAN", "TOOK", "RESULT")
    steps = [
        (name, step["status"], str(step["visits"]), str(step["attempts"]), *_when(step, state), _came_of(step))
        for name, step in seen["steps"].items()
        if not ("." in name and step["status"] in ("skipped", "bypassed", "pending"))  # made by a block, only leads on
    ]
    parts = ["\n".join(lines), out.table(heads, steps, colour, width)]
    lanes = [(name, *(_lane_cell(step, key) for key in LANE)) for name, step in seen["steps"].items() if _lane(step)]
    if lanes:
        parts.append(out.table(("STEP", *map(str.upper, LANE)), lanes, colour, width))
    if seen["children"]:
        parts.append(_children(seen["children"], colour, width))
    parts += [_traceback(name, step["error"]) for name, step in seen["steps"].items() if _has_traceback(step)]
    out.print_data("\n\n".join(parts))


LANE = ("queue", "priority", "share", "limit")  # what a step or a run says of where it waits


def _lane(said: dict[str, Any]) -> str:
    return ", ".join(f"{key} {_lane_cell(said, key)}" for key in LANE if key in said)


def _lane_cell(said: dict[str, Any], key: str) -> str:
    return out.printable(str(said.get(key, "")))


def _when(step: dict[str, Any], state: RunState) -> tuple[str, str]:
    """When a step began, as the time of day, and how long it took, or has taken until now."""
    began = moment(step["began_at"], 0)
    if began is None:
        return "", ""
    took = words.span(step["seconds"]) if step["seconds"] is not None else words.took(began, words.now())
    return words.clock(began, state.started_at), took


def _children(children: list[dict[str, Any]], colour: bool, width: int) -> str:
    lines = [(each["name"], each["id"][:8], each["workflow"], each["status"]) for each in children]
    return out.table(("CHILD", "ID", "WORKFLOW", "STATUS"), lines, colour, width)


def _has_traceback(step: dict[str, Any]) -> bool:
    return step["error"] is not None and bool(_first_error(step["error"]).get("traceback"))


def _first_error(error: dict[str, Any]) -> dict[str, Any]:
    """The error of the first failed item of a loop, or the error itself."""
    first = error.get("first")
    return first["error"] if first is not None and first["error"] is not None else error


def _traceback(name: str, error: dict[str, Any]) -> str:
    text = "\n".join(out.printable(line) for line in _first_error(error)["traceback"].strip().splitlines())
    return f"{out.printable(name)}:\n{text}"


def _came_of(step: dict[str, Any]) -> str:
    if step["error"] is not None:
        why = fault_text(convert(step["error"], Fault))
        first = step["error"].get("first")
        if first is None or first["error"] is None:
            return why
        return f"{why}; the first, {first['key'] or first['item']}: {fault_text(convert(first['error'], Fault))}"
    if step["result"] is None and step.get("items"):
        return _counted(step["items"])
    return "" if step["result"] is None else _short(step["result"])


def _counted(items: dict[str, Any]) -> str:
    over = sum(items[name] for name in ("completed", "failed", "skipped", "cancelled"))
    text = f"{over}/{items['count']}{'+' if items['more'] else ''} items"
    text += f", {items['rate']:g} per second" if items["rate"] else ""
    return text + (f", {words.span(items['left'])} left" if items["left"] is not None else "")


def _short(value: Any) -> str:
    return out.truncated(out.printable(json.encode(value).decode()), LONG)


@click.command()
@run_argument(required=False)
@click.option("--after", type=click.IntRange(0), default=0, help="Only facts after this number.")
@click.option("--wide", is_flag=True, help="Do not cut lines at the edge of the terminal.")
@output_option
@store_option
def history(run: str | None, after: int, wide: bool, output: str, db: str) -> None:
    """Show the log of a run, fact by fact."""
    with database.reading(db) as views:
        row = database.find_run(views, run)
        records = views.facts(row.run, after)
    if output != "table":
        out.print_json([record_object(*each) for each in records], output)
        return
    for number, at, fact in records:
        passed = (at - row.created_at) / 1e6
        line = f"{number:>6}  {passed:>9.3f} s  {out.printable(fact_text(fact, at))}"
        width = 0 if wide else out.terminal_width()
        out.print_data(out.truncated(line, width) if width else line)


@click.command()
@run_argument(required=False)
@output_option
@store_option
def why(run: str | None, output: str, db: str) -> None:
    """Show for each unfinished step what it waits for."""
    from refold.wiring.world import language

    with database.reading(db) as views:
        row = database.find_run(views, run)
        graph, state = RunReader(views, row.run).read()
        now = words.now()
        waiting = run_reasons(views, row, graph, state, now, language)
    if output != "table":
        objects = [reason_object(reason, now) for reason in waiting]
        out.print_json(
            {"id": row.run, "status": row.status, "reasons": objects} if output == "json" else objects, output
        )
        return
    if not waiting:
        out.print_data(out.printable(f"{run_label(row)} is {row.status}: nothing waits"))
        return
    lines = [(reason.step, _item(reason.item), words.why(reason, now)) for reason in waiting]
    out.print_data(out.table(("STEP", "ITEM", "WHY"), lines, out.has_colour(sys.stdout), out.terminal_width()))


def _item(item: int | None) -> str:
    return "" if item is None else str(item)


@click.command()
@run_argument()
@store_option
def pause(run: str, db: str) -> None:
    """Pause a run.

    No new work is started, and work that is running finishes. `refold runs resume` lifts the pause.
    """
    name = _send(db, run, Pause(who()))
    out.print_message(f"{name} is paused; to continue: refold runs resume {name}{db_argument(db)}")


@click.command()
@run_argument()
@click.option("--reason", default="", metavar="TEXT", help="Why it is cancelled; kept with the run.")
@step_option
@item_option
@store_option
def cancel(run: str, reason: str, step: str, items: tuple[str, ...], db: str) -> None:
    """Cancel a run.

    Work that is running is stopped; `always` steps still run at the end. With --item only that item of a list loop is
    cancelled, and the others continue.
    """
    if items:
        with database.reading(db) as views:
            step, numbers = item_numbers(views, database.find_run(views, run, changes=True).run, step, items)
        name = _send(db, run, CancelItems(step, numbers, who()))
        out.print_message(f"{name}: {', '.join(items)} of {step} cancelled")
        return
    if step:
        raise click.UsageError("--step goes with --item; a step as a whole is not cancelled")
    name = _send(db, run, Cancel(reason, who()))
    out.print_message(f"{name} is being cancelled")
    tell_if_unserved(db, run)


@click.command()
@run_argument()
@click.argument("name")
@click.argument("value", required=False)
@click.option("-i", "--input", "pairs", multiple=True, metavar="K=V", help="The value as an object, key by key.")
@output_option
@store_option
def signal(run: str, name: str, value: str | None, pairs: tuple[str, ...], output: str, db: str) -> None:
    """Send a signal to a run.

    The step that waits for the signal gets it, or else the next step that will wait for it. The VALUE is JSON, or else
    text.
    """
    if value is not None and pairs:
        raise click.UsageError("VALUE and -i exclude each other")
    if not name:
        raise click.UsageError("a signal has a name")
    sent = inputs(pairs, None) if pairs else None if value is None else value_of(value)
    check_value(sent, "value")
    called = _send(db, run, Signal(name, sent, who()))
    if output != "table":
        out.print_json({"name": called, "signal": name, "value": sent}, output)
    else:
        out.print_message(f"{called} has got the signal {name!r}")
    tell_if_unserved(db, run)


def _send(db: str, text: str, mail: Pause | Cancel | CancelItems | Signal) -> str:
    with database.reading(db) as views:
        row = database.find_run(views, text, changes=True)
    name = run_label(row)
    if row.status in TERMINAL:
        raise Conflict(f"run {name} is {row.status}")
    with steering(db) as there:
        if isinstance(mail, Cancel):
            there.expire()  # the run does not wait for bodies of dead processes
        there.send(row.run, mail)
    return name


@click.command()
@click.option("--older-than", required=True, metavar="AGE", help="Ended longer ago than this: 30d, 12h.")
@click.option("--status", type=click.Choice(sorted(TERMINAL)), multiple=True, help="Only runs with this status.")
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option("--dry-run", is_flag=True, help="Only say which.")
@output_option
@store_option
def prune(older_than: str, status: tuple[str, ...], workflow: str | None, dry_run: bool, output: str, db: str) -> None:
    """Remove runs that are over, with everything that belongs to them.

    The settings `retention` let workers do it by themselves. `refold db vacuum` gives the space back to the disk;
    without it new runs use the space again.
    """
    before = words.now() - round(seconds(older_than) * SECOND)
    with database.reading(db) as views:
        rows = [
            row
            for row in removable_runs(views, before)
            if (not status or row.status in status) and workflow in (None, row.workflow)
        ]
    if not dry_run:
        with steering(db) as there:
            rows = there.remove(rows)
    if output != "table":
        out.print_json([row_object(row) for row in rows], output)
        return
    for row in rows:
        out.print_data(out.printable(f"{row.run}  {row.name}  {row.status}  {words.moment(row.ended_at)}"))
    which = "1 run" if len(rows) == 1 else f"{len(rows)} runs"
    out.print_message(f"{which} {'would be ' if dry_run else ''}removed")


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@store_option
def delete(runs: tuple[str, ...], db: str) -> None:
    """Remove runs that are over, with their child runs.

    Everything that belongs to them is removed. If one of them is not over, or was started by a run that is not over,
    nothing is removed.
    """
    with database.reading(db) as views:
        rows = [database.find_run(views, text, changes=True) for text in runs]
        family = {each.run: each for row in rows for each in with_started(views, row)}
        for row in family.values():
            if row.status not in TERMINAL:
                raise Conflict(f"run {run_label(row)} is {row.status}: `refold runs cancel` ends it")
    with steering(db) as there:
        removed = there.remove(list(family.values()))
    kept = [row for row in family.values() if row not in removed]
    if kept:
        raise Conflict(f"run {run_label(kept[0])} was not removed: the run that started it is not over")
    out.print_message(f"{len(removed)} run{'' if len(removed) == 1 else 's'} removed")


STDOUT = "-"


@click.command()
@run_argument()
@click.option("-o", "--output", default=STDOUT, metavar="FILE", help="Where to write it (- is stdout).")
@store_option
def record(run: str, output: str, db: str) -> None:
    """Record the results of all tools in a run and its child runs.

    `t.replay` and `refold sim --replay` use the recording. Secrets are as the log has them: redacted, or sealed.
    """
    from refold.testing.bench import recordings

    with database.reading(db) as views:
        recorded = recordings.record(views, database.find_run(views, run).run)
    if output == STDOUT:
        out.print_json(recorded, "json")
        return
    recordings.write(recorded, output)
    out.print_message(f"{len(recorded.calls)} results of {recorded.workflow} are in {output}")


COMMANDS = {
    "list": list_runs,
    "show": show,
    "history": history,
    "why": why,
    "pause": pause,
    "cancel": cancel,
    "signal": signal,
    "delete": delete,
    "prune": prune,
    "record": record,
    "export": export,
}
