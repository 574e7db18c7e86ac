"""The doorbell of one process: an event of its loop."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class LocalDoorbell:
    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self._others: list[LocalDoorbell] = []

    def ring(self) -> None:
        self._rung.set()
        for other in self._others:
            other.ring()

    @contextmanager
    def another(self) -> "Iterator[LocalDoorbell]":
        """Yield a bell that rings with this one, for somebody who waits beside the worker."""
        other = LocalDoorbell()
        self._others.append(other)
        try:
            yield other
        finally:
            self._others.remove(other)

    async def wait(self, timeout: float) -> None:
        """Wait until the bell is rung, or until the timeout, after which the caller looks anyway."""
        try:
            async with asyncio.timeout(timeout):
                await self._rung.wait()
        except TimeoutError:
            return  # no ring came
        self._rung.clear()
