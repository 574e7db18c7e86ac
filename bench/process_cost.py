"""What a step in a warm process costs, beside a fresh interpreter for the same call and a thread of this one."""

import asyncio
import statistics
import subprocess
import sys
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

from msgspec import Struct

from refold.executors.inline import Inline
from refold.executors.processes import Processes

CALL = "operator:truth"
FRESH = "import asyncio, json, sys, operator; json.dump(operator.truth(json.load(sys.stdin)), sys.stdout)"


class ProcessCost(Struct, frozen=True):
    """Median seconds of one call."""

    fresh: float  # an interpreter is started for it, with the modules an async program needs
    start: float  # of a warm process, up to its first answer
    warm: float
    thread: float

    @property
    def ratio(self) -> float:
        """How many warm calls fit into one with a fresh interpreter."""
        return self.fresh / self.warm


async def measure(calls: int = 500, starts: int = 10) -> ProcessCost:
    async def start() -> None:
        processes = Processes(1)
        began = perf_counter()
        await processes.run(CALL, 1)
        started.append(perf_counter() - began)
        await processes.close()

    started: list[float] = []
    for _ in range(starts):
        await start()
    processes, threads = Processes(1), Inline(1)
    warm = await _median(lambda: processes.run(CALL, 1), calls)
    thread = await _median(lambda: threads.run(CALL, 1), calls)
    await processes.close()
    await threads.close()
    return ProcessCost(_fresh(starts), statistics.median(started), warm, thread)


async def _median(call: Callable[[], Awaitable[Any]], times: int) -> float:
    await call()
    taken = []
    for _ in range(times):
        began = perf_counter()
        await call()
        taken.append(perf_counter() - began)
    return statistics.median(taken)


def _fresh(times: int) -> float:
    taken = []
    for _ in range(times):
        began = perf_counter()
        subprocess.run([sys.executable, "-c", FRESH], input=b"1", capture_output=True, check=True)
        taken.append(perf_counter() - began)
    return statistics.median(taken)


def main() -> None:
    cost = asyncio.run(measure())
    for name in ("fresh", "start", "warm", "thread"):
        print(f"{name:7}{1e3 * getattr(cost, name):9.3f} ms")
    print(f"a warm process is {cost.ratio:.0f} times as fast as a fresh interpreter")


if __name__ == "__main__":
    main()
