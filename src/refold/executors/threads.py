"""A pool of threads that are reused, and that do not keep the program from exiting."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from threading import Thread
from typing import Any

from refold.time_limits import waiting

Job = tuple[Callable[[], Any], asyncio.Future[tuple[Any, BaseException | None]]]


class Threads:
    """A call that is cancelled cannot be stopped: its thread continues unobserved, and a new one replaces it."""

    def __init__(self, size: int) -> None:
        self._room = asyncio.Semaphore(size)
        self._idle: list[SimpleQueue[Job | None]] = []

    async def run(self, work: Callable[[], Any]) -> Any:
        with waiting():
            await self._room.acquire()
        try:
            inbox = self._idle.pop() if self._idle else _start_thread()
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


def _start_thread() -> "SimpleQueue[Job | None]":
    inbox: SimpleQueue[Job | None] = SimpleQueue()
    Thread(target=_serve, args=(inbox,), name="refold-step", daemon=True).start()
    return inbox


def _serve(inbox: "SimpleQueue[Job | None]") -> None:
    while (job := inbox.get()) is not None:
        work, answer = job
        try:
            outcome: tuple[Any, BaseException | None] = work(), None
        except BaseException as error:
            outcome = None, error
        with suppress(RuntimeError):  # the loop is closed, so there is no caller any more
            answer.get_loop().call_soon_threadsafe(_set_answer, answer, outcome)
        del job, work, answer, outcome  # an idle thread keeps nothing alive


def _set_answer(answer: "asyncio.Future[Any]", outcome: Any) -> None:
    if not answer.done():
        answer.set_result(outcome)
