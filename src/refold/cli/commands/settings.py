"""The command `refold settings`: every setting, its value, and where the value comes from."""

import os
from typing import Any

import click
from msgspec import Struct, json, to_builtins

from refold.cli import output as out
from refold.cli.options import db_option, output_option
from refold.cli.settings import NAMED, OTHER_VARIABLES, Setting, loaded
from refold.names import meant
from refold.settings import variable

VARIABLES = "REFOLD_"
SECRETS = "REFOLD_SECRET_"


@click.command()
@output_option
@db_option
@click.pass_context
def settings(ctx: click.Context, output: str, db: str) -> None:
    """Print every setting with its value and where it comes from.

    Settings are read from refold.toml in the working directory or in a folder above it. A variable of the environment
    wins over the file, and an option wins over both.
    """
    known = loaded()
    typed = ctx.get_parameter_source("db") == click.core.ParameterSource.COMMANDLINE
    entries = [Setting("db", db, "--db") if each.name == "db" and typed else each for each in known.entries]
    for each in _unknown_variables([each.name for each in entries]):
        out.print_message(each)
    if output != "table":
        out.print_json([_object(each) for each in entries], output)
        return
    rows = [(each.name, _shown(each.value), each.origin) for each in entries]
    out.print_data(out.table(("SETTING", "VALUE", "FROM"), rows))
    if not known.file:
        out.print_message(f"there is no refold.toml here or in a folder above; {NAMED} can name a file")


def _object(setting: Setting) -> dict[str, Any]:
    made: dict[str, Any] = to_builtins(setting)
    return {**made, "variable": variable(setting.name)}


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join(value) or "-"
    if isinstance(value, Struct):
        kept = {name: each for name, each in to_builtins(value).items() if each}
        return json.encode(kept).decode() if kept else "-"
    return "-" if value in ("", None) else f"{value:g}" if isinstance(value, float) else str(value)


def _unknown_variables(names: list[str]) -> list[str]:
    """Return a warning for each variable that looks like a setting and is none."""
    known = [*map(variable, names), *OTHER_VARIABLES]
    unknown = sorted(
        name for name in os.environ if name.startswith(VARIABLES) and not name.startswith(SECRETS) and name not in known
    )
    return [
        f"warning: {name} is set, and there is no such setting" + (f"; did you mean {guess}?" if guess else "")
        for name in unknown
        for guess in [meant(name, known)]
    ]
