"""Steps in a pool of warm interpreter processes: one command at a time each, killed for real when it must end.

What runs there is trusted code: a process of its own contains crashes and ends on demand, but it is no sandbox. What a
body leaves running is ended with its process, and another takes that one's place.
"""

import asyncio
import os
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from msgspec import structs

from refold.core.outcomes import Fault
from refold.errors import ToolFailed
from refold.executors.interpreter import Died, WarmProcess
from refold.executors.limits import environment
from refold.executors.supervised import Wardens
from refold.logs import WARNING, event, logger
from refold.ports import Say
from refold.time_limits import waiting

log = logger("executor")

TRIES = 3  # of a start whose warden was killed before it
Coming = asyncio.Future[WarmProcess]
"""A process that is ready, or will be."""


class Processes:
    """`env` is what bodies see of the environment."""

    preload: Sequence[str] = ()
    orders_each = 1000  # then a process is replaced, with all that has gathered in it

    def __init__(
        self,
        size: int,
        *,
        grace: float = 2.0,
        wardens: Wardens | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.size, self.grace = size, grace
        self.wardens = wardens if wardens is not None else Wardens()
        self.env = env if env is not None else environment(os.environ)
        self._ours = wardens is None
        self._room = asyncio.Semaphore(size)
        self._idle: list[Coming] = []  # the last one back is the first to go: the rest may sleep
        self._ending: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def run(self, call: str, input: Any, say: Say | None = None) -> Any:
        if call.startswith("__main__:"):
            why = f"{call!r}: another process has another __main__; put the function into a module"
            raise ToolFailed(Fault("no_function", why, retryable=False))
        with waiting():
            await self._room.acquire()
        try:
            if self._closed:
                raise ToolFailed(Fault("closed", "the pool of processes is closed"))
            with waiting():
                process = await self._take()
            try:
                result = await process.run(call, input, say)
            except ToolFailed:
                await self._done_with(process)
                raise
            except Died:
                raise ToolFailed(await self._replace(process.bury())) from None
            except BaseException:
                await self._replace(process.stop(self.grace))
                raise
            await self._done_with(process)
            return result
        finally:
            self._room.release()

    async def warm(self) -> None:
        """Have all processes ready before the first command."""
        while len(self._idle) < self.size:
            self._idle.append(self._start())
        await asyncio.gather(*self._idle)

    async def close(self) -> None:
        """Take nothing new, let finish what runs (unless it is cancelled), and return when all processes are gone."""
        self._closed = True
        for _ in range(self.size):
            await self._room.acquire()
        idle, self._idle = self._idle, []
        for coming in await asyncio.gather(*idle, return_exceptions=True):
            if isinstance(coming, WarmProcess):
                self._end(coming.close(self.grace))
            elif isinstance(coming, Exception):
                event(log, WARNING, "a process for steps did not start", why=type(coming).__name__)
        while self._ending:
            await asyncio.wait(self._ending)
        for _ in range(self.size):
            self._room.release()
        if self._ours:
            await self.wardens.close()

    async def _take(self) -> WarmProcess:
        while True:
            coming = self._idle.pop() if self._idle else self._start()
            try:
                process = await asyncio.shield(coming)
            except asyncio.CancelledError:
                self._idle.append(coming)
                raise
            if not process.dead:
                return process
            self._end(process.kill())  # it was killed while it had nothing to do

    async def _done_with(self, process: WarmProcess) -> None:
        if process.left:
            await self._replace(process.kill())  # what the body has left behind goes before its end is told
        elif self._closed or process.orders >= self.orders_each or process.dead:
            self._end(process.close(self.grace))
            self._start_another()
        else:
            ready: Coming = asyncio.get_running_loop().create_future()
            ready.set_result(process)
            self._idle.append(ready)

    async def _replace(self, ending: Coroutine[Any, Any, Any]) -> Any:
        """Returns when it is gone; even if whoever waits here is cancelled, it goes."""
        task = self._end(ending)
        self._start_another()
        return await asyncio.shield(task)

    def _start_another(self) -> None:
        if not self._closed:
            self._idle.append(self._start())

    def _start(self) -> Coming:
        return asyncio.create_task(self._started())

    async def _started(self) -> WarmProcess:
        fault: Fault | None = None
        for _ in range(TRIES):
            process = WarmProcess(self.wardens, self.env)
            try:
                await process.greet(self.preload)
                return process
            except Died:
                fault = await self._end(process.bury())
            if not process.lost:
                break
        assert fault is not None
        why = f"no process could be started: {fault.message}"
        raise ToolFailed(structs.replace(fault, message=why))

    def _end(self, ending: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(ending)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task
