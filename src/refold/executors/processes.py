"""Steps in a pool of warm interpreter processes: one command at a time each, killed for real when it must end.

What runs there is trusted code: a process of its own contains crashes and ends on demand, but it is no sandbox. What a
body leaves running in the background lives until its process is replaced or the pool is closed. For systems with
process groups: Linux, macOS and the like; only Linux knows what has left the group.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from refold.core.facts import Fault
from refold.errors import ToolFailed
from refold.executors.group import Guard
from refold.executors.warm import Died, WarmProcess
from refold.ports import Say

Coming = asyncio.Future[WarmProcess]
"""A process that is ready, or will be."""


class Processes:
    def __init__(self, size: int, *, preload: Sequence[str] = (), orders_each: int = 1000, grace: float = 2.0) -> None:
        self.size, self.preload, self.orders_each, self.grace = size, preload, orders_each, grace
        self._room = asyncio.Semaphore(size)
        self._idle: list[Coming] = []  # the last one back is the first to go: the rest may sleep
        self._ending: set[asyncio.Task[Any]] = set()
        self._guard: Guard | None = None
        self._closed = False

    async def run(self, call: str, input: Any, say: Say | None = None) -> Any:
        if call.startswith("__main__:"):
            why = f"{call!r}: another process has another __main__; put the function into a module"
            raise ToolFailed(Fault("no_function", why, retryable=False))
        async with self._room:
            if self._closed:
                raise ToolFailed(Fault("closed", "the pool of processes is closed"))
            process = await self._take()
            try:
                result = await process.run(call, input, say)
            except ToolFailed:
                self._give_back(process)
                raise
            except Died:
                raise ToolFailed(await self._replace(process, process.kill())) from None
            except BaseException:
                await self._replace(process, process.stop(self.grace))
                raise
            self._give_back(process)
            return result

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
                self._end(coming, coming.close(self.grace))
        while self._ending:
            await asyncio.wait(self._ending)
        for _ in range(self.size):
            self._room.release()
        if self._guard is not None:
            await asyncio.to_thread(self._guard.close)
            self._guard = None

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
            self._end(process, process.kill())  # it was killed while it had nothing to do

    def _give_back(self, process: WarmProcess) -> None:
        if self._closed or process.orders >= self.orders_each or process.dead:
            self._end(process, process.close(self.grace))
            self._start_another()
        else:
            ready: Coming = asyncio.get_running_loop().create_future()
            ready.set_result(process)
            self._idle.append(ready)

    async def _replace(self, process: WarmProcess, ending: Coroutine[Any, Any, Any]) -> Any:
        """Returns when it is gone; even if whoever waits here is cancelled, it goes."""
        task = self._end(process, ending)
        self._start_another()
        return await asyncio.shield(task)

    def _start_another(self) -> None:
        if not self._closed:
            self._idle.append(self._start())

    def _start(self) -> Coming:
        return asyncio.create_task(self._started())

    async def _started(self) -> WarmProcess:
        if self._guard is None:
            self._guard = Guard()
        process, line = WarmProcess.start()
        self._guard.watch(process.pid, process.mark)
        try:
            await process.greet(line, self.preload)
        except Died:
            fault = await self._end(process, process.kill())
            why = f"no process could be started: {fault.message}"
            raise ToolFailed(Fault("process_died", why, code=fault.code, traceback=fault.traceback)) from None
        return process

    def _end(self, process: WarmProcess, ending: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        async def end() -> Any:
            how = await ending
            if self._guard is not None:
                self._guard.forget(process.pid)
            return how

        task = asyncio.create_task(end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task
