"""The commands of `refold`: finds the one that is meant, runs it, and says in one message what went wrong."""

import gc
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import click

from refold import __version__
from refold.cli import exits, output
from refold.cli.exits import WrongRows
from refold.errors import InvalidPlan, RefoldError, Stopped


def main() -> NoReturn:
    """Leaves at once: what the interpreter would tidy up goes with the process."""
    gc.disable()  # to load modules makes no garbage; what works for long turns it on again
    try:
        code = called(sys.argv[1:])
    except KeyboardInterrupt:
        os.write(2, b"interrupted\n")
        code = 130
    os._exit(code)


def _checking() -> Any:
    from refold.cli.commands import playbooks

    return playbooks


def _completing() -> Any:
    from refold.cli import completion

    return completion


def _dlq() -> Any:
    from refold.cli.commands import dlq

    return dlq


def _examples() -> Any:
    from refold.cli.commands import examples

    return examples


def _files() -> Any:
    from refold.cli.commands import db as files

    return files


def _following() -> Any:
    from refold.cli.commands import watch

    return watch


def _gates() -> Any:
    from refold.cli.commands import gates

    return gates


def _items() -> Any:
    from refold.cli.commands import items

    return items


def _looking() -> Any:
    from refold.cli.commands import runs as looking

    return looking


def _migrating() -> Any:
    from refold.cli.commands import migrate

    return migrate


def _noetl_log() -> Any:
    from refold.cli.commands import noetl_log

    return noetl_log


def _questions() -> Any:
    from refold.cli.commands import gates as questions

    return questions


def _recording() -> Any:
    from refold.cli.commands import runs as recording

    return recording


def _running() -> Any:
    from refold.cli.commands import run

    return run


def _secret() -> Any:
    from refold.cli.commands import secret

    return secret


def _sim() -> Any:
    from refold.cli.commands import sim

    return sim


def _steering() -> Any:
    from refold.cli.commands import runs as steering

    return steering


RUNS = {
    "list": lambda: _looking().list_runs,
    "show": lambda: _looking().show,
    "history": lambda: _looking().history,
    "watch": lambda: _following().watch,
    "logs": lambda: _following().logs,
    "why": lambda: _looking().why,
    "items": lambda: _items().items,
    "pause": lambda: _steering().pause,
    "resume": lambda: _running().resume,
    "cancel": lambda: _steering().cancel,
    "retry": lambda: _running().retry,
    "signal": lambda: _steering().signal,
    "migrate": lambda: _migrating().migrate,
    "prune": lambda: _steering().prune,
    "record": lambda: _recording().record,
}
GATES = {
    "list": lambda: _gates().list_gates,
    "show": lambda: _gates().show,
    "approve": lambda: _gates().approve,
    "reject": lambda: _gates().reject,
    "answer": lambda: _questions().answer,
}
DLQ = {
    "list": lambda: _dlq().list_groups,
    "show": lambda: _dlq().show,
    "redrive": lambda: _dlq().redrive,
}
DB = {
    "info": lambda: _files().info,
    "check": lambda: _files().check,
    "rebuild": lambda: _files().rebuild,
    "migrate": lambda: _files().migrate,
}
SECRET = {
    "set": lambda: _secret().set_secret,
    "list": lambda: _secret().list_secrets,
    "rm": lambda: _secret().remove,
    "rotate": lambda: _secret().rotate,
}
COMMANDS = {
    "run": lambda: _running().run,
    "validate": lambda: _checking().validate,
    "graph": lambda: _checking().graph,
    "sim": lambda: _sim().sim,
    "schema": lambda: _checking().schema,
    "noetl-log": lambda: _noetl_log().noetl_log,
    "examples": lambda: _examples().examples,
    "init": lambda: _examples().init,
    "doctor": lambda: _files().doctor,
    "completion": lambda: _completing().completion,
}


