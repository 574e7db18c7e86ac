"""Passes a task of a pipeline on: to a tool, as a call of its own, or to the engine, as something to wait for."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct, structs

from refold.core.expressions import CannotEvaluate
from refold.core.outcomes import ITSELF, SECOND, Awaited
from refold.core.pipeline import Task
from refold.core.times import instant
from refold.ports import ToolCall
from refold.tool_api import seconds_of
from refold.tools.pipeline.render import RenderedTask, Renderer
from refold.tools.pipeline.scope import TaskProgress


class Awaits(Struct):
    """Something that a task waits for, and what its end means for the task."""

    awaited: Awaited
    data: Callable[[Any], Any]  # what the task makes of the recorded result
    timed: bool = False  # the time it has is a limit

    def by_time(self, result: Any) -> bool:
        return self.timed and result == {"by": "timer"}


def label_of(task: Task, made: TaskProgress) -> str:
    """The task and, from the second time on, how often it was begun: the same in every try, and after a crash."""
    times = made.times.get(task.name, 1)
    return task.name if times < 2 else f"{task.name}.{times}"


def call_of(call: ToolCall, task: Task, ready: RenderedTask, made: TaskProgress, single: bool) -> ToolCall:
    """Return the call of a task's tool. Each task has an idempotency key of its own."""
    command = call.command
    given = {"input": ready.input, "config": ready.keys} | ({"context": ready.context} if ready.context else {})
    inner = structs.replace(
        command,
        id=command.id if single else f"{command.id}/{label_of(task, made)}",
        attempt=made.attempt,
        last_error=made.error,
        tool=task.kind,
        input=given,
        progress=made.inner,
        recorded={},
    )
    return ToolCall(call.run, inner, ready.settings, call.say)


def awaits_of(task: Task, renderer: Renderer, made: TaskProgress, now: int, seconds: float | None) -> Awaits:
    """Return the child that a task starts, with its time limit, or the wait of the task."""
    key = label_of(task, made) if made.attempt == 1 else f"{label_of(task, made)}:{made.attempt}"
    if task.child is None:
        return _wait_of(renderer.values(task.keys, ""), key, now)
    until = None if seconds is None else now + round(seconds * SECOND)
    child, given = task.child, renderer.bound(task)
    awaited = Awaited(
        key, until=until, child=child.plan or ITSELF, input=given, want=child.want, detached=child.detached
    )
    if child.detached:
        return Awaits(
            awaited,
            lambda told: {"status": "started", "execution_id": told["run"], "path": child.path, "async": True},
        )
    return Awaits(awaited, lambda result: result, until is not None)


def _wait_of(keys: dict[str, Any], key: str, now: int) -> Awaits:
    """Return the wait of a task. Its result has the form of the result of a step that waits."""
    seconds, until, signal = keys.get("seconds"), keys.get("until"), keys.get("signal")
    if isinstance(signal, list):
        raise CannotEvaluate("a wait in a pipeline is for one signal; a step of its own may wait for several")
    moments = [] if seconds is None else [now + round(seconds_of(seconds, "`seconds`") * SECOND)]
    try:
        moments += [] if until is None else [instant(until)]
    except ValueError as error:
        raise CannotEvaluate(f"{until!r} is not a time to wait for: {error}") from None
    if not moments and not signal:
        raise CannotEvaluate("there is nothing to wait for: neither a time nor a signal")
    awaited = Awaited(key, until=min(moments, default=None), signal=str(signal or ""))
    return Awaits(awaited, lambda told: _ended(told, signal))


def _ended(told: Any, signal: Any) -> dict[str, Any]:
    if told == {"by": "timer"}:
        return {"by": "timer", "value": None}
    return {"by": "signal", "signal": signal, "value": told}
