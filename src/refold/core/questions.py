"""What the bodies of a Python workflow ask people, while they wait for the answers."""

from typing import Any

from msgspec import Struct

from refold.core.loops import Graph
from refold.core.outcomes import Awaited, Instant
from refold.core.state import OpenCommand, RunState

ANSWER = "answer:"  # begins the signals that answer


class Question(Struct, frozen=True):
    """One that is open."""

    step: str
    visit: int
    id: str
    prompt: Any
    metadata: Any = None  # as it is stored
    until: Instant | None = None


def questions(graph: Graph, state: RunState) -> list[Question]:
    """Those of the run itself, the longest waiting first."""
    return [
        _question(graph, opened, call)
        for opened in state.open.values()
        for call in opened.calls.values()
        if call.signal.startswith(ANSWER) and isinstance(call.input, dict)
    ]


def _question(graph: Graph, opened: OpenCommand, call: Awaited) -> Question:
    asked = call.input
    return Question(
        graph.name(opened.step), opened.visit, asked["id"], asked["prompt"], asked.get("metadata"), call.until
    )
