"""What a tool is given, checked against its description: what is static is never taken from rendered text."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from refold.core import durations
from refold.core.outcomes import Fault
from refold.descriptions import ToolInfo, ToolKey
from refold.errors import InvalidValue, ToolFailed
from refold.ports import Call

BESIDE = frozenset({"dialect", "folder"})  # what a reader adds to the keys of a tool: its language, and where it stands


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
            given[name] = _checked(self._known[name], value)
        for name in self._required:
            if name not in config and name not in call.settings:
                raise refused(f"{self.kind} needs `{name}`")
        return Given(bound, given)


def refused(why: str, kind: str = "invalid_settings") -> ToolFailed:
    return ToolFailed(Fault(kind, why, retryable=False))


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


def name_of(value: Any) -> str:
    names = {dict: "a map", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number" if isinstance(value, (int, float)) else f"a {type(value).__name__}")


def _parts(input: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    if input is None:
        return {}, {}
    if not isinstance(input, dict) or not input.keys() <= {"input", "config", "context"}:
        raise refused("the input of a tool is a map of `input`, its values, and `config`, its keys")
    bound, config = input.get("input", {}), input.get("config", {})
    if not isinstance(bound, dict) or not isinstance(config, dict):
        raise refused("`input` and `config` of a tool must be maps")
    return bound, config


def _checked(key: ToolKey, value: Any) -> Any:
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
        return durations.seconds(value)
    except InvalidValue:
        raise refused(f"{what} must be a span of time such as 30s or 1m30s, not {value!r}") from None
