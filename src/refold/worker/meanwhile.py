"""What a body asks of the desk before its try is over, under the lease it is run with."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from refold.core.outcomes import Failed, Outcome, Succeeded
from refold.errors import Unavailable
from refold.ports import Clock, Desk, Discretion, Lease, Memory
from refold.worker.discretion import OPEN

T = TypeVar("T")


class AtWork:
    """A store that does not answer is asked again; if that takes too long, the lease is lost, and the body ended."""

    def __init__(self, desk: Desk, lease: Lease, clock: Clock, pause: float, discretion: Discretion = OPEN) -> None:
        self.desk, self.lease, self.clock, self.pause, self.discretion = desk, lease, clock, pause, discretion

    async def recall(self) -> Memory:
        """As the claim brought it along, or else as it is now."""
        memory = self.lease.memory
        return memory if memory is not None else await self._asked(lambda: self.desk.recall(self.lease))

    async def record(self, key: str, outcome: Outcome) -> None:
        """Raises ToolFailed for a result that holds a secret: nothing of it is recorded."""
        if isinstance(outcome, Failed):
            outcome = Failed(self.discretion.fault(outcome.fault))
        elif isinstance(outcome, Succeeded):
            self.discretion.check_result(outcome.result)
        await self._asked(lambda: self.desk.record(self.lease, key, outcome))

    async def publish(self, lines: Sequence[Any]) -> None:
        shown = [self.discretion.value(line) for line in lines]
        await self._asked(lambda: self.desk.publish(self.lease, shown))

    async def _asked(self, ask: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await ask()
            except Unavailable:
                await self.clock.sleep(self.pause)
