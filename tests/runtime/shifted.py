"""A process whose machine's clock is wrong: `shifted.py FOLDER HOURS RUN SECONDS`.

Starts the run, or continues it, and prints when it is there, when it has ended, and whether that was early.
"""

import asyncio
import sys
import time
from contextlib import suppress

from refold.errors import Conflict
from refold.plan import Plan, Step, Wait
from refold.settings import Settings
from refold.wiring import open_process


async def main(folder: str, run: str, seconds: str) -> None:
    plan = Plan(name="nap", steps=(Step(name="nap", work=Wait(seconds=float(seconds))),))
    async with open_process(db=f"{folder}/refold.db", settings=Settings(sweep_every=0.3)) as process:
        began = time.monotonic()
        with suppress(Conflict):
            await process.engine.options(run=run).start(plan)
        print("there", flush=True)
        await process.engine.wait(run)
        print("ended", "early" if time.monotonic() - began < float(seconds) else "in time", flush=True)


if __name__ == "__main__":
    folder, hours, run, seconds = sys.argv[1:]
    right, wrong = time.time_ns, int(float(hours) * 3600 * 10**9)
    time.time_ns = lambda: right() + wrong
    asyncio.run(main(folder, run, seconds))
