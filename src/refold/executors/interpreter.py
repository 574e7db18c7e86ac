"""One warm interpreter process, as its pool sees it: start it, give it orders, end it and all it started."""

import asyncio
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from refold.core.outcomes import Fault
from refold.errors import ToolFailed
from refold.executors.ends import death
from refold.executors.lines import Lines
from refold.executors.supervised import Start, Wardens
from refold.executors.wire import SEAL, Answer, Bye, Frames, Garbled, Hello, Order, Raised, Ready, frame, from_child
from refold.ports import Say

START_LIMIT = 60.0  # seconds for its imports
LAST_MOMENT = 1.0  # seconds until the end of a process that is dead must have been told
CHUNK = 1 << 16
CHUNKS = 32  # more than a pipe can hold
LINE = 3  # the number of the socket in the process


class Died(Exception):
    """The process ended, or said what it cannot mean, while an answer was due."""


class _Line(asyncio.Protocol):
    """The socket to the process: one question at a time."""

    def __init__(self) -> None:
        self.broken = False
        self.seal = os.urandom(SEAL)
        self._frames = Frames(self.seal)
        self._answer: asyncio.Future[Ready | Answer] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Whatever comes there that is no answer to a question is the end of this process, and raises nothing."""
        try:
            for each in self._frames.cut(data):
                answer = from_child.decode(each)
                if self._answer is None or self._answer.done():
                    raise Garbled
                self._answer.set_result(answer)
        except (Garbled, ValueError, RecursionError):  # a ValueError is what is no JSON, no text or no message
            self.give_up()

    def connection_lost(self, error: Exception | None) -> None:
        self.give_up()

    def give_up(self) -> None:
        self.broken = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Died())

    async def ask(self, message: Hello | Order) -> Ready | Answer:
        if self.broken:
            raise Died
        self._answer = asyncio.get_running_loop().create_future()
        self.tell(message)
        return await self._answer

    def tell(self, message: Hello | Order | Bye) -> None:
        if self._transport is not None:
            self._transport.write(frame(message))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None


class WarmProcess:
    """An interpreter under a warden, which ends it with all it has started."""

    def __init__(self, wardens: Wardens, env: Mapping[str, str]) -> None:
        self.orders = 0
        self.left = False  # whether a body has left processes behind
        self._line = _Line()
        self._limits = wardens.limits
        self._printed = Printed("stdout"), Printed("stderr")
        self._ours, theirs = socket.socketpair()
        files = {1: self._printed[0].theirs, 2: self._printed[1].theirs, LINE: theirs.fileno()}
        argv = [sys.executable, "-P", "-m", "refold.executors.interpreter_main", str(LINE)]
        try:
            self._ward = wardens.start(Start(argv=argv, env=env, files=files))
        except BaseException:
            self._ours.close()
            self._close()
            raise
        finally:
            theirs.close()
            for each in self._printed:
                os.close(each.theirs)
        self._ward.over.add_done_callback(self._ended)

    @property
    def dead(self) -> bool:
        return self._line.broken or self._ward.over.done()

    @property
    def lost(self) -> bool:
        """Whether its warden is dead, so that nobody knows how it ended."""
        over = self._ward.over
        return over.done() and over.exception() is None and over.result() is None

    async def greet(self, preload: Sequence[str]) -> None:
        """Returns when its imports are done. Raises Died, or OSError if it cannot be started."""
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self._line, sock=self._ours)
        try:
            async with asyncio.timeout(START_LIMIT):
                await self._line.ask(Hello(sys.path, tuple(preload), self._limits.cpu, self._line.seal))
        except TimeoutError:
            raise Died from None

    async def run(self, call: str, input: Any, say: Say | None) -> Any:
        """The result. Raises ToolFailed with what the body raised, or Died."""
        self.orders += 1
        for each in self._printed:
            each.lines.begin(say)
        try:
            answer = await self._line.ask(Order(self.orders, call, input))
        finally:
            for each in self._printed:
                each.read_the_rest()  # what was printed before the answer is in the pipe already
        if isinstance(answer, Ready) or answer.number != self.orders:
            raise Died
        self.left = answer.left
        if isinstance(answer, Raised):
            raise ToolFailed(answer.fault)
        return answer.result

    async def close(self, grace: float) -> None:
        """There is nothing more to do; what does not end by itself is killed."""
        self._line.tell(Bye())
        if not self.left:
            await asyncio.wait([self._ward.over], timeout=grace)
        await self.kill()

    async def stop(self, grace: float) -> Fault:
        """Ask it and all it started to end, and kill what is left after the grace; says how it ended itself."""
        await self._ward.stopped(grace)
        self._close()
        over = self._ward.over
        if over.done() and (error := over.exception()) is not None:
            raise error
        return death(over.result() if over.done() else None, self._last_words(), self._limits)

    async def bury(self) -> Fault:
        """Of one that gave no answer: it is most likely dead."""
        await asyncio.wait([self._ward.over], timeout=LAST_MOMENT)
        lives = not self._ward.over.done()
        fault = await self.kill()
        why = "the process lost its line to the engine before the step ended"
        return Fault("process_died", why, traceback=fault.traceback) if lives else fault

    async def kill(self) -> Fault:
        return await self.stop(0.0)

    def _last_words(self) -> str:
        return self._printed[1].lines.tail.decode(errors="replace")

    def _close(self) -> None:
        self._line.close()
        for each in self._printed:
            each.close()

    def _ended(self, _: object) -> None:
        # Its last words may still be on the way; and if nobody has greeted it yet, no end of the line comes.
        asyncio.get_running_loop().call_soon(self._line.give_up)


class Printed:
    """What a process prints, one order after the other."""

    def __init__(self, stream: str) -> None:
        self.lines = Lines(stream)
        self._ours, self.theirs = os.pipe()
        os.set_blocking(self._ours, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._ours, self._read)

    def read_the_rest(self) -> None:
        for _ in range(CHUNKS):
            if not self._read():
                break
        self.lines.end()

    def close(self) -> None:
        if self._ours >= 0:
            self._loop.remove_reader(self._ours)
            os.close(self._ours)
            self._ours = -1

    def _read(self) -> bool:
        """Whether something was there."""
        try:
            data = os.read(self._ours, CHUNK) if self._ours >= 0 else b""
        except BlockingIOError:
            return False
        if not data:
            self._loop.remove_reader(self._ours)
            return False
        self.lines.feed(data)
        return True
