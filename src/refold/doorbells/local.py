"""A doorbell within one process."""

import asyncio


class LocalDoorbell:
    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()

    async def wait(self, timeout: float) -> None:
        """Until somebody rings, or it is time to look anyway."""
        try:
            async with asyncio.timeout(timeout):
                await self._rung.wait()
        except TimeoutError:
            return  # nobody rang
        self._rung.clear()
