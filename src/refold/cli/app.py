"""The commands of `refold`: finds the one that is meant, runs it, and says in one message what went wrong."""

import gc
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import click

from refold import __version__
from refold.cli import exits, output
from refold.cli.exits import WrongRows
from refold.cli.settings import loaded
from refold.errors import InvalidPlan, NotFound, RefoldError, Stopped


def main() -> NoReturn:
    """Leaves at once: what the interpreter would tidy up goes with the process."""
    gc.disable()  # to load modules makes no garbage; what works for long turns it on again
    try:
        code = called(sys.argv[1:])
    except KeyboardInterrupt:
        os.write(2, b"interrupted\n")
        code = 130
    os._exit(code)


RUNS = (
    "list",
    "show",
    "history",
    "watch",
    "logs",
    "why",
    "items",
    "pause",
    "resume",
    "cancel",
    "retry",
    "signal",
    "migrate",
    "delete",
    "prune",
    "record",
    "export",
)
GATES = ("list", "show", "approve", "reject", "answer")
SCHEDULES = ("create", "list", "show", "pause", "resume", "trigger", "backfill", "preview", "delete")
DLQ = ("list", "show", "redrive", "dismiss")
SHARES = ("list", "set")
LIMITS = ("list", "set", "remove")
AUDIT = ("list", "verify")
TOKEN = ("create", "list", "revoke", "link")
NOETL = ("log",)
DB = ("info", "check", "backup", "copy", "vacuum", "rebuild", "migrate")
SECRET = ("set", "list", "rm", "rotate")
COMMANDS = (
    "run",
    "worker",
    "serve",
    "ui",
    "validate",
    "graph",
    "sim",
    "schema",
    "examples",
    "init",
    "feed",
    "doctor",
    "settings",
    "completion",
)


def _command_of_runs(name: str) -> click.Command:
    if name in ("resume", "retry"):
        from refold.cli.commands import run

        return run.COMMANDS[name]
    if name in ("watch", "logs"):
        from refold.cli.commands import watch

        return watch.COMMANDS[name]
    if name == "items":
        from refold.cli.commands.items import items

        return items
    if name == "migrate":
        from refold.cli.commands.migrate import migrate

        return migrate
    from refold.cli.commands import runs

    return runs.COMMANDS[name]


def _command_of_gates(name: str) -> click.Command:
    from refold.cli.commands import gates

    return gates.COMMANDS[name]


def _command_of_dlq(name: str) -> click.Command:
    from refold.cli.commands import dlq

    return dlq.COMMANDS[name]


def _command_of_shares(name: str) -> click.Command:
    from refold.cli.commands import limits

    return limits.SHARES[name]


def _command_of_limits(name: str) -> click.Command:
    from refold.cli.commands import limits

    return limits.LIMITS[name]


def _command_of_schedules(name: str) -> click.Command:
    from refold.cli.commands import schedules

    return schedules.COMMANDS[name]


def _command_of_secret(name: str) -> click.Command:
    from refold.cli.commands import secret

    return secret.COMMANDS[name]


def _command_of_audit(name: str) -> click.Command:
    from refold.cli.commands import audit

    return audit.COMMANDS[name]


def _command_of_token(name: str) -> click.Command:
    from refold.cli.commands import token

    return token.COMMANDS[name]


def _command_of_db(name: str) -> click.Command:
    from refold.cli.commands import db

    return db.COMMANDS[name]


def _command_of_refold(name: str) -> click.Command:
    match name:
        case "run":
            from refold.cli.commands import run

            return run.COMMANDS[name]
        case "worker":
            from refold.cli.commands.worker import worker

            return worker
        case "serve":
            from refold.cli.commands.serve import serve

            return serve
        case "ui":
            from refold.cli.commands.ui import ui

            return ui
        case "validate":
            from refold.cli.commands.validate import validate

            return validate
        case "graph" | "schema":
            from refold.cli.commands import playbooks

            return playbooks.COMMANDS[name]
        case "examples" | "init":
            from refold.cli.commands import examples

            return examples.COMMANDS[name]
        case "sim":
            from refold.cli.commands.sim import sim

            return sim
        case "completion":
            from refold.cli.commands.completion import completion

            return completion
        case "feed":
            from refold.cli.commands.feed import feed

            return feed
        case "settings":
            from refold.cli.commands.settings import settings

            return settings
        case _:
            return _command_of_db(name)


