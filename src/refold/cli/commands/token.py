"""Commands of `refold token`: who may use the server of a database, and what for."""

from collections.abc import Sequence

import click
from msgspec import json

from refold.cli import database, words
from refold.cli import output as out
from refold.cli.options import db_option, output_option
from refold.errors import Conflict, InvalidValue, NotFound
from refold.ports import Views
from refold.server import access
from refold.server.access import ROLES, AccessToken
from refold.server.credentials import TICKET_FOR, TICKETS, TOKENS, Ticket
from refold.server.tokens import TokenBody, token_object, token_of


@click.command()
@click.argument("name")
@click.option("--role", type=click.Choice(list(ROLES)), required=True, help="What it may do.")
@click.option("--plus", multiple=True, metavar="PERMISSION", help="A permission more: only `decide`.")
@click.option("--minus", multiple=True, metavar="PERMISSION", help="A permission less.")
@click.option("--workflow", "workflows", multiple=True, metavar="NAME", help="Only this workflow; can be repeated.")
@click.option("--queue", "queues", multiple=True, metavar="QUEUE", help="A worker: only this queue; can be repeated.")
@click.option("--tool", "tools", multiple=True, metavar="TOOL", help="A worker: only this tool; can be repeated.")
@click.option("--expires", metavar="SPAN", help="When it ends, as 30d; `never` must be said (90d).")
@output_option
@db_option
def create(
    name: str,
    role: str,
    plus: Sequence[str],
    minus: Sequence[str],
    workflows: Sequence[str],
    queues: Sequence[str],
    tools: Sequence[str],
    expires: str | None,
    output: str,
    db: str,
) -> None:
    """Create a token. NAME is the author of everything that is done with it. The token is shown once."""
    lists = tuple(workflows) or None, tuple(queues) or None, tuple(tools) or None
    body = TokenBody(name, role, tuple(plus), tuple(minus), *lists, expires)
    secret = access.new_secret()
    with database.writing(db) as store:
        wanted = token_of(body, words.now())
        made = AccessToken(
            id=access.new_id(),
            hash=access.hash_of(secret),
            name=wanted.name,
            role=wanted.role,
            permissions=wanted.permissions,
            namespaces=wanted.namespaces,
            workflows=wanted.workflows,
            queues=wanted.queues,
            tools=wanted.tools,
            created_at=words.now(),
            expires_at=wanted.expires_at,
        )
        with store.turn(()) as turn:
            turn.put_document(TOKENS, made.id, json.encode(made))
    text = access.written_token(made.id, secret)
    if output != "table":
        out.print_json({**token_object(made), "token": text}, output)
        return
    out.print_data(text)
    out.print_message(f"token {made.id} of {out.printable(name)} ({role}); it is not shown again")


@click.command("list")
@output_option
@db_option
def list_tokens(output: str, db: str) -> None:
    """List the tokens, without their secrets."""
    with database.reading(db) as views:
        tokens = _tokens(views)
    if output != "table":
        out.print_json([token_object(each) for each in tokens], output)
        return
    if not tokens:
        out.print_message("there are no tokens; `refold token create NAME --role ROLE` makes one")
        return
    rows = [
        (
            each.id,
            out.printable(each.name),
            each.role,
            words.moment(each.created_at),
            _ends(each),
            words.moment(each.used_at or 0) or "never",
        )
        for each in tokens
    ]
    out.print_data(out.table(("ID", "NAME", "ROLE", "CREATED", "ENDS", "USED"), rows, False, out.terminal_width()))


def _tokens(views: Views) -> list[AccessToken]:
    found: list[AccessToken] = []
    while part := views.documents(TOKENS, found[-1].id if found else ""):
        found += [json.decode(each.data, type=AccessToken) for each in part]
    return found


def _ends(token: AccessToken) -> str:
    return "never" if token.expires_at is None else words.moment(token.expires_at)


@click.command()
@click.argument("id")
@db_option
def revoke(id: str, db: str) -> None:
    """Revoke a token: its requests, sessions and streams end at once."""
    with database.writing(db) as store:
        found = store.views.document(TOKENS, id)
        if found is None:
            raise NotFound(f"there is no token {id!r}; `refold token list` shows them")
        with store.turn(()) as turn:
            turn.delete_document(TOKENS, id, found.version)
    out.print_message(f"token {out.printable(id)} is revoked")


@click.command()
@click.argument("id", required=False)
@click.option(
    "--server", "address", default="http://127.0.0.1:7399", show_default=True, metavar="URL", help="The server."
)
@db_option
def link(id: str | None, address: str, db: str) -> None:
    """Print a link that signs a browser in, as the token of this ID. It is valid once, for ten minutes.

    Without an ID it is for the only token of an administrator.
    """
    with database.writing(db) as store:
        tokens = [each for each in _tokens(store.views) if each.id == id or (id is None and each.role == "admin")]
        if not tokens:
            raise NotFound(f"there is no token {id or 'of an administrator'}; `refold token list` shows them")
        if len(tokens) > 1:
            raise Conflict(f"several tokens are for administrators; name one: {', '.join(each.id for each in tokens)}")
        if not tokens[0].is_valid(words.now()):
            raise InvalidValue("id", f"token {tokens[0].id} has expired")
        secret = access.new_secret()
        ticket = Ticket(tokens[0].id, words.now() + TICKET_FOR)
        with store.turn(()) as turn:
            turn.put_document(TICKETS, access.hash_of(secret), json.encode(ticket))
    out.print_data(f"{address.rstrip('/')}/#ticket={secret}")


COMMANDS = {"create": create, "list": list_tokens, "revoke": revoke, "link": link}
