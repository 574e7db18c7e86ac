"""Steps in a pool of warm interpreter processes: each runs one command at a time, and can really be killed.

What runs there is trusted code: a process of its own contains crashes and can be ended, but it is not a sandbox. What a
body leaves running is ended with its process, and a new process replaces that one.
"""

import asyncio
import os
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from msgspec import structs

from refold.core.outcomes import Fault
from refold.errors import ToolFailed
from refold.executors.interpreter import Died, Interpreter
from refold.executors.limits import environment
from refold.executors.supervised import Supervisors
from refold.logs import WARNING, event, logger
from refold.ports import Say
from refold.time_limits import waiting

log = logger("executor")

TRIES = 3  # to start a process, if its supervisor is killed meanwhile
PendingInterpreter = asyncio.Future[Interpreter]
"""A process that is ready, or will be."""


class InterpreterPool:
    """At most `size` processes, which start when they are needed. One that has had no work for `idle_for` seconds ends
    (0: none does). `env` is the environment that bodies see. After `orders_each` calls a process is replaced, so that
    leftovers do not accumulate. Each process imports the modules in `preload` before its first call."""

    def __init__(
        self,
        size: int,
        *,
        grace: float = 2.0,
        supervisors: Supervisors | None = None,
        env: Mapping[str, str] | None = None,
        orders_each: int = 1000,
        preload: Sequence[str] = (),
        idle_for: float = 0.0,
    ) -> None:
        self.size, self.grace, self.orders_each, self.preload = size, grace, orders_each, preload
        self.supervisors = supervisors if supervisors is not None else Supervisors()
        self.env = env if env is not None else environment(os.environ)
        self._owns_supervisors = supervisors is None
        self._room = asyncio.Semaphore(size)
        self._idle: list[PendingInterpreter] = []  # the last one returned is used first, so that the others may sleep
        self._ending: set[asyncio.Task[Any]] = set()
        self.idle_for = idle_for
        self._retiring: dict[PendingInterpreter, asyncio.TimerHandle] = {}  # when idle ones end
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
                raise ToolFailed(await self._replace(process.end_without_answer())) from None
            except BaseException:
                await self._replace(process.stop(self.grace))
                raise
            await self._done_with(process)
            return result
        finally:
            self._room.release()

    async def warm(self) -> None:
        """Start all processes, and return when they are ready."""
        while len(self._idle) < self.size:
            self._keep(self._start())
        await asyncio.gather(*self._idle)

    async def close(self) -> None:
        """Accept nothing new, let running steps finish unless cancelled, and return when all processes are gone."""
        self._closed = True
        for _ in range(self.size):
            await self._room.acquire()
        idle, self._idle = self._idle, []
        while self._retiring:
            self._retiring.popitem()[1].cancel()
        for interpreter in await asyncio.gather(*idle, return_exceptions=True):
            if isinstance(interpreter, Interpreter):
                self._end(interpreter.close(self.grace))
            elif isinstance(interpreter, Exception):
                event(log, WARNING, "a process for steps did not start", why=type(interpreter).__name__)
        while self._ending:
            await asyncio.wait(self._ending)
        for _ in range(self.size):
            self._room.release()
        if self._owns_supervisors:
            await self.supervisors.close()

    async def _take(self) -> Interpreter:
        while True:
            pending = self._idle.pop() if self._idle else self._start()
            if (retiring := self._retiring.pop(pending, None)) is not None:
                retiring.cancel()
            try:
                process = await asyncio.shield(pending)
            except asyncio.CancelledError:
                self._keep(pending)
                raise
            if not process.dead:
                return process
            self._end(process.kill())  # it was killed while it was idle

    async def _done_with(self, process: Interpreter) -> None:
        if process.left:
            await self._replace(
                process.kill()
            )  # what the body has left running ends before the step is reported as ended
        elif self._closed or process.orders >= self.orders_each or process.dead:
            self._end(process.close(self.grace))
            self._start_another()
        else:
            ready: PendingInterpreter = asyncio.get_running_loop().create_future()
            ready.set_result(process)
            self._keep(ready)

    def _keep(self, pending: PendingInterpreter) -> None:
        """Let an idle process wait for work, and end if there is none."""
        self._idle.append(pending)
        if self.idle_for:
            loop = asyncio.get_running_loop()
            self._retiring[pending] = loop.call_later(self.idle_for, self._retire, pending)

    def _retire(self, pending: PendingInterpreter) -> None:
        self._retiring.pop(pending, None)
        self._idle.remove(pending)
        if not pending.done():
            self._keep(pending)  # it is still starting
        elif not pending.cancelled() and pending.exception() is None:
            self._end(pending.result().close(self.grace))

    async def _replace(self, ending: Coroutine[Any, Any, Any]) -> Any:
        """Return when the process is gone; it also ends if the caller is cancelled."""
        task = self._end(ending)
        self._start_another()
        return await asyncio.shield(task)

    def _start_another(self) -> None:
        if not self._closed:
            self._keep(self._start())

    def _start(self) -> PendingInterpreter:
        return asyncio.create_task(self._started())

    async def _started(self) -> Interpreter:
        fault: Fault | None = None
        for _ in range(TRIES):
            process = Interpreter(self.supervisors, self.env)
            try:
                await process.greet(self.preload)
                return process
            except Died:
                fault = await self._end(process.end_without_answer())
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
