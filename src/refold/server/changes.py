"""Tells readers which runs have changed. One look at the store serves all readers; without readers there is none."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from refold.errors import RefoldError
from refold.logs import WARNING, event, logger
from refold.ports import Views
from refold.server.documents import Read

LOOK = 0.1  # seconds between two looks while somebody listens
AT_ONCE = 5000  # runs that one look takes

log = logger("server")


class ChangeListener:
    """What has changed since the last `take`; `changed` is set when there is something."""

    def __init__(self, run: str = "") -> None:
        self.run = run  # empty: all runs
        self.changed = asyncio.Event()
        self._heads: dict[str, int] = {}

    def add(self, heads: Mapping[str, int]) -> None:
        mine = heads if not self.run else {run: head for run, head in heads.items() if run == self.run}
        if mine:
            self._heads.update(mine)
            self.changed.set()

    def take(self) -> dict[str, int]:
        found, self._heads = self._heads, {}
        self.changed.clear()
        return found

    async def wait(self, timeout: float) -> bool:
        """Whether something has changed within this time."""
        try:
            async with asyncio.timeout(timeout):
                await self.changed.wait()
        except TimeoutError:
            return False
        return True


class Changes:
    def __init__(self, views: Views, read: Read) -> None:
        self._views, self._read = views, read
        self._listeners: set[ChangeListener] = set()
        self._wanted = asyncio.Event()

    @contextmanager
    def listening(self, run: str = "") -> Iterator[ChangeListener]:
        """Listen to one run, or to all. What changes after the first look is not missed; read the store once after
        entering."""
        listener = ChangeListener(run)
        self._listeners.add(listener)
        self._wanted.set()
        try:
            yield listener
        finally:
            self._listeners.discard(listener)
            if not self._listeners:
                self._wanted.clear()

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    async def run(self) -> None:
        """Look at the store until cancelled."""
        while True:
            await self._wanted.wait()
            try:
                await self._watch()
            except RefoldError as error:
                event(log, WARNING, "changes could not be read", why=str(error))
                await asyncio.sleep(LOOK)
                self._wake_all()  # what changed meanwhile is not known

    async def _watch(self) -> None:
        """Look until nobody listens. The first position is taken after the listener came, who reads once by himself."""
        position = (await self._read(self._views.changed)).position
        self._wake_all()
        while self._listeners:
            found = await self._read(partial(self._views.changed, position, AT_ONCE))
            position = found.position
            if found.heads:
                for listener in tuple(self._listeners):
                    listener.add(found.heads)
            if len(found.heads) < AT_ONCE:
                await asyncio.sleep(LOOK)

    def _wake_all(self) -> None:
        for listener in self._listeners:
            listener.changed.set()
