"""Commands for playbooks: `validate`, `graph`, `schema`."""

import os
import sys
from collections.abc import Collection, Mapping

import click
from msgspec import structs

from refold.cli import output as out
from refold.cli.options import (
    UNBOUND,
    BindingArguments,
    binding_arguments,
    bindings_options,
    settings,
)
from refold.cli.tree import PlaybookLines
from refold.core.plan import Plan
from refold.errors import InvalidValue, NotFound
from refold.names import meant
from refold.playbooks.bindings import Bindings, command_for_agents, with_agent
from refold.playbooks.children import names_code
from refold.playbooks.playbook import Lookups, Playbook, read
from refold.playbooks.problems import InvalidPlaybook
from refold.playbooks.python_workflows import PythonWorkflow
from refold.tool_api import ToolInfo
from refold.tools.catalog import installed_tools

STDIN = "-"


def read_file(
    file: str,
    db: str | None = None,
    bound: BindingArguments = UNBOUND,
    needs_secrets: bool = True,
    unit: str | None = None,
) -> Playbook:
    """Raises InvalidPlaybook with all that is wrong with it; with a database, also secrets that there are not.

    They are warnings unless the playbook is to run here and `needs_secrets`. `unit` names one of several workflows in a
    file; None: whichever comes first.
    """

    def secrets() -> Collection[str] | None:
        from refold.wiring import open_secrets

        return open_secrets(settings(), db).names()

    def bindings() -> Bindings:
        return read_bindings_of(file, bound)

    asked = Lookups(secrets=secrets if db is not None else None, sources=_sources, code=_named, bindings=bindings)
    asked["needs_secrets"] = needs_secrets
    asked["unit"] = unit
    if file == STDIN:
        return read(sys.stdin.buffer.read(), "<stdin>", installed_tools(), load, **asked)
    return read(load(file), file, installed_tools(), load, **asked)


def read_bindings_of(file: str, bound: BindingArguments) -> Bindings:
    """Return the bindings that the command line names, else those that belong to the file. Raises InvalidPlaybook."""
    from refold.playbooks.bindings_file import bindings_for, read_bindings

    tools = installed_tools()
    if bound.file is not None:
        bindings = read_bindings(load(bound.file), bound.file, tools, _sources)
    else:
        bindings = bindings_for("" if file == STDIN else file, tools, load, _sources)
    return bindings if not bound.agent else with_agent(bindings, command_for_agents(bound.agent))


def check_bound(playbook: Playbook) -> None:
    """Raise InvalidPlaybook if a run would need answers from somebody whom no bindings name, in a file or its children.

    The problems of all files are shown; the exception has those of the last one.
    """
    files = [each for each in (playbook, *playbook.children) if each.unbound]
    for each in files:
        problems = tuple(structs.replace(problem, severity="error") for problem in each.unbound)
        error = InvalidPlaybook(problems, each.file, each.source)
        if each is files[-1]:
            raise error
        out.print_message(str(error))


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
    if file.endswith(".py") and os.path.exists(file):
        module = os.path.basename(file).removesuffix(".py")
        raise InvalidValue(file, f"is Python code and no playbook; a workflow of it is named {module}:NAME")
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
        guess = meant(name, [each for each in os.listdir(folder or ".") if each.endswith((".yaml", ".yml", ".wf"))])
    except OSError:
        return ""
    return f"; did you mean {os.path.join(folder, guess)}?" if guess else ""


@click.command()
@click.argument("file", metavar="FILE")
@click.argument("unit", required=False, metavar="[UNIT]")
@click.option("--mermaid", is_flag=True, help="As text for Mermaid.")
@bindings_options
def graph(file: str, unit: str | None, mermaid: bool, bindings: str | None, agent: str | None) -> None:
    """Draw a playbook or a Python workflow.

    FILE is a playbook, or a Python workflow `module:Class`. UNIT is one of several workflows in a file.
    """
    from refold.playbooks import draw

    bound = binding_arguments(bindings, agent)
    plan = _drawn(file) if is_code(file) else read_file(file, None, bound, unit=unit or "").plan
    out.print_exact((draw.mermaid(plan) if mermaid else draw.draw(plan)).rstrip("\n"))


@click.command()
def schema() -> None:
    """Print the JSON Schema of playbooks, for editors.

    It knows the tools and sources that come with Refold and those that installed packages add.
    """
    from refold.playbooks.schema import schema
    from refold.sources.catalog import installed_sources

    out.print_json(dict(schema(installed_tools(), installed_sources())), "json")


COMMANDS = {"graph": graph, "schema": schema}
