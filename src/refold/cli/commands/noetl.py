"""Commands of `refold noetl`: `log` shows the runs that an event log of NoETL amounts to."""

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import json, to_builtins

from refold.cli import database, words
from refold.cli import output as out
from refold.cli.options import output_option
from refold.errors import InvalidValue, NotFound, Unreachable
from refold.playbooks.noetl_log.differences import differences
from refold.playbooks.noetl_log.events import checked_rows, parse_rows
from refold.playbooks.noetl_log.log import read_log
from refold.playbooks.noetl_log.report import LogReport, VisitReport, report_run
from refold.stores.open import is_server

RESULT_WIDTH = 60  # characters of a result in the table
VIEWS = ("list", "show", "history", "items", "why")
_LISTS = re.compile(r"`refold runs (list|items)`")
TABLE = "noetl.event"

Rows = Sequence[Mapping[str, Any]]


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="Without a VIEW the options are those of `report`: --execution ID, and -o FORMAT.",
)
@click.option("--table", metavar="NAME", default=TABLE, show_default=True, help="The event table, of an address.")
@click.argument("log", metavar="LOG")
@click.argument("view", nargs=-1, type=click.UNPROCESSED, metavar="[VIEW [ARGS]...]")
@click.pass_context
def log(context: click.Context, log: str, view: Sequence[str], table: str) -> Any:
    """Show the runs that an event log of NoETL amounts to.

    LOG is an export of NoETL's event table: a JSON list of events, an object with a list `events`, or one JSON object
    per line; - reads stdin. It may also be the address of the PostgreSQL database, postgresql://…, which is only read.

    VIEW is `list`, `show`, `history`, `items` or `why`: it prints what `refold runs VIEW` prints, and takes its
    arguments, such as `show RUN -o json`. Without it, or with `report`, the steps of one run are shown with their
    visits and results, and where NoETL's own reconstruction of the run would differ. Nothing is stored, and no run can
    be continued.
    """
    rows = _table_rows(log, table) if is_server(log) else parse_rows(_text(log))
    name, *arguments = view or ("report",)
    if name not in (*VIEWS, "report") and not name.startswith("-"):
        raise InvalidValue("VIEW", f"there is no view {name!r}; the views are report, {', '.join(VIEWS)}")
    if name not in VIEWS:
        arguments = arguments if name == "report" else list(view)
        return report.main(arguments, f"refold noetl log {log}", standalone_mode=False, obj=rows)
    from refold.cli.commands import items, runs
    from refold.wiring.imported_runs import stored_in_memory

    logs = [read_log(each) for each in _by_execution(rows).values()]
    command = items.items if name == "items" else runs.COMMANDS[name]
    own = f"refold noetl log {shlex.quote(log)}"
    with database.in_place_of_files(stored_in_memory(logs, words.now()).views):
        try:
            return command.main(arguments, f"refold noetl log {log} {name}", standalone_mode=False, obj=context.obj)
        except NotFound as error:  # the commands of `refold runs` would look into a database
            raise NotFound(_LISTS.sub(lambda found: f"`{own} {found[1]}`", str(error))) from None


@click.command()
@click.option("--execution", metavar="ID", help="The execution to show, if the log has several.")
@output_option
@click.pass_obj
def report(rows: Rows, execution: str | None, output: str) -> None:
    """Show one run of the log: its steps with their visits and results, its end, and what NoETL would see otherwise."""
    chosen = _rows_of(rows, execution)
    run = read_log(chosen)
    found, others = report_run(run), differences(chosen, run)
    if output == "table":
        _print_table(found)
        for each in others:
            out.print_message(f"note: {out.printable(each)}")
    else:
        out.print_json({**_as_json(found), "differences": others}, output)


def _text(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except FileNotFoundError:
        raise NotFound(f"there is no file {file}") from None
    except OSError as error:
        raise InvalidValue(file, f"cannot be read: {error.strerror or error}") from None
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidValue(file, "is not UTF-8 text") from None


def _table_rows(address: str, table: str) -> Rows:
    """Read all rows of an event table, in the order of their ids."""
    try:
        import psycopg
        from psycopg import sql
        from psycopg.rows import dict_row
    except ModuleNotFoundError as error:
        raise InvalidValue(address, f"{error.name} is not installed: run `pip install refold[postgres]`") from None
    name = sql.SQL(".").join(map(sql.Identifier, table.split(".")))
    try:
        with psycopg.connect(_address_checked(address), row_factory=dict_row) as connection:
            connection.read_only = True
            rows = connection.execute(sql.SQL("select * from {} order by event_id").format(name)).fetchall()
    except psycopg.OperationalError as error:
        raise Unreachable(f"the database of the event log cannot be reached: {_one_line(error)}") from None
    except psycopg.Error as error:
        raise NotFound(f"the event table {table} cannot be read: {_one_line(error)}; --table names another") from None
    return checked_rows(list(rows))


def _address_checked(address: str) -> str:
    from psycopg import ProgrammingError, conninfo

    try:
        conninfo.conninfo_to_dict(address)
    except ProgrammingError as error:
        raise InvalidValue("the address", _one_line(error)) from None
    return address


def _one_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _by_execution(rows: Rows) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(str(row.get("execution_id") or ""), []).append(row)
    return found


def _rows_of(rows: Rows, execution: str | None) -> Rows:
    ids = list(dict.fromkeys(str(row["execution_id"]) for row in rows if row.get("execution_id") is not None))
    if execution is None:
        if len(ids) > 1:
            raise InvalidValue("log", f"has {len(ids)} executions; choose one with --execution: {', '.join(ids[:10])}")
        return rows
    if execution not in ids:
        raise NotFound(f"the log has no execution {execution}; it has {', '.join(ids[:10]) or 'no ids'}")
    return [row for row in rows if str(row.get("execution_id")) == execution]


def _as_json(report: LogReport) -> dict[str, Any]:
    return {**to_builtins(report), **_times(report), "visits": [_visit_as_json(visit) for visit in report.visits]}


def _visit_as_json(visit: VisitReport) -> dict[str, Any]:
    return {**to_builtins(visit), **_times(visit)}


def _times(report: LogReport | VisitReport) -> dict[str, str | None]:
    began, ended = report.began_at, report.ended_at
    return {"began_at": words.stamp(began) if began else None, "ended_at": words.stamp(ended) if ended else None}


def _print_table(report: LogReport) -> None:
    heads = ("STEP", "VISIT", "STATUS", "ITEMS", "TRIES", "TOOK", "RESULT")
    rows = [
        (
            visit.step,
            str(visit.visit),
            visit.status,
            "" if visit.items is None else f"{visit.items - visit.failed_items}/{visit.items}",
            str(visit.attempts or ""),
            words.took(visit.began_at, visit.ended_at) if visit.ended_at > visit.began_at else "",
            out.truncated(out.printable(visit.error or _shown(visit.result)), RESULT_WIDTH),
        )
        for visit in report.visits
    ]
    out.print_data(f"execution {out.printable(report.execution)} of {out.printable(report.playbook)}: {report.status}")
    out.print_data(out.table(heads, rows, out.has_colour(sys.stdout), out.terminal_width()))
    if report.error:
        out.print_data(f"error: {out.printable(report.error)}")
    elif report.result is not None:
        out.print_data(f"result: {out.printable(_shown(report.result))}")


def _shown(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.encode(value).decode()


COMMANDS = {"log": log}
