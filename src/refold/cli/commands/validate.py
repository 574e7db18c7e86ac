"""The command `refold validate`: checks playbooks, schedules and calendars without running them."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from refold.cli import exits
from refold.cli import output as out
from refold.cli.commands.playbooks import STDIN, load, read_file
from refold.cli.commands.schedule_files import problems_of
from refold.cli.options import binding_arguments, bindings_options, db_option, output_option
from refold.playbooks.playbook import Playbook
from refold.playbooks.problems import InvalidPlaybook, Place, Problem, in_order, show_all
from refold.playbooks.schedule_file import KINDS, kind_of_file


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--secrets", is_flag=True, help="A secret that no provider has is an error, not a warning.")
@bindings_options
@output_option
@db_option
def validate(files: Sequence[str], secrets: bool, bindings: str | None, agent: str | None, output: str, db: str) -> int:
    """Check playbooks, schedules and calendars without running them.

    Each problem is shown with its place, a code and a hint. Secrets are looked for in the environment, in the keyring
    and next to the database. The extras of Refold that a playbook needs are shown behind it.
    """
    found: list[dict[str, Any]] = []
    invalid, bound = False, binding_arguments(bindings, agent)
    for name in files:
        if is_schedule(name):
            problems, source = _check_schedule(name)
            invalid = invalid or any(each.severity == "error" for each in problems)
            found += [_object(name, each) for each in problems]
            if output == "table":
                if problems:
                    out.print_message(show_all(problems, name, source))
                out.print_data(f"{name}: {_count(problems)}" if problems else f"{name}: ok")
            continue
        try:
            playbook = read_file(name, db, bound, needs_secrets=secrets)
        except InvalidPlaybook as error:
            invalid = True
            file, problems, source = error.file, error.problems, error.source
            said = f"{file}: {_count(problems)}"
        else:
            file, source = playbook.file, playbook.source
            extras = _extras(playbook)
            problems = in_order((*playbook.warnings, *playbook.unbound, *_not_installed(playbook, extras)))
            said = f"{file}: ok, {_steps(len(playbook.plan.steps))}" + (f", {_count(problems)}" if problems else "")
            said += f", needs refold[{','.join(extras)}]" if extras else ""
        found += [_object(file, each) for each in problems]
        if output == "table":
            if problems:
                out.print_message(show_all(problems, file, source))
            out.print_data(said)
    if output != "table":
        out.print_json(found, output)
    return exits.USAGE if invalid else exits.OK


def is_schedule(file: str) -> bool:
    """Whether a file is of `kind: Schedule` or `kind: Calendar`."""
    if file == STDIN or not file.endswith((".yaml", ".yml", ".json")) or not os.path.exists(file):
        return False
    text = load(file)
    if _KIND.search(text) is None:
        return False
    try:
        return kind_of_file(text, file) in KINDS
    except InvalidPlaybook:
        return _LINE.search(text) is not None


_KIND = re.compile(rb"\b(?:Schedule|Calendar)\b")  # what is not even named is not read twice
_LINE = re.compile(rb"^kind:[ \t]*[\"']?(?:Schedule|Calendar)\b", re.MULTILINE)


def _check_schedule(file: str) -> tuple[Sequence[Problem], str]:
    """Return what is wrong with a schedule or a calendar, and the text of the file."""
    from refold.playbooks.schedule_file import ScheduleFile, read_schedule_file

    try:
        schedule = read_schedule_file(load(file), file)
    except InvalidPlaybook as error:
        return error.problems, error.source
    more: Sequence[Problem] = ()
    if isinstance(schedule, ScheduleFile):
        more = problems_of(schedule)
    return in_order((*schedule.warnings, *more)), schedule.source


def _extras(playbook: Playbook) -> dict[str, list[str]]:
    """Return the extras that a playbook and those that it starts need, each with the steps of the playbook itself."""
    from refold.playbooks.extras import extras_of

    found = extras_of(playbook.plan)
    for child in playbook.children:
        for extra in extras_of(child.plan):
            found.setdefault(extra, [])
    return dict(sorted(found.items()))


def _not_installed(playbook: Playbook, extras: Mapping[str, Sequence[str]]) -> Iterator[Problem]:
    from refold.playbooks.extras import missing

    for extra, steps in extras.items():
        if missing(extra):
            place = playbook.places.get(f"steps.{steps[0]}", Place(1, 1)) if steps else Place(1, 1)
            who = ", ".join(f"`{each}`" for each in steps) or "a child"
            message = f"{who} need{'s' if len(steps) < 2 else ''} the extra `{extra}`"
            hint = f"run `pip install 'refold[{extra}]'` where steps run"
            yield Problem("missing-package", f"{message}, which is not installed here", place, hint, "warning")


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _count(problems: Sequence[Problem]) -> str:
    counts = {kind: sum(each.severity == kind for each in problems) for kind in ("error", "warning")}
    return ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in counts.items() if count)


def _object(file: str, problem: Problem) -> dict[str, Any]:
    return {
        "file": file,
        "line": problem.place.line,
        "column": problem.place.column,
        "end_column": problem.place.column + problem.length,
        "severity": problem.severity,
        "code": problem.code,
        "message": problem.message,
        "hint": problem.hint,
    }
