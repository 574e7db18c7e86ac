"""Libraries that block run on threads, and are interrupted for real when time is up or nobody waits any longer."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

THREADS = 32
AGAIN = 0.05  # seconds between two interruptions: one that comes before the statement begins is not heard

Result = TypeVar("Result")


class Work:
    """What one call does on its thread; `interrupt` may be called from another, at any time."""

    def __init__(self) -> None:
        self.stop: Callable[[], Any] | None = None
        self.stopped = False

    def interrupt(self) -> None:
        self.stopped = True
        if self.stop is not None:
            with suppress(Exception):  # closed in the meantime: then there is nothing left to stop
                self.stop()


class Blocking:
    def __init__(self, name: str) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix=f"refold-{name}")

    async def run(self, work: Work, do: Callable[[], Result], timeout: float | None) -> Result:
        """Raises TimeoutError when time is up. It returns when the thread is done, however it ends."""
        doing = asyncio.get_running_loop().run_in_executor(self._threads, do)
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.shield(doing)
        except (TimeoutError, asyncio.CancelledError) as why:
            while not doing.done():
                work.interrupt()
                await _settled(doing)
            if doing.cancelled() or doing.exception() is not None or isinstance(why, asyncio.CancelledError):
                raise
            return doing.result()  # it was done in the same moment: what is committed counts

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


async def _settled(doing: "asyncio.Future[Any]") -> None:
    """A little while, or until it is done; a further wish to cancel does not leave the thread behind."""
    with suppress(asyncio.CancelledError):
        await asyncio.wait([doing], timeout=AGAIN)
