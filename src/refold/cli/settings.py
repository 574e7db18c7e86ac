"""The settings of a command, and which database or server it asks: from options, the environment and the file
`refold.toml`, each with its origin.

The file is looked for in the working directory and in the folders above it. A setting of the environment wins over the
file, and an option of the command wins over both. `KEY` in the file is `REFOLD_KEY` in the environment.
"""

import os
import re
import shlex
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_type_hints

import click
from click.core import ParameterSource
from msgspec import Struct

from refold.errors import InvalidValue, NotFound
from refold.names import did_you_mean
from refold.settings import Settings, from_text, from_value, variable
from refold.stores.open import shown_address

if TYPE_CHECKING:
    from refold.client.views import Channel

F = TypeVar("F", bound=Callable[..., Any])

FILE = "refold.toml"
TOKEN = "REFOLD_TOKEN"
_ADDRESS, _CHANNEL = "refold.server", "refold.channel"  # what is kept in the context of a command
NAMED = "REFOLD_SETTINGS"  # the variable that names the file; no other one is looked for then
DEFAULT = "default"
OTHER_WORDS = {"database": "db", "modules": "code", "folder": "playbooks", "queue": "queues", "workers": "slots"}
OTHER_VARIABLES = {
    NAMED: "the settings file; without it, the nearest `refold.toml` is used. `/dev/null` means none",
    "REFOLD_DEBUG": "if it is set, errors show where in Refold they come from, as with `--debug`",
    "REFOLD_KEY": "the key of encrypted secrets, in base64; several are separated by spaces, the newest first",
    "REFOLD_SECRET_NAME": "the secret NAME, in capitals and with `_` for `-`",
    "REFOLD_TOKEN": "the token with which commands and workers ask a server",
    "REFOLD_RUN": "set by Refold for programs of steps: the id of the run",
    "REFOLD_STEP": "set by Refold for programs of steps: the step",
    "REFOLD_ATTEMPT": "set by Refold for programs of steps: which try this is, from 1",
    "REFOLD_IDEMPOTENCY_KEY": "set by Refold for programs of steps: the same text in every try of a command",
}
"""The other variables of the environment, with what they are for."""

PATHS = frozenset({"db", "playbooks", "secrets", "secrets_folder", "key_file", "artifacts"})
"""Settings that name files: in `refold.toml` they are relative to its folder, elsewhere to the working directory."""


class CommandSettings(Struct, frozen=True, kw_only=True):
    """What only the command line reads; an engine in Python gets it as arguments."""

    db: str = "refold.db"  # the database file
    server: str = ""  # the server that commands ask in place of a database, as https://refold.example.org
    code: tuple[str, ...] = ()  # Python workflows, as module:Class, that workers and resumed runs execute
    playbooks: str = ""  # the folder of playbooks
    log: Literal["", "text", "json"] = ""  # how the log of the engine is printed; empty: workers print it as text
    log_level: Literal["", "debug", "info", "warning", "error"] = ""  # and what is more severe; empty: info


class Setting(Struct, frozen=True):
    """A setting with its value, and where the value comes from: an option, a variable, a line of a file, or default."""

    name: str
    value: Any
    origin: str


class LoadedSettings(Struct, frozen=True):
    """All settings of a command. `file` is empty if there is no settings file."""

    engine: Settings
    command: CommandSettings
    file: str
    entries: tuple[Setting, ...]

    def origin(self, name: str) -> str:
        return next(each.origin for each in self.entries if each.name == name)

    @property
    def prints_log(self) -> bool:
        return bool(self.command.log or self.command.log_level)


class SettingsFile(Struct, frozen=True):
    """A settings file as it was read: its values, and its text, to show where something is wrong."""

    path: str
    text: str
    values: Mapping[str, Any]

    def place(self, key: str) -> tuple[int, int]:
        """Return line and column of a key, from 1; (0, 0) if the key is written in an unusual way."""
        for number, line in enumerate(self.text.splitlines(), 1):
            if found := re.match(rf"\s*(\[?)\s*(['\"]?){re.escape(key)}\2\s*[=.\]]", line):
                return number, line.index(key, found.end(1)) + 1
        return 0, 0

    def origin(self, key: str) -> str:
        line, _ = self.place(key)
        return f"{self.path}:{line}" if line else self.path

    def wrong(self, key: str, code: str, message: str, hint: str = "") -> InvalidValue:
        """Return the error that shows a key with its line."""
        return wrong_place(self.path, self.text, self.place(key), len(key), code, message, hint)


class InvalidSettings(InvalidValue):
    """A settings file that cannot be used; the text shows the place."""

    def __init__(self, path: str, shown: str) -> None:
        super().__init__(path, shown)
        self.shown = shown

    def __str__(self) -> str:
        return self.shown


def wrong_place(
    path: str, text: str, place: tuple[int, int], length: int, code: str, message: str, hint: str
) -> InvalidSettings:
    from refold.playbooks.problems import Place, Problem, show

    if not place[0]:
        return InvalidSettings(path, f"error: {path}: {message}" + (f"\nhint: {hint}" if hint else ""))
    return InvalidSettings(path, show(Problem(code, message, Place(*place), hint, length=length), path, text))


