"""The executors of a bench: threads and processes during which its virtual clock stands still."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from refold.executors.inline import Inline, Threads
from refold.executors.limits import environment
from refold.executors.process_services import ProcessServices
from refold.ports import Executor, Say, Tool
from refold.registry import LazyRegistry
from refold.settings import Settings
from refold.testing.bench.virtual_loop import VirtualLoop
from refold.tools.python.body import CodeCall
from refold.wiring import Process
from refold.wiring.python_code import PythonCode

ALONE = "refold.tools.python.body:run_alone"
HERE = "refold.tools.python.body:run"


class CountedThreads(Threads):
    """Threads; virtual time stands still while one of them works."""

    def __init__(self, loop: VirtualLoop, size: int) -> None:
        super().__init__(size)
        self._loop = loop

    async def run(self, work: Callable[[], Any]) -> Any:
        with self._loop.really():
            return await super().run(work)


class InThreads(Inline):
    def __init__(self, threads: Threads) -> None:
        self._threads = threads


class ThreadBeforeProcess:
    """Runs code that asks for a process in a thread, which starts faster, or in a process where it needs one."""

    def __init__(self, loop: VirtualLoop, inline: Executor, isolated: Executor) -> None:
        self._loop, self._inline, self._isolated = loop, inline, isolated

    async def run(self, call: str, input: Any, say: Say | None = None) -> Any:
        order = CodeCall(**input) if call == ALONE else None
        if order is not None and order.scope is None and order.cwd is None and not order.env:
            order.say = say
            return await self._inline.run(HERE, order, say)
        with self._loop.really():
            return await self._isolated.run(call, input, say)


class BenchExecutors:
    def __init__(self, loop: VirtualLoop, settings: Settings) -> None:
        self._loop = loop
        self.threads = CountedThreads(loop, settings.slots)
        self.isolated = ProcessServices(1, settings.process_grace, settings.tool_limits, environment(os.environ, ()), 0)
        inline = InThreads(self.threads)
        self.executors: Mapping[str, Executor] = {
            "inline": inline,
            "process": ThreadBeforeProcess(loop, inline, self.isolated),
        }

    def connect(self, code: PythonCode, known: Callable[[Any], Awaitable[Any]]) -> None:
        """Let bodies of Python workflows use these threads; workflows that they start are registered like others."""
        house = code._rooms()
        house.in_thread, house.adopt = self.threads.run, known

    async def close(self, parts: Process, serving: "asyncio.Task[None]", real: LazyRegistry[Tool]) -> None:
        try:
            await parts.stop()
        finally:
            serving.cancel()
            await asyncio.wait([serving])
            await parts.close()
            await real.close()
            self.threads.close()
            await self.isolated.close()
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
