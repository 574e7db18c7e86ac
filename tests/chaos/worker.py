"""The workers of a fleet under test: `python -m tests.chaos.worker FOLDER SETTINGS`, where SETTINGS is JSON.

It imports everything once, and forks a worker for each line of its input; the answer is the id of the process. A worker
writes what its bodies do and what it was told about its reports to `marks` in the folder, a line each.
"""

import asyncio
import json
import os
import signal
import sys
import time
from typing import Any

from refold.errors import Ambiguous, LeaseLost, RefoldError, Unavailable
from refold.settings import Settings
from refold.wiring import open_process


def wall() -> float:
    """The clock of the machine, also in a worker whose own one is wrong."""
    return time.clock_gettime(time.CLOCK_REALTIME)


class Marks:
    def __init__(self, folder: str) -> None:
        self._file = os.open(f"{folder}/marks", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def put(self, *words: Any) -> None:
        """One line, in one write: several processes write to the file."""
        os.write(self._file, (json.dumps(words) + "\n").encode())


async def serve(db: str, marks: Marks, options: dict[str, Any]) -> None:
    async def mark(call: Any) -> Any:
        marks.put("begin", call.run, call.command.step, wall())
        await asyncio.sleep(float(call.input or 0))
        marks.put("end", call.run, call.command.step, wall())
        return call.command.step

    async with open_process({"mark": mark}, db=db, settings=Settings(**options)) as process:
        settle = process.desk.settle

        async def noted(lease: Any, done: Any, then: Any = None) -> Any:
            command, began, result = lease.command, wall(), "unknown"
            try:
                next_lease = await settle(lease, done, then)
                result = "ok"
                return next_lease
            except LeaseLost:
                result = "failed"
                raise
            except Unavailable as error:
                result = "unknown" if isinstance(error, Ambiguous) else "failed"
                raise
            finally:
                which = (command.step, command.visit, command.attempt, lease.generation)
                marks.put("report", lease.run, which, began, wall(), result)

        process.desk.settle = noted  # type: ignore[method-assign]
        await asyncio.Event().wait()


def main(folder: str, settings: str) -> None:
    options = json.loads(settings)
    db, skew = options.pop("db"), options.pop("skew", 0.0)
    for line in sys.stdin:
        pid = os.fork()
        if pid:
            print(pid, flush=True)
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        sys.stdin.close()
        log = os.open(f"{folder}/worker-{line.strip()}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if skew:
            _set_clock(float(skew) * (1 if int(line) % 2 else -1))
        while True:
            try:
                asyncio.run(serve(db, Marks(folder), options))
            except RefoldError as error:  # the server is away at the start
                print(f"worker starts again: {error}", file=sys.stderr, flush=True)
                time.sleep(0.2)


def _set_clock(seconds: float) -> None:
    """The clock of this machine is off, for everything in this process."""
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + seconds
    time.time_ns = lambda: now_ns() + round(seconds * 1e9)


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    main(*sys.argv[1:])
