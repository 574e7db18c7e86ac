"""The command `refold ui`: the page on a database or on exported runs, and nothing else."""

import asyncio
import gc
import webbrowser
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING

import click

from refold import logs
from refold.cli import database, exits
from refold.cli import output as out
from refold.cli.commands.serve import ServeOptions, page_hint, without_worker
from refold.cli.options import settings
from refold.cli.settings import loaded, usual_db
from refold.errors import InvalidValue, NotFound, Stopped, Unusable
from refold.server.service import ServerOptions
from refold.stores.open import is_server, shown_address
from refold.wiring import open_process

if TYPE_CHECKING:
    from refold.server.process import ServedStore
    from refold.server.service import Service

BEGINNING = 16  # bytes of a file that tell an export from a database


@click.command()
@click.argument("files", metavar="[FILE]...", nargs=-1)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port; without it, any free one.")
@click.option("--no-open", is_flag=True, help="Open no browser; the link is printed.")
@click.option(
    "--steer", is_flag=True, help="Also allow to start and steer runs; workers of other processes execute them."
)
@click.option("--playbooks", metavar="DIR", help="The folder of playbooks that the page shows.")
def ui(files: Sequence[str], port: int, no_open: bool, steer: bool, playbooks: str | None) -> int:
    """Open the page on a database, or on exported runs.

    Files are what `export` of a run has given.

    Only this machine can reach the page, and only with the link that is printed. It shows and changes nothing: no byte
    is written to the database or next to it, unless --steer allows it. No worker runs here. Ctrl-C ends it.
    """
    db = "" if any(map(_is_export, files)) else _database(files)
    if steer and not db:
        raise InvalidValue("--steer", "exported runs can only be looked at; `refold ui DATABASE --steer` steers runs")
    folder = playbooks if playbooks is not None else loaded().command.playbooks
    shown = shown_address(db) if db else ", ".join(files)
    options = ServerOptions(port=port, read_only=not steer)
    wanted = ServeOptions(
        shown,
        (),
        folder,
        settings(own_machine=True),
        options,
        False,
        not no_open,
        store="" if db else "exported runs, in memory",
    )
    if not loaded().prints_log:
        logs.configure("text", "warning")
    gc.freeze()
    gc.enable()
    with suppress(Stopped):
        asyncio.run(_show(wanted, db, files))
    return exits.OK


def _database(files: Sequence[str]) -> str:
    if len(files) > 1:
        raise InvalidValue("FILE", "one database is shown at a time; several files are exported runs")
    return files[0] if files else usual_db()


def _is_export(path: str) -> bool:
    """Whether a file is an exported run, and not a database. Raises NotFound or Unusable."""
    if is_server(path):
        return False
    try:
        with open(path, "rb") as opened:
            return opened.read(BEGINNING).lstrip().startswith(b"{")
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except OSError as error:
        raise Unusable(f"{path} cannot be read: {error.strerror}") from None


async def _show(wanted: ServeOptions, db: str, files: Sequence[str]) -> None:
    from refold.server.process import listen

    bound = listen(wanted.options)
    async with _kept(wanted, db, files) as kept:
        await without_worker(kept, bound, wanted, _greeting)


@asynccontextmanager
async def _kept(wanted: ServeOptions, db: str, files: Sequence[str]) -> AsyncIterator["ServedStore"]:
    """What is shown: tokens are in memory in any case."""
    from refold.server.process import ServedStore, read_only
    from refold.wiring.imported_runs import exported_in_memory

    async with AsyncExitStack() as stack:
        if not db:
            yield read_only(exported_in_memory(map(_read, files)).views)
        elif wanted.options.read_only:
            yield read_only(stack.enter_context(database.reading(db)))
        else:
            database.check_exists(db)
            opened = open_process(db=db, settings=wanted.settings, works=False)
            engine = (await stack.enter_async_context(opened)).engine
            yield ServedStore(engine.store.views, engine, engine.store, engine.advance, keeps_tokens=False)


def _read(path: str) -> bytes:
    if not _is_export(path):
        raise InvalidValue(path, "is no exported run; a database is shown alone")
    with open(path, "rb") as opened:
        return opened.read()


async def _greeting(wanted: ServeOptions, service: "Service") -> list[str]:
    from refold.server.process import first_token

    made = await first_token(service, f"http://127.0.0.1:{service.options.port}")
    assert made is not None  # there are no tokens before the first one: they are in memory
    if wanted.opens:
        webbrowser.open(made.link)
    what = "can steer" if service.is_steering else "is read only"
    return [
        f"refold ui shows {out.printable(wanted.db)}{page_hint()}",
        f"the page (it {what}; the link is valid once, for ten minutes): {made.link}",
    ]
