"""Where the body of a step runs: in the process of the engine, in an interpreter of its own, or on a Ray cluster. A
worker has places for each kind, and claims nothing for which it has no free place."""

from collections.abc import Callable, Mapping
from typing import Any

from refold.core.pipeline import TaskPipeline
from refold.core.plan import BODY, Call, Step

ENGINE, INTERPRETER, RAY = "", "interpreter", "ray"
EXECUTORS = (ENGINE, INTERPRETER, RAY)
REMOTE = frozenset({RAY})  # bodies there need no slot of this machine
ISOLATIONS = {"inline": ENGINE, "process": INTERPRETER, "ray": RAY}


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
