"""The command `refold serve`: the API and the page of a database, with a worker or only to look."""

import asyncio
import gc
import hashlib
import os
import re
import shlex
import socket
import time
import webbrowser
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct, structs, to_builtins

from refold import logs
from refold.cli import database, exits
from refold.cli import output as out
from refold.cli.commands.execute import in_foreground
from refold.cli.options import code_option, db_option, quiet_option, settings
from refold.cli.settings import db_argument, loaded
from refold.errors import Stopped, Unusable
from refold.server.service import ServerFacts, ServerOptions, ShownSetting
from refold.settings import Settings
from refold.stores.open import is_server, shown_address
from refold.wiring import open_process

if TYPE_CHECKING:
    from refold.server.process import ServedStore
    from refold.server.service import Service

PORT = 7399
WHO = re.compile(r"://[^/@\s]*@")  # the name, password or token in an address


class ServeOptions(Struct, frozen=True):
    """What `refold serve` serves."""

    db: str
    code: Sequence[str]
    playbooks: str
    settings: Settings
    options: ServerOptions
    quiet: bool
    opens: bool
    workers: int = 1
    store: str = ""  # its kind in words; empty: what its address says


Greet = Callable[[ServeOptions, "Service"], Awaitable[list[str]]]


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, metavar="HOST", help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0: any free port.")
@click.option(
    "--public-address", default="", metavar="URL", help="What people type to reach it, as https://refold.example.org."
)
@click.option("--plain-http", is_flag=True, help="Allow a public address without https.")
@click.option("--playbooks", metavar="DIR", help="The folder of playbooks that can be started.")
@click.option(
    "--workers", type=click.IntRange(0, 1), default=1, show_default=True, help="0: leave all steps to other workers."
)
@click.option("--read-only", is_flag=True, help="Only show; start and steer nothing, and run no worker.")
@click.option("--check", is_flag=True, help="Say what would be served, and end.")
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
@code_option
@quiet_option
@db_option
def serve(
    host: str,
    port: int,
    public_address: str,
    plain_http: bool,
    playbooks: str | None,
    workers: int,
    read_only: bool,
    check: bool,
    opens: bool,
    code: Sequence[str],
    quiet: bool,
    db: str,
) -> int:
    """Serve the API and the page, and execute runs.

    Every request needs a token. The first start makes one for an administrator and prints it once, with a link that
    signs a browser in. Ctrl-C or SIGTERM ends the server: steps finish or are handed back to other workers.
    """
    from refold.server.process import check_address

    options = ServerOptions(host, port, public_address.rstrip("/"), read_only)
    check_address(options, plain_http)
    folder = playbooks if playbooks is not None else loaded().command.playbooks
    wanted = ServeOptions(db, code, folder, settings(own_machine=True), options, quiet, opens, workers)
    if check:
        out.print_data(_described(wanted))
        return exits.OK
    if not quiet and not loaded().prints_log:
        logs.configure("text", "warning")
    gc.freeze()
    gc.enable()
    with suppress(Stopped):  # a signal, and steps did not end within the grace
        asyncio.run(_read(wanted) if read_only else _serve(wanted))
    if not quiet:
        out.print_message("stopped" if read_only else "stopped; what was not finished can be taken by another worker")
    return exits.OK


def _executed(wanted: ServeOptions) -> str:
    if wanted.options.read_only:
        return "no"
    return f"yes, {wanted.settings.slots} slots" if wanted.workers else "by other workers"


def _described(wanted: ServeOptions) -> str:
    rows = [
        ("database", wanted.db, loaded().origin("db")),
        ("address", f"{wanted.options.host}:{wanted.options.port}", ""),
        ("public address", wanted.options.public_address or "none: only this machine", ""),
        ("playbooks", wanted.playbooks or "none", loaded().origin("playbooks")),
        ("code", ", ".join(wanted.code) or "none", loaded().origin("code")),
        ("runs are executed", _executed(wanted), ""),
    ]
    return out.table(("WHAT", "VALUE", "FROM"), rows, False, out.terminal_width())


async def _serve(wanted: ServeOptions) -> None:
    """Serve with an engine and a worker."""
    from refold.cli.commands.schedule_files import kept_in_step
    from refold.server.process import ServedStore, WebServer, listen, open_service, with_port

    bound = listen(wanted.options)
    options = with_port(wanted.options, bound)
    claims = wanted.workers > 0
    async with open_process(db=wanted.db, settings=wanted.settings, claims=claims) as process:
        code = await _known_code(process.engine, wanted.code)
        engine = process.engine
        if claims:
            await process.enrol()
        kept = ServedStore(
            engine.store.views,
            engine,
            engine.store,
            engine.advance,
            facts=server_facts(wanted),
            late_loops=process.late_loops,
        )
        async with open_service(kept, options, wanted.playbooks, code, time.monotonic) as service:
            lines = await _greeting(wanted, service)

            def began() -> None:
                for line in lines:
                    out.print_message(line)

            again, web = again_command(wanted), WebServer(service, bound)
            say, grace = _say(wanted), wanted.settings.stop_grace

            async def stop(grace: float) -> None:
                """First the requests, which may still ask for runs, then the worker."""
                await web.stop()
                await process.stop(grace)

            async with kept_in_step(process, wanted.playbooks, wanted.code, say):
                await in_foreground(web.run(began), stop, grace=grace, resume=again, say=say)


