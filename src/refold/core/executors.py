"""Where the body of a step runs: in the process of the engine, or in an interpreter of its own. A worker has places for
each kind, and claims nothing for which it has no free place."""

from collections.abc import Callable, Mapping
from typing import Any

from refold.core.pipeline import Task, TaskPipeline
from refold.core.plan import BODY, Call, Step

ENGINE, INTERPRETER = "", "interpreter"
EXECUTORS = (ENGINE, INTERPRETER)


def _never(plan: str, step: str) -> bool:
    return False


def executor_of(plan: str, step: Step, is_isolated: Callable[[str, str], bool] = _never) -> str:
    """Return the kind for a step of a plan. A pipeline needs an interpreter if one of its tasks does. `is_isolated`
    says whether the body of a step of a Python workflow runs in a process."""
    match step.work:
        case Call(tool=tool) if tool == BODY:
            in_process = is_isolated(plan, step.name)
        case Call(tool=tool, settings=settings):
            in_process = _in_process(tool, settings)
        case TaskPipeline(tasks=tasks, claim=claim):
            every = tasks if claim is None else (*tasks, claim.task)
            in_process = any(_task_in_process(each) for each in every)
        case _:
            in_process = False
    return INTERPRETER if in_process else ENGINE


def _task_in_process(task: Task) -> bool:
    return _in_process(task.kind, {**task.rendered, **task.keys, **task.settings})


def _in_process(tool: str, settings: Mapping[str, Any]) -> bool:
    if tool == "python":
        return bool(settings.get("isolation", "process") == "process")
    return tool == "function" and bool(settings.get("isolation") == "process")
