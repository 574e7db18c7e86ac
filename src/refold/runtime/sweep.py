"""Looks after what nobody rang for: leases that ran out, timers that are due, letters nobody read."""

from refold.core.outcomes import SECOND, Instant
from refold.errors import Unavailable
from refold.ports import Advance, Clock, Doorbell, Store
from refold.runtime.kin import Kin
from refold.runtime.mail import Expire
from refold.runtime.mailroom import Mailroom

LOSSES = 5  # lost leases of one command before it is given up
BATCH = 1000


class Sweep:
    """Recovery is periodic and only re-queues; it never executes anything in place."""

    def __init__(self, store: Store, advance: Advance, mailroom: Mailroom, clock: Clock, doorbell: Doorbell) -> None:
        self.store, self.advance, self.mailroom, self.clock, self.doorbell = store, advance, mailroom, clock, doorbell
        self.every = 1.0
        self.kin: Kin | None = None  # None: it looks after every run

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
        except Unavailable:
            return None  # the next round will find the same
        if self.kin is not None:
            runs, expired = tuple(self.kin.runs), [each for each in expired if each.run in self.kin.runs]
        for each in expired:
            self.mailroom.drop(each.run, Expire(each.command, each.generation, LOSSES))
        self.mailroom.nudge(runs)
        self.doorbell.ring()
        moment: Instant | None = next_due
        return moment
