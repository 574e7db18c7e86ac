"""Commands for playbooks: `validate`, `graph`, `schema`."""

from collections.abc import Sequence
from typing import Any

import click

from refold.authoring.problems import InvalidPlaybook, Problem, show_all
from refold.cli import exits, out
from refold.cli.options import DB, output_option
from refold.cli.playbooks import is_code, read_file
from refold.core.plan import Plan


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@output_option
def validate(files: Sequence[str], output: str) -> int:
    """Check playbooks without running them; every problem has its place, a code and a hint."""
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
                out.tell(show_all(problems, file, source))
            out.put(said)
    if output != "table":
        out.put_json(found, output)
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
    """Draw a playbook, or a Python workflow that is named like `module:Class`."""
    from refold.authoring import draw

    plan = _coded(file) if is_code(file) else read_file(file).plan
    out.put_data((draw.mermaid(plan) if mermaid else draw.draw(plan)).rstrip("\n"))


def _coded(target: str) -> Plan:
    from refold.cli.coded import sketch

    return sketch(target)


@click.command()
def schema() -> None:
    """Print the JSON Schema of playbooks, for editors."""
    from refold.cli.schemas import playbook_schema

    out.put_json(playbook_schema(), "json")