async def _read(wanted: ServeOptions) -> None:
    """Serve without an engine. Tokens are in memory: nothing is written to the database."""
    from refold.server.process import listen, read_only

    bound = listen(wanted.options)
    with database.reading(wanted.db) as views:
        await without_worker(read_only(views), bound, wanted, _greeting)


async def without_worker(kept: "ServedStore", bound: socket.socket, wanted: ServeOptions, greet: Greet) -> None:
    """Serve until a signal comes; nothing is executed here. `greet` returns the lines that are printed when requests
    are answered."""
    from refold.server.process import WebServer, open_service, with_port

    options = with_port(wanted.options, bound)
    kept = structs.replace(kept, facts=server_facts(wanted))
    async with open_service(kept, options, wanted.playbooks, {}, time.monotonic) as service:
        lines = await greet(wanted, service)

        def began() -> None:
            for line in lines:
                out.print_message(line)

        web = WebServer(service, bound)

        async def stop(grace: float) -> None:
            await web.stop()

        await in_foreground(web.run(began), stop, grace=0.0, resume=again_command(wanted), say=_say(wanted))


def server_facts(wanted: ServeOptions) -> ServerFacts:
    """What administrators see of the store and of the settings. Addresses lose their passwords and tokens."""
    given = {"db": wanted.db, "playbooks": wanted.playbooks, "code": tuple(wanted.code)}
    shown = []
    for each in loaded().entries:
        value = given.get(each.name, each.value)
        origin = each.origin if value == each.value else "the command line"
        value = shown_address(value) if each.name == "db" else value
        value = WHO.sub("://…@", value) if isinstance(value, str) and each.name != "db" else to_builtins(value)
        shown.append(ShownSetting(each.name, value, origin))
    kind = wanted.store or ("PostgreSQL" if is_server(wanted.db) else "a file of SQLite")
    return ServerFacts(kind, shown_address(wanted.db), tuple(shown))


def _say(wanted: ServeOptions) -> Any:
    def say(line: str) -> None:
        if not wanted.quiet and not line.startswith("to continue"):
            out.print_message(line)

    return say


async def _known_code(engine: Any, targets: Sequence[str]) -> dict[str, tuple[Any, Any]]:
    """Import the Python workflows that were named, by the names under which they are started."""
    from refold.python.load import load

    found = {}
    for target in targets:
        workflow = load(target)
        await engine.register(workflow)
        plan = (await engine.code.known(workflow)).plan
        found[plan.name] = (workflow, plan)
    return found


async def _greeting(wanted: ServeOptions, service: Any) -> list[str]:
    from refold.server.process import addresses, first_token

    [address] = addresses(service.options)
    what = "shows" if wanted.options.read_only else "serves"
    lines = [f"refold {what} {wanted.db} on {address}{page_hint()}"]
    made = await first_token(service, address)
    if made is not None:
        where = "" if wanted.options.read_only else _keep_token(made.text, wanted.db)
        lines += [
            f"token of the administrator, shown only now{where}: {made.text}",
            f"to sign a browser in (valid once, for ten minutes): {made.link}",
        ]
        if wanted.opens:
            webbrowser.open(made.link)
    elif not wanted.quiet:
        lines.append(f"to sign a browser in: refold token link{db_argument(wanted.db)} --server {address}")
    return lines


def page_hint() -> str:
    """Words for a copy of the source that has no page yet."""
    from refold.server.page_files import BUILD, is_built

    return "" if is_built() else f" (the page is not built: `{BUILD}` builds it)"


def _keep_token(text: str, db: str) -> str:
    """Keep the token in a file that only this user can read; return the words that name it."""
    from refold.secrets.private_files import write

    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "refold" / "tokens"
    path = folder / hashlib.sha256(os.path.abspath(db).encode()).hexdigest()[:16]
    try:
        write(path, f"{text}\n".encode())
    except Unusable as error:
        out.print_message(f"warning: {error}; keep the token yourself")
        return ""
    return f" and kept in {path}"


def again_command(wanted: ServeOptions) -> str:
    """Return the command line that starts such a server again."""
    port = "" if wanted.options.port == PORT else f" --port {wanted.options.port}"
    known = loaded().command
    code = "".join(f" --code {shlex.quote(each)}" for each in wanted.code if each not in known.code)
    folder = "" if wanted.playbooks == known.playbooks else f" --playbooks {shlex.quote(wanted.playbooks)}"
    alone = "" if wanted.workers else " --workers 0"
    return f"refold serve{db_argument(wanted.db)}{port}{folder}{code}{alone}"
