"""Libraries that block run on threads, and are interrupted for real when time is up or nobody waits any longer.

A thread that hears no interruption is given up after a patience: whoever waits goes on, and no exit waits for it.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from threading import Lock, Thread
from typing import Any, TypeVar

from refold.time_limits import waiting
from refold.tools.sql_faults import failure

THREADS = 32  # at once, and as many again that were given up
AGAIN = 0.05  # seconds between two interruptions: one that comes before the statement begins is not heard
PATIENCE = 5.0  # seconds of interrupting

Result = TypeVar("Result")


class GivenUp(TimeoutError):
    """Time is up, and the thread could not be stopped: it goes on, unheard."""


class Work:
    """What one call does on its thread; all but `check` may be called from another, at any time.

    `at_last` is called when a thread that was given up ends after all: what it held is free then, and not before.
    """

    def __init__(self, stop: Callable[[], Any] | None = None, at_last: Callable[[], Any] | None = None) -> None:
        self.stop, self.at_last = stop, at_last
        self.given_up = False
        self._ended = False
        self._lock = Lock()

    def interrupt(self) -> None:
        if self.stop is not None:
            with suppress(Exception):  # closed in the meantime: then there is nothing left to stop
                self.stop()

    def give_up(self) -> bool:
        """Whether it is given up now; if not, it has just ended."""
        with self._lock:
            self.given_up = not self._ended
            return self.given_up

    def end(self) -> bool:
        """Whether it was in time: somebody waits for what came of it."""
        with self._lock:
            self._ended = True
            return not self.given_up

    def check(self) -> None:
        """Before what cannot be taken back: nobody would learn of it, and it may have been done again by others."""
        if self.given_up:
            raise GivenUp


class Blocking:
    def __init__(self, name: str, patience: float = PATIENCE) -> None:
        self.name, self.patience = name, patience
        self._room = asyncio.Semaphore(THREADS)
        self._lost: set[Work] = set()

    async def run(self, work: Work, do: Callable[[], Result], timeout: float | None) -> Result:
        """Raises TimeoutError when time is up. It returns when the thread is done, however it ends, or given up."""
        if len(self._lost) >= THREADS:
            why = f"{len(self._lost)} calls of {self.name} do not end, though they were interrupted; start it anew"
            raise failure("db_connection", why, "THREADS_LOST")
        with waiting():
            await self._room.acquire()
        until = None if timeout is None else asyncio.get_running_loop().time() + timeout
        try:
            doing = self._begun(work, do)
            try:
                async with asyncio.timeout_at(until):
                    return await asyncio.shield(doing)
            except (TimeoutError, asyncio.CancelledError) as why:
                await self._stop(work, doing)
                if work.given_up and isinstance(why, TimeoutError):
                    raise GivenUp from None
                if doing.cancelled() or doing.exception() is not None or isinstance(why, asyncio.CancelledError):
                    raise
                return doing.result()  # it was done in the same moment: what is committed counts
        finally:
            self._room.release()

    def _begun(self, work: Work, do: Callable[[], Result]) -> "asyncio.Future[Result]":
        future: Future[Result] = Future()
        future.set_running_or_notify_cancel()
        Thread(target=self._serve, args=(work, do, future), name=f"refold-{self.name}", daemon=True).start()
        return asyncio.wrap_future(future)

    def _serve(self, work: Work, do: Callable[[], Result], future: "Future[Result]") -> None:
        try:
            come: tuple[Any, BaseException | None] = do(), None
        except BaseException as error:
            come = None, error
        if work.end():
            _settle(future, *come)
            return
        self._lost.discard(work)
        if work.at_last is not None:
            with suppress(Exception):  # nobody could be told
                work.at_last()

    async def _stop(self, work: Work, doing: "asyncio.Future[Any]") -> None:
        now = asyncio.get_running_loop().time
        until = now() + self.patience
        while not doing.done() and now() < until:
            work.interrupt()
            await _settled(doing)
        if doing.done():
            return
        self._lost.add(work)  # before its thread can take it away again
        if work.give_up():
            doing.cancel()
        else:
            self._lost.discard(work)
            await _settled(doing)


def _settle(future: "Future[Result]", value: Result, error: BaseException | None) -> None:
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


async def _settled(doing: "asyncio.Future[Any]") -> None:
    """A little while, or until it is done; a further wish to cancel does not leave the thread behind."""
    with suppress(asyncio.CancelledError):
        await asyncio.wait([doing], timeout=AGAIN)
