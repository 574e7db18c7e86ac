"""A flow that answers requests and starts a run that it does not wait for, and a program that dies in it.

`python -m tests.python.killed_steering DB` starts it and sends a request; it dies where the file `die` says.
"""

import asyncio
import os
import sys
from typing import Any

from refold import Context, flow, open_engine
from tests.python.killed import SHORT, die_at, mark

RUN = "steered"


def book(folder: str, amount: int) -> int:
    mark(folder, f"book {amount}")
    return amount * 10


@flow
async def note(ctx: Context, folder: str, amount: int) -> int:
    mark(folder, f"note {amount}")
    return amount


@flow
async def account(ctx: Context, folder: str) -> list[str]:
    notes: list[str] = []
    async for request in ctx.requests("book"):
        die_at(folder, "taken")
        booked = await ctx.call(book, folder, request.value)
        die_at(folder, "booked")
        await request.reply(booked)
        die_at(folder, "replied")
        notes.append(await ctx.start_child(note, folder=folder, amount=request.value))
        die_at(folder, "started")
        if request.value == 2:
            return notes
    return notes


@flow
async def rounds(ctx: Context, folder: str, n: int, total: int = 0) -> int:
    booked = await ctx.call(book, folder, n)
    die_at(folder, f"round {n}")
    if n < 3:
        ctx.continue_with(folder=folder, n=n + 1, total=total + booked)
    return total + booked


async def begin(db: str) -> None:
    async with open_engine(db=db, settings=SHORT) as engine:
        if len(sys.argv) > 2:
            await engine.options(run=RUN).run(rounds, folder=os.path.dirname(db), n=1)
            return
        handle = await engine.options(run=RUN).start(account, folder=os.path.dirname(db))
        await handle.request("book", 1, id="first")
        await handle.result()


async def go_on(db: str) -> tuple[list[int], list[int]]:
    """Send the same request again and another one; the replies, and the results of the runs that were started."""
    async with open_engine(db=db, settings=SHORT) as engine:
        handle = await engine.attach(RUN, account)
        replies: list[Any] = [await handle.request("book", 1, id="first", timeout="60s")]
        replies.append(await handle.request("book", 2, timeout="60s"))
        notes = await asyncio.wait_for(handle.result(), 60)
        return replies, [await (await engine.attach(run, note)).result() for run in notes]


async def go_round(db: str) -> tuple[int, list[str]]:
    async with open_engine(db=db, settings=SHORT) as engine:
        handle = await engine.attach(RUN, rounds)
        return await asyncio.wait_for(handle.result(), 60), [row.status for row in await engine.runs()]


if __name__ == "__main__":
    asyncio.run(begin(sys.argv[1]))
