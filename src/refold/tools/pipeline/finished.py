"""What a task leaves that has ended, and how a try that starts again after a crash takes it over."""

from collections.abc import Mapping

from msgspec import Struct

from refold.core.pipeline import Task
from refold.tools.pipeline.calls import label_of
from refold.tools.pipeline.scope import TaskProgress

PREFIX = "task "  # begins the keys of these records
MOST_RECORDS = 1_000  # of one try; a list of tasks that jumps back can run a million
WITHOUT_EFFECT = ("noop", "assert", "wait")


class FinishedTask(Struct):
    """A task that has ended. `progress` is that of the pipeline, with the result of this task alone."""

    task: str
    progress: TaskProgress
    usage: Mapping[str, int | float] = {}


def key_of(task: Task, made: TaskProgress) -> str:
    """Return the key of the record of a task: the same in every try after a crash."""
    again = "" if made.of == 1 else f", try {made.of}"
    return f"{PREFIX}{label_of(task, made)}{again}"


def with_finished(made: TaskProgress, before: TaskProgress, task: str) -> None:
    """Continue behind a task that has ended. Limits begin anew: a crash is no reason to be late."""
    made.labels.pop(task, None)
    made.labels |= before.labels
    made.prev = before.labels[task] if before.prev is None and task in before.labels else before.prev
    made.at, made.attempt, made.runs, made.times = before.at, before.attempt, before.runs, before.times
    made.ctx, made.iter, made.vars, made.error = before.ctx, before.iter, before.vars, before.error
    made.inner, made.waiting = None, False
