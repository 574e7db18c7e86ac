"""What runs on a Ray cluster: one function, which calls the function of a step by its name, and one small actor.

Only JSON goes there and back. What a body raises comes back as data, so that an error of Ray itself is never one of the
body. This module is imported on the nodes, which therefore need Refold.
"""

import asyncio
import io
import sys
import threading
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from msgspec import Struct, json

from refold.core.codec import check_value
from refold.core.faults import fault_from_exception
from refold.core.outcomes import Fault
from refold.errors import InvalidValue
from refold.executors.functions import resolve

EVERY = 0.2  # seconds between two batches of lines
MOST = 256 << 20  # bytes of a result
MOST_WAITING = 10_000  # messages that the actor keeps; of more, the oldest are dropped


class RayAnswer(Struct):
    """What came of a body."""

    result: Any = None
    fault: Fault | None = None
    lines: list[tuple[str, str]] = []  # those that were not sent before


class Messages:
    """The actor: bodies tell it that they have begun and what they print, and the worker fetches that."""

    def __init__(self) -> None:
        self._waiting: list[tuple[str, list[tuple[str, str]]]] = []
        self._come = asyncio.Event()

    async def tell(self, number: str, lines: list[tuple[str, str]]) -> None:
        self._waiting = [*self._waiting[-MOST_WAITING:], (number, lines)]
        self._come.set()

    async def fetch(self, patience: float) -> list[tuple[str, list[tuple[str, str]]]]:
        try:
            async with asyncio.timeout(patience):
                await self._come.wait()
        except TimeoutError:
            return []
        self._come.clear()
        found, self._waiting = self._waiting, []
        return found


class _Stream(io.TextIOBase):
    def __init__(self, name: str, put: Callable[[str, str], None]) -> None:
        self._name, self._put, self._rest = name, put, ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._put(self._name, line)
        return len(text)

    def end(self) -> None:
        if self._rest:
            self._put(self._name, self._rest)
            self._rest = ""


class _Lines:
    """Gathers what a body prints, and sends it now and then."""

    def __init__(self, number: str, messages: Any) -> None:
        self.number, self.messages = number, messages
        self._lock, self._over = threading.Lock(), threading.Event()
        self._lines: list[tuple[str, str]] = []
        self._thread = threading.Thread(target=self._send, daemon=True)
        messages.tell.remote(number, [])  # it has begun
        self._thread.start()

    def put(self, stream: str, line: str) -> None:
        with self._lock:
            self._lines.append((stream, line))

    def rest(self) -> list[tuple[str, str]]:
        self._over.set()
        self._thread.join()
        return self._take()

    def _take(self) -> list[tuple[str, str]]:
        with self._lock:
            lines, self._lines = self._lines, []
            return lines

    def _send(self) -> None:
        while not self._over.wait(EVERY):
            if lines := self._take():
                self.messages.tell.remote(self.number, lines)


def carry_out(number: str, call: str, data: bytes, messages: Any) -> bytes:
    """Call `module:function` with JSON; return a RayAnswer as JSON."""
    lines = _Lines(number, messages)
    out, err = _Stream("stdout", lines.put), _Stream("stderr", lines.put)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            function = resolve(call)
            result = function(json.decode(data))
            if asyncio.iscoroutine(result):
                result = asyncio.run(result)
        check_value(result, "result")
        answer = RayAnswer(result)
    except InvalidValue as error:
        answer = RayAnswer(fault=Fault("invalid_value", str(error), retryable=False))
    except BaseException as error:  # `sys.exit` too ends the step and not the process
        answer = RayAnswer(fault=fault_from_exception(error))
    for stream in (out, err):
        stream.end()
    answer.lines = lines.rest()
    sys.stdout.flush()
    return _encoded(answer)


def _encoded(answer: RayAnswer) -> bytes:
    try:
        encoded = json.encode(answer)
        if len(encoded) > MOST:
            why = f"{len(encoded) >> 20} MiB are more than the {MOST >> 20} MiB that a step can return"
            raise ValueError(f"{why}: write the data to a file and return its path")
    except Exception as error:
        encoded = json.encode(RayAnswer(fault=Fault("invalid_value", f"result: {error}", retryable=False)))
    return encoded
