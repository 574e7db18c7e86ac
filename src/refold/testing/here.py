"""Code of users that a simulation runs in its one thread, or in a real one while the simulation stands."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from threading import Thread
from typing import Any

from refold.executors.resolve import resolve
from refold.ports import Say
from refold.worker.blocking import WAITING, Blocking
from refold.worker.context import Context


class Unwaitable(Exception):
    """A step without `async` waits for something that only others can do."""


async def caught(what: Any) -> tuple[Any, Exception | None]:
    try:
        return await what, None
    except Exception as error:
        return None, error


def apart(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """In a thread, with an event loop that knows the real world; the simulation stands meanwhile."""
    came: list[Any] = []
    thread = Thread(target=lambda: came.append(asyncio.run(work())), name="refold-real")
    thread.start()
    thread.join()
    return came[0]


class Apart:
    """Bodies that want a process of their own."""

    async def run(self, call: str, input: Any, say: Say | None = None) -> Any:
        async def body() -> Any:
            return await asyncio.to_thread(resolve(call), input)

        value, error = apart(lambda: caught(body()))
        if error is not None:
            raise error
        return value


def with_own_steps(work: Callable[[], Any]) -> Callable[[], Any]:
    """The same, with a context that does not make its thread wait."""
    if not isinstance(work, partial):
        return work
    given = [_Stepping(each._context) if isinstance(each, Blocking) else each for each in work.args]
    return partial(work.func, *given, **work.keywords)


class _Stepping:
    """Takes the steps of a durable call itself: it finds what was recorded, or leaves the body."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._context, name)
        return partial(self._taken, name, found) if name in WAITING else found

    def _taken(self, name: str, method: Callable[..., Any], *given: Any, **named: Any) -> Any:
        coroutine = method(*given, **named)
        try:
            while coroutine.send(None) is None:
                continue
        except StopIteration as end:
            return end.value
        coroutine.close()
        why = f"a step without `async` calls ctx.{name}, for which a simulation would need a second thread"
        raise Unwaitable(f"{why}: write `async def`")
