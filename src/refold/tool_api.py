"""What authors of tools and sources need: how they describe themselves, what they are given, and how they fail.

A tool is a class with an `info`, a `ToolInfo`, and `async def __call__(self, call: ToolCall)`. A source is the same
with `async def __call__(self, pull: Pull) -> Page`. The page "Write your own tool" in the documentation has an example.

The description is used wherever Refold must know a kind without running it: `refold validate` checks playbooks against
it, `refold schema` lists it for editors, and the reference pages are printed from it.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from refold.core import times
from refold.core.outcomes import Failed, Fault, Succeeded
from refold.errors import InvalidValue, ToolFailed
from refold.ports import Done, Page, Pull, Source, Tool, ToolCall

__all__ = [
    "Arguments",
    "Done",
    "Failed",
    "Fault",
    "Keys",
    "Page",
    "Pull",
    "Source",
    "Succeeded",
    "Tool",
    "ToolCall",
    "ToolFailed",
    "ToolInfo",
    "ToolKey",
    "ToolProblem",
    "folder_of",
    "path_of",
    "refused",
    "seconds_of",
    "text_of",
    "type_name",
]

READER_KEYS = frozenset({"dialect", "folder"})  # added by the reader: the playbook's language and its folder


class ToolKey(Struct, frozen=True, kw_only=True):
    """One key of a tool or source, as it is written in a playbook.

    `about` is the text of the reference page. A default is mentioned there, in parentheses at the end.
    """

    name: str
    type: Literal["text", "number", "integer", "bool", "map", "list", "any", "duration", "tool"]
    required: bool = False
    static: bool = False  # never a template: the value is taken as it is written
    secret: bool = False  # of a source: the value may be `{secret: name}`, which is read for each page
    choices: tuple[str, ...] = ()
    about: str = ""


class ToolProblem(Struct, frozen=True):
    """A mistake in a key, found before the run. Line and column count from 1 in its text; 0 means the key itself."""

    key: str  # empty: the tool as a whole
    message: str
    hint: str = ""  # what to write instead
    line: int = 0
    column: int = 0
    code: str = "bad-tool"  # does not change between versions, so that programs can rely on it
    item: int | None = None  # which text it is, if the key has a list of them
    severity: Literal["error", "warning"] = "error"


class ToolInfo(Struct, frozen=True, kw_only=True):
    """The description of one kind of tool or source.

    Names, types and required keys are checked from `keys` alone. `check` is for what that cannot express: it gets the
    keys as written, in which any value may still be a template, and returns the problems. The last four are for tools
    whose keys are programs.
    """

    kind: str  # how playbooks name it
    about: str
    keys: tuple[ToolKey, ...] = ()
    result: str = ""  # the shape of the result, in a few words
    result_keys: tuple[str, ...] = ()  # all keys that a result can have, if it is a map and they are fixed
    example: str = ""  # YAML for the reference page; several are separated by lines of `---`
    by_engine: bool = False  # the engine itself does it, without a worker
    check: Callable[[Mapping[str, Any]], Sequence[ToolProblem]] | None = None
    check_noetl_text: Callable[[str, Any], Iterator[ToolProblem]] | None = None  # of a key: values in its text
    check_programs: Callable[[Mapping[str, Any]], Iterator[ToolProblem]] | None = None  # values in program text
    check_bound: Callable[[Mapping[str, Any], Collection[str]], Sequence[ToolProblem]] | None = None  # names of input
    names_read: Callable[[Mapping[str, Any]], Sequence[tuple[str, int, int]]] | None = None  # with line and column


def refused(why: str, kind: str = "invalid_settings") -> ToolFailed:
    """Return the failure of a call that cannot succeed as it is written, so that it is not tried again."""
    return ToolFailed(Fault(kind, why, retryable=False))


def folder_of(call: ToolCall, cwd: str | None = None) -> str | None:
    """Return the working directory of a call: the folder in which its run was started, or `cwd`, which is relative to
    it. None: the folder of this process. Raises ToolFailed if the folder of the run does not exist here."""
    folder = call.command.folder
    if not folder or (cwd is not None and os.path.isabs(cwd)) or folder == _here():
        return cwd
    if not os.path.isdir(folder):
        why = f"the run was started in {folder}, and there is no such folder here"
        raise refused(f"{why}: create it, or give the step an absolute `cwd`", "no_folder")
    return os.path.join(folder, cwd) if cwd else folder


def _here() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was removed while this process runs
        return ""


def path_of(call: ToolCall, path: str) -> str:
    """Return a path as this process can use it: a relative one is relative to the folder of the run."""
    folder = None if os.path.isabs(path) else folder_of(call)
    return path if folder is None else os.path.join(folder, path)


class Arguments(Struct, frozen=True):
    """What one call is given: the values bound to the step, and the keys of its tool. Keys that are null are absent."""

    input: dict[str, Any]
    keys: dict[str, Any]


class Keys:
    """Reads the keys of a call, and checks them against the description of the tool."""

    def __init__(self, info: ToolInfo) -> None:
        self.kind = info.kind
        self._keys = {key.name: key for key in info.keys}
        self._required = [key.name for key in info.keys if key.required]

    def read(self, call: ToolCall) -> Arguments:
        """Return the checked keys. Raises ToolFailed, which is not tried again, if a key is missing or does not fit."""
        bound, config = _parts(call.input)
        keys = {name: value for name, value in call.settings.items() if value is not None and name not in READER_KEYS}
        for name, value in config.items():
            if value is None:
                continue
            if name in self._keys and self._keys[name].static:
                raise refused(f"`{name}` of {self.kind} cannot be computed: it is taken as it is written")
            keys[name] = value
        for name, value in keys.items():
            if name not in self._keys:
                raise refused(f"{self.kind} has no key `{name}`; it has {', '.join(self._keys)}")
            keys[name] = checked_value(self._keys[name], value)
        for name in self._required:
            if name not in config and name not in call.settings:
                raise refused(f"{self.kind} needs `{name}`")
        return Arguments(bound, keys)


def _parts(input: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    if input is None:
        return {}, {}
    if not isinstance(input, dict) or not input.keys() <= {"input", "config", "context"}:
        raise refused("the input of a tool is a map of `input`, its values, and `config`, its keys")
    bound, config = input.get("input", {}), input.get("config", {})
    if not isinstance(bound, dict) or not isinstance(config, dict):
        raise refused("`input` and `config` of a tool must be maps")
    return bound, config


def checked_value(key: ToolKey, value: Any) -> Any:
    """Return the value as the tool takes it: a duration becomes seconds. Raises ToolFailed if it does not fit."""
    what = f"`{key.name}`"
    if key.type == "duration":
        return seconds_of(value, what)
    fits, type_text = TYPES[key.type]
    if not fits(value):
        raise refused(f"{what} must be {type_text}, not {type_name(value)}")
    if key.choices and value not in key.choices:
        raise refused(f"{what} must be one of {', '.join(key.choices)}, not {value!r}")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


TYPES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "text": (lambda value: isinstance(value, str), "text"),
    "number": (_is_number, "a number"),
    "integer": (lambda value: _is_number(value) and value == int(value), "a whole number"),
    "bool": (lambda value: isinstance(value, bool), "true or false"),
    "map": (lambda value: isinstance(value, Mapping), "a map"),
    "list": (lambda value: isinstance(value, list), "a list"),
    "any": (lambda value: True, "anything"),
}


def type_name(value: Any) -> str:
    """Return what kind of value it is, in the words of messages: `a map`, `text`."""
    names = {dict: "a map", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number" if isinstance(value, (int, float)) else f"a {type(value).__name__}")


def seconds_of(value: Any, what: str) -> float:
    """Return a duration such as `1m30s` in seconds. Raises ToolFailed, in which `what` names the key."""
    try:
        return times.seconds(value)
    except InvalidValue:
        raise refused(f"{what} must be a span of time such as 30s or 1m30s, not {value!r}") from None


def text_of(value: Any, what: str) -> str:
    """Return a scalar as programs and addresses write it: `true`, and not `True`. Raises ToolFailed for others."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case _:
            raise refused(f"{what} must be text or a number, not {type_name(value)}")


def not_installed(error: ModuleNotFoundError, extra: str) -> str:
    """Return a message with the extra of Refold that installs the missing package."""
    return f"{error.name} is not installed: run `pip install 'refold[{extra}]'`"
