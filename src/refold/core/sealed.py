"""Which values of a run are sealed: those that came as results of its secret steps, and nothing that looks like them.

A sealed result is stored as `{"$sealed": text}`. Data of the user may have that form too, because a remote service may
answer so; it must neither be opened nor be taken for a damaged secret. So a run keeps the digests of what its secret
steps have reported, and a command carries those that occur in its input, beside it.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec

from refold.core.loops import Graph
from refold.core.outcomes import Outcome, Succeeded
from refold.core.state import RunState

MARK = "$sealed"

_encode = msgspec.json.Encoder().encode


def digest(value: Any) -> str:
    """The same as the name of the blob that holds the value, if it is large."""
    return hashlib.sha256(_encode(value)).hexdigest()


def looks_sealed(value: Any) -> bool:
    return type(value) is dict and value.keys() == {MARK} and isinstance(value[MARK], str)


def note(graph: Graph, state: RunState, s: int, outcome: Outcome) -> None:
    """A step has reported this."""
    if s not in graph.secret or not isinstance(outcome, Succeeded):
        return
    if outcome.blob is not None:
        state.sealed.add(outcome.blob.hash)
    elif looks_sealed(outcome.result):
        state.sealed.add(digest(outcome.result))


def sealed_in(value: Any, known: set[str]) -> tuple[str, ...]:
    """Digests of all that is sealed in a value."""
    return tuple(sorted(set(_found(value, known)))) if known else ()


def _found(value: Any, known: set[str]) -> Iterator[str]:
    if looks_sealed(value):
        name = digest(value)
        if name in known:
            yield name
    elif isinstance(value, dict):
        for each in value.values():
            yield from _found(each, known)
    elif isinstance(value, list):
        for each in value:
            yield from _found(each, known)
