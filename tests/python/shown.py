"""A run that shows many events to one who reads slowly, and how far the memory of its process grew meanwhile.

`python -m tests.python.shown DB COUNT SIZE` prints it as JSON. The reader takes a few, waits until the run is over,
and reads the rest then: nobody can be further behind.
"""

import asyncio
import os
import sys
from pathlib import Path

import msgspec

from refold import Context, Event, StartEvent, StopEvent, Workflow, open_engine, step

WARM = 2000  # events until the process has grown to its usual size
LOOK = 500  # events between two looks at the memory


class Line(Event):
    n: int
    text: str


class Told(msgspec.Struct):
    events: int = 0  # that the reader got, each in its place
    published: float = 0.0  # MB: the most that the process grew while events were published, and while they were read
    read: float = 0.0


def megabytes() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


class Growth:
    """Beyond what it was after the first few events."""

    def __init__(self) -> None:
        self.first = self.most = 0.0

    def seen(self, n: int) -> None:
        if n == WARM:
            self.first = self.most = megabytes()
        elif n > WARM and n % LOOK == 0:
            self.most = max(self.most, megabytes())

    @property
    def beyond(self) -> float:
        return round(self.most - self.first, 1)


published, read = Growth(), Growth()


class Shows(Workflow):
    @step(sends=[Line])
    async def shows(self, ctx: Context, ev: StartEvent) -> StopEvent:
        for n in range(ev.count):
            await ctx.publish(Line(n=n, text=f"{n:0{ev.size}}"))
            published.seen(n)
        return StopEvent()

    @step
    async def takes(self, ev: Line) -> StopEvent:
        return StopEvent()


async def told(db: str, count: int, size: int) -> Told:
    events = 0
    async with open_engine(db=db) as engine:
        handle = await engine.start(Shows, count=count, size=size)
        async for each in handle.stream():
            assert (each.number, each.value.n) == (events + 1, events), f"{each} instead of event {events}"
            events += 1
            read.seen(events)
            if events == WARM:
                await handle.result()
    return Told(events, published.beyond, read.beyond)


if __name__ == "__main__":
    print(msgspec.json.encode(asyncio.run(told(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))).decode())
