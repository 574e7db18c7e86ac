"""The doorbell of one process: an event of its loop."""

import asyncio


class LocalDoorbell:
    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()

    async def wait(self, timeout: float) -> None:
        """Wait until the bell is rung, or until the timeout, after which the caller looks anyway."""
        try:
            async with asyncio.timeout(timeout):
                await self._rung.wait()
        except TimeoutError:
            return  # no ring came
        self._rung.clear()
