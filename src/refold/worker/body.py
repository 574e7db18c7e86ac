"""A body and its own task, begun at once: what ends without waiting costs no turn of the event loop.

What a body does to its task, now or later, it does not do to the worker, nor to the command that follows.
"""

import asyncio
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Coroutine, Generator
from contextvars import copy_context
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class Body(Coroutine[Any, Any, Result], Generic[Result]):
    """A coroutine that has made its first step under `task`; the task goes on from there.

    Python 3.12 has eager tasks for this; here it is done with the parts that asyncio documents for other task classes.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Result]) -> None:
        self.coroutine = coroutine
        self.ended = False  # at its first step: `result` is what came of it, unless it was cancelled
        self.result: Result
        self._awaited: Any = None  # what the first step waits for, until the task has heard of it
        self._unheard = False
        self._begun = False
        context, loop = copy_context(), asyncio.get_running_loop()
        outer = asyncio.current_task(loop)
        assert outer is not None
        self.task: asyncio.Task[Result] = loop.create_task(self, context=context)
        if self._begun:
            return  # the loop makes eager tasks
        _leave_task(loop, outer)
        _enter_task(loop, self.task)
        try:
            self._awaited = context.run(coroutine.send, None)
            self._unheard = True
        except StopIteration as end:
            self.ended, self.result = True, end.value
        except asyncio.CancelledError:
            self.ended = True
            self.task.cancel()
        except BaseException:
            self.ended = True
            raise
        finally:
            _leave_task(loop, self.task)
            _enter_task(loop, outer)

    def is_cancelled(self) -> bool:
        return self.task.cancelled() or (self.ended and self.task.cancelling() > 0)

    def send(self, value: Any) -> Any:
        self._begun = True
        if self.ended:
            raise StopIteration(None)
        if self._unheard:
            self._unheard = False
            return self._awaited
        return self.coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        if self.ended:
            raise StopIteration(None)
        if self._unheard:
            self._unheard = False
            if self._awaited is not None and self._awaited.cancel():
                return self._awaited  # as when a task is cancelled that waits for it
        return self.coroutine.throw(*error)

    def close(self) -> None:
        self.coroutine.close()

    def __await__(self) -> Generator[Any, Any, Result]:
        return (yield from self.task)
