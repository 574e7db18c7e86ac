"""The newest facts of runs as events, encoded once for all streams that send them: twenty readers of a run cost little
more than one."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from functools import partial

from refold.core.fold.apply import Record
from refold.core.outcomes import Instant
from refold.ports import Views
from refold.server.documents import Read

AT_ONCE = 500  # facts in one read, and events in one piece
KEPT = 2000  # events of a run
MOST_BYTES = 1024 * 1024  # of the events of a run
RUNS = 100

LogKey = tuple[str, Instant, bool]
"""A run, when it was started (a run that was removed may be started again), and whether values are shown."""

Encode = Callable[[Record], bytes]


class Tail:
    """The newest events of one run."""

    def __init__(self) -> None:
        self.first = 1  # the number of the first that is kept
        self.events: list[bytes] = []
        self.size = 0
        self.reading = asyncio.Lock()

    @property
    def last(self) -> int:
        return self.first + len(self.events) - 1

    def has(self, after: int) -> bool:
        return self.first - 1 <= after < self.last

    def piece(self, after: int) -> tuple[int, bytes]:
        begin = after - self.first + 1
        events = self.events[begin : begin + AT_ONCE]
        return after + len(events), b"".join(events)

    def add(self, after: int, events: list[bytes]) -> None:
        """Keep events that follow the last one; those of a reader who is far behind are not kept."""
        if not self.events:
            self.first = after + 1
        elif after != self.last:
            return
        self.events += events
        self.size += sum(map(len, events))
        cut = 0
        while len(self.events) - cut > KEPT or (self.size > MOST_BYTES and len(self.events) - cut > 1):
            self.size -= len(self.events[cut])
            cut += 1
        del self.events[:cut]
        self.first += cut


class SharedLog:
    def __init__(self, views: Views, read: Read) -> None:
        self._views, self._read = views, read
        self._tails: OrderedDict[LogKey, Tail] = OrderedDict()

    async def after(self, key: LogKey, after: int, encode: Encode) -> tuple[int, bytes]:
        """Return the next events of a run after a fact, in one piece, and the number of the last of them; nothing and
        the same number if there are none. `encode` makes the event of a fact, with values or without."""
        tail = self._tail(key)
        if tail.has(after):
            return tail.piece(after)
        async with tail.reading:
            if tail.has(after):  # another stream has read it meanwhile
                return tail.piece(after)
            found: list[bytes] = await self._read(partial(self._encoded, key[0], after, encode))
            tail.add(after, found)
            return after + len(found), b"".join(found)

    def _encoded(self, run: str, after: int, encode: Encode) -> list[bytes]:
        return [encode(record) for record in self._views.facts(run, after, AT_ONCE)]

    def _tail(self, key: LogKey) -> Tail:
        found = self._tails.setdefault(key, Tail())
        self._tails.move_to_end(key)
        if len(self._tails) > RUNS:
            self._tails.popitem(last=False)
        return found
