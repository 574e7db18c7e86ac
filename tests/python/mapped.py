"""Workflows that map: their steps, generators that can be imported, and a program that is killed while it maps."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from refold import Context, Event, StartEvent, StopEvent, Workflow, flow, open_engine, step
from refold.settings import Settings

SHORT = Settings(lease_for=1.0, sweep_every=0.1, poll=0.1)


class Number(Event):
    n: int


class Squared(Event):
    n: int


def numbers() -> Iterator[dict[str, int]]:
    yield from ({"n": n} for n in range(7))


async def later() -> AsyncIterator[dict[str, int]]:
    for n in range(5):
        yield {"n": n}


@flow
async def double(ctx: Context, n: int) -> int:
    ctx.usage(calls=1)
    return 2 * n


class Squares(Workflow):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
        squares = await ctx.map(self.square, [Number(n=n) for n in range(ev.count)], max_in_flight=3)
        return StopEvent(result=[each.n for each in squares])

    @step(mapped=True)
    async def square(self, ev: Number) -> Squared:
        return Squared(n=ev.n * ev.n)


class Marked(Workflow):
    """Leaves a mark for each item, and dies at one if it is told to."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
        done = await ctx.map(self.note, [Number(n=n) for n in range(20)], max_in_flight=2)
        return StopEvent(result=[each.n for each in done])

    @step(mapped=True)
    def note(self, ev: Number) -> Squared:
        with open("marks", "a", encoding="utf-8") as marks:
            marks.write(f"{ev.n}\n")
        if Path("die").exists() and ev.n == 11:
            os.kill(os.getpid(), signal.SIGKILL)
        return Squared(n=ev.n)


def charge(n: int) -> int:
    with open("marks", "a", encoding="utf-8") as marks:
        marks.write(f"{n}\n")
    return n


class Charged(Workflow):
    """Makes a durable call for each item, and dies behind one of them if it is told to."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
        done = await ctx.map(self.pay, [Number(n=n) for n in range(5)])
        return StopEvent(result=[each.n for each in done])

    @step(mapped=True)
    async def pay(self, ctx: Context, ev: Number) -> Squared:
        charged = await ctx.call(charge, ev.n)
        if Path("die").exists() and ev.n == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return Squared(n=charged)


async def go_on(run: str) -> Any:
    async with open_engine(db=Path("refold.db"), settings=SHORT) as engine:
        handle = await engine.options(key=run).start(Charged if run == "charged" else Marked)
        return await handle.result()


if __name__ == "__main__":
    print(asyncio.run(go_on(sys.argv[1])))
