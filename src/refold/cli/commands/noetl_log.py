"""The command `noetl-log`: shows the run that an event log of NoETL amounts to."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import json, to_builtins

from refold.cli import output as out
from refold.cli import words
from refold.cli.options import output_option
from refold.errors import InvalidValue, NotFound
from refold.playbooks.noetl_log.events import parse_rows
from refold.playbooks.noetl_log.log import read_log
from refold.playbooks.noetl_log.report import LogReport, VisitReport, report_run

RESULT_WIDTH = 60  # characters of a result in the table


@click.command("noetl-log")
@click.argument("file", metavar="FILE")
@click.option("--execution", metavar="ID", help="The execution to show, if the log has several.")
@output_option
def noetl_log(file: str, execution: str | None, output: str) -> None:
    """Show a run of NoETL from its event log.

    The steps are shown with their visits and results, and the end of the run.

    FILE is an export of NoETL's event table: a JSON list of events, an object with a list `events`, or one JSON object
    per line; - reads stdin. Nothing is stored, and the run cannot be continued.
    """
    report = report_run(read_log(_rows_of(parse_rows(_text(file)), execution)))
    if output == "table":
        _print_table(report)
    else:
        out.print_json(_as_json(report), output)


def _text(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except FileNotFoundError:
        raise NotFound(f"there is no file {file}") from None
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidValue(file, "is not UTF-8 text") from None


def _rows_of(rows: Sequence[Mapping[str, Any]], execution: str | None) -> Sequence[Mapping[str, Any]]:
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
