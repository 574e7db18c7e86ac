"""Events that wait in the context for others of their kind: what `ctx.collect` keeps between the runs of a step."""

from typing import Any

from refold.core.commands import Command
from refold.worker.state import OWN, State

Kept = tuple[str, Any]
"""Type and data."""


def gathered(state: State, command: Command, sent: Kept, n: int, by: str) -> list[Kept] | None:
    """With this one: n of those that wait, or None if there are fewer. Nobody else may have touched them meanwhile."""
    type, data = sent
    group = data.get(by) if by else ""
    key = f"{OWN}collect:{command.step}:{group!r}"
    waiting = [*(state.stored(key) or []), [command.visit, type, data]]
    waiting.sort(key=lambda each: each[0])
    if len(waiting) < n:
        state.take_alone(key, waiting)
        return None
    state.take_alone(key, waiting[n:])
    return [(type, data) for _, type, data in waiting[:n]]
