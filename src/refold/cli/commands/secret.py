"""Commands for secrets: `secret set`, `list`, `rm`, `rotate`. No command takes one as an argument or shows one."""

import os
import sys

import click

from refold.cli import output as out
from refold.cli import words
from refold.cli.options import db_option, output_option, settings
from refold.secrets.access import SecretAccess
from refold.secrets.names import LARGEST, checked_name
from refold.secrets.spellings import SHORTEST


@click.command("set")
@click.argument("name")
@db_option
def set_secret(name: str, db: str) -> None:
    """Keep a secret in the encrypted file next to the database.

    It is read from stdin, without the last line break. On a terminal it is asked for and not shown. A JSON object is a
    secret with fields. The key is made when it is first needed, in a file of your own; `refold secret list` shows which
    file. Without the key the secrets are lost.
    """
    room = _opened(db)
    checked_name(name)
    text = _read(name)
    if not text:
        raise click.UsageError("a secret has at least one character")
    is_new = room.file.set(name, text, words.now())
    out.print_message(f"{name} is {'kept' if is_new else 'replaced'} in {room.file.path}")
    if len(text) < SHORTEST:
        out.print_message(f"warning: with less than {SHORTEST} characters it is not recognised in logs and results")


def _read(name: str) -> str:
    if out.is_terminal(sys.stdin):
        return str(click.prompt(name, hide_input=True, confirmation_prompt="once more", err=True))
    try:
        text = sys.stdin.buffer.read(4 * LARGEST + 1).decode()
    except UnicodeDecodeError:
        raise click.UsageError("stdin is not UTF-8 text; other data can be kept as base64") from None
    return text.removesuffix("\n").removesuffix("\r")


@click.command("list")
@output_option
@db_option
def list_secrets(output: str, db: str) -> None:
    """List the names of secrets, and where they come from.

    It also shows since when they exist. If a name has several secrets, the first is used.
    """
    room = _opened(db)
    sealed = room.file.listed() if os.path.exists(room.file.path) else {}
    rows = []
    for provider in room.providers():
        for name in sorted(provider.names() or ()):
            own = sealed.get(name) if provider is room.file else None
            since, key = (words.stamp(own.at), own.key) if own is not None else (None, None)
            rows.append({"name": name, "from": provider.about(name), "key": key, "since": since})
    if output != "table":
        out.print_json(rows, output)
    else:
        lines = [[str(value or "") for value in row.values()] for row in rows]
        out.print_data(
            out.table(("NAME", "FROM", "KEY", "SINCE"), lines, out.has_colour(sys.stdout), out.terminal_width())
        )
    out.print_message(f"keys are in {room.keys.about()}")


@click.command("rm")
@click.argument("name")
@db_option
def remove(name: str, db: str) -> None:
    """Forget a secret of the encrypted file."""
    room = _opened(db)
    room.file.remove(name)
    out.print_message(f"{name} is gone from {room.file.path}")


@click.command()
@click.option(
    "--drop-old", is_flag=True, help="Forget the old keys, and all that runs or other files have sealed with them."
)
@db_option
def rotate(drop_old: bool, db: str) -> None:
    """Make a new key, and encrypt every secret with it.

    Old keys are kept for what finished runs have sealed. With REFOLD_KEY, which may hold several keys, every secret is
    encrypted with the first of them.
    """
    room = _opened(db)
    new = room.keys.current()[0] if room.keys.is_given() else room.keys.add()
    count = room.file.rotate()
    out.print_message(f"{count} secrets are encrypted with the key {new}")
    if drop_old and room.keys.is_given():
        out.print_message("the old keys are yours to take out of REFOLD_KEY")
    elif drop_old:
        room.keys.keep_only(new)
        out.print_message(f"{room.keys.about()} holds this key alone")


def _opened(db: str) -> SecretAccess:
    from refold.wiring import open_secrets

    return open_secrets(settings(), db)


COMMANDS = {"list": list_secrets, "rm": remove, "rotate": rotate, "set": set_secret}
