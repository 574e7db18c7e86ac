"""An event loop with real threads and sockets whose clock is virtual: it stands while there is work, and else jumps."""

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from math import inf, nextafter
from time import monotonic
from typing import Any

from refold.core.outcomes import SECOND, Instant

MOMENT = 1e-6  # seconds
HUSH = 1.0  # real seconds without a word on any socket after which nothing more is expected


class TooLong(Exception):
    """More real time has passed than was allowed."""


class _Waiting(selectors.BaseSelector):
    """Between two callbacks the loop comes here to wait; this is where time passes."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.now = 0.0
        self.busy = 0  # calls that something real works on: threads, processes
        self.deadline = inf  # in real time
        self._own = 0  # what the loop itself listens to

    def select(self, timeout: float | None = None) -> Any:
        left = self.deadline - monotonic()
        if left <= 0:
            raise TooLong
        found = self._real.select(0)
        if found or timeout == 0:
            return found
        if self.busy:  # that goes on in real time, but costs no virtual time before the next timer is due
            found = self._real.select(left if timeout is None else min(timeout, left))
        elif len(self._real.get_map()) > self._own:
            found = self._real.select(HUSH if timeout is None else min(timeout, HUSH))
        if not found and timeout is not None:
            self.now = nextafter(self.now + timeout, inf)  # a timer is due after its moment, however late it is
        return found

    def keep_own(self) -> None:
        self._own = len(self._real.get_map())

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class VirtualLoop(asyncio.SelectorEventLoop):
    """`asyncio.sleep`, timeouts and timers cost nothing here. What happens at one moment happens in asyncio's order."""

    def __init__(self) -> None:
        self._waiting = _Waiting()
        super().__init__(self._waiting)
        self._waiting.keep_own()
        self._rest: asyncio.Future[None] | None = None  # of those who wait for nothing real to be at work

    def time(self) -> float:
        return self._waiting.now

    def patient(self, seconds: float) -> None:
        """From now on, so much real time."""
        self._waiting.deadline = monotonic() + seconds

    async def quiet(self) -> None:
        """Returns when all that can happen at this moment has happened."""
        while True:
            await asyncio.sleep(MOMENT)  # no timer fires while anything is ready
            if not self._waiting.busy:
                return
            self._rest = self._rest or self.create_future()
            await self._rest

    @contextmanager
    def really(self) -> Iterator[None]:
        """Time stands still inside, unless this takes as long in reality as the next timer has left."""
        self._waiting.busy += 1
        try:
            yield
        finally:
            self._done()

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        self._waiting.busy += 1
        asked = super().run_in_executor(executor, func, *args)
        asked.add_done_callback(self._done)
        return asked

    def _done(self, *_: Any) -> None:
        self._waiting.busy -= 1
        if not self._waiting.busy and self._rest is not None:
            self._rest.set_result(None)
            self._rest = None

    def at_work(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """The same call, during which time stands still."""

        async def real(*given: Any, **named: Any) -> Any:
            with self.really():
                return await call(*given, **named)

        return real


class VirtualClock:
    """The wall clock of a virtual loop."""

    def __init__(self, loop: VirtualLoop, epoch: Instant) -> None:
        self.loop, self.epoch = loop, epoch

    def now(self) -> Instant:
        return self.epoch + round(self.loop.time() * SECOND)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
