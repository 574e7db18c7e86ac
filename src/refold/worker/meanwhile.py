"""What a body asks of the desk before its try is over, under the lease it is run with."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from refold.core.outcomes import Outcome
from refold.errors import Unavailable
from refold.ports import Clock, Desk, Lease, Memory

T = TypeVar("T")


class AtWork:
    """A store that does not answer is asked again; if that takes too long, the lease is lost, and the body ended."""

    def __init__(self, desk: Desk, lease: Lease, clock: Clock, pause: float) -> None:
        self.desk, self.lease, self.clock, self.pause = desk, lease, clock, pause

    async def recall(self) -> Memory:
        """As the claim brought it along, or else as it is now."""
        memory = self.lease.memory
        return memory if memory is not None else await self._asked(lambda: self.desk.recall(self.lease))

    async def record(self, key: str, outcome: Outcome) -> None:
        await self._asked(lambda: self.desk.record(self.lease, key, outcome))

    async def publish(self, lines: Sequence[Any]) -> None:
        await self._asked(lambda: self.desk.publish(self.lease, lines))

    async def _asked(self, ask: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await ask()
            except Unavailable:
                await self.clock.sleep(self.pause)
