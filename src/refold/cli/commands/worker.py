"""The command `refold worker`: serves every run of a database until it is stopped, or until nothing is left to do."""

import asyncio
import gc
import os
import shlex
from collections.abc import Sequence

import click
from msgspec import Struct, structs

from refold import logs
from refold.cli import exits
from refold.cli import output as out
from refold.cli.commands.execute import in_foreground, is_idle
from refold.cli.options import code_option, quiet_option, settings, store_option
from refold.cli.settings import TOKEN, db_argument, loaded, server, server_argument
from refold.errors import NotFound, Stopped
from refold.ports import RunFilter, Views
from refold.settings import Settings
from refold.wiring import Process, open_process

LOOK = 0.2  # seconds between two looks for something to do, when the worker ends with the work


class Remote(Struct, frozen=True):
    """The server from which a worker takes its commands."""

    server: str
    code: Sequence[str]
    settings: Settings
    quiet: bool


class Serving(Struct, frozen=True):
    """What a worker serves, and for how long."""

    db: str
    code: Sequence[str]
    settings: Settings
    until_idle: bool
    quiet: bool
    playbooks: str = ""  # a folder whose schedules are those of the database


@click.command()
@click.option("--queue", "queues", multiple=True, metavar="QUEUE", help="Serve only this queue; can be repeated.")
@click.option("--slots", type=click.IntRange(min=1), metavar="N", help="How many commands run at a time (16).")
@code_option
@click.option("--playbooks", metavar="DIR", help="Keep the schedules in this folder in step with the database.")
@click.option("--until-idle", is_flag=True, help="End when only people, signals or a later time can continue a run.")
@quiet_option
@store_option
def worker(
    queues: Sequence[str],
    slots: int | None,
    code: Sequence[str],
    playbooks: str | None,
    until_idle: bool,
    quiet: bool,
    db: str,
) -> int:
    """Execute the runs of a database until stopped.

    Runs that other processes started are executed too. Several workers can serve one database. Ctrl-C or SIGTERM lets
    steps finish or hands them back to other workers; a second one kills. Python workflows need --code, because a worker
    imports only the code that is named. Schedules are served too; with --playbooks, the files of kind: Schedule in that
    folder are schedules of the database, and one whose file is removed is paused. With --until-idle the worker ends
    when nothing is left that it can do now: for cron and CI.

    With --server it needs no database: it takes its commands from a server, over HTTP, with the token of REFOLD_TOKEN.
    Its code, secrets and files are those of this machine.
    """
    known = settings(own_machine=True)
    known = structs.replace(known, slots=slots or known.slots, queues=tuple(queues) or known.queues)
    if not quiet and not loaded().prints_log:
        logs.configure("text", "info")
    if address := server():
        if until_idle or playbooks is not None:
            raise click.UsageError("--until-idle and --playbooks look at a database, and a worker of a server has none")
        return serve_remotely(Remote(address, code, known, quiet))
    folder = loaded().command.playbooks if playbooks is None else playbooks
    if folder and not os.path.isdir(folder):
        raise NotFound(f"there is no folder {folder} of playbooks")
    return serve(Serving(db, code, known, until_idle, quiet, folder))


def serve(wanted: Serving) -> int:
    """Serve every run of a database. Return the exit code: 0 also after a signal, because nothing was lost."""
    gc.freeze()
    gc.enable()
    try:
        asyncio.run(_serve(wanted))
    except Stopped:
        if not wanted.quiet:
            out.print_message("stopped; what was not finished can be taken by another worker")
    return exits.OK


async def _serve(wanted: Serving) -> None:
    def say(line: str) -> None:
        if not wanted.quiet and not line.startswith("to continue"):
            out.print_message(line)

    async with open_process(db=wanted.db, settings=wanted.settings) as process:
        from refold.cli.commands.schedule_files import LOOK_AT_FOLDER, load_folder

        async def work() -> None:
            for target in wanted.code:
                from refold.python.load import load

                await process.engine.register(load(target))
            mark = await load_folder(process, wanted.playbooks, wanted.code, None, say)
            if not wanted.until_idle:
                await process.enrol()
            say(_greeting(wanted, process))
            if wanted.until_idle:
                await until_idle(process)
            else:
                while True:  # until a signal comes
                    await asyncio.sleep(LOOK_AT_FOLDER)
                    mark = await load_folder(process, wanted.playbooks, wanted.code, mark, say)

        again = again_command(wanted)
        await in_foreground(work(), process.stop, grace=wanted.settings.stop_grace, resume=again, say=say)


def serve_remotely(wanted: Remote) -> int:
    """Execute runs of a server until stopped. Return the exit code: 0 also after a signal, because nothing was lost."""
    gc.freeze()
    gc.enable()
    try:
        asyncio.run(_serve_remotely(wanted))
    except Stopped:
        if not wanted.quiet:
            out.print_message("stopped; what was not finished can be taken by another worker")
    return exits.OK


async def _serve_remotely(wanted: Remote) -> None:
    from refold.client.connection import read_address
    from refold.client.worker import open_remote_worker

    def say(line: str) -> None:
        if not wanted.quiet and not line.startswith("to continue"):
            out.print_message(line)

    address = read_address(wanted.server, "--server")
    async with open_remote_worker(address, os.environ.get(TOKEN, ""), wanted.settings) as remote:

        async def work() -> None:
            for target in wanted.code:
                from refold.python.load import load

                await remote.register(load(target))
            queues = f"the queues {', '.join(wanted.settings.queues)}" if wanted.settings.queues else "every queue"
            say(f"worker {remote.desk.worker} serves {queues} of {address}")
            await remote.until_refused()
            say("the server asks this worker to end")
            await remote.stop(wanted.settings.stop_grace)

        code = "".join(f" --code {shlex.quote(each)}" for each in wanted.code if each not in loaded().command.code)
        again = f"refold worker{server_argument(address)}{code}"
        await in_foreground(work(), remote.stop, grace=wanted.settings.stop_grace, resume=again, say=say)


async def until_idle(process: Process) -> None:
    """Return when no run of the store can continue by itself."""
    while not await is_idle(process):
        await asyncio.sleep(LOOK)


def _greeting(wanted: Serving, process: Process) -> str:
    queues = f"the queues {', '.join(wanted.settings.queues)}" if wanted.settings.queues else "every queue"
    open_runs = _unfinished(process.engine.store.views)
    return f"worker {process.worker.can.worker} serves {queues} of {wanted.db}: {open_runs}"


def _unfinished(views: Views) -> str:
    count = sum(views.count(RunFilter(status=status))[0] for status in ("running", "waiting", "ending"))
    return "no run is open" if not count else f"{count} open run{'' if count == 1 else 's'}"


def again_command(wanted: Serving) -> str:
    """Return the command line that starts such a worker again."""
    code = "".join(f" --code {shlex.quote(each)}" for each in wanted.code if each not in loaded().command.code)
    folder = ""
    if wanted.playbooks != loaded().command.playbooks:
        folder = f" --playbooks {shlex.quote(wanted.playbooks)}"
    return f"refold worker{db_argument(wanted.db)}{code}{folder}"
