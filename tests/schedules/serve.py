"""A process that serves schedules, and kills itself with SIGKILL at one of its commits.

Called with the database, the number of the commit (0: never), `before` or `after`, and seconds by which its clock is
wrong.
"""

import asyncio
import os
import signal
import sys
import time
from typing import Any

from refold import open_engine
from refold.ports import ToolCall
from refold.stores.sqlite.file import File


def kill_at(number: int, moment: str) -> None:
    """Die at a commit, before it is carried out or right after."""
    commit, commits = File.commit, 0

    def counted(self: File, *args: Any, **named: Any) -> Any:
        nonlocal commits
        commits += 1
        if commits == number and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = commit(self, *args, **named)
        if commits == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    File.commit = counted  # type: ignore[method-assign]


async def note(call: ToolCall) -> Any:
    return call.input


async def main(db: str) -> None:
    async with open_engine(db=db, tools={"note": note}):
        print("serving", flush=True)
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    db, number, moment, shift = sys.argv[1:]
    if int(shift):
        real = time.time_ns
        time.time_ns = lambda: real() + int(shift) * 10**9
    if int(number):
        kill_at(int(number), moment)
    asyncio.run(main(db))
