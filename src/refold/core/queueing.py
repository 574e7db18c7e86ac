"""Where commands wait: the names of queues, shares and limits, and what a caller may say of a run."""

from typing import Any

from refold.core.expressions import CannotEvaluate
from refold.core.outcomes import Queueing
from refold.errors import InvalidValue

HIGHEST = 1_000_000
LONGEST_NAME = 1024  # bytes of UTF-8


def lane_name(what: str, value: Any) -> str:
    """Return the name of a share or a limit from what a template gave. Raises CannotEvaluate."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise CannotEvaluate(f"the {what} is {value!r:.60}: it must be text or a number")
    flaw = name_flaw(str(value))
    if flaw:
        raise CannotEvaluate(f"the {what} {flaw}")
    return str(value)


def checked_queueing(queue: str = "", priority: int | None = None, share: str = "", limit: str = "") -> Queueing:
    """Raises InvalidValue."""
    for what, name in (("queue", queue), ("share", share), ("limit", limit)):
        flaw = name_flaw(name) if isinstance(name, str) else f"{name!r} is not a text"
        if flaw:
            raise InvalidValue(what, flaw)
    if priority is not None and (type(priority) is not int or abs(priority) > HIGHEST):
        raise InvalidValue("priority", f"{priority!r} is not a whole number from {-HIGHEST} to {HIGHEST}")
    return Queueing(queue, priority, share, limit)


def name_flaw(name: str) -> str:
    """Return what is wrong with a name that is stored in an index, or an empty text."""
    if "\0" in name:
        return f"{name!r:.60} has a NUL"
    is_long = len(name.encode("utf-8", "surrogatepass")) > LONGEST_NAME
    return f"{name!r:.60} is longer than {LONGEST_NAME} bytes" if is_long else ""
