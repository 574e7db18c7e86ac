"""How a process ends, and how to learn of it without a thread that waits."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable

from refold.executors import group


def watch_end(process: "subprocess.Popen[bytes]", ended: Callable[[], object]) -> "asyncio.Task[None] | None":
    """Call when it has ended, without reaping it where the system can tell so much."""
    loop = asyncio.get_running_loop()
    if not hasattr(os, "pidfd_open"):
        return asyncio.create_task(_poll(process, ended))
    descriptor = os.pidfd_open(process.pid)

    def over() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        ended()

    loop.add_reader(descriptor, over)
    return None


async def _poll(process: "subprocess.Popen[bytes]", ended: Callable[[], object]) -> None:
    while process.poll() is None:
        await asyncio.sleep(0.02)
    ended()


async def gone_within(grace: float, over: asyncio.Event, pid: int, mark: str) -> None:
    """Until the process and all of its group have ended, but not longer than the grace."""
    loop = asyncio.get_running_loop()
    until, pause = loop.time() + grace, 0.005
    while not over.is_set() or any(group.living(pid, mark)):
        if loop.time() >= until:
            return
        await asyncio.sleep(pause)
        pause = min(2 * pause, 0.1)


def signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
