"""Wakes up for what comes due in this process; what is missed here, the sweep finds."""

import asyncio
import heapq
from collections.abc import Callable

from refold.core.outcomes import SECOND, Instant
from refold.ports import Clock


class Timers:
    def __init__(self, clock: Clock, wake: Callable[[str], None]) -> None:
        self.clock, self.wake = clock, wake
        self._heap: list[tuple[Instant, str]] = []
        self._set = asyncio.Event()

    def set(self, due: Instant, run: str) -> None:
        if not self._heap or due < self._heap[0][0]:
            self._set.set()
        heapq.heappush(self._heap, (due, run))

    async def run(self) -> None:
        while True:
            wait = (self._heap[0][0] - self.clock.now()) / SECOND if self._heap else None
            if wait is None or wait > 0:
                await self._sleep(wait)
                continue
            _, run = heapq.heappop(self._heap)
            self.wake(run)

    async def _sleep(self, seconds: float | None) -> None:
        """Until the first is due, or an earlier one is set."""
        self._set.clear()
        try:
            await asyncio.wait_for(self._set.wait(), seconds)
        except TimeoutError:
            return
