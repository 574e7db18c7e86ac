"""Reads a map of a JamJet file by a table of its fields, and says of which node it is what is wrong with it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from refold.core import times
from refold.errors import InvalidValue
from refold.names import did_you_mean
from refold.playbooks.reader.reading import Reading, cut, either, kind_of
from refold.playbooks.yaml.text import Node

FieldType = Literal["text", "version", "whole", "number", "bool", "duration", "map", "list", "names", "any"]


class Field(Struct, frozen=True):
    """A key of a map. `means` is its name in the intermediate form, which all forms are read into."""

    name: str
    type: FieldType
    about: str = ""
    needed: bool = False
    means: str = ""
    also: tuple[str, ...] = ()  # other spellings
    choices: tuple[str, ...] = ()
    least: float = 0

    @property
    def key(self) -> str:
        return self.means or self.name


class ReadFields(Struct):
    """The fields of a map that are there and valid, by their names in the intermediate form."""

    node: Node
    found: dict[str, Node]

    def __contains__(self, name: str) -> bool:
        return name in self.found

    def get(self, name: str) -> Node | None:
        return self.found.get(name)

    def value(self, name: str, default: Any = None) -> Any:
        node = self.found.get(name)
        return default if node is None else node.value

    def seconds(self, name: str) -> float | None:
        node = self.found.get(name)
        return None if node is None else seconds_of(node.value)


def seconds_of(value: Any) -> float | None:
    """Return a time in seconds; None if it is none."""
    if isinstance(value, dict):
        parts = value.get("secs", 0), value.get("nanos", 0)
        if not value.keys() <= {"secs", "nanos"} or not all(map(_is_number, parts)):
            return None
        value = parts[0] + parts[1] / 1e9
    try:
        return times.seconds(value)
    except InvalidValue:
        return None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_FITS: Mapping[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "version": lambda value: isinstance(value, str) or _is_number(value),
    "whole": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": _is_number,
    "bool": lambda value: isinstance(value, bool),
    "duration": lambda value: isinstance(value, (str, dict)) or _is_number(value),
    "map": lambda value: isinstance(value, dict),
    "list": lambda value: isinstance(value, list),
    "names": lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value),
    "any": lambda value: True,
}
_WANTED = {
    "text": "text",
    "version": "text",
    "whole": "a whole number",
    "number": "a number",
    "bool": "true or false",
    "duration": "a time such as 30s",
    "map": "a map",
    "list": "a list",
    "names": "a list of names",
}


def read_fields(
    reading: Reading, node: Node, fields: Sequence[Field], owner: str, known: Sequence[str] = (), open: bool = False
) -> ReadFields:
    """Read a map. `owner` says whose it is; an unknown key is an error, or a warning where the form is open.

    `known` are further keys that somebody else reads.
    """
    given = ReadFields(node, {})
    if not isinstance(node.value, dict):
        reading.at(node, "wrong-type", f"{owner} must be a map, not {kind_of(node.value)}")
        return given
    spelt, needed = _spellings(fields)
    guessed: set[str] = set()
    for name, child in node.nodes.items():
        field = spelt.get(name)
        if field is not None:
            if child.value is not None and is_valid(reading, child, field, name, owner):
                given.found[field.key] = as_text(child) if field.type == "version" else child
            continue
        if name not in known:
            guessed.add(_unknown(reading, node, name, [*spelt, *known], owner, open))
    missing = [each for each in needed if _is_missing(node, each)]
    missing = [each for each in missing if not guessed.intersection((each.name, *each.also))]
    if missing:
        reading.at_place(
            node.place, "missing-key", f"{owner} needs {_listed(missing)}", f"add `{missing[0].name}: …`", 1
        )
    return given


def as_text(node: Node) -> Node:
    """Return a number as the text of a version: `1.0`."""
    return node if isinstance(node.value, str) else Node(str(node.value), node.start, node.end, node.style)


_SPELT: dict[int, tuple[Sequence[Field], dict[str, Field], list[Field]]] = {}


def _spellings(fields: Sequence[Field]) -> tuple[dict[str, Field], list[Field]]:
    """Return the fields by all their spellings, and those that are needed. Tables are constants, so they are kept."""
    found = _SPELT.get(id(fields))
    if found is None or found[0] is not fields:
        spelt = {name: field for field in fields for name in (field.name, *field.also)}
        found = _SPELT[id(fields)] = (fields, spelt, [field for field in fields if field.needed])
    return found[1], found[2]


def _listed(missing: Sequence[Field]) -> str:
    names = [f"`{each.name}`" for each in missing]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _is_missing(node: Node, field: Field) -> bool:
    return all(node.value.get(name) is None for name in (field.name, *field.also))


def _unknown(reading: Reading, node: Node, name: str, known: Sequence[str], owner: str, open: bool) -> str:
    message, hint = f"{owner} has no key `{cut(name)}`", did_you_mean(name, known)
    if open:
        reading.warn_key(node, name, "unknown-key", f"{message}; it has no effect", hint)
    else:
        reading.at_key(node, name, "unknown-key", message, hint)
    return hint.split("`")[1] if hint.startswith("did you mean") else ""


def is_valid(reading: Reading, node: Node, field: Field, name: str, owner: str) -> bool:
    """Report a value of another type, or outside of what the field allows."""
    if not _FITS[field.type](node.value):
        message = f"`{name}` of {owner} must be {_WANTED[field.type]}, not {kind_of(node.value)}"
        reading.at(node, "wrong-type", message)
        return False
    if field.choices and node.value not in field.choices:
        message = f"`{name}` of {owner} must be {either(field.choices)}, not `{cut(str(node.value))}`"
        reading.at(node, "bad-value", message, did_you_mean(str(node.value), field.choices))
        return False
    if field.type in ("whole", "number") and not field.least <= node.value < float("inf"):
        reading.at(node, "bad-value", f"`{name}` of {owner} must be at least {field.least:g}, not {node.value}")
        return False
    if field.type == "duration" and seconds_of(node.value) is None:
        shown = cut(str(node.value))
        reading.at(node, "bad-value", f"`{name}` of {owner} must be a time, not `{shown}`", "for example 30s, 5m or 2h")
        return False
    return True


def key_node(node: Node, key: str) -> Node:
    """Return the key of a map as a node of its own."""
    mark = node.keys[key]
    return Node(key, mark, _End(mark, len(key)))


class _End:
    """The end of a key: the parser keeps only where it begins."""

    def __init__(self, mark: object, length: int) -> None:
        self.line: int = getattr(mark, "line", 0)
        self.column: int = getattr(mark, "column", 0) + length
        self.index: int = getattr(mark, "index", 0) + length


def texts_of(node: Node | None) -> Mapping[str, Any]:
    """Return the values of a map, without those that are null."""
    if node is None or not isinstance(node.value, dict):
        return {}
    return {name: value for name, value in node.value.items() if value is not None}
