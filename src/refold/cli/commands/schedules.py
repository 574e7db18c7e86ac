"""Commands about schedules: `schedules create`, `list`, `show`, `pause`, `resume`, `trigger`, `backfill`, `preview` and
`delete`."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal

import click
from msgspec import json

from refold.cli import database, words
from refold.cli import output as out
from refold.cli.options import inputs, label_option, labels_of, output_option, store_option, who
from refold.cli.steering import steering
from refold.cli.unserved import tell_if_no_worker
from refold.core import times
from refold.core.outcomes import Instant
from refold.errors import Conflict, InvalidValue, NotFound
from refold.ports import Views
from refold.queries.runs import moment
from refold.queries.schedules import (
    backfill_object,
    backfill_state,
    preview_rows,
    schedule_object,
    schedule_state,
    time_object,
    with_open_runs,
)
from refold.schedules.documents import Backfill, Schedule, TimeRecord
from refold.schedules.times import Calendars, When

OVERLAPS = ("skip", "buffer_one", "buffer_all", "allow", "cancel_other", "terminate_other")


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from refold.cli.settings import usual_db
    from refold.errors import RefoldError
    from refold.runtime.schedule_changes import list_schedules

    try:
        with database.reading(ctx.params.get("db") or usual_db()) as views:
            return [each.id for each in list_schedules(views, limit=1000) if each.id.startswith(incomplete)]
    except RefoldError:
        return []


name_argument = click.argument("name", metavar="SCHEDULE", shell_complete=_complete)


@click.command()
@click.argument("file", metavar="[FILE]", required=False)
@click.option("--name", metavar="NAME", help="The name of the schedule; without a FILE.")
@click.option("--workflow", metavar="TARGET", help="What starts: a playbook, or a Python workflow `module:Class`.")
@click.option("--cron", multiple=True, metavar="LINE", help="A line of cron with 5 fields; can be repeated.")
@click.option("--every", metavar="SPAN", help="An interval, as in 20s or 1h30m.")
@click.option("--at", multiple=True, metavar="MOMENT", help="A single moment, in ISO format with a zone.")
@click.option("--zone", metavar="ZONE", help="The time zone of the clock, as in Europe/Berlin (UTC).")
@click.option("-i", "--input", multiple=True, metavar="KEY=VALUE", help="An input of the runs; may have templates.")
@label_option("A label of the runs; can be repeated.")
@click.option("--overlap", type=click.Choice(OVERLAPS), help="What happens while a run is not over (skip).")
@click.option("--catch-up", type=click.Choice(["none", "last", "all"]), help="Times that nobody served (last).")
@click.option("--paused", is_flag=True, help="Make it paused.")
@click.option("--replace", is_flag=True, help="Change the schedule of this name, if there is one.")
@output_option
@store_option
def create(file: str | None, replace: bool, output: str, db: str, **given: Any) -> None:
    """Make a schedule, or a calendar.

    FILE is of `kind: Schedule` or `kind: Calendar`; without a file, options say it. A worker starts the runs:
    `refold worker`. A schedule never starts runs for times before it was made.
    """
    from refold.cli.commands.schedule_files import wanted
    from refold.playbooks.problems import show_all
    from refold.playbooks.schedule_file import CalendarFile
    from refold.runtime.schedule_changes import find_schedule

    found = _read(file, given)
    if found.warnings:
        out.print_message(show_all(found.warnings, found.file, found.source))
    if isinstance(found, CalendarFile):
        with steering(db, creates=True) as there:
            there.put_calendar(found.name, found.days)
        days = len(set(found.days))
        if output != "table":
            out.print_json({"calendar": found.name, "days": sorted(map(str, set(found.days)))}, output)
        else:
            out.print_data(f"calendar {found.name}: {days} day{'' if days == 1 else 's'}")
        return
    made = wanted(found, who())
    with steering(db, creates=True) as there:
        is_new = there.put_schedule(made.schedule, made.plans, found.source, replace=replace)
        schedule = find_schedule(there.views, made.schedule.id)
        lacking = _lacking_calendars(there.views, schedule)
        if output == "table" and schedule.begins is not None:
            tell_if_no_worker(there.views, db)
    for name in lacking:
        out.print_message(f"warning: there is no calendar {name!r}; it counts as empty until one is created")
    if output != "table":
        out.print_json(schedule_object(schedule), output)
        return
    next_time = words.until(schedule.begins, words.now()) if schedule.begins is not None else "no time"
    out.print_data(
        f"{schedule.id} {'made' if is_new else 'changed'}; next: {'paused' if schedule.paused else next_time}"
    )


def _lacking_calendars(views: Views, schedule: Schedule) -> list[str]:
    names = (*schedule.when.leave_out, *schedule.when.only)
    return [name for name in names if views.document("calendar", name) is None]


def _read(file: str | None, given: dict[str, Any]) -> Any:
    """Read the file of a schedule, or what the options say in its place."""
    from refold.cli.commands.playbooks import load
    from refold.playbooks.schedule_file import read_schedule_file

    used = [name for name, value in given.items() if value]
    if file is not None:
        if used:
            option = used[0].replace("_", "-")
            raise click.UsageError(f"a FILE says everything: leave out --{'label' if option == 'labels' else option}")
        return read_schedule_file(load(file), file)
    if not given["name"] or not given["workflow"]:
        raise click.UsageError("give a FILE of kind: Schedule, or --name and --workflow")
    entries: dict[str, Any] = {
        "apiVersion": "refold/v1",
        "kind": "Schedule",
        "metadata": {"name": given["name"]},
        "workflow": given["workflow"],
        "input": inputs(given["input"], None),
        "labels": labels_of(given["labels"]),
        "cron": list(given["cron"]),
        "every": given["every"],
        "at": list(given["at"]),
        "zone": given["zone"],
        "overlap": given["overlap"],
        "catch_up": given["catch_up"],
        "paused": given["paused"],
    }
    lines = [f"{name}: {json.encode(value).decode()}" for name, value in entries.items() if value]
    return read_schedule_file("\n".join([*lines, ""]).encode(), "command-line")


@click.command("list")
@output_option
@store_option
def list_command(output: str, db: str) -> None:
    """List all schedules, by name."""
    from refold.runtime.schedule_changes import list_schedules

    found: list[Schedule] = []
    with database.reading(db) as views:
        while True:
            page = list_schedules(views, found[-1].id if found else "", 500)
            found += page
            if len(page) < 500:
                break
        if output == "table" and any(each.begins is not None for each in found):
            tell_if_no_worker(views, db)
    if output != "table":
        out.print_json([schedule_object(each) for each in found], output)
        return
    now = words.now()
    rows = [(each.id, _when_text(each.when), *_next_text(each, now), each.target.workflow) for each in found]
    heads = ("SCHEDULE", "WHEN", "STATE", "NEXT", "WORKFLOW")
    out.print_data(out.table(heads, rows, out.has_colour(sys.stdout), out.terminal_width()))


@click.command()
@name_argument
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="Times to show.")
@output_option
@store_option
def show(name: str, limit: int, output: str, db: str) -> None:
    """Show a schedule, its last times and its backfills.

    Each time has its state: started, skipped, missed or waiting, with the reason.
    """
    from refold.runtime.schedule_changes import backfills_of, find_schedule, last_times

    with database.reading(db) as views:
        schedule = with_open_runs(views, find_schedule(views, name))
        records, backfills = last_times(views, schedule, limit), backfills_of(views, name)
    if output != "table":
        shown = schedule_object(schedule)
        shown["times"] = [time_object(each) for each in records]
        shown["times_total"] = schedule.records
        shown["backfills"] = [backfill_object(each) for each in backfills]
        out.print_json(shown, output)
        return
    now = words.now()
    for line in _lines(schedule, now):
        out.print_data(line)
    for b in backfills:
        out.print_data(f"backfill  {out.printable(_backfill_text(b))}")
    rows = [(_time_text(each), each.state, each.run[:8], out.printable(each.why)) for each in records]
    if rows:
        out.print_data("")
        heads = ("PLANNED", "STATE", "RUN", "WHY")
        out.print_data(out.table(heads, rows, out.has_colour(sys.stdout), out.terminal_width()))


@click.command()
@name_argument
@click.option("--note", default="", metavar="TEXT", help="Why; shown with the schedule.")
@output_option
@store_option
def pause(name: str, note: str, output: str, db: str) -> None:
    """Pause a schedule. Runs that have started continue.

    Times that pass meanwhile are not caught up; `refold schedules backfill` can start them later.
    """
    with steering(db) as there:
        schedule = there.pause_schedule(name, note)
    _print_changed(schedule, output, "paused")


@click.command()
@name_argument
@output_option
@store_option
def resume(name: str, output: str, db: str) -> None:
    """Resume a schedule that is paused.

    Times that passed meanwhile are not started; the command that starts them is printed.
    """
    with steering(db) as there:
        schedule, since, passed = there.resume_schedule(name)
    _print_changed(schedule, output, "resumed" if since is not None else "was not paused")
    if passed and since is not None and output == "table":
        span = f"--from {times.stamp(since)} --until {times.stamp(schedule.cursor)}"
        count = "1 time" if passed == 1 else f"{passed} times"
        out.print_message(f"{count} passed while it was paused; to start them: refold schedules backfill {name} {span}")


def _print_changed(schedule: Schedule, output: str, text: str) -> None:
    if output != "table":
        out.print_json(schedule_object(schedule), output)
    else:
        out.print_data(f"{out.printable(schedule.id)}: {text}")


@click.command()
@name_argument
@click.option("--overlap", type=click.Choice(OVERLAPS), help="Instead of the policy of the schedule.")
@output_option
@store_option
def trigger(name: str, overlap: Any, output: str, db: str) -> None:
    """Start a run now, for the planned time of now.

    The schedule's policy for overlaps holds, unless --overlap says otherwise. A worker executes the run.
    """
    with steering(db) as there:
        record = there.trigger_schedule(name, overlap)
    if record.state == "skipped":
        raise Conflict(f"{name} was not started: {record.why}; `--overlap allow` starts it beside the other")
    if output != "table":
        out.print_json(time_object(record), output)
    elif record.state == "waiting":
        out.print_data(f"{name}: waits, because {record.why}")
    else:
        out.print_data(record.run)


@click.command()
@name_argument
@click.option("--from", "since", metavar="MOMENT", help="The first moment: ISO with a zone, or a span such as 2d.")
@click.option("--until", metavar="MOMENT", help="The last moment (now).")
@click.option("--all", "every", is_flag=True, help="Also times that have a run: they get another one.")
@click.option(
    "--overlap",
    type=click.Choice(["allow", "buffer_all"]),
    default="allow",
    show_default=True,
    help="Beside the schedule's own runs, or only while none of them is open.",
)
@click.option("--at-once", type=click.IntRange(1, 1000), default=1, show_default=True, help="Runs at a time.")
@click.option(
    "--order",
    type=click.Choice(["oldest", "newest"]),
    default="oldest",
    show_default=True,
    help="Which time starts first.",
)
@click.option("--dry-run", is_flag=True, help="Print the times, and start nothing.")
@click.option("--id", "id", metavar="ID", help="The name of the backfill (without it, one is chosen).")
@click.option("--pause", "paused", metavar="ID", help="Pause a backfill.")
@click.option("--resume", "resumed", metavar="ID", help="Resume a backfill.")
@click.option("--stop", "stopped", metavar="ID", help="Stop a backfill; its open runs continue.")
@output_option
@store_option
def backfill(name: str, output: str, db: str, **given: Any) -> None:
    """Start runs for times of the past.

    Without --all only for times that have no run. A backfill is durable: workers start its runs, one at a time unless
    --at-once says otherwise, and `refold schedules show` has its progress. At most 10,000 times.
    """
    from refold.runtime.schedule_changes import BackfillWanted, backfill_times, find_schedule

    asked = [(action, given[word]) for action, word in _STEERING if given[word]]
    if asked:
        if len(asked) > 1 or given["since"] or given["dry_run"]:
            raise click.UsageError("--pause, --resume and --stop each take one backfill and nothing else")
        action, id = asked[0]
        with steering(db) as there:
            changed = there.steer_backfill(name, id, action)
        _print_backfill(changed, output)
        return
    if not given["since"]:
        raise click.UsageError("--from says where the backfill begins: a moment, or a span such as 2d")
    now = words.now()
    until = now if given["until"] is None else moment(given["until"], now)
    wanted = BackfillWanted(
        since=moment(given["since"], now) or 0,
        until=until or 0,
        only="all" if given["every"] else "missing",
        overlap=given["overlap"],
        at_once=given["at_once"],
        order=given["order"],
        by=who(),
    )
    if given["dry_run"]:
        with database.reading(db) as views:
            found, left_out = backfill_times(views, find_schedule(views, name), wanted, views.now())
        if output != "table":
            out.print_json({"times": [times.stamp(at) for at in found], "have_runs": left_out}, output)
            return
        for at in found:
            out.print_data(times.stamp(at))
        out.print_message(f"{len(found)} would start; {left_out} have a run already")
        return
    id = given["id"] or os.urandom(4).hex()
    with steering(db) as there:
        made = there.put_backfill(name, id, wanted)
    _print_backfill(made, output)


_STEERING: tuple[tuple[Literal["pause", "resume", "stop"], str], ...] = (
    ("pause", "paused"),
    ("resume", "resumed"),
    ("stop", "stopped"),
)


def _print_backfill(made: Backfill, output: str) -> None:
    if output != "table":
        out.print_json(backfill_object(made), output)
    else:
        out.print_data(out.printable(_backfill_text(made)))


@click.command()
@click.argument("name", metavar="SCHEDULE|FILE", shell_complete=_complete)
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many times.")
@click.option("--from", "since", metavar="MOMENT", help="The times after this moment (now).")
@output_option
@store_option
def preview(name: str, limit: int, since: str | None, output: str, db: str) -> None:
    """Show the next times of a schedule or of a file.

    The file is one of kind: Schedule.

    Each time has the offset of its zone, and a word where the clock changes.
    """
    from refold.cli.commands.playbooks import load
    from refold.playbooks.schedule_file import ScheduleFile, read_schedule_file
    from refold.runtime.schedule_changes import find_schedule
    from refold.runtime.schedules import calendars_of
    from refold.time_zones import zone_rules

    calendars: Calendars = {}
    if name.endswith((".yaml", ".yml")):
        found = read_schedule_file(load(name), name)
        if not isinstance(found, ScheduleFile):
            raise InvalidValue(name, "it is a calendar, and has no times")
        when = found.when
        if when.leave_out or when.only:
            with suppress(NotFound), database.reading(db) as views:  # without a database they have no days
                calendars = calendars_of(views, when)
    else:
        with database.reading(db) as views:
            when = find_schedule(views, name).when
            calendars = calendars_of(views, when)
    now = words.now()
    begin = now if since is None else moment(since, now) or 0
    rows = preview_rows(when, begin, limit, calendars)
    if output != "table":
        out.print_json(rows, output)
        return
    lines = [(str(row["local"]), str(row["utc"]), str(row["note"])) for row in rows]
    out.print_data(out.table(("TIME", "UTC", "CLOCK"), lines, out.has_colour(sys.stdout), out.terminal_width()))
    out.print_message(f"time zone {when.zone}; rules of zones {zone_rules()}")


@click.command()
@name_argument
@output_option
@store_option
def delete(name: str, output: str, db: str) -> None:
    """Delete a schedule, with its history and its backfills. Its runs stay."""
    with steering(db) as there:
        there.delete_schedule(name)
    if output != "table":
        out.print_json({"id": name, "deleted": True}, output)
    else:
        out.print_data(f"{name}: deleted")


def _backfill_text(b: Backfill) -> str:
    counts = f"{b.started} of {b.total} started, {len(b.runs)} open, {b.failed} failed, {b.skipped} left out"
    return f"{b.id} {backfill_state(b)}: {counts}" + (f" ({b.why})" if b.why else "")


def _next_text(schedule: Schedule, now: Instant) -> tuple[str, str]:
    return schedule_state(schedule), "" if schedule.begins is None else words.until(schedule.begins, now)


def _when_text(when: When) -> str:
    parts = list(when.cron)
    parts += [f"every {times.show(when.every)}"] if when.every else []
    parts += [f"{len(when.at)} moment{'' if len(when.at) == 1 else 's'}"] if when.at else []
    return ", ".join(parts) + ("" if when.zone == "UTC" else f" {when.zone}")


def _time_text(record: TimeRecord) -> str:
    text = times.stamp(record.planned)[:19] + "Z"
    if record.until is not None:
        text += f" to {times.stamp(record.until)[:19]}Z" + (f" ({record.count})" if record.count else "")
    return text


def _lines(schedule: Schedule, now: Instant) -> Sequence[str]:
    state, following = _next_text(schedule, now)
    rows = [
        ("schedule", schedule.id),
        ("workflow", f"{schedule.target.workflow} ({schedule.target.name})"),
        ("when", _when_text(schedule.when)),
        ("state", state + (f": {schedule.note}" if schedule.note else "")),
        ("next", following),
        ("overlap", schedule.rules.overlap),
        ("catch up", schedule.rules.catch_up),
        ("file", schedule.file),
        ("open", ", ".join(each.run[:8] for each in schedule.runs)),
        ("waiting", ", ".join(times.stamp(each.planned)[:19] + "Z" for each in schedule.waiting)),
    ]
    return [f"{name:9} {out.printable(value)}" for name, value in rows if value]


COMMANDS = {
    "create": create,
    "list": list_command,
    "show": show,
    "pause": pause,
    "resume": resume,
    "trigger": trigger,
    "backfill": backfill,
    "preview": preview,
    "delete": delete,
}
