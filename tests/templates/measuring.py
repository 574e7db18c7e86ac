"""What an evaluation takes: CPU time, and memory with that of the engine, which Python does not count."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

_STATUS, _REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")

MOST_SECONDS, MOST_BYTES = 1.0, 64 << 20
TRIES = 3
LOOPS, LOOP_SECONDS = 1_000_000, 0.028  # so long takes a loop of Python on the quiet machine of which the limit is told


class Taken(NamedTuple):
    seconds: float
    bytes: int

    def is_little(self) -> bool:
        return self.seconds <= MOST_SECONDS and self.bytes <= MOST_BYTES


def measured(work: Callable[[], Any]) -> Taken:
    """Return the shortest time of a few tries and the largest memory.

    A core that is shared, or slow, needs more CPU time for the same work. So the time of a slow try is divided by how
    much slower a plain loop is there and then.
    """
    taken = [_once(work)]
    while taken[-1].seconds > MOST_SECONDS and len(taken) <= TRIES:
        slower = max(_loop_seconds() / LOOP_SECONDS, 1.0)
        again = _once(work)
        slower = max(_loop_seconds() / LOOP_SECONDS, slower)
        taken.append(Taken(again.seconds / slower, again.bytes))
    return Taken(min(each.seconds for each in taken), max(each.bytes for each in taken))


def _loop_seconds() -> float:
    began, total = time.process_time(), 0
    for number in range(LOOPS):
        total += number & 3
    return time.process_time() - began


def _once(work: Callable[[], Any]) -> Taken:
    """The most memory it had at any moment, over what there was before; where nobody can say, none."""
    before = _kilobytes("VmRSS")
    if before:
        _REFS.write_text("5")  # the mark of the highest water goes down
    began = time.process_time()
    work()
    seconds = time.process_time() - began
    return Taken(seconds, max(_kilobytes("VmHWM") - before, 0) << 10)


def _kilobytes(name: str) -> int:
    if not _REFS.exists():
        return 0
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1])
