"""Commands for a start: `examples` and `examples show` tell what there is, `init` copies one into a folder."""

import shlex
import sys
from pathlib import Path

import click

from refold.cli import out
from refold.cli.example_files import COMMAND, STARTER, Example, example, files, known, names
from refold.cli.options import output_option
from refold.errors import Conflict, InvalidValue

PAGE = """\
# Examples

Playbooks that solve something from beginning to end, on your machine and without a network. `refold examples` lists
them, `refold init --example NAME` copies one into a new folder and says what to run. Each is run by a test. This page
is printed from their own descriptions, by `python -m refold.cli.examples`; do not edit it.

| example | what it does | tools |
| --- | --- | --- |
"""


@click.group(invoke_without_command=True)
@output_option
@click.pass_context
def examples(ctx: click.Context, output: str) -> None:
    """List the playbooks that come with Refold, to learn from and to begin with."""
    if ctx.invoked_subcommand is None:
        _list([example(name) for name in names()], output)


def _list(found: list[Example], output: str) -> None:
    if output == "table":
        rows = [(each.name, each.about) for each in found]
        out.put(out.table(("EXAMPLE", "WHAT IT DOES"), rows, out.has_colour(sys.stdout), out.terminal_width()))
        out.tell("to start with one: refold init --example NAME")
    else:
        out.put_json([_row(each) for each in found], output)


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
        shown = [f"{out.painted(f'--- {file}', 'bold', colour)}\n{text.rstrip()}" for file, text in texts.items()]
        out.put("\n\n".join(shown))
    else:
        out.put_json([{"file": file, "text": text} for file, text in texts.items()], output)


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

    The FOLDER is this one, or a new one with the name of the example that is asked for. No file is overwritten. What
    to run next is told.
    """
    chosen = known(name or STARTER)
    target = Path(folder or name or ".")
    _copy(target, files(chosen))
    out.tell("next:")
    if target != Path("."):
        out.tell(f"  cd {shlex.quote(str(target))}")
    for line in example(chosen).notes:
        out.tell(f"  {line.removeprefix(COMMAND)}" if line.startswith(COMMAND) else f"  # {line}")


def _copy(target: Path, contents: dict[str, bytes]) -> None:
    """All or nothing, as far as can be seen beforehand."""
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
        out.put(str(path))


def page() -> str:
    rows = []
    for each in map(example, names()):
        where = f"[{each.name}](../src/refold/examples/{each.name}/{each.name}.yaml)"
        rows.append(f"| {where} | {each.about} | {', '.join(f'`{kind}`' for kind in each.tools)} |\n")
    return PAGE + "".join(rows)


if __name__ == "__main__":
    sys.stdout.write(page())
