"""Notices what other processes write to the same store: a ring from outside, for all that waits in this one."""

from collections.abc import Awaitable, Callable

from refold.core.faults import text_of
from refold.core.outcomes import SECOND
from refold.errors import Unavailable
from refold.logs import WARNING, event, logger
from refold.ports import Advance, Clock

log = logger("runtime")

SHARE = 0.05  # of the time that looks may take, however much others write


class Listener:
    """Whoever sends a signal or decides a gate takes the turn of the run, and leaves its commands to those who serve
    it. They find them within a look. One that is missed costs a poll, never a run."""

    def __init__(
        self,
        foreign_writes: Callable[[], int],
        advance: Advance,
        clock: Clock,
        heard: Callable[[], Awaitable[None]],
        every: float,
    ) -> None:
        self.foreign_writes, self.advance, self.clock, self.every = foreign_writes, advance, clock, every
        self.heard = heard  # is called when another process has written
        self._known: int | None = None  # what `foreign_writes` was last

    async def run(self) -> None:
        while True:
            began = self.clock.now()
            await self.once()
            took = (self.clock.now() - began) / SECOND
            await self.clock.sleep(max(self.every, took / SHARE))

    async def once(self) -> None:
        try:
            written = await self.advance(self.foreign_writes)
            if written != self._known:
                await self.heard()
            self._known = written
        except Unavailable as error:
            event(log, WARNING, "look for what others have written failed", why=text_of(error))
            return  # the next look will find the same
