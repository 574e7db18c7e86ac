"""Commands for a start: `examples` and `examples show` list what there is, `init` copies one into a folder."""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

import refold
from refold.cli import output as out
from refold.cli.options import output_option
from refold.errors import Conflict, InvalidValue, NotFound
from refold.names import did_you_mean
from refold.playbooks.yaml.text import Node, read

FOLDER = Path(refold.__file__).parent / "examples"
STARTER = "hello"
COMMAND = "$ "


class Example(Struct, frozen=True):
    """The description of an example, read from its playbook."""

    name: str
    about: str
    tools: tuple[str, ...]
    notes: tuple[str, ...]  # the comment at the top of its playbook: commands to run, after `$ `, and remarks

    @property
    def commands(self) -> list[str]:
        return [line.removeprefix(COMMAND) for line in self.notes if line.startswith(COMMAND)]


def names() -> list[str]:
    """Return the names of all examples, the starter first."""
    found = sorted(path.parent.name for path in FOLDER.glob("*/*") if path.name in _workflows(path.parent.name))
    return sorted(found, key=lambda name: name != STARTER)


def _workflows(name: str) -> tuple[str, ...]:
    """Return the names that the workflow of an example may have."""
    return f"{name}.yaml", f"{name}.wf"


def file_of(name: str) -> Path:
    """Return the workflow of an example."""
    return next(path for each in _workflows(name) if (path := FOLDER / name / each).exists())


def known(name: str) -> str:
    if name not in names():
        raise NotFound(f"there is no example {name!r}; {did_you_mean(name, names())}")
    return name


def example(name: str) -> Example:
    file = file_of(name)
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".wf":
        return _example_in_wf(name, text)
    head = re.split(r"\n(?=apiVersion:|workflow:)", text, maxsplit=1)[0]
    notes = tuple(line.removeprefix("# ") for line in head.splitlines())
    data = read(text, name)
    if "metadata" not in data.value:
        return _example_of_jamjet(name, data, notes)
    return Example(name, data.value["metadata"]["description"], tuple(dict.fromkeys(_kinds(data))), notes)


def _example_of_jamjet(name: str, data: Node, notes: tuple[str, ...]) -> Example:
    kinds = dict.fromkeys(node["type"] for node in data.value["nodes"].values())
    return Example(name, data.value["workflow"]["description"], tuple(kinds), notes)


def _example_in_wf(name: str, text: str) -> Example:
    about = re.search(r'description = "((?:[^"\\]|\\.)*)"', text)
    notes = tuple(line.removeprefix("// ") for line in text.partition("\nworkflow ")[0].splitlines())
    tools = [tool for word, tool in (("call", "agent"), ("script", "shell")) if re.search(rf"\b{word} \w", text)]
    return Example(name, about[1] if about else "", tuple(tools), notes)


def files(name: str) -> dict[str, bytes]:
    """Return the files of an example by their paths in its folder, the playbook first."""
    folder = FOLDER / name
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    paths.sort(key=lambda path: path != file_of(name))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _kinds(node: Node, is_tool: bool = False) -> Iterator[str]:
    """Yield the kinds of tools in a playbook, in the order of the file."""
    if isinstance(node.nodes, dict):
        kind: Any = node.value.get("kind") if is_tool else None
        if isinstance(kind, str):
            yield kind
        for key, each in node.nodes.items():
            yield from _kinds(each, key in ("tool", "check"))
    else:
        for each in node.nodes:
            yield from _kinds(each, is_tool)


PAGE = """\
# Examples

Each playbook solves a complete task, on your machine and without a network. `refold examples` lists them;
`refold init --example NAME` copies one into a new folder and shows what to run. A test runs each of them. This page is
generated from their descriptions by `python -m refold.cli.commands.examples`; do not edit it.

| example | what it does | tools |
| --- | --- | --- |
"""


@click.group(invoke_without_command=True)
@output_option
@click.pass_context
def examples(ctx: click.Context, output: str) -> None:
    """List the example playbooks that come with Refold."""
    if ctx.invoked_subcommand is None:
        _list([example(name) for name in names()], output)


def _list(found: list[Example], output: str) -> None:
    if output == "table":
        rows = [(each.name, each.about) for each in found]
        out.print_data(out.table(("EXAMPLE", "WHAT IT DOES"), rows, out.has_colour(sys.stdout), out.terminal_width()))
        out.print_message("to start with one: refold init --example NAME")
    else:
        out.print_json([_row(each) for each in found], output)


def _row(of: Example) -> dict[str, object]:
    return {
        "name": of.name,
        "description": of.about,
        "tools": of.tools,
        "commands": of.commands,
        "files": list(files(of.name)),
    }


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in names() if name.startswith(incomplete)]


@examples.command()
@click.argument("name", shell_complete=_complete)
@output_option
def show(name: str, output: str) -> None:
    """Print the files of an example."""
    texts = {file: data.decode() for file, data in files(known(name)).items()}
    if output == "table":
        colour = out.has_colour(sys.stdout)
        shown = [f"{out.styled(f'--- {file}', 'bold', colour)}\n{text.rstrip()}" for file, text in texts.items()]
        out.print_data("\n\n".join(shown))
    else:
        out.print_json([{"file": file, "text": text} for file, text in texts.items()], output)


@click.command()
@click.argument("folder", metavar="[FOLDER]", required=False)
@click.option(
    "--example",
    "name",
    metavar="NAME",
    shell_complete=_complete,
    help=f"Which one; `refold examples` lists them ({STARTER}).",
)
def init(folder: str | None, name: str | None) -> None:
    """Copy an example into a folder, to begin with.

    The FOLDER is this one, or a new one with the name of the example that is asked for. No file is overwritten. The
    command to run next is printed.
    """
    chosen = known(name or STARTER)
    target = Path(folder or name or ".")
    _copy(target, files(chosen))
    out.print_message("next:")
    if target != Path("."):
        out.print_message(f"  cd {shlex.quote(str(target))}")
    for line in example(chosen).notes:
        out.print_message(f"  {line.removeprefix(COMMAND)}" if line.startswith(COMMAND) else f"  # {line}")


def _copy(target: Path, contents: dict[str, bytes]) -> None:
    """Copy all files, or none if any of them exists already."""
    if target.exists() and not target.is_dir():
        raise InvalidValue(str(target), "is a file, and not a folder")
    taken = [file for file in contents if (target / file).exists() or (target / file).is_symlink()]
    if taken:
        where = "this folder" if target == Path(".") else str(target)
        raise Conflict(f"{', '.join(taken)}: already in {where}, and nothing is overwritten; name another FOLDER")
    for file, data in contents.items():
        path = target / file
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as made:
            made.write(data)
        out.print_data(str(path))


def page() -> str:
    rows = []
    for each in map(example, names()):
        where = f"[{each.name}](../src/refold/examples/{each.name}/{file_of(each.name).name})"
        rows.append(f"| {where} | {each.about} | {', '.join(f'`{kind}`' for kind in each.tools)} |\n")
    return PAGE + "".join(rows)


if __name__ == "__main__":
    sys.stdout.write(page())


COMMANDS = {"examples": examples, "init": init}
