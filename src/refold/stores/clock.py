"""The time of a store: it follows the machine's clock forwards, and never backwards."""

import sys
import time
from collections.abc import Callable
from functools import cache
from threading import Lock

from msgspec import Struct

from refold.core.outcomes import SECOND, Instant

SLACK = SECOND // 4  # wait for a clock that was set back by less: many small corrections would add up
MARK_EVERY = SECOND  # between two marks that a process writes
FARTHEST = 1 << 56  # a mark after this (the year 4253) is ignored


class Steady(Struct, frozen=True):
    """A clock that cannot be set."""

    read: Callable[[], int]  # microseconds since some moment
    boot: str = ""  # names that moment, for all processes of the machine; empty: not known


class Mark(Struct, frozen=True):
    """What a store's clock showed, and what the steady clock showed at the same moment."""

    at: Instant
    steady: int = 0
    boot: str = ""

    def is_plausible(self) -> bool:
        return 0 <= self.at < FARTHEST


class StoreClock:
    """Shows the machine's time. If that is set back, this clock continues at the pace of the steady clock.

    So a timer that was set for "in 5 s" takes 5 s, whatever happens to the machine's clock meanwhile. A store that
    outlives its process writes marks; from the last one, the time continues in the next process. Without a steady
    clock, this one stands still until the machine's clock has caught up.
    """

    def __init__(self, wall: Callable[[], Instant], steady: Steady | None = None) -> None:
        self._wall, self._steady = wall, steady
        self._elapsed: Callable[[], int] = (lambda: 0) if steady is None else steady.read
        self._lock = Lock()
        self.at: Instant = 0  # what it showed last
        self._read_at = self._elapsed()  # what the steady clock showed then
        self.marked: Instant = 0  # the newest mark that is known to be stored

    def now(self) -> Instant:
        """Return the time. The machine's clock is read first: if this thread is interrupted between the two readings,
        the steady clock is ahead, and the time does not jump forwards."""
        with self._lock:
            wall, read_at = self._wall(), self._elapsed()
            expected = self.at + read_at - self._read_at
            self.at = max(wall, self.at) if wall >= expected - SLACK else expected
            self._read_at = read_at
            return self.at

    def mark(self) -> Mark:
        """Return a mark of the last reading."""
        with self._lock:
            return Mark(self.at, self._read_at, "" if self._steady is None else self._steady.boot)

    def resume(self, mark: Mark) -> None:
        """Show at least the time of the mark, and what has passed since, as far as that is known."""
        with self._lock:
            read_at, at = self._elapsed(), mark.at
            self.marked = max(self.marked, at)
            if mark.boot and self._steady is not None and mark.boot == self._steady.boot:
                at += max(read_at - mark.steady, 0)
            if at > self.at + read_at - self._read_at and at < FARTHEST:
                self.at, self._read_at = at, read_at


@cache
def machine_steady() -> Steady:
    """The steady clock of the machine; where possible, one that also counts the time while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
    if clock is None:
        return Steady(lambda: time.monotonic_ns() // 1000)
    return Steady(lambda: time.clock_gettime_ns(clock) // 1000, _boot())


def _boot() -> str:
    """An id of the machine's start; processes in a time namespace with a clock of its own get another id."""
    if sys.platform == "darwin":
        return _boot_of_mac()
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
    except OSError:
        return ""  # then the time between two processes is not counted
    try:
        with open("/proc/self/timens_offsets", encoding="ascii") as file:
            offsets = file.read().split()
    except OSError:
        return boot  # a kernel without time namespaces
    return " ".join((boot, *offsets))


def _boot_of_mac() -> str:
    import ctypes

    text, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
    libc = ctypes.CDLL(None)
    failed = libc.sysctlbyname(b"kern.bootsessionuuid", text, ctypes.byref(size), None, ctypes.c_size_t(0))
    return "" if failed else text.value.decode("ascii", "replace")
