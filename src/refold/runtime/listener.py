"""Notices what other processes write to the same store: a ring from outside, for all that waits in this one."""

from collections.abc import Callable

from refold.core.commands import LetterStart
from refold.core.outcomes import SECOND
from refold.errors import Unavailable
from refold.ports import Advance, Clock, Store
from refold.runtime.kin import Kin
from refold.runtime.mailroom import Mailroom

BATCH = 1000  # letters that are looked at; the sweep finds the rest
SHARE = 0.05  # of the time that looks may take, however much others write

Letters = set[tuple[str, str]]
"""Receivers and keys."""


class Listener:
    """A signal, a decision or a command that another process has written continues its run here within two looks.

    What it misses costs nothing but time: workers poll, and the sweep finds letters and timers.
    """

    def __init__(
        self,
        store: Store,
        foreign_writes: Callable[[], int],
        advance: Advance,
        mailroom: Mailroom,
        clock: Clock,
        heard: Callable[[], None],
        every: float,
    ) -> None:
        self.store, self.foreign_writes, self.advance, self.mailroom = store, foreign_writes, advance, mailroom
        self.clock, self.every = clock, every
        self.heard = heard  # is called when another process has written
        self.kin: Kin | None = None  # None: it listens for every run
        self._known: int | None = None  # what `foreign_writes` was last
        self._seen: Letters = set()  # unread when it last looked
        self._passed_on: Letters = set()  # of those, the ones that were delivered; one that stays is the sweep's
        self._again = False  # there are letters that were not there before

    async def run(self) -> None:
        while True:
            began = self.clock.now()
            await self.once()
            took = (self.clock.now() - began) / SECOND
            await self.clock.sleep(max(self.every, took / SHARE))

    async def once(self) -> None:
        try:
            written = await self.advance(self.foreign_writes)
            if written == self._known and not self._again:
                return
            is_new, self._known = written != self._known, written
            await self._read_letters()
        except Unavailable:
            self._known = None  # look again
            return
        if is_new:
            self.mailroom.doorbell.ring()
            self.heard()

    async def _read_letters(self) -> None:
        """A letter that is still unread at the second look is delivered here. Whoever writes one and serves its
        receiver delivers it at once, and two processes at the same runs would only be in each other's way."""
        letters = await self.advance(lambda: self.store.unread(BATCH))
        if self.kin is not None:
            self.kin.born((each.body.parent.run, each.to) for each in letters if isinstance(each.body, LetterStart))
        unread: Letters = {(each.to, each.key) for each in letters}
        waiting = (unread & self._seen) - self._passed_on
        self._again = not unread <= self._seen
        self._seen, self._passed_on = unread, (self._passed_on & unread) | waiting
        runs = sorted({to for to, _ in waiting})
        self.mailroom.nudge(runs if self.kin is None else [run for run in runs if run in self.kin.runs])
