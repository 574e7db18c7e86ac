"""What a body asks of the desk before its try is over, under the lease it is run with."""

from collections.abc import Sequence
from typing import Any

from refold.core.facts import Outcome
from refold.ports import Desk, Lease, Memory


class AtWork:
    def __init__(self, desk: Desk, lease: Lease) -> None:
        self.desk, self.lease = desk, lease

    async def recall(self) -> Memory:
        """As the claim brought it along, or else as it is now."""
        memory = self.lease.memory
        return memory if memory is not None else await self.desk.recall(self.lease)

    async def record(self, key: str, outcome: Outcome) -> None:
        await self.desk.record(self.lease, key, outcome)

    async def publish(self, lines: Sequence[Any]) -> None:
        await self.desk.publish(self.lease, lines)
