"""Runs the body of a step in a task of its own, so that what it does to its task or loop does not reach the worker."""

import asyncio
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import AsyncIterator, Coroutine, Generator
from contextlib import asynccontextmanager
from contextvars import ContextVar, copy_context
from opcode import opmap
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class Body(Generic[Result]):
    """A coroutine that has made its first step under a task of its own.

    Python 3.12 has eager tasks for this; here it is done with the parts that asyncio documents for other task classes.
    """

    ended = False  # at its first step: `result` is what came of it, unless it was cancelled
    result: Result

    def __init__(self, coroutine: Coroutine[Any, Any, Result]) -> None:
        context, loop = copy_context(), asyncio.get_running_loop()
        outer = asyncio.current_task(loop)
        assert outer is not None
        rest = _Rest(coroutine)
        self.task: asyncio.Task[Result] = loop.create_task(rest, context=context)
        if rest.begun:
            return  # the loop makes eager tasks
        _leave_task(loop, outer)
        _enter_task(loop, self.task)
        try:
            rest.wait_first_for(context.run(coroutine.send, None))
        except StopIteration as end:
            self.ended, self.result = True, end.value
        except asyncio.CancelledError:  # `is_cancelled` says so
            self.ended = True
            self.task.cancel()
        finally:
            rest.begun = True
            _leave_task(loop, self.task)
            _enter_task(loop, outer)

    def is_cancelled(self) -> bool:
        return self.task.cancelling() > 0 if self.ended else self.task.cancelled()


class _Rest(Coroutine[Any, Any, Any]):
    """What the task has to run: the coroutine from where its first step has stopped, or nothing.

    It knows nothing of its task: the two would keep each other alive until the garbage is collected.
    """

    begun = False
    _waits = False  # the coroutine has made its first step and has not ended
    _awaited: Any = None  # what the first step waits for, until the task has heard of it
    _unheard = False

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine

    def wait_first_for(self, awaited: Any) -> None:
        self._waits, self._awaited, self._unheard = True, awaited, True

    def send(self, value: Any) -> Any:
        if not self.begun:  # the loop makes eager tasks
            self.begun = self._waits = True
        elif not self._waits:
            raise StopIteration(None)
        if not self._unheard:
            return self._coroutine.send(value)
        self._unheard = False
        return self._awaited

    def throw(self, *error: Any) -> Any:
        if not self._waits:
            raise StopIteration(None)
        if self._unheard:
            self._unheard = False
            if self._awaited is not None and self._awaited.cancel():
                return self._awaited  # as when a task is cancelled that waits for it
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        raise TypeError("only its task runs it")


IN_A_BODY: ContextVar[bool] = ContextVar("refold_in_a_body", default=False)
"""Inherited by all that a body begins: its tasks, its callbacks and its threads."""

RAISE = opmap["RAISE_VARARGS"]
WHY = "a step must not stop the event loop: it belongs to the process, and other steps run on it"


@asynccontextmanager
async def guarded_loop() -> AsyncIterator[None]:
    """While it lasts, `stop` of the running event loop raises RuntimeError for bodies, and does its work for others.

    Without this, a body that stops the loop would end the process, and the next process would do the same.
    """
    loop = asyncio.get_running_loop()
    stop = loop.stop

    def stop_unless_in_a_body() -> None:
        if IN_A_BODY.get():
            raise RuntimeError(WHY)
        stop()

    try:
        loop.stop = stop_unless_in_a_body  # type: ignore[method-assign]
    except AttributeError:  # a loop that is not written in Python
        yield
        return
    try:
        yield
    finally:
        if vars(loop).get("stop") is stop_unless_in_a_body:
            del loop.stop


def is_ctrl_c(error: BaseException) -> bool:
    """Whether a KeyboardInterrupt comes from the keyboard. One that a `raise` of the body has made does not."""
    if not isinstance(error, KeyboardInterrupt):
        return False
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None:
        return True
    code = last.tb_frame.f_code
    return code.co_name == "_on_sigint" or code.co_code[last.tb_lasti] != RAISE
