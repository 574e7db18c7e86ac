"""Which runs may be removed, and what keeps their former holders from being believed later."""

from refold.core.read.summary import Summary
from refold.core.state import TERMINAL
from refold.errors import Conflict, NotFound

FLOOR_STEP = 1_000_000  # generations: more claims than any command lives through


def refuse_removal(run: str, row: Summary | None, parent: Summary | None) -> None:
    """A run that is not over is still wanted; so is a child whose parent may not have read its letter yet."""
    if row is None:
        raise NotFound(f"there is no run {run}")
    if row.status not in TERMINAL:
        raise Conflict(f"run {run} is {row.status}; only a run that is over can be removed")
    if parent is not None and parent.status not in TERMINAL:
        raise Conflict(f"run {run} belongs to run {parent.run}, which is {parent.status}")
