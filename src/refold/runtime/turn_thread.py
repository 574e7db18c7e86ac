"""Where the synchronous turn runs: on the thread of the caller while turns are short, else on a thread of its own."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

from refold.errors import EngineClosed

SHORT = 0.005  # seconds for which an event loop may be blocked
TURNS_ON_THREAD = 10  # turns that stay on the thread after a long one


async def inline(work: Callable[[], Any]) -> Any:
    """Run the turn in the caller, for stores that never block and a single thread."""
    return work()


class InCaller:
    """Runs one turn at a time in the caller: for stores that never block, with a heartbeat on another thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._closed = False

    async def __call__(self, work: Callable[[], Any]) -> Any:
        return self.here(work)[1]

    def here(self, work: Callable[[], Any]) -> tuple[bool, Any]:
        with self._lock:
            if self._closed:
                raise EngineClosed
            return True, work()

    def close(self) -> None:
        """From here on every turn raises EngineClosed."""
        self._closed = True


class TurnThread:
    """Runs one turn at a time, on the thread of the caller while that is faster.

    To change threads costs about as much as a commit on a good disk. So a turn runs where it is asked for, as long as
    the last turns were short and no other turn runs; after a long turn, the next ones run on the thread.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="refold-turns")
        self._lock = Lock()
        self._closed = False
        self._wary = 1  # turns until the thread of the caller is tried again; the first turn may create a file

    async def __call__(self, work: Callable[[], Any]) -> Any:
        done, result = self.here(work)
        if done:
            return result
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._on_thread, work)

    def here(self, work: Callable[[], Any]) -> tuple[bool, Any]:
        """Run the turn on the thread of the caller. Returns False if it may not run there now, and nothing was done."""
        if self._closed:
            raise EngineClosed
        if self._wary or not self._lock.acquire(blocking=False):
            return False, None
        try:
            return True, self._timed(work)
        finally:
            self._lock.release()

    def close(self) -> None:
        """From here on every turn raises EngineClosed."""
        self._closed = True
        self._thread.shutdown()

    def _on_thread(self, work: Callable[[], Any]) -> Any:
        with self._lock:
            self._wary = max(self._wary - 1, 0)
            return self._timed(work)

    def _timed(self, work: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        try:
            return work()
        finally:
            if time.perf_counter() - began > SHORT:
                self._wary = TURNS_ON_THREAD