def _command_of_noetl(name: str) -> click.Command:
    from refold.cli.commands import noetl

    return noetl.COMMANDS[name]


class LazyGroup(click.Group):
    """A group that imports a command when it is asked for: the others would only delay it."""

    def __init__(
        self, *arguments: Any, names: Sequence[str], load: Callable[[str], click.Command], **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._names, self._load = frozenset(names), load
        self.commands = {**dict.fromkeys(names), **self.commands}  # type: ignore[dict-item]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; for a word that other programs use, the error says which command is meant."""
        known = args[0] in self.commands
        hint = "" if known else _elsewhere(args[0]) if ctx.parent is None else self._within(args[0])
        if hint:
            raise click.UsageError(f"No such command {args[0]!r}. Write `refold {hint}`.", ctx)
        return super().resolve_command(ctx, args)

    def _within(self, word: str) -> str:
        """Return the command of this group that is meant by a word of other programs; empty: unknown."""
        return next((f"{self.name} {name}" for name in MEANT_WITHIN.get(word, ()) if name in self._names), "")

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self._load(cmd_name) if cmd_name in self._names else self.commands.get(cmd_name)


MEANT = {
    "ls": "runs list",
    "ps": "runs list",
    "status": "runs show",
    "describe": "runs show",
    "stop": "runs cancel",
    "kill": "runs cancel",
    "rm": "runs delete",
    "events": "runs history",
    "tail": "runs logs",
    "start": "run",
    "exec": "run",
    "server": "serve",
    "workers": "doctor",
    "lint": "validate",
    "cron": "schedules",
    "schedule": "schedules",
    "secrets": "secret",
    "config": "settings",
    "version": "--version",
}  # what other programs call them
MEANT_WITHIN = {
    "ls": ("list",),
    "get": ("show",),
    "describe": ("show",),
    "status": ("show",),
    "stop": ("cancel", "pause"),
    "kill": ("cancel",),
    "disable": ("pause",),
    "enable": ("resume",),
    "rm": ("delete", "remove", "revoke", "dismiss"),
    "remove": ("delete", "rm", "revoke", "dismiss"),
    "delete": ("remove", "rm", "revoke"),
    "add": ("create", "set"),
    "new": ("create",),
    "apply": ("create",),
    "run": ("trigger",),
    "start": ("trigger", "resume"),
    "fire": ("trigger",),
    "restart": ("retry",),
    "rerun": ("retry",),
    "replay": ("redrive",),
    "retry": ("redrive",),
    "events": ("history",),
    "tail": ("logs",),
    "deny": ("reject",),
    "next": ("preview",),
}  # within a group: the first of these that it has


def _elsewhere(word: str) -> str:
    """Return the command that is meant by a word which is no command of `refold` itself; empty: unknown."""
    groups = {"runs": RUNS, "db": DB, "gates": GATES, "dlq": DLQ, "schedules": SCHEDULES}
    within = (f"{group} {word}" for group, names in groups.items() if word in names)
    return MEANT.get(word) or next(within, "")


def _group(name: str, names: Sequence[str], load: Callable[[str], click.Command], help: str) -> LazyGroup:
    return LazyGroup(name, names=names, load=load, help=help, no_args_is_help=True)


runs = _group("runs", RUNS, _command_of_runs, "Look at runs, and steer them.")
gates = _group("gates", GATES, _command_of_gates, "See what waits for a person, and decide.")
dlq = _group("dlq", DLQ, _command_of_dlq, "See what failed permanently, and try it again.")
shares = _group("shares", SHARES, _command_of_shares, "Say how much each share gets of a queue.")
limits = _group("limits", LIMITS, _command_of_limits, "Say how much may run at a time, or start in a second.")
schedules = _group("schedules", SCHEDULES, _command_of_schedules, "Start workflows at their times.")
secret = _group("secret", SECRET, _command_of_secret, "Keep secrets, encrypted.")
audit = _group("audit", AUDIT, _command_of_audit, "See who did what through the server.")
token = _group("token", TOKEN, _command_of_token, "Say who may use the server, and what for.")
noetl = _group("noetl", NOETL, _command_of_noetl, "Look at what NoETL has left behind.")
db = _group("db", DB, _command_of_db, "Look after the database file.")


@click.group(
    cls=LazyGroup,
    names=COMMANDS,
    load=_command_of_refold,
    commands={
        "runs": runs,
        "gates": gates,
        "dlq": dlq,
        "schedules": schedules,
        "shares": shares,
        "limits": limits,
        "secret": secret,
        "token": token,
        "audit": audit,
        "noetl": noetl,
        "db": db,
    },
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
)
@click.version_option(__version__, message="refold %(version)s")
@click.option("--debug", is_flag=True, envvar="REFOLD_DEBUG", help="Show where an error comes from.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", help="Colours (auto).")
def refold(debug: bool, color: str) -> None:
    """Durable workflows: a run is a log of facts, and a crash loses nothing.

    Exit codes: 0 ok, 1 the run failed, 2 usage or invalid playbook, 3 not found, 4 conflict or locked, 5 the database
    cannot be used, 6 the run is paused, 124 the run ran out of time, 130 Ctrl-C.
    """
    if debug:
        os.environ["REFOLD_DEBUG"] = "1"
    if color != "auto":
        os.environ.pop("NO_COLOR", None)
        os.environ["FORCE_COLOR" if color == "always" else "NO_COLOR"] = "1"
    _print_log()


def _print_log() -> None:
    wanted = loaded()
    if wanted.prints_log:
        from refold import logs

        logs.configure(wanted.command.log or "text", wanted.command.log_level or "info")


def called(arguments: Sequence[str]) -> int:
    """The exit code; everything that was printed has gone out."""
    output.forgive_encodings()
    try:
        return _heard(arguments)
    finally:
        output.flush()


def _heard(arguments: Sequence[str]) -> int:
    wrong = next((each for each in arguments if not (_is_text(each) or os.path.exists(each))), None)
    if wrong is not None:
        output.print_message(f"error: the argument {wrong!r} is not text in UTF-8")
        return exits.USAGE
    try:
        return _command(arguments)
    except output.ReaderGone:
        return exits.OK  # the reader has read enough
    except (KeyboardInterrupt, click.Abort):
        output.print_message("interrupted")
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


def _is_text(argument: str) -> bool:
    return not any("\ud800" <= sign <= "\udfff" for sign in argument)


def _command(arguments: Sequence[str]) -> int:
    wrong = WrongRows()
    try:
        code = refold.main(list(arguments), prog_name="refold", standalone_mode=False, obj=wrong)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.ClickException as error:
        said = io.StringIO()  # with what was typed, which may hold anything
        error.show(said)
        output.print_message(said.getvalue().rstrip("\n").replace("\nError: ", "\nerror: "))
        return error.exit_code
    except NotFound as error:
        if not wrong.errors:
            raise
        code = _refused(error)  # what is looked for may be what cannot be read
    for each in wrong.errors:
        output.print_message(f"error: {each}")
    if wrong.errors:
        return exits.UNREACHABLE
    return code if isinstance(code, int) else exits.OK


def _refused(error: RefoldError) -> int:
    if isinstance(error, Stopped):
        return error.code  # a message has shown how to continue
    shown = str(error)
    if "\n" not in shown and not (isinstance(error, InvalidPlan) and "error[" in shown):
        shown = f"{output.styled('error:', 'red', output.has_colour(sys.stderr))} {shown}"
    return _broken(error, shown, exits.code_of(error))


def _broken(error: BaseException, shown: str, code: int) -> int:
    if os.environ.get("REFOLD_DEBUG"):
        from traceback import format_exception

        output.print_message("".join(format_exception(error)).rstrip())
    output.print_message(shown)
    return code
