"""Pipelines in a plan: what a worker must be given so that it can render the templates of the tasks by itself."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import to_builtins

from refold.core.pipelines import TOOL, Pipeline, Task
from refold.core.plan import Call
from refold.templates import paths_of

INSIDE = frozenset(
    {"_attempt", "_prev", "_task", "command_id", "execution_id", "job", "keychain", "outcome", "output", "results"}
    | {"secrets", "worker_id"}
)
"""Names that only the worker knows."""

CONTEXT = re.compile(r"\bcontext\b")


def call_of(pipeline: Pipeline) -> Call:
    """The work of a step that runs a pipeline."""
    return Call(tool=TOOL, settings=to_builtins(pipeline))


def input_of(pipeline: Pipeline, bound: dict[str, Any], free: Iterable[str] = ()) -> dict[str, Any]:
    """The input of such a step: names that are bound, and paths whose values are fixed when it is issued."""
    own = {*INSIDE, *bound} - {*free}
    tasks = [*pipeline.tasks, *([pipeline.claim.task] if pipeline.claim is not None else [])]
    named = [path for task in tasks for path in _paths(task)] + list(paths_of(pipeline.keychain))
    paths = dict.fromkeys(path for path in named if path[0] not in own)
    reads_context = any(_reads_context(task) for task in pipeline.tasks)
    return {"$let": bound, "$scope": [list(path) for path in paths] + ([["context"]] if reads_context else [])}


def _paths(task: Task) -> Sequence[tuple[str, ...]]:
    rules = [(rule.when, rule.set, rule.attempts, rule.delay) for rule in task.rules]
    return paths_of([task.rendered, task.keys, task.input, task.set, task.timeout, rules])


def _reads_context(task: Task) -> bool:
    """Python code may read everything there is; only if it says so is it given that."""
    code = task.settings.get("code") or task.rendered.get("code")
    scripted = task.kind == "python" and bool(task.settings.get("script"))
    return task.kind == "python" and (scripted or (isinstance(code, str) and bool(CONTEXT.search(code))))
