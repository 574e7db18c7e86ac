"""Tools and sources as data: what checks, schemas and reference pages know of them, and which values fit their keys."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from refold.core import times
from refold.core.outcomes import Fault
from refold.errors import InvalidValue, ToolFailed
from refold.ports import Call

BESIDE = frozenset({"dialect", "folder"})  # what a reader adds to the keys of a tool: its language, and where it stands


class ToolKey(Struct, frozen=True, kw_only=True):
    """One key of a tool in a playbook."""

    name: str
    type: Literal["text", "number", "integer", "bool", "map", "list", "any", "duration", "tool"]
    required: bool = False
    static: bool = False  # never a template: it is taken as it is written
    secret: bool = False  # of a source: `{secret: name}` may stand there, and is read when a page is fetched
    choices: tuple[str, ...] = ()
    about: str = ""


class ToolProblem(Struct, frozen=True):
    """What is wrong with a key; line and column count in its text from 1, and 0 means the key itself."""

    key: str
    message: str
    hint: str = ""
    line: int = 0
    column: int = 0
    code: str = "bad-tool"  # stable, for tools and searches
    item: int | None = None  # which text of a list it is, if the key has several
    severity: Literal["error", "warning"] = "error"


class ToolInfo(Struct, frozen=True, kw_only=True):
    """A kind of tool as playbooks, checks and documentation see it."""

    kind: str
    about: str
    keys: tuple[ToolKey, ...] = ()
    result: str = ""
    example: str = ""  # YAML for the reference page; several are separated by lines of `---`
    result_keys: tuple[str, ...] = ()  # all that a result can have, if it is a map and they are fixed
    by_engine: bool = False  # no worker takes part
    check: Callable[[Mapping[str, Any]], Sequence[ToolProblem]] | None = None  # beyond names and types
    values: Callable[[str, Any], Iterator[ToolProblem]] | None = None  # of a key and its text in a NoETL file
    programs: Callable[[Mapping[str, Any]], Iterator[ToolProblem]] | None = None  # values in text for an interpreter
    reads: Callable[[Mapping[str, Any]], Sequence[tuple[str, int, int]]] | None = None  # names from outside, and where
    check_bound: Callable[[Mapping[str, Any], Collection[str]], Sequence[ToolProblem]] | None = None  # names of input


def refused(why: str, kind: str = "invalid_settings") -> ToolFailed:
    return ToolFailed(Fault(kind, why, retryable=False))


def name_of(value: Any) -> str:
    names = {dict: "a map", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number" if isinstance(value, (int, float)) else f"a {type(value).__name__}")


def checked(key: ToolKey, value: Any) -> Any:
    """The value as the tool takes it. Raises ToolFailed."""
    what = f"`{key.name}`"
    if key.type == "duration":
        return seconds_of(value, what)
    fits, name = TYPES[key.type]
    if not fits(value):
        raise refused(f"{what} must be {name}, not {name_of(value)}")
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


def seconds_of(value: Any, what: str) -> float:
    try:
        return times.seconds(value)
    except InvalidValue:
        raise refused(f"{what} must be a span of time such as 30s or 1m30s, not {value!r}") from None


__all__ = ["Given", "Keys", "name_of", "refused", "seconds_of", "text_of"]


class Given(Struct, frozen=True):
    """The values bound to a step, and the keys of its tool; a key that is null is not there."""

    input: dict[str, Any]
    keys: dict[str, Any]


class Keys:
    def __init__(self, info: ToolInfo) -> None:
        self.kind = info.kind
        self._known = {key.name: key for key in info.keys}
        self._required = [key.name for key in info.keys if key.required]

    def read(self, call: Call) -> Given:
        """Raises ToolFailed, which is not to be tried again, if the tool cannot take what it is given."""
        bound, config = _parts(call.input)
        given = {name: value for name, value in call.settings.items() if value is not None and name not in BESIDE}
        for name, value in config.items():
            if value is None:
                continue
            if name in self._known and self._known[name].static:
                raise refused(f"`{name}` of {self.kind} cannot be computed: it is taken as it is written")
            given[name] = value
        for name, value in given.items():
            if name not in self._known:
                raise refused(f"{self.kind} has no key `{name}`; it has {', '.join(self._known)}")
            given[name] = checked(self._known[name], value)
        for name in self._required:
            if name not in config and name not in call.settings:
                raise refused(f"{self.kind} needs `{name}`")
        return Given(bound, given)


def text_of(value: Any, what: str) -> str:
    """A scalar as programs and addresses write it: true and not True."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case _:
            raise refused(f"{what} must be text or a number, not {name_of(value)}")


def _parts(input: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    if input is None:
        return {}, {}
    if not isinstance(input, dict) or not input.keys() <= {"input", "config", "context"}:
        raise refused("the input of a tool is a map of `input`, its values, and `config`, its keys")
    bound, config = input.get("input", {}), input.get("config", {})
    if not isinstance(bound, dict) or not isinstance(config, dict):
        raise refused("`input` and `config` of a tool must be maps")
    return bound, config


def missing(error: ModuleNotFoundError, extra: str) -> str:
    """Say which extra of Refold installs the package that is not there."""
    return f"{error.name} is not installed: run `pip install refold[{extra}]`"