class Later(click.Group):
    """Commands by what loads them; only the one that is asked for is imported."""

    def __init__(self, *given: Any, places: Mapping[str, Callable[[], click.Command]], **named: Any) -> None:
        super().__init__(*given, **named)
        self.places = places
        self.commands = {**dict.fromkeys(places), **self.commands}  # type: ignore[dict-item]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.places:
            return self.commands.get(cmd_name)
        return self.places[cmd_name]()


runs = Later("runs", places=RUNS, help="Look at runs, and steer them.", no_args_is_help=True)
gates = Later("gates", places=GATES, help="See what waits for a person, and decide.", no_args_is_help=True)
dlq = Later("dlq", places=DLQ, help="See what failed for good, and try it again.", no_args_is_help=True)
secret = Later("secret", places=SECRET, help="Keep secrets, encrypted.", no_args_is_help=True)
db = Later("db", places=DB, help="Look after the database file.", no_args_is_help=True)


@click.group(
    cls=Later,
    places=COMMANDS,
    commands={"runs": runs, "gates": gates, "dlq": dlq, "secret": secret, "db": db},
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
)
@click.version_option(__version__, message="refold %(version)s")
@click.option("--debug", is_flag=True, envvar="REFOLD_DEBUG", help="Show where an error comes from.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", help="Colours (auto).")
def refold(debug: bool, color: str) -> None:
    """Durable workflows: a run is a log of facts, and a crash loses nothing.

    Exit codes: 0 ok, 1 the run failed, 2 usage or invalid playbook, 3 not found, 4 conflict or locked, 5 the database
    cannot be used, 124 the run ran out of time, 130 Ctrl-C.
    """
    if debug:
        os.environ["REFOLD_DEBUG"] = "1"
    if color != "auto":
        os.environ.pop("NO_COLOR", None)
        os.environ["FORCE_COLOR" if color == "always" else "NO_COLOR"] = "1"
    if output.prints_log():
        _print_log()


def _print_log() -> None:
    from refold import logs, settings

    wanted = settings.LogSettings.from_environment(os.environ)
    if wanted is not None:
        logs.configure(wanted.mode, wanted.level)


def called(arguments: Sequence[str]) -> int:
    """The exit code; everything that was printed has gone out."""
    output.forgive_encodings()
    try:
        return _heard(arguments)
    finally:
        output.flush()


def _heard(arguments: Sequence[str]) -> int:
    try:
        return _command(arguments)
    except output.Closed:
        return exits.OK  # whoever read has read enough
    except (KeyboardInterrupt, click.Abort):
        output.tell("interrupted")
        return exits.INTERRUPTED
    except RefoldError as error:
        return _refused(error)
    except output.Unwritable as error:
        return _broken(error, f"error: {error}", exits.FAILED)
    except OSError as error:
        where = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else "the operating system"
        return _broken(error, f"error: {where}: {error.strerror or error}", exits.FAILED)
    except Exception as error:
        hint = "this is a bug; --debug shows where"
        return _broken(error, f"{type(error).__name__}: {error} ({hint})", exits.BUG)


def _command(arguments: Sequence[str]) -> int:
    wrong = WrongRows()
    try:
        code = refold.main(list(arguments), prog_name="refold", standalone_mode=False, obj=wrong)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.ClickException as error:
        said = io.StringIO()  # with what was typed, which may hold anything
        error.show(said)
        output.tell(said.getvalue().rstrip("\n"))
        return error.exit_code
    for each in wrong.errors:
        output.tell(f"error: {each}")
    if wrong.errors:
        return exits.UNREACHABLE
    return code if isinstance(code, int) else exits.OK


def _refused(error: RefoldError) -> int:
    if isinstance(error, Stopped):
        return error.code  # it was said how to go on
    shown = str(error)
    if "\n" not in shown and not isinstance(error, InvalidPlan):
        shown = f"{output.painted('error:', 'red', output.has_colour(sys.stderr))} {shown}"
    return _broken(error, shown, exits.code_of(error))


def _broken(error: BaseException, shown: str, code: int) -> int:
    if os.environ.get("REFOLD_DEBUG"):
        from traceback import format_exception

        output.tell("".join(format_exception(error)).rstrip())
    output.tell(shown)
    return code
