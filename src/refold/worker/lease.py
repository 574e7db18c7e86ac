"""Keeps leases alive: one heartbeat for all a worker holds, and an end to work whose lease is lost."""

import asyncio

from refold.errors import Unavailable
from refold.ports import Clock, Desk, Lease

Place = tuple[str, str, int]


def place(lease: Lease) -> Place:
    return lease.run, lease.command.id, lease.generation


class Keeper:
    """Independent of the work itself, so a busy step does not cost its own lease."""

    def __init__(self, desk: Desk, clock: Clock, worker: str, lease_for: float) -> None:
        self.desk, self.clock, self.worker, self.lease_for = desk, clock, worker, lease_for
        self.every = lease_for / 3
        self.held: dict[Place, asyncio.Task[None] | None] = {}
        self._strange: set[Place] = set()

    async def run(self) -> None:
        while True:
            await self.clock.sleep(self.every)
            await self.beat()

    async def beat(self) -> None:
        before = dict(self.held)
        try:
            leases = {place(lease): lease for lease in await self.desk.extend(self.worker, self.lease_for)}
        except Unavailable:
            return  # the next beat may come through in time
        for where, task in before.items():
            if where not in leases and task is not None and self.held.get(where) is task:
                task.cancel()  # another holder owns the command now; its report counts, not this one
        strange = leases.keys() - before.keys() - self.held.keys()
        for where in sorted(strange & self._strange):  # claimed, but the answer never came; seen twice to be sure
            await self.desk.hand_back(leases[where])
        self._strange = set(strange)
