"""Where the synchronous turn runs: on one thread of its own, or right here."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any


async def inline(work: Callable[[], Any]) -> Any:
    """For stores that never block, and a single thread."""
    return work()


class Here:
    """Right where it is asked for, one at a time: for stores that never block, with a heartbeat on another thread."""

    def __init__(self) -> None:
        self._lock = Lock()

    async def __call__(self, work: Callable[[], Any]) -> Any:
        with self._lock:
            return work()


class AdvancingThread:
    """One thread per store: turns never overlap, and the event loop never waits for a disk."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="refold-turns")

    async def __call__(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        self._thread.shutdown()
