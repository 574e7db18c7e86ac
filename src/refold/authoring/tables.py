"""How a language is written down as data: a table of keys for each place in a playbook.

The reader, the JSON Schema, the reference and every "did you mean" come from such tables.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

Type = Literal[
    "any",
    "bool",
    "budget",  # a map of units to limits, and what follows
    "condition",  # true, false, or one {{ expression }}
    "duration",
    "integer",
    "items",  # a list, or one {{ expression }} that gives one
    "join",
    "labels",  # a map of scalars
    "map",
    "name",
    "next",
    "number",
    "playbook name",
    "sets",  # a map of `ctx.name` to templates
    "step",  # the name of a step
    "steps",  # a list of names of steps
    "table",  # a map with the keys of another table
    "tables",  # a list of such maps
    "templates",  # a map of names to templates
    "text",
    "texts",  # a list of texts
    "tool",
    "values",  # a map of plain values, without templates
]


class Key(Struct, frozen=True, kw_only=True):
    name: str
    type: Type
    about: str
    example: str  # a value, as YAML on one line
    required: bool = False
    choices: tuple[str, ...] = ()
    of: str = ""  # the table of a map, or of each map in a list
    least: int | None = None
    most: int | None = None


class Table(Struct, frozen=True):
    name: str
    noun: str  # "a step"
    about: str
    keys: tuple[Key, ...]
    old: Mapping[str, str] = {}  # keys of older dialects: what to write in their stead
