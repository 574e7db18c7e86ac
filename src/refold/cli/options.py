"""Options and arguments that several commands share, and how their values are read."""

import os
import pwd
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
from msgspec import DecodeError, ValidationError, json

from refold.errors import InvalidValue
from refold.names import label_flaw
from refold.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])

DB = "refold.db"


def db_option(command: F) -> F:
    """`--db FILE`."""
    about = f"The database file ({DB}, or REFOLD_DB)."
    return click.option("--db", metavar="FILE", default=DB, envvar="REFOLD_DB", help=about)(command)


def output_option(command: F) -> F:
    """`-o FORMAT`."""
    formats = click.Choice(["table", "json", "jsonl"])
    return click.option("-o", "--output", type=formats, default="table", help="What is printed (table).")(command)


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

        return run_names(str(ctx.params.get("db") or DB), incomplete)

    return click.argument("run", metavar="RUN" if required else "[RUN]", required=required, shell_complete=complete)


def budget_option(command: F) -> F:
    """`--budget UNIT=LIMIT`."""
    about = "A new limit of the run's budget, as in tokens=2000."
    return click.option("--budget", multiple=True, metavar="UNIT=LIMIT", help=about)(command)


def code_option(command: F) -> F:
    """`--code module:Class`."""
    about = "A Python workflow whose code is needed, as in shop.orders:Order."
    return click.option("--code", multiple=True, metavar="MODULE:CLASS", help=about)(command)


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
    """Read the settings from the environment. On the user's own machine, private addresses are allowed by default."""
    unless_said = {"REFOLD_PRIVATE_ADDRESSES": "true"} if own_machine else {}
    try:
        return Settings.from_environment({**unless_said, **os.environ})
    except ValidationError as error:
        raise InvalidValue("REFOLD_* in the environment", str(error)) from None


def inputs(pairs: Sequence[str], file: str | None) -> dict[str, Any]:
    """Return the inputs of the file, with each `key=value` merged over them."""
    found = _from_file(file) if file else {}
    for pair in pairs:
        key, sign, text = pair.partition("=")
        if not sign or not key:
            raise click.BadParameter(f"{pair!r} is not of the form key=value", param_hint="-i")
        found[key] = value_of(text)
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
        with click.open_file(file, encoding="utf-8") as opened:
            text = opened.read()
        found = _from_yaml(text, file) if file.endswith((".yaml", ".yml")) else json.decode(text)
    except (DecodeError, UnicodeDecodeError) as error:
        raise InvalidValue(file, f"is not valid JSON: {error}") from None
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
