"""What the tests of Python workflows share: events, an engine in memory, and ways to run a few functions."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from refold import Engine, Event, Handle, StartEvent, StopEvent, Workflow, open_engine
from refold.settings import Settings

SHORT = Settings(lease_for=2.0, sweep_every=0.05, poll=0.05)


class Page(Event):
    n: int = 0


class Done(Event):
    n: int = 0


@asynccontextmanager
async def started(*steps: Any, **inputs: Any) -> AsyncIterator[Handle]:
    """A run of these functions, or of a workflow, while it goes on."""
    async with open_engine(settings=SHORT) as engine:
        yield await engine.start(steps[0] if not_functions(steps) else Workflow("w", steps), **inputs)


def not_functions(steps: tuple[Any, ...]) -> bool:
    return len(steps) == 1 and not callable(getattr(steps[0], "__code__", None)) and not hasattr(steps[0], "__code__")


async def result(*steps: Any, **inputs: Any) -> Any:
    async with started(*steps, **inputs) as handle:
        return await asyncio.wait_for(handle.result(), 60)


async def error(*steps: Any, **inputs: Any) -> BaseException:
    try:
        found = await result(*steps, **inputs)
    except Exception as caught:
        return caught
    raise AssertionError(f"it gave {found!r}")


def stops(value: Callable[[Any], Any]) -> Any:
    """A workflow of one step, with this result."""

    async def only(ev: StartEvent) -> StopEvent:
        return StopEvent(result=value(ev))

    return only


async def until(holds: Callable[[], Any], within: float = 60.0) -> None:
    async with asyncio.timeout(within):
        while not holds():
            await asyncio.sleep(0.005)


__all__ = ["Done", "Engine", "Page", "error", "result", "started", "stops", "until"]
