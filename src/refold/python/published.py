"""Events that a body shows to the outside, in their order and without loss; who publishes too fast waits."""

import asyncio
from typing import Any

from refold.ports import Meanwhile

AHEAD = 1000  # lines that may wait
AT_ONCE = 500


class Published:
    def __init__(self, meanwhile: Meanwhile, before: int) -> None:
        self.meanwhile = meanwhile
        self.count = 0
        self._before = before  # that an earlier try of the same body has shown
        self._lines: list[Any] = []
        self._sending: asyncio.Task[None] | None = None
        self._error: BaseException | None = None  # why lines were not shown

    async def put(self, line: Any) -> None:
        self.count += 1
        if self.count <= self._before:
            return
        self._lines.append(line)
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())
            self._sending.add_done_callback(self._sent)
        if len(self._lines) >= AHEAD:
            await self.flush()

    def pass_over(self) -> None:
        """A line that was shown before, whatever comes of this try; it has its place among the others."""
        self.count += 1

    async def flush(self) -> None:
        """Returns when all is where it belongs. Raises what stood in the way."""
        sending = self._sending
        if sending is not None:
            await asyncio.shield(sending)
        if self._error is not None:
            raise self._error

    def _sent(self, sending: asyncio.Task[None]) -> None:
        if not sending.cancelled():
            self._error = sending.exception() or self._error

    async def _send(self) -> None:
        try:
            while self._lines:
                some, self._lines = self._lines[:AT_ONCE], self._lines[AT_ONCE:]
                await self.meanwhile.publish(some)
        finally:
            self._sending = None
