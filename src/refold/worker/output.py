"""The output of one try, sent to the side stream of its run in batches. It is bounded, and never fails the try."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from refold.body_tasks import outside_of_bodies
from refold.core.faults import text_of
from refold.errors import LeaseLost, Unavailable
from refold.logs import DEBUG, WARNING, event, logger
from refold.ports import Clock, Ending, Lease, LeftOut, Redaction, StreamRedaction
from refold.worker.leases import fields_of
from refold.worker.run_tool import NO_REDACTION

EVERY = 0.2  # seconds between a line and the batch that sends it
AT_ONCE = 64 * 1024  # characters that are sent immediately
MOST = 2 * 1024 * 1024  # characters of one try
PER_LINE = 100  # characters that a line costs in addition to its text

log = logger("worker")

Publish = Callable[[Lease, Sequence[Any]], Awaitable[None]]


class TryOutput:
    """A try that prints nothing costs nothing."""

    any = False
    _closed = False
    _has_more = False  # lines that were not redacted yet
    _waiting = _passed = _left_out = 0  # characters; what is left out: lines
    _timer: asyncio.TimerHandle | None = None
    _sending: asyncio.Task[None] | None = None
    _lines: list[dict[str, Any]]  # as they were printed
    _ready: list[dict[str, Any]]  # without secrets
    _streams: dict[str, StreamRedaction]

    def __init__(self, lease: Lease, publish: Publish, clock: Clock, redaction: Redaction = NO_REDACTION) -> None:
        self.lease, self.publish, self.clock, self.redaction = lease, publish, clock, redaction
        self._loop = asyncio.get_running_loop()

    def say(self, stream: str, text: str) -> None:
        """Add a line, from any thread. It is added before the loop sees anything that the thread does later."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False  # a thread without a loop
        if here:
            self._add(stream, text)
        else:
            with suppress(RuntimeError):  # the loop is closed, and a thread of a stopped body still prints
                self._loop.call_soon_threadsafe(self._add, stream, text)

    async def close(self) -> None:
        """The try was stopped. Returns when its lines are stored, or cannot be."""
        await self._end()
        await self._send(self._ending())

    async def rest(self) -> tuple[Any, ...]:
        """The try has ended. Return the lines that are stored with its report, so that they need no commit of their
        own."""
        await self._end()
        self._redact(self._ending())
        lines, self._ready = self._ready, []
        return tuple(lines)

    def _ending(self) -> Ending:
        return Ending.CUT if self._left_out else Ending.OVER

    async def _end(self) -> None:
        if self._left_out:
            self._put("stderr", LeftOut(f"({self._left_out} lines more are left out)"))
        self._closed = True
        while self._sending is not None:
            await asyncio.wait([self._sending])
        if self._timer is not None:
            self._timer.cancel()

    def _add(self, stream: str, text: str) -> None:
        if self._closed:
            return  # from a thread that could not be stopped
        cost = len(text) + PER_LINE
        if self._left_out or self._passed + cost > MOST:
            self._left_out += 1
            return
        self._passed += cost
        self._put(stream, text)
        self._waiting += cost
        if self._waiting >= AT_ONCE:
            self._flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(EVERY, self._flush)

    def _put(self, stream: str, text: str) -> None:
        command = self.lease.command
        line = {"at": self.clock.now(), "step": command.step, "visit": command.visit, "attempt": command.attempt}
        if command.item is not None:
            line["item"] = command.item
        if not self.any:
            self.any, self._lines, self._ready, self._streams = True, [], [], {}
        self._has_more = True
        self._lines.append({**line, "stream": stream, "text": text})

    def _redact(self, ending: Ending) -> None:
        """Redact the lines. A line that may end within a secret waits for the next one."""
        self._has_more = False
        waiting: list[dict[str, Any]] = []
        by_stream: dict[str, list[dict[str, Any]]] = {}
        for line in self._lines:
            by_stream.setdefault(line["stream"], []).append(line)
        for name, lines in by_stream.items():
            if name not in self._streams:
                self._streams[name] = self.redaction.stream()
            shown = self._streams[name]([line["text"] for line in lines], ending)
            for line, text in zip(lines, shown, strict=False):
                line["text"] = _storable(text)
            waiting += lines[len(shown) :]
        kept = {id(line) for line in waiting}
        self._ready += [line for line in self._lines if id(line) not in kept]
        self._lines = [line for line in self._lines if id(line) in kept]

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._sending is None:
            self._sending = self._loop.create_task(self._send(), context=outside_of_bodies())
            self._sending.add_done_callback(self._sent)

    def _sent(self, _: object) -> None:
        self._sending = None
        if (self._ready or self._has_more) and self._timer is None:
            self._timer = self._loop.call_later(EVERY, self._flush)

    async def _send(self, ending: Ending = Ending.MORE) -> None:
        self._redact(ending)
        lines, self._ready, self._waiting = self._ready, [], 0
        if not lines:
            return
        try:
            await self.publish(self.lease, lines)
        except Unavailable as error:
            self._log("printed lines are kept: the store did not answer", WARNING, error)
            self._ready = [*lines, *self._ready]  # they are sent with the next batch, if there is one
        except Exception as error:
            level = DEBUG if isinstance(error, LeaseLost) else WARNING
            self._log(f"{len(lines)} printed lines are dropped", level, error)
            return  # most likely the lease is lost, and the lines are refused

    def _log(self, words: str, level: int, error: Exception) -> None:
        why = f"{type(error).__name__}: {self.redaction.text(text_of(error))}"
        event(log, level, words, fields_of(self.lease), why=why)


def _storable(text: str) -> str:
    """A lone surrogate is not text; it is spelt out."""
    return str(text) if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
