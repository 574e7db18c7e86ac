"""The context as a step without `async` sees it: what has to be awaited elsewhere makes its thread wait here."""

import asyncio
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any

from refold.worker.context import Context

WAITING = frozenset({"ask", "call", "map", "publish", "run_child", "sleep", "wait_for"})


class Blocking:
    """Everything else is as it is."""

    def __init__(self, context: Context) -> None:
        self._context, self._loop = context, asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._context, name)
        return partial(self._wait, found) if name in WAITING else found

    def _wait(self, method: Callable[..., Any], *given: Any, **named: Any) -> Any:
        done: Future[Any] = Future()

        def begin() -> None:
            """On the loop: if that has ended, nothing was begun that nobody waits for."""
            self._loop.create_task(method(*given, **named)).add_done_callback(partial(_pass_on, done))

        self._loop.call_soon_threadsafe(begin)
        return done.result()


def _pass_on(done: "Future[Any]", task: "asyncio.Task[Any]") -> None:
    error = CancelledError() if task.cancelled() else task.exception()
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(task.result())
