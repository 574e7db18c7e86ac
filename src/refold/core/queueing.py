"""Where commands wait, and for which workers: queues, shares and limits, and the kind of executor that a body needs.

A body runs in the process of the engine, in an interpreter of its own, or on a Ray cluster. A worker has places for
each kind, and claims nothing for which it has no free place.
"""

from collections.abc import Callable, Mapping
from typing import Any

from refold.core.expressions import CannotEvaluate
from refold.core.outcomes import Queueing
from refold.core.pipeline import TaskPipeline
from refold.core.plan import BODY, Call, Step
from refold.errors import InvalidValue

HIGHEST = 1_000_000
LONGEST_NAME = 1024  # bytes of UTF-8

ENGINE, INTERPRETER, RAY = "", "interpreter", "ray"
EXECUTORS = (ENGINE, INTERPRETER, RAY)
REMOTE = frozenset({RAY})  # bodies there need no slot of this machine
ISOLATIONS = {"inline": ENGINE, "process": INTERPRETER, "ray": RAY}


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


def _inline(plan: str, step: str) -> str:
    return "inline"


def executor_of(plan: str, step: Step, isolation_of: Callable[[str, str], str] = _inline) -> str:
    """Return the kind for a step of a plan. A pipeline needs what one of its tasks does, an interpreter before Ray.
    `isolation_of` says where the body of a step of a Python workflow runs."""
    match step.work:
        case Call(tool=tool) if tool == BODY:
            return ISOLATIONS[isolation_of(plan, step.name)]
        case Call(tool=tool, settings=settings):
            return _executor(tool, settings)
        case TaskPipeline(tasks=tasks, claim=claim):
            every = tasks if claim is None else (*tasks, claim.task)
            kinds = {_executor(each.kind, {**each.rendered, **each.keys, **each.settings}) for each in every}
            return next((kind for kind in (INTERPRETER, RAY) if kind in kinds), ENGINE)
        case _:
            return ENGINE


def _executor(tool: str, settings: Mapping[str, Any]) -> str:
    if tool not in ("python", "function"):
        return ENGINE
    isolation = settings.get("isolation", "process" if tool == "python" else "inline")
    return ISOLATIONS.get(isolation, ENGINE) if isinstance(isolation, str) else ENGINE
