"""Looks after what nobody rang for: leases that ran out, timers that are due, letters nobody read."""

import asyncio
import heapq
from collections.abc import Callable

from refold.core.faults import text_of
from refold.core.outcomes import SECOND, Instant
from refold.errors import Unavailable
from refold.logs import WARNING, event, logger
from refold.ports import Advance, Clock, Doorbell, Store
from refold.runtime.mail import Expire
from refold.runtime.mailroom import Mailroom
from refold.runtime.served_runs import ServedRuns

log = logger("runtime")

LOSSES = 5  # lost leases of one command before it is given up
BATCH = 1000


class Sweep:
    """Recovery is periodic and only re-queues; it never executes anything in place."""

    def __init__(self, store: Store, advance: Advance, mailroom: Mailroom, clock: Clock, doorbell: Doorbell) -> None:
        self.store, self.advance, self.mailroom, self.clock, self.doorbell = store, advance, mailroom, clock, doorbell
        self.every = 1.0
        self.served_runs: ServedRuns | None = None  # None: it looks after every run

    async def run(self) -> None:
        while True:
            next_due = await self.once()
            wait = self.every
            if next_due is not None:
                wait = min(wait, max((next_due - self.clock.now()) / SECOND, self.every / 100))
            await self.clock.sleep(wait)

    async def once(self) -> Instant | None:
        try:
            expired = await self.advance(lambda: self.store.expire(LOSSES))
            runs, next_due = await self.advance(lambda: self.store.due(BATCH))
        except Unavailable as error:
            event(log, WARNING, "sweep failed", why=text_of(error))
            return None  # the next round will find the same
        if self.served_runs is not None:
            runs = tuple(self.served_runs.runs)
            expired = [each for each in expired if each.run in self.served_runs.runs]
        for each in expired:
            self.mailroom.drop(each.run, Expire(each.command, each.generation, LOSSES))
        self.mailroom.nudge(runs)
        self.doorbell.ring()
        moment: Instant | None = next_due
        return moment


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
            return  # the first is due
