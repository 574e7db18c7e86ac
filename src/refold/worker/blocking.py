"""The context as a step without `async` sees it: what has to be awaited elsewhere makes its thread wait here."""

import asyncio
from collections.abc import Callable
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
        return asyncio.run_coroutine_threadsafe(method(*given, **named), self._loop).result()
