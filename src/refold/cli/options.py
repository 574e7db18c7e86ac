"""Options and arguments that several commands share, and how their values are read."""

import os
import pwd
import shlex
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import click
from msgspec import DecodeError, Struct, json, structs

from refold.cli.settings import DEFAULT, loaded, server_option, usual_db
from refold.errors import InvalidValue, NotFound
from refold.names import label_flaw
from refold.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])


def db_option(command: F) -> F:
    """`--db DATABASE`."""
    about = "The database: a file, or postgresql://... (refold.db, or what REFOLD_DB or refold.toml says)."
    return click.option("--db", metavar="FILE", default=usual_db, help=about)(command)


def store_option(command: F) -> F:
    """`--db DATABASE` or `--server URL`, for commands that look or steer."""
    return db_option(server_option(command))


def output_option(command: F) -> F:
    """`-o FORMAT`."""
    formats = click.Choice(["table", "json", "jsonl"])
    return click.option("-o", "--output", type=formats, default="table", help="What is printed (table).")(command)


class BindingArguments(Struct, frozen=True):
    """What a command line says about who answers for agents."""

    file: str | None = None  # None: the file that belongs to the workflow
    agent: list[str] = []  # a program and its arguments, for all agents that are not bound otherwise


UNBOUND = BindingArguments()


def bindings_options(command: F) -> F:
    """`--bindings FILE` and `--agent COMMAND`."""
    about = "Which tools answer for agents and other names (refold-bindings.yaml in the project of the file)."
    agent = "A program that answers for all agents that are not bound; it gets the prompt on its standard input."
    command = click.option("--agent", metavar="COMMAND", help=agent)(command)
    return click.option("--bindings", metavar="FILE", help=about)(command)


def binding_arguments(file: str | None, agent: str | None) -> BindingArguments:
    """Return what was given. Raises BadParameter if the command is not one that a shell could read."""
    try:
        argv = shlex.split(agent) if agent is not None else []
    except ValueError as error:
        raise click.BadParameter(f"{agent!r} is not a command: {error}", param_hint="--agent") from None
    if agent is not None and not argv:
        raise click.BadParameter("it names no program", param_hint="--agent")
    return BindingArguments(file, argv)


def quiet_option(command: F) -> F:
    """`-q`."""
    return click.option("-q", "--quiet", is_flag=True, help="No progress, and only errors as messages.")(command)


def progress_option(command: F) -> F:
    """`--progress KIND`."""
    kinds = click.Choice(["auto", "tree", "lines", "json", "none"])
    about = "How progress is shown on stderr (auto: a tree on a terminal, else lines)."
    return click.option("--progress", type=kinds, default="auto", help=about)(command)


def run_argument(required: bool = True) -> Callable[[F], F]:
    """`RUN`: an id, the beginning of one, or a name."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        from refold.cli.database import run_names

        return run_names(ctx.params.get("db"), incomplete)

    return click.argument("run", metavar="RUN" if required else "[RUN]", required=required, shell_complete=complete)


def budget_option(command: F) -> F:
    """`--budget UNIT=LIMIT`."""
    about = "A new limit of the run's budget, as in tokens=2000."
    return click.option("--budget", multiple=True, metavar="UNIT=LIMIT", help=about)(command)


def code_option(command: F) -> F:
    """`--code module:Class`."""
    about = "A Python workflow whose code is needed, as in shop.orders:Order; added to `code` of refold.toml."

    def with_usual(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*loaded().command.code, *given)))

    return click.option("--code", multiple=True, metavar="MODULE:CLASS", callback=with_usual, help=about)(command)


def follow_option(command: F) -> F:
    """`--follow`."""
    about = "Visit the steps behind the loop again too, with the new values."
    return click.option("--follow", is_flag=True, help=about)(command)


def until_waiting_option(command: F) -> F:
    """`--until-waiting`."""
    about = "Leave the run when only people, signals or timers can continue it, and print the command that continues."
    return click.option("--until-waiting", is_flag=True, help=about)(command)


def label_option(about: str) -> Callable[[F], F]:
    """`--label NAME=VALUE`."""
    return click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help=about)


def labels_of(pairs: Sequence[str]) -> dict[str, str]:
    """Return the labels of a command line. Raises BadParameter."""
    labels = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        flaw = label_flaw({name: value}) if sign else f"{pair!r} is not of the form name=value"
        if flaw:
            raise click.BadParameter(flaw, param_hint="--label")
        labels[name] = value
    return labels


def budgets(pairs: Sequence[str]) -> dict[str, int | float]:
    found = inputs(pairs, None)
    for pair, limit in zip(pairs, found.values(), strict=False):
        if isinstance(limit, bool) or not isinstance(limit, int | float) or limit < 0:
            raise click.BadParameter(f"{pair!r} is not a limit such as tokens=2000", param_hint="--budget")
    return found


def settings(own_machine: bool = False) -> Settings:
    """Return the settings of the engine. Only on the user's own machine are private addresses allowed by default."""
    found = loaded()
    if not own_machine and found.origin("private_addresses") == DEFAULT:
        return structs.replace(found.engine, private_addresses=False)
    return found.engine


def inputs(pairs: Sequence[str], file: str | None, texts: Collection[str] = ()) -> dict[str, Any]:
    """Return the inputs of the file, with each `key=value` merged over them. `texts` are inputs whose value is text."""
    found = _from_file(file) if file else {}
    for pair in pairs:
        key, sign, text = pair.partition("=")
        if not sign or not key:
            raise click.BadParameter(f"{pair!r} is not of the form key=value", param_hint="-i")
        value = value_of(text)
        found[key] = text if key in texts and not isinstance(value, str) else value
    return found


def value_of(text: str) -> Any:
    """Decode JSON; anything else is text."""
    try:
        return json.decode(text)
    except DecodeError:
        return text


def _from_yaml(text: str, file: str) -> Any:
    from refold.playbooks.yaml.text import read

    return read(text, file).value


def _from_file(file: str) -> dict[str, Any]:
    try:
        with click.open_file(file, encoding="utf-8-sig") as opened:
            text = opened.read()
        found = _from_yaml(text, file) if file.endswith((".yaml", ".yml")) else json.decode(text)
    except (DecodeError, UnicodeDecodeError) as error:
        raise InvalidValue(file, f"is not valid JSON: {error}") from None
    except FileNotFoundError:
        raise NotFound(f"there is no file {file}") from None
    except OSError as error:
        raise InvalidValue(file, f"cannot be read: {error.strerror}") from None
    if not isinstance(found, dict):
        raise InvalidValue(file, "the inputs of a run are an object: names and values")
    return found


def who() -> str:
    """The name of the user, as far as it is known; else an empty text."""
    named = os.environ.get("USER") or os.environ.get("USERNAME")
    try:
        return named or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return ""


def queueing_options(command: F) -> F:
    """Where the steps of a run wait that say nothing else."""
    for option in (
        click.option("--limit", default="", metavar="NAME", help="The limit that its steps count for."),
        click.option("--share", default="", metavar="NAME", help="Whom the run is for: shares take turns."),
        click.option("--priority", type=int, metavar="N", help="Steps with a higher number are taken first (0)."),
        click.option("--queue", default="", metavar="QUEUE", help="The queue of its steps (default)."),
    ):
        command = option(command)
    return command
