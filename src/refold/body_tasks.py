"""Which tasks belong to a body: the one it runs in, and all that it begins. The engine's own tasks belong to none."""

import asyncio
from collections.abc import Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from typing import Any

_current: ContextVar["BodyTasks | None"] = ContextVar("refold_body_tasks", default=None)
"""The tasks of the body that runs here; inherited by all that it begins."""


class BodyTasks:
    """The tasks of one body that have not ended."""

    def __init__(self) -> None:
        self.running: dict[asyncio.Task[Any], None] = {}  # in the order in which they began

    def begin(self) -> None:
        """From now on, the current task and the tasks that it begins belong to this body."""
        task = asyncio.current_task()
        assert task is not None
        _current.set(self)
        self.add(task)

    def add(self, task: asyncio.Task[Any]) -> None:
        self.running[task] = None
        task.add_done_callback(self._end)

    def waiters(self) -> dict[asyncio.Task[Any], Any]:
        """Return what each task waits for; None if it is about to run, or has ended and others are about to hear of it.
        A task that has run since waits for another object."""
        waiters = {task: getattr(task, "_fut_waiter", None) for task in self.running}
        return {task: waiter if _is_pending(task) and _is_pending(waiter) else None for task, waiter in waiters.items()}

    def _end(self, task: asyncio.Task[Any]) -> None:
        self.running.pop(task, None)
        self.task_ended(task)

    def task_ended(self, task: asyncio.Task[Any]) -> None:
        """Called when one of the tasks has ended."""


def _is_pending(future: Any) -> bool:
    return future is not None and not future.done()


def note_task(task: asyncio.Task[Any], context: Context | None) -> None:
    """Note a task that was begun just now."""
    tasks = _current.get() if context is None else context.get(_current)
    if tasks is not None and not task.done():
        tasks.add(task)


def outside_of_bodies() -> Context:
    """Return a context for a task of the engine that happens to be begun by a body."""
    context = copy_context()
    context.run(_current.set, None)
    return context


class NotingFactory:
    """Makes tasks as the loop did before, and notes those of bodies."""

    users = 0

    def __init__(self, before: Any) -> None:
        self.before = before

    def __call__(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        context: Context | None = None,
        **more: Any,
    ) -> "asyncio.Future[Any]":
        if self.before is None:
            task: asyncio.Future[Any] = asyncio.Task(coroutine, loop=loop, context=context, **more)
        elif context is None:
            task = self.before(loop, coroutine, **more)
        else:
            task = self.before(loop, coroutine, context=context, **more)
        if isinstance(task, asyncio.Task):
            note_task(task, context)
        return task


@contextmanager
def noted_tasks(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """While it lasts, the loop notes the tasks of bodies. A loop that allows no task factory does so by itself."""
    try:
        before = loop.get_task_factory()
        factory = before if isinstance(before, NotingFactory) else NotingFactory(before)
        if factory is not before:
            loop.set_task_factory(factory)
    except RuntimeError:  # also of a loop that has no task factory
        yield
        return
    factory.users += 1
    try:
        yield
    finally:
        factory.users -= 1
        if not factory.users and loop.get_task_factory() is factory:
            loop.set_task_factory(factory.before)
