"""How a language is written down as data: a table of keys for each place in a playbook.

The reader, the JSON Schema, the reference and every "did you mean" come from such tables.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

Type = Literal[
    "any",
    "body",  # a list of steps and blocks
    "bool",
    "branches",  # a map of names to such lists, or a list of them
    "budget",  # a map of units to limits, and what follows
    "arcs",
    "condition",  # true, false, or one {{ expression }}
    "count",  # a number, or an expression that gives one
    "duration",
    "else",  # an action, with or without `then` around it
    "entries",  # of a keychain
    "expression",
    "idle",  # one {{ expression }}
    "inputs",  # a map of names to JSON Schemas, or to types
    "integer",
    "items",  # a list, or one {{ expression }} that gives one
    "join",
    "limit",  # a duration, or an expression that gives one
    "loop mode",
    "lane",  # the name of a share or a limit, or a text with an expression that gives one
    "labels",  # a map of scalars
    "map",
    "name",
    "next",
    "number",
    "output",
    "playbook name",
    "schema",  # a JSON Schema
    "share",  # a whole number, or a percentage
    "rate",  # a number with `/s`, `/m` or `/h`
    "sets",  # a map of `ctx.name` to templates
    "source",
    "step",  # the name of a step
    "step name",
    "steps",  # a list of names of steps
    "table",  # a map with the keys of another table
    "tables",  # a list of such maps
    "template",  # a text with an expression in it
    "templates",  # a map of names to templates
    "text",
    "texts",  # a list of texts
    "title",  # any text that is not empty
    "tool",
    "words",  # a list of texts, or one
    "waits",  # one {{ expression }}, or a list of them
    "width",  # a whole number, or one {{ expression }} that gives one
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
    old: str = ""  # of a form that is accepted with a warning: what to write in its stead


class Table(Struct, frozen=True):
    name: str
    noun: str  # "a step"
    about: str
    keys: tuple[Key, ...]
    old: Mapping[str, str] = {}  # keys of older dialects: what to write in their stead
    one_of: tuple[str, ...] = ()  # keys of which exactly one must stand there
    is_open: bool = False  # a key that it does not know is only warned of
