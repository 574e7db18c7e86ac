"""The server's time as a process knows it: its last answer, and what has passed since by a clock that cannot be set."""

import time
from collections.abc import Callable
from threading import Lock

from refold.core.outcomes import Instant
from refold.stores.clock import Steady, StoreClock


class ServerTime:
    """Never ahead of the server: an answer is older than the moment at which it arrives."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._at: Instant = 0
        self._read_at = 0
        self._shown: Instant = 0

    def is_known(self) -> bool:
        return self._read_at > 0

    def age(self) -> float:
        """Seconds since the last answer."""
        return (time.monotonic_ns() - self._read_at) / 1e9

    def now(self) -> Instant:
        with self._lock:
            self._shown = max(self._shown, self._at + (time.monotonic_ns() - self._read_at) // 1000)
            return self._shown

    def seen(self, at: Instant) -> Instant:
        """Take note of an answer; return the time to use."""
        with self._lock:
            self._at, self._read_at = at, time.monotonic_ns()
            self._shown = max(self._shown, at)
            return self._shown


class GivenTime:
    """The clock of a test instead: the server is not asked."""

    def __init__(self, now: Callable[[], Instant], steady: Steady | None) -> None:
        self._clock = StoreClock(now, steady)
        self.now = self._clock.now

    def is_known(self) -> bool:
        return True

    def age(self) -> float:
        return 0.0

    def seen(self, at: Instant) -> Instant:
        return self._clock.now()
