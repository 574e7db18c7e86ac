"""A process that serves one file, or one run of it: `ring_server.py FOLDER [RUN]`. Its one tool prints the time."""

import asyncio
import sys
import time
from typing import Any

from refold.wiring import open_process


async def stamp(call: Any) -> None:
    print(time.monotonic(), flush=True)


async def main(folder: str, only: str = "") -> None:
    async with open_process({"stamp": stamp}, db=f"{folder}/refold.db", only=only):
        print("there", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
