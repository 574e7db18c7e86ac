"""The server that a command asks in place of a database: `--server`, `server` in refold.toml, or REFOLD_SERVER."""

import os
import shlex
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from refold.cli.settings import loaded, usual_db
from refold.settings import variable
from refold.stores.open import shown_address

if TYPE_CHECKING:
    from collections.abc import Callable

    from refold.client.views import Channel

F = TypeVar("F", bound="Callable[..., Any]")
TOKEN = "REFOLD_TOKEN"
_ADDRESS, _CHANNEL = "refold.server", "refold.channel"  # what is kept in the context of a command


def server_option(command: F) -> F:
    """`--server URL`, which takes the place of `--db`."""
    about = "A server to ask in place of a database, as https://refold.example.org; REFOLD_TOKEN has the token."
    return click.option("--server", metavar="URL", expose_value=False, callback=_keep, help=about)(command)


def _keep(ctx: click.Context, param: click.Parameter, given: str | None) -> None:
    ctx.meta[_ADDRESS] = given


def server() -> str:
    """Return the address of the server that this command asks; empty: it opens a database.

    Raises UsageError if both are named on the command line.
    """
    context = click.get_current_context(silent=True)
    if context is None or _ADDRESS not in context.meta:
        return ""  # a command that needs the database itself
    given: str | None = context.meta[_ADDRESS]
    names_db = context.get_parameter_source("db") == ParameterSource.COMMANDLINE
    if given and names_db:
        raise click.UsageError("--db and --server exclude each other: a run is in one of them")
    return given or ("" if names_db else loaded().command.server)


def db_argument(db: str) -> str:
    """Return what a printed command needs to find the database or the server again, without this environment."""
    if address := server():
        return server_argument(address)
    from_environment = loaded().origin("db") == variable("db")
    return f" --db {shlex.quote(shown_address(db))}" if from_environment or db != usual_db() else ""


def server_argument(address: str) -> str:
    """Return what a printed command needs to find the server again, without this environment."""
    from_environment = loaded().origin("server") == variable("server")
    usual = loaded().command.server
    return f" --server {shlex.quote(address)}" if from_environment or address != usual else ""


def channel(address: str) -> "Channel":
    """The connection of this command, opened once. Raises InvalidValue if there is no token."""
    from refold.client.views import Channel

    context = click.get_current_context()
    known: Channel | None = context.meta.get(_CHANNEL)
    if known is None:
        known = context.meta[_CHANNEL] = Channel(address, os.environ.get(TOKEN, ""))
        context.call_on_close(known.close)
    return known
