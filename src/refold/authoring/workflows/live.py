"""References to live objects: a name that events can carry; the object itself stays in its process."""

from dataclasses import dataclass
from typing import Any, Literal

Until = Literal["used", "run", "parent", "export", "never"]
"""When a live object is let go: when the events that carry it were handled, when the run ends (that of the parent, if
the run is a child's), at the next export, or only by `remove`."""

NAME = "refold.Live"  # under which references are stored


@dataclass(frozen=True)
class Live:
    """Made by `ctx.session.refer`; `ctx.session[live]` is the object, as long as this process has it."""

    key: str


def carried(raw: Any, mark: str) -> set[str]:
    """The keys of all references in a stored value."""
    found: set[str] = set()
    todo = [raw]
    while todo:
        value = todo.pop()
        if isinstance(value, list):
            todo += value
        elif isinstance(value, dict):
            marked = value.get(mark)
            if isinstance(marked, list) and marked[:2] == ["object", NAME]:
                found.add(marked[2]["key"])
            else:
                todo += value.values()
    return found
