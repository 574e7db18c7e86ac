"""Steps in this process: async functions run on the event loop, others in threads of a pool.

A thread cannot be stopped. When its step is cancelled or runs out of time, that is reported, and the function continues
until it returns, but its result is ignored; a step that must really end needs a process of its own. A thread does not
help against C code that keeps the interpreter's lock either: such code stops the heartbeat as well.
"""

import asyncio
import logging
from asyncio import CancelledError
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any

from refold.core.faults import fault_from_exception
from refold.errors import ToolFailed
from refold.executors.functions import resolve
from refold.logs import is_own, keep_level
from refold.ports import Say
from refold.time_limits import waiting

Job = tuple[Callable[[], Any], asyncio.Future[tuple[Any, BaseException | None]]]


class Threads:
    """A call that is cancelled cannot be stopped: its thread continues unobserved, and a new one replaces it."""

    def __init__(self, size: int) -> None:
        self._room = asyncio.Semaphore(size)
        self._idle: list[SimpleQueue[Job | None]] = []

    async def run(self, work: Callable[[], Any]) -> Any:
        with waiting():
            await self._room.acquire()
        try:
            inbox = self._idle.pop() if self._idle else _start_thread()
            answer: asyncio.Future[tuple[Any, BaseException | None]] = asyncio.get_running_loop().create_future()
            context = copy_context()
            inbox.put((lambda: context.run(work), answer))
            try:
                value, error = await answer
            except asyncio.CancelledError:
                inbox.put(None)
                raise
            self._idle.append(inbox)
        finally:
            self._room.release()
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        for inbox in self._idle:
            inbox.put(None)
        self._idle.clear()


def _start_thread() -> "SimpleQueue[Job | None]":
    inbox: SimpleQueue[Job | None] = SimpleQueue()
    Thread(target=_serve, args=(inbox,), name="refold-step", daemon=True).start()
    return inbox


def _serve(inbox: "SimpleQueue[Job | None]") -> None:
    while (job := inbox.get()) is not None:
        work, answer = job
        try:
            outcome: tuple[Any, BaseException | None] = work(), None
        except BaseException as error:
            outcome = None, error
        with suppress(RuntimeError):  # the loop is closed, so there is no caller any more
            answer.get_loop().call_soon_threadsafe(_set_answer, answer, outcome)
        del job, work, answer, outcome  # an idle thread keeps nothing alive


def _set_answer(answer: "asyncio.Future[Any]", outcome: Any) -> None:
    if not answer.done():
        answer.set_result(outcome)


log_receiver: ContextVar[Say | None] = ContextVar("log_receiver", default=None)
"""Receives what the current step logs; threads that a body starts itself have none."""


class Inline:
    """What bodies print goes to the output of this process; `say` receives what they log."""

    def __init__(self, threads: int = 16) -> None:
        self._threads = Threads(threads)

    async def run(self, call: str, input: Any, say: Say | None = None) -> Any:
        function = resolve(call)
        token = log_receiver.set(say) if say is not None else None
        if token is not None:
            collect_logs()
        try:
            if function.is_async:
                return await function(input)
            return await self._threads.run(partial(function, input))
        except (Exception, CancelledError):
            raise
        except BaseException as error:  # such as `sys.exit`: ends the step and not the worker
            raise ToolFailed(fault_from_exception(error)) from None
        finally:
            if token is not None:
                log_receiver.reset(token)

    async def close(self) -> None:
        self._threads.close()


class _LogHandler(logging.Handler):
    """Passes what bodies log to their runs. What the engine logs does not belong to a run."""

    def emit(self, record: logging.LogRecord) -> None:
        if is_own(record):
            if record.levelno >= logging.ERROR and logging.root.handlers == [self]:
                _use_last_resort(record)
            return
        say = log_receiver.get()
        if say is not None:
            try:
                text = self.format(record)
            except Exception:
                self.handleError(record)
                return
            for line in text.split("\n"):
                say("stderr", line)
        elif logging.root.handlers == [self]:
            _use_last_resort(record)


def _use_last_resort(record: logging.LogRecord) -> None:
    """Do what `logging` does with a record where no handler is installed."""
    last = logging.lastResort
    if last is not None and record.levelno >= last.level:
        last.handle(record)


_log_handler = _LogHandler()
_log_handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))


def collect_logs() -> None:
    """Install the handler. A program that has set up logging keeps its level; otherwise that of bodies becomes INFO."""
    root = logging.root
    if _log_handler not in root.handlers:
        if not root.handlers and root.level == logging.WARNING:
            root.setLevel(logging.INFO)
            keep_level(logging.WARNING)
        root.addHandler(_log_handler)
