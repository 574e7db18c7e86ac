"""What a tool is given, checked against its description: what is static is never taken from rendered text."""

from typing import Any

from msgspec import Struct

from refold.descriptions import BESIDE, ToolInfo, checked, name_of, refused, seconds_of
from refold.ports import Call

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
