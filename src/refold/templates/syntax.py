"""The nodes of the tree of an expression."""

from typing import Any

from msgspec import Struct


class Name(Struct, frozen=True):
    at: int
    name: str


class Literal(Struct, frozen=True):
    at: int
    value: Any


class Elements(Struct, frozen=True):
    """A list; one in round brackets is a list too."""

    at: int
    values: tuple["Node", ...]


class Pairs(Struct, frozen=True):
    at: int
    pairs: tuple[tuple["Node", "Node"], ...]


class Dot(Struct, frozen=True):
    at: int
    of: "Node"
    name: str


class Subscript(Struct, frozen=True):
    at: int
    of: "Node"
    key: "Node"


class Slice(Struct, frozen=True):
    at: int
    of: "Node"
    bounds: tuple["Node", ...]


class Argument(Struct, frozen=True):
    name: str  # empty: a positional argument
    value: "Node"


class FunctionCall(Struct, frozen=True):
    at: int
    of: "Node"
    arguments: tuple[Argument, ...]


class Filter(Struct, frozen=True):
    at: int
    of: "Node"
    name: str
    arguments: tuple[Argument, ...]


class Test(Struct, frozen=True):
    at: int
    of: "Node"
    name: str
    arguments: tuple[Argument, ...]


class Not(Struct, frozen=True):
    at: int
    of: "Node"


class Minus(Struct, frozen=True):
    at: int
    of: "Node"


class Logical(Struct, frozen=True):
    """Operands joined by `and`, or by `or`."""

    at: int
    word: str
    operands: tuple["Node", ...]


class Chain(Struct, frozen=True):
    """Operators of one precedence, from left to right; a comparison is a chain of one operator."""

    at: int
    symbols: tuple[str, ...]
    operands: tuple["Node", ...]


class Choice(Struct, frozen=True):
    """`value if condition else other`"""

    at: int
    value: "Node"
    condition: "Node"
    other: "Node"


Node = (
    Name
    | Literal
    | Elements
    | Pairs
    | Dot
    | Subscript
    | Slice
    | FunctionCall
    | Filter
    | Test
    | Not
    | Minus
    | Logical
    | Chain
    | Choice
)
