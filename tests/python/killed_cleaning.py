"""A flow that is cancelled while it waits, and a program that dies in its clean-up.

`python -m tests.python.killed_cleaning DB` starts it and cancels it; it dies where the file `die` says.
"""

import asyncio
import os
import sys
from typing import Any

from refold import Context, RunCancelled, flow, open_engine
from tests.python.killed import SHORT, die_at, mark

RUN = "cancelled"


@flow
async def saga(ctx: Context, folder: str) -> None:
    await ctx.call(mark, folder, "book")
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.wait_for("paid"))
            group.create_task(ctx.sleep("1h"))
    except asyncio.CancelledError:
        die_at(folder, "caught")
        await ctx.call(mark, folder, "refund")
        die_at(folder, "refunded")
        await ctx.sleep(0.01)
        die_at(folder, "slept")
        raise
    finally:
        await ctx.call(mark, folder, "release")
        die_at(folder, "released")


@flow
async def works(ctx: Context, folder: str) -> None:
    die_at(folder, "begins")
    await ctx.call(mark, folder, "book")
    try:
        die_at(folder, "works")
        await asyncio.sleep(3600)
    finally:
        await ctx.call(mark, folder, "release")


async def begin(db: str) -> None:
    async with open_engine(db=db, settings=SHORT) as engine:
        if "works" in sys.argv:
            await engine.options(run=RUN).run(works, folder=os.path.dirname(db))
        handle = await engine.options(run=RUN).start(saga, folder=os.path.dirname(db))
        while not (await engine.show(RUN)).state.waiting:
            await asyncio.sleep(0.01)
        await handle.cancel()
        await handle.result()


async def go_on(db: str, workflow: Any = saga) -> str:
    """Wait for the end of the run."""
    async with open_engine(db=db, settings=SHORT) as engine:
        handle = await engine.attach(RUN, workflow)
        try:
            await asyncio.wait_for(handle.result(), 60)
        except RunCancelled:
            return "cancelled"
    return "completed"


if __name__ == "__main__":
    asyncio.run(begin(sys.argv[1]))
