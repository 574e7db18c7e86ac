"""How the CPU time of a piece of work grows with its input: told by a ratio, never by a clock on the wall."""

import gc
import time
from collections.abc import Callable
from typing import Any

TIMES = 8  # how much larger the larger input is
LINEAR = 24.0  # the most that linear work may grow by; quadratic work grows by 64
NOTHING = 0.05  # seconds; what takes less for the larger input is not worth a ratio
TRIES = 4


def grows_linearly(work: Callable[[int], Any], size: int) -> bool:
    """Whether work for `TIMES` the size takes about `TIMES` the CPU time; noise is tried away."""
    for _ in range(TRIES):
        small, large = _least(work, size), _least(work, TIMES * size)
        if large < NOTHING or large < LINEAR * small:
            return True
    return False


def _least(work: Callable[[int], Any], size: int) -> float:
    taken = []
    collects = gc.isenabled()
    gc.disable()  # a collection looks at the whole process, so its time says nothing about the work
    try:
        for _ in range(2):
            began = time.process_time()
            work(size)
            taken.append(time.process_time() - began)
    finally:
        if collects:
            gc.enable()
    return min(taken)
