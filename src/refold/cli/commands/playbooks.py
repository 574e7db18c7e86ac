"""Commands for playbooks: `validate`, `graph`, `schema`."""

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import click

from refold.cli import exits
from refold.cli import output as out
from refold.cli.options import DB, output_option, settings
from refold.cli.tree import PlaybookLines
from refold.core.plan import Plan
from refold.errors import InvalidValue, NotFound
from refold.names import meant
from refold.playbooks.children import names_code
from refold.playbooks.playbook import Lookups, Playbook, read
from refold.playbooks.problems import InvalidPlaybook, Problem, show_all
from refold.playbooks.python_workflows import PythonWorkflow
from refold.tool_api import ToolInfo
from refold.tools.catalog import installed_tools

STDIN = "-"


def read_file(file: str, db: str | None = None) -> Playbook:
    """Raises InvalidPlaybook with all that is wrong with it; with a database, also secrets that there are not."""

    def secrets() -> Collection[str] | None:
        from refold.wiring import open_secrets

        return open_secrets(settings(), db).names()

    asked = Lookups(secrets=secrets if db is not None else None, sources=_sources, code=_named)
    if file == STDIN:
        return read(sys.stdin.buffer.read(), "<stdin>", installed_tools(), load, **asked)
    return read(load(file), file, installed_tools(), load, **asked)


def _sources() -> Mapping[str, ToolInfo]:
    from refold.sources.catalog import installed_sources

    return installed_sources()


def _named(target: str) -> PythonWorkflow:
    from refold.python.load import describe_workflow

    return describe_workflow(target)


def is_code(target: str) -> bool:
    """Whether it is `module:Class` and no file."""
    return names_code(target) and not os.path.exists(target)


def load(file: str) -> bytes:
    try:
        with open(file, "rb") as opened:
            return opened.read()
    except FileNotFoundError:
        raise NotFound(f"there is no file {file}{_guess(file)}") from None
    except OSError as error:
        raise InvalidValue(file, f"cannot be read: {error.strerror}") from None


def read_workflow(target: str) -> Playbook:
    """Read a Python workflow, named like `module:Class`, for commands that continue with a plan. Raises InvalidPlan."""
    from refold.python.definition import define, with_children
    from refold.python.load import load

    first, *others = with_children(define(load(target), target))
    children = tuple(Playbook(definition.plan, target, "", {}) for definition in others)
    return Playbook(first.plan, target, "", {}, children=children)


def _drawn(target: str) -> Plan:
    from refold.python.definition import define
    from refold.python.draw import arcs_of_events
    from refold.python.load import load

    return arcs_of_events(define(load(target)))


def source_of(playbook: Playbook) -> PlaybookLines:
    return PlaybookLines(playbook.file, playbook.source.splitlines(), playbook.places)


def _guess(file: str) -> str:
    folder, name = os.path.split(file)
    try:
        guess = meant(name, [each for each in os.listdir(folder or ".") if each.endswith((".yaml", ".yml"))])
    except OSError:
        return ""
    return f"; did you mean {os.path.join(folder, guess)}?" if guess else ""


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@output_option
def validate(files: Sequence[str], output: str) -> int:
    """Check playbooks without running them.

    Each problem is shown with its place, a code and a hint.
    """
    found: list[dict[str, Any]] = []
    invalid = False
    for name in files:
        try:
            playbook = read_file(name, DB)
        except InvalidPlaybook as error:
            invalid = True
            file, problems, source = error.file, error.problems, error.source
            said = f"{file}: {_count(problems)}"
        else:
            file, problems, source = playbook.file, playbook.warnings, playbook.source
            said = f"{file}: ok, {_steps(len(playbook.plan.steps))}" + (f", {_count(problems)}" if problems else "")
        found += [_object(file, each) for each in problems]
        if output == "table":
            if problems:
                out.print_message(show_all(problems, file, source))
            out.print_data(said)
    if output != "table":
        out.print_json(found, output)
    return exits.USAGE if invalid else exits.OK


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


@click.command()
@click.argument("file", metavar="FILE")
@click.option("--mermaid", is_flag=True, help="As text for Mermaid.")
def graph(file: str, mermaid: bool) -> None:
    """Draw a playbook or a Python workflow.

    FILE is a playbook, or a Python workflow `module:Class`.
    """
    from refold.playbooks import draw

    plan = _drawn(file) if is_code(file) else read_file(file).plan
    out.print_exact((draw.mermaid(plan) if mermaid else draw.draw(plan)).rstrip("\n"))


@click.command()
def schema() -> None:
    """Print the JSON Schema of playbooks, for editors.

    It knows the tools and sources that come with Refold and those that installed packages add.
    """
    from refold.playbooks.schema import schema
    from refold.sources.catalog import installed_sources

    out.print_json(dict(schema(installed_tools(), installed_sources())), "json")


COMMANDS = {"validate": validate, "graph": graph, "schema": schema}
