"""No message, help text or page speaks of a command of `refold` that does not exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from refold.cli.app import refold

ROOT = Path(__file__).parents[2]
GROUPS = "runs|gates|dlq|db|schedules|secret|token|audit"
NAMED = re.compile(rf"`refold ([a-z][^`\n]*)`|^\$ refold ([a-z][^\n]*)$|refold ((?:{GROUPS}) [a-z]+[^\n`\"']*)", re.M)
WORD = re.compile(r"[a-z][a-z-]*|--[a-z][a-z-]*")


def texts() -> Iterator[Path]:
    yield ROOT / "README.md"
    for folder, kind in (("docs", "*.md"), ("src", "*.py"), ("src", "*.yaml")):
        for path in sorted((ROOT / folder).rglob(kind)):
            if "decisions" not in path.parts and path.name != "proof.md":
                yield path


def commands_in(text: str) -> Iterator[str]:
    for found in NAMED.finditer(text):
        yield next(part for part in found.groups() if part is not None)


def fault_of(text: str) -> str:
    """Return which word of a command line is not known; empty: all are."""
    command: click.Command = refold
    words = text.split()
    while words and isinstance(command, click.Group):
        word = words.pop(0).rstrip(",.;:)")
        if not WORD.fullmatch(word) or word.startswith("-"):
            return ""  # a place holder such as {command}, or an option of the program itself
        context = click.Context(command)
        names = command.list_commands(context)
        found = [command.get_command(context, each) for each in word.split("|") if each in names]
        if not found or found[0] is None:
            return word
        command = found[0]
    options = {name for each in command.params for name in each.opts} | {"--help"}
    for word in words:
        if word in ("|", "&&", ";", "||", ">", "&"):
            break
        option = re.match(r"--[a-z][a-z-]*", word)
        if option is not None and option[0] not in options:
            return word
    return ""


def test_every_command_that_is_named_anywhere_exists_with_its_options() -> None:
    named = {(path, text) for path in texts() for text in commands_in(path.read_text())}
    assert len(named) > 300
    assert sorted(f"{path.relative_to(ROOT)}: refold {text}" for path, text in named if fault_of(text)) == []


@pytest.mark.parametrize("text", ["wroker", "runs lst", "runs retry RUN --form STEP", "dlq redrive --al"])
def test_a_command_that_does_not_exist_is_noticed(text: str) -> None:
    assert fault_of(text) != ""
