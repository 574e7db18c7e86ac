"""Tools as data: what checks, schemas and reference pages know of them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct


class ToolKey(Struct, frozen=True, kw_only=True):
    """One key of a tool in a playbook."""

    name: str
    type: Literal["text", "number", "integer", "bool", "map", "list", "any", "duration", "tool"]
    required: bool = False
    static: bool = False  # never a template: it is taken as it is written
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


class ToolInfo(Struct, frozen=True, kw_only=True):
    """A kind of tool as playbooks, checks and documentation see it."""

    kind: str
    about: str
    keys: tuple[ToolKey, ...] = ()
    result: str = ""
    result_keys: tuple[str, ...] = ()  # all that a result can have, if it is a map and they are fixed
    by_engine: bool = False  # no worker takes part
    check: Callable[[Mapping[str, Any]], Sequence[ToolProblem]] | None = None  # beyond names and types
    reads: Callable[[Mapping[str, Any]], Sequence[tuple[str, int, int]]] | None = None  # names from outside, and where
    check_bound: Callable[[Mapping[str, Any], Collection[str]], Sequence[ToolProblem]] | None = None  # names of input