def load(environment: Mapping[str, str], folder: str, defaults: Mapping[str, Any] = {}) -> LoadedSettings:
    """Read all settings. `defaults` replace those of this file. Raises InvalidValue or NotFound."""
    file = find_file(environment, folder)
    if file is not None:
        _check_keys(file)
    found: dict[str, list[Setting]] = {}
    kinds: tuple[Any, ...] = (Settings, CommandSettings)
    for kind in kinds:
        found[kind.__name__] = [
            _setting(name, wanted, environment, file, {**_defaults(kind), **defaults}, folder)
            for name, wanted in get_type_hints(kind).items()
        ]
    engine, command = ({each.name: each.value for each in found[kind.__name__]} for kind in kinds)
    every = [*found[CommandSettings.__name__], *found[Settings.__name__]]
    return LoadedSettings(
        Settings(**engine), CommandSettings(**command), file.path if file is not None else "", tuple(every)
    )


OF_COMMANDS = {"private_addresses": True}  # defaults of commands, which run on the user's own machine
_LOADED = "refold.settings"  # the settings of a command, in its context


def loaded() -> LoadedSettings:
    """Return all settings, which are read once for each command. Raises InvalidValue or NotFound."""
    context = click.get_current_context(silent=True)
    known = {} if context is None else context.meta
    if _LOADED not in known:
        known[_LOADED] = load(os.environ, os.getcwd(), OF_COMMANDS)
    found: LoadedSettings = known[_LOADED]
    return found


def usual_db() -> str:
    """The database of a command without --db."""
    return loaded().command.db


def find_file(environment: Mapping[str, str], folder: str) -> SettingsFile | None:
    """Return the file that REFOLD_SETTINGS names, or the nearest `refold.toml`; None if there is none.

    A file that was found and belongs to another user is refused, because it can name code to be imported.
    """
    named = environment.get(NAMED)
    if named:
        path = os.path.join(folder, named)
        if not os.path.exists(path):
            raise NotFound(f"there is no settings file {named}, which {NAMED} names")
        return _read(path)
    above = os.path.abspath(folder)
    while True:
        path = os.path.join(above, FILE)
        if os.path.isfile(path):
            _check_owner(path, folder)
            return _read(path)
        if above == os.path.dirname(above):
            return None
        above = os.path.dirname(above)


def _check_owner(path: str, folder: str) -> None:
    owner = os.stat(path).st_uid
    if owner not in (0, os.geteuid(), os.stat(folder).st_uid):
        why = f"belongs to another user (number {owner}) and may name code of theirs"
        raise InvalidValue(path, f"{why}; to use it, set {NAMED}={path}, and to use none, {NAMED}=/dev/null")


def _read(path: str) -> SettingsFile:
    import tomllib

    try:
        with open(path, "rb") as opened:
            text = opened.read().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidValue(path, "is not written in UTF-8") from None
    except OSError as error:
        raise InvalidValue(path, f"cannot be read: {error.strerror}") from None
    try:
        return SettingsFile(path, text, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        why, _, where = str(error).partition(" (at ")
        numbers = [int(each) for each in re.findall(r"\d+", where)]
        last = text.count("\n") + 1, len(text.rpartition("\n")[2]) + 1
        place = (numbers[0], numbers[1]) if len(numbers) == 2 else last
        hint = 'texts are in quotes, and lists in brackets: `queues = ["big"]`'
        raise wrong_place(path, text, place, 1, "toml", f"this is not TOML: {why}", hint) from None


def _check_keys(file: SettingsFile) -> None:
    known = [*CommandSettings.__struct_fields__, *Settings.__struct_fields__]
    for key in file.values:
        if key not in known:
            low = key.lower().replace("-", "_").removeprefix("refold_")
            guess = OTHER_WORDS.get(low) or (low if low in known else "")
            hint = f"did you mean `{guess}`?" if guess else did_you_mean(key, known)
            raise file.wrong(key, "unknown-key", f"there is no setting `{key}`", hint)


def _defaults(kind: Any) -> dict[str, Any]:
    return dict(zip(kind.__struct_fields__, kind.__struct_defaults__, strict=True))


def _setting(
    name: str,
    kind: Any,
    environment: Mapping[str, str],
    file: SettingsFile | None,
    defaults: Mapping[str, Any],
    folder: str,
) -> Setting:
    origin = variable(name)
    if environment.get(origin):
        return Setting(name, from_text(kind, environment[origin], origin), origin)
    if file is not None and name in file.values:
        try:
            value = from_value(kind, file.values[name], name)
        except InvalidValue as error:
            raise file.wrong(name, "wrong-value", str(error)) from None
        return Setting(name, _from_folder(name, value, file, folder), file.origin(name))
    return Setting(name, defaults[name], DEFAULT)


def _from_folder(name: str, value: Any, file: SettingsFile, folder: str) -> Any:
    """Return a path of a settings file as commands in the folder use it; other values as they are."""
    home = os.path.dirname(os.path.abspath(file.path))
    if home == os.path.abspath(folder):
        return value
    if name == "code":
        return tuple(f"{home}/{each}" for each in value)  # modules next to the file, without a path of their own
    return os.path.join(home, value) if name in PATHS and value else value


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
