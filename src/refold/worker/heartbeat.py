"""Where the heartbeat runs: on a thread of its own; or in a simulation, which has no threads, as a task."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from threading import Thread

from refold.logs import ERROR, event, logger
from refold.worker.leases import Beat, LeaseKeeper

log = logger("worker")

Heartbeat = Callable[[LeaseKeeper], AbstractAsyncContextManager[None]]
"""Keeps the leases of a worker alive while its bodies run."""


@asynccontextmanager
async def as_task(keeper: LeaseKeeper) -> AsyncIterator[None]:
    """Beat on the event loop of the bodies: while that loop is blocked, no lease is extended."""
    beating = asyncio.get_running_loop().create_task(keeper.run(keeper.hear))
    try:
        yield
    finally:
        beating.cancel()


@asynccontextmanager
async def on_thread(keeper: LeaseKeeper) -> AsyncIterator[None]:
    """Beat on another thread with its own event loop, so that a body that blocks its loop does not lose its lease."""
    work = asyncio.get_running_loop()
    beating: asyncio.Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = work.create_future()
    ended = asyncio.Event()

    def tell(beat: Beat) -> None:
        work.call_soon_threadsafe(keeper.hear, beat)

    async def beat() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        work.call_soon_threadsafe(beating.set_result, (loop, task))
        while True:
            try:
                await keeper.run(tell)
            except Exception as error:  # a defect; it is logged, and costs one beat instead of every lease
                event(log, ERROR, "heartbeat ended with an internal error", worker=keeper.worker, error=error)
                work.call_soon_threadsafe(work.call_exception_handler, {"message": "heartbeat", "exception": error})

    def run() -> None:
        with suppress(asyncio.CancelledError, RuntimeError):  # it was stopped, or the loop of the bodies is closed
            asyncio.run(beat())
        with suppress(RuntimeError):  # the loop of the bodies is closed, so no task waits
            work.call_soon_threadsafe(ended.set)

    Thread(target=run, name="refold-heartbeat", daemon=True).start()
    try:
        yield
    finally:
        loop, task = await beating
        with suppress(RuntimeError):  # the thread has ended already
            loop.call_soon_threadsafe(task.cancel)
        await ended.wait()
