"""A workflow that leaves a mark for everything it does, and a program that runs it until it is killed.

`python -m tests.python.killed DB RUN [PAGE]` runs it, and dies in the step for that page.
"""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from refold import (
    Collect,
    Context,
    Engine,
    Event,
    InputRequestEvent,
    InputResponseEvent,
    StartEvent,
    StopEvent,
    Workflow,
    flow,
    open_engine,
    step,
)
from refold.settings import Settings

PAGES = 6
SHORT = Settings(lease_for=1.0, sweep_every=0.1, poll=0.1)


def mark(folder: str, text: str) -> None:
    with open(Path(folder, "marks"), "a", encoding="utf-8") as marks:
        marks.write(f"{text}\n")


def die_at(folder: str, text: str) -> None:
    if Path(folder, "die").exists() and Path(folder, "die").read_text(encoding="utf-8") == text:
        os.kill(os.getpid(), signal.SIGKILL)


class Page(Event):
    n: int
    folder: str


class Done(Event):
    n: int


class Killed(Workflow):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> list[Page]:
        ctx.set("folder", ev.folder)
        mark(ev.folder, "begin")
        return [Page(n=n, folder=ev.folder) for n in range(PAGES)]

    @step(workers=2)
    def fetch(self, ctx: Context, ev: Page) -> Done:
        die_at(ev.folder, f"{ev.n}")
        ctx.update("sum", lambda held: held + ev.n, 0)
        mark(ev.folder, f"fetch {ev.n}")
        return Done(n=ev.n)

    @step(collect=Collect(Done, n=PAGES))
    async def join(self, ctx: Context, done: list[Done]) -> StopEvent:
        mark(ctx.get("folder"), "join")
        return StopEvent(result={"pages": sorted(each.n for each in done), "sum": ctx.get("sum"), "exact": (1, 2)})


def charge(folder: str, amount: int) -> int:
    mark(folder, f"charge {amount}")
    return amount * 2


@flow
async def paying(ctx: Context, folder: str, nap: float) -> Any:
    mark(folder, "start")
    first = await ctx.call(charge, folder, 1)
    second = await ctx.call(charge, folder, 2)
    die_at(folder, "charged")
    await ctx.sleep(nap)
    die_at(folder, "slept")
    return [first, second, await ctx.call(charge, folder, 3)]


class Approved(InputResponseEvent):
    yes: bool


class Approve(InputRequestEvent, answer=Approved):
    folder: str


class Asking(Workflow):
    @step
    async def propose(self, ctx: Context, ev: StartEvent) -> list[Approve | Page]:
        mark(ev.folder, "propose")
        ctx.set("folder", ev.folder)
        return [Approve(request_id="a1", folder=ev.folder), Page(n=0, folder=ev.folder)]

    @step
    async def beside(self, ev: Page) -> None:
        mark(ev.folder, "beside")

    @step
    async def pay(self, ctx: Context, ev: Approved) -> StopEvent:
        mark(ctx.get("folder"), f"pay {ev.yes}")
        die_at(ctx.get("folder"), "answered")
        return StopEvent(result=[ev.request_id, ev.yes])


async def ask(engine: Engine, folder: str, run: str) -> Any:
    handle = await engine.options(run=run).start(Asking, folder=folder)
    while not await handle.requests() or "beside" not in Path(folder, "marks").read_text(encoding="utf-8"):
        await asyncio.sleep(0.005)
    die_at(folder, "asked")
    await handle.answer("a1", Approved(yes=True))
    return await handle.result()


async def begin(db: str, run: str) -> Any:
    folder = os.path.dirname(db)
    async with open_engine(db=db, settings=SHORT) as engine:
        if run == "asking":
            return await ask(engine, folder, run)
        if run == "paying":
            handle = await engine.options(run=run).start(paying, folder=folder, nap=0.5)
        else:
            handle = await engine.options(run=run).start(Killed, folder=folder)
        return await handle.result()


async def go_on(db: str, run: str) -> Any:
    async with open_engine(db=db, settings=SHORT) as engine:
        workflows: dict[str, Any] = {"paying": paying, "asking": Asking}
        handle = await engine.attach(run, workflows.get(run, Killed))
        return await asyncio.wait_for(handle.result(), 60)


if __name__ == "__main__":
    asyncio.run(begin(sys.argv[1], sys.argv[2]))
    time.sleep(0)
