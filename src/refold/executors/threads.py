"""A few threads that are kept for the next call, and that no exit of the program waits for."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from threading import Thread
from typing import Any

from refold.time_limits import waiting

Errand = tuple[Callable[[], Any], asyncio.Future[tuple[Any, BaseException | None]]]


class Threads:
    """A call that is cancelled cannot be stopped: its thread goes on unheard, and another takes its place."""

    def __init__(self, size: int) -> None:
        self._room = asyncio.Semaphore(size)
        self._idle: list[SimpleQueue[Errand | None]] = []

    async def run(self, work: Callable[[], Any]) -> Any:
        with waiting():
            await self._room.acquire()
        try:
            inbox = self._idle.pop() if self._idle else _hire()
            answer: asyncio.Future[tuple[Any, BaseException | None]] = asyncio.get_running_loop().create_future()
            context = copy_context()
            inbox.put((lambda: context.run(work), answer))
            try:
                value, error = await answer
            except asyncio.CancelledError:
                inbox.put(None)
                raise
            self._idle.append(inbox)
        finally:
            self._room.release()
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        for inbox in self._idle:
            inbox.put(None)
        self._idle.clear()


def _hire() -> "SimpleQueue[Errand | None]":
    inbox: SimpleQueue[Errand | None] = SimpleQueue()
    Thread(target=_serve, args=(inbox,), name="refold-step", daemon=True).start()
    return inbox


def _serve(inbox: "SimpleQueue[Errand | None]") -> None:
    while (errand := inbox.get()) is not None:
        work, answer = errand
        try:
            come: tuple[Any, BaseException | None] = work(), None
        except BaseException as error:
            come = None, error
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            answer.get_loop().call_soon_threadsafe(_answer, answer, come)
        del errand, work, answer, come  # an idle thread keeps nothing alive


def _answer(answer: "asyncio.Future[Any]", come: Any) -> None:
    if not answer.done():
        answer.set_result(come)
