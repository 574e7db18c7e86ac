"""Converts typed values of Python workflows to plain JSON for playbooks, and escapes plain data that looks encoded."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import structs

from refold.core.commands import Letter, LetterStart
from refold.core.graph import Graph

MARK = "$refold"  # see `python/values.py`
COLLECTIONS = ("tuple", "set", "frozenset", "deque")
MAPS = ("map", "ordered_dict", "counter", "default_dict")


def to_plain_data(value: Any) -> Any:
    """Return a typed value as plain data: objects as maps of their fields, collections as lists, others as texts."""
    if isinstance(value, list):
        return [to_plain_data(item) for item in value]
    if not isinstance(value, dict):
        return value
    encoded = value.get(MARK)
    if len(value) != 1 or not isinstance(encoded, list) or len(encoded) < 2:
        return {key: to_plain_data(item) for key, item in value.items()}
    kind, *arguments = encoded
    if kind == "object":
        fields = arguments[-1]
        if isinstance(fields, dict) and len(fields) > 1:
            fields = {name: each for name, each in fields.items() if name != MARK}  # which fields of a model were set
        return to_plain_data(fields)
    if kind in MAPS:
        return {str(to_plain_data(key)): to_plain_data(item) for key, item in arguments[-1]}
    return to_plain_data(arguments[0]) if kind in COLLECTIONS else arguments[0]


def escape_inputs(letters: Sequence[Letter], sender: Graph, graph: Callable[[str], Graph]) -> Sequence[Letter]:
    """Escape the inputs that a playbook gives to Python workflows, so that none is taken for an encoded value."""
    is_encoded = sender.by_events or sender.plan.typed
    return letters if is_encoded or not letters else [_escaped(letter, graph) for letter in letters]


def _escaped(letter: Letter, graph: Callable[[str], Graph]) -> Letter:
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
