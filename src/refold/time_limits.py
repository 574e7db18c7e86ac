"""Time limits of bodies. They do not run while a body waits for its turn: such a body has not started, or is paused.

Code that makes a body wait for a shared resource (an interpreter, a thread, a connection of a pool) does so inside
`waiting`. That pauses the limits of the same task only; the limits of other tasks run on.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any

_clocks: ContextVar[tuple["Stopwatch | TimeLimit", ...]] = ContextVar("clocks", default=())
"""The clocks that measure the body that runs here."""


class Stopwatch:
    """Measures how long a body has run. The body runs inside `with`, in the task that entered it; any thread may call
    `ran`."""

    delay = 0.0  # seconds that it waited before it started; 0: none
    owner: asyncio.Task[Any] | None = None
    _began = False
    _waits = 0
    _entered_at = 0.0
    _now: Callable[[], float]
    _state: tuple[float, float | None] = (
        0.0,
        None,
    )  # seconds until the last pause, and since when

    def ran(self) -> float:
        """Return the seconds in which the body has run; waiting does not count, nor the time before its start or after
        its end."""
        before, since = self._state
        return before if since is None else before + self._now() - since

    def began(self) -> None:
        """Note that the body has started: a later wait interrupts it and does not delay its start."""
        self._began = True

    def __enter__(self) -> "Stopwatch":
        loop = asyncio.get_running_loop()
        self.owner, self._now = asyncio.current_task(loop), loop.time
        self._entered_at = loop.time()
        self._state = (0.0, self._entered_at)
        self._token: Token[Any] = _clocks.set((*_clocks.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        _clocks.reset(self._token)
        self._state = (self.ran(), None)
        self.owner = None  # it would keep the task and all that its context leads to
        del self._token

    def pause(self) -> None:
        self._waits += 1
        if self._waits == 1:
            self._state = (self.ran(), None)

    def go_on(self) -> None:
        self._waits -= 1
        if self._waits == 0:
            before, now = self._state[0], self._now()
            self._state = (before, now)
            if not self._began:
                self.delay = now - self._entered_at


class TimeLimit:
    """Like `asyncio.timeout`, but it does not run while the body waits for its turn."""

    def __init__(self, seconds: float | None) -> None:
        self.waited = 0.0  # seconds
        self.owner: asyncio.Task[Any] | None = None
        self._timeout = asyncio.timeout(seconds)
        self._waits = 0
        self._paused_at = 0.0

    def expired(self) -> bool:
        return self._timeout.expired()

    async def __aenter__(self) -> "TimeLimit":
        await self._timeout.__aenter__()
        self.owner = asyncio.current_task()
        self._token: Token[Any] = _clocks.set((*_clocks.get(), self))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _clocks.reset(self._token)
        await self._timeout.__aexit__(kind, error, traceback)

    def pause(self) -> None:
        self._waits += 1
        if self._waits == 1:
            self._paused_at = asyncio.get_running_loop().time()
            self._until = None if self._timeout.expired() else self._timeout.when()
            if self._until is not None:
                self._timeout.reschedule(None)

    def go_on(self) -> None:
        self._waits -= 1
        if self._waits == 0:
            waited = asyncio.get_running_loop().time() - self._paused_at
            self.waited += waited
            if self._until is not None:
                self._timeout.reschedule(self._until + waited)


def clocks_of_task() -> list["Stopwatch | TimeLimit"]:
    """Return the clocks that measure the body that runs in this task."""
    task = asyncio.current_task()
    return [each for each in _clocks.get() if each.owner is task]


@contextmanager
def waiting() -> Iterator[None]:
    """Pause the clocks of a body while it waits for its turn."""
    clocks = clocks_of_task()
    for each in clocks:
        each.pause()
    try:
        yield
    finally:
        for each in clocks:
            each.go_on()


def began() -> None:
    """Note that the body that runs here has started."""
    task = asyncio.current_task()
    for each in _clocks.get():
        if isinstance(each, Stopwatch) and each.owner is task:
            each.began()
