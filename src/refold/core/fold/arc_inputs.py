"""Inputs that arcs give to the visit they lead to, laid over the input that the step itself has."""

from typing import Any

from refold.core.graph import Graph
from refold.core.state import RunState

GIVEN = "$given"  # the name that they have in a view and in what a fan-out captures


def given_to(graph: Graph, state: RunState, s: int) -> dict[str, Any]:
    """Merged in the order in which their sources stand in the file, the latest taking of each arc."""
    merged: dict[str, Any] = {}
    for a in sorted(state.given):
        if graph.target[a] == s:
            merged.update(state.given[a])
    return merged


def overlaid(value: Any, given: dict[str, Any]) -> Any:
    """An input with what was given over it; of a tool that is what it is bound to."""
    if not given:
        return value
    if isinstance(value, dict) and isinstance(value.get("input"), dict):
        return {**value, "input": {**value["input"], **given}}
    return {**value, **given} if isinstance(value, dict) else given if value is None else value


def forget(graph: Graph, state: RunState, s: int) -> None:
    """What was given to a visit that is over; one that failed for good may be asked to go on with it."""
    for a in [a for a in state.given if graph.target[a] == s]:
        del state.given[a]
