"""Values between playbooks and Python workflows: what is stored exactly is plain data there, and data is no mark."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import structs

from refold.core.commands import Letter, LetterStart
from refold.core.graph import Graph

MARK = "$refold"  # see `python/values.py`
GROUPS = ("tuple", "set", "frozenset")


def to_plain_data(value: Any) -> Any:
    """Objects by their fields, groups as lists, other values by the text they are stored as."""
    if isinstance(value, list):
        return [to_plain_data(each) for each in value]
    if not isinstance(value, dict):
        return value
    marked = value.get(MARK)
    if len(value) != 1 or not isinstance(marked, list) or len(marked) < 2:
        return {key: to_plain_data(each) for key, each in value.items()}
    kind, *rest = marked
    if kind == "object":
        return to_plain_data(rest[-1])
    if kind == "map":
        return {str(to_plain_data(key)): to_plain_data(each) for key, each in rest[0]}
    return to_plain_data(rest[0]) if kind in GROUPS else rest[0]


def escape_inputs(letters: Sequence[Letter], sender: Graph, graph: Callable[[str], Graph]) -> Sequence[Letter]:
    """What a playbook gives to a Python workflow cannot pass for a value that is stored exactly."""
    return letters if sender.by_events or not letters else [_spelt(letter, graph) for letter in letters]


def _spelt(letter: Letter, graph: Callable[[str], Graph]) -> Letter:
    body = letter.body
    if not isinstance(body, LetterStart) or not graph(body.plan).by_events:
        return letter
    input = {name: _as_data(each) for name, each in body.input.items()}
    return structs.replace(letter, body=structs.replace(body, input=input))


def _as_data(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_data(each) for each in value]
    if not isinstance(value, dict):
        return value
    if MARK in value:
        return {MARK: ["map", [[key, _as_data(each)] for key, each in value.items()]]}
    return {key: _as_data(each) for key, each in value.items()}
