"""One warm interpreter process, as its pool sees it: start it, send it orders, end it and everything it started."""

import asyncio
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from refold.core.outcomes import Fault
from refold.errors import ToolFailed
from refold.executors.output import OutputPipe
from refold.executors.supervised import ProgramStart, Supervisors, fault_of_death
from refold.executors.wire import SEAL, Answer, Bye, CallOrder, Frames, Garbled, Hello, Raised, Ready, frame, from_child
from refold.ports import Say

START_LIMIT = 60.0  # seconds for its imports
DEATH_LIMIT = 1.0  # seconds until the end of a dead process must have been reported
SOCKET = 3  # the file number of the socket in the process


class Died(Exception):
    """The process ended, or sent something that is not an answer, while an answer was due."""


class _Connection(asyncio.Protocol):
    """The connection to the process: one question at a time."""

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
        """Data that is not the answer to a question breaks the connection, and nothing is raised here."""
        try:
            for message in self._frames.cut(data):
                answer = from_child.decode(message)
                if self._answer is None or self._answer.done():
                    raise Garbled
                self._answer.set_result(answer)
        except (Garbled, ValueError, RecursionError):  # ValueError: not JSON, not UTF-8 or not a message
            self.give_up()

    def connection_lost(self, error: Exception | None) -> None:
        self.give_up()

    def give_up(self) -> None:
        self.broken = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Died())

    async def ask(self, message: Hello | CallOrder) -> Ready | Answer:
        if self.broken:
            raise Died
        self._answer = asyncio.get_running_loop().create_future()
        self.send(message)
        return await self._answer

    def send(self, message: Hello | CallOrder | Bye) -> None:
        if self._transport is not None:
            self._transport.write(frame(message))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None


class Interpreter:
    """An interpreter under a supervisor, which ends it together with everything it has started."""

    def __init__(self, supervisors: Supervisors, env: Mapping[str, str]) -> None:
        self.orders = 0
        self.left = False  # whether a body has left processes running
        self._connection = _Connection()
        self._limits = supervisors.limits
        self._pipes = OutputPipe("stdout"), OutputPipe("stderr")
        for pipe in self._pipes:
            pipe.listen()
        self._ours, theirs = socket.socketpair()
        files = {1: self._pipes[0].theirs, 2: self._pipes[1].theirs, SOCKET: theirs.fileno()}
        argv = [sys.executable, "-P", "-m", "refold.executors.interpreter_main", str(SOCKET)]
        try:
            self._program = supervisors.start(ProgramStart(argv=argv, env=env, files=files))
        except BaseException:
            self._ours.close()
            self._close()
            raise
        finally:
            theirs.close()
            for pipe in self._pipes:
                os.close(pipe.theirs)
        self._program.over.add_done_callback(self._ended)

    @property
    def dead(self) -> bool:
        return self._connection.broken or self._program.over.done()

    @property
    def lost(self) -> bool:
        """Whether its supervisor is dead, so that nothing is known about its end."""
        over = self._program.over
        return over.done() and over.exception() is None and over.result() is None

    async def greet(self, preload: Sequence[str]) -> None:
        """Return when its imports are done. Raise Died, or OSError if it cannot be started."""
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self._connection, sock=self._ours)
        try:
            async with asyncio.timeout(START_LIMIT):
                await self._connection.ask(Hello(sys.path, tuple(preload), self._limits.cpu, self._connection.seal))
        except TimeoutError:
            raise Died from None

    async def run(self, call: str, input: Any, say: Say | None) -> Any:
        """Return the result. Raise ToolFailed with what the body raised, or Died."""
        self.orders += 1
        for pipe in self._pipes:
            pipe.lines.begin(say)
        try:
            answer = await self._connection.ask(CallOrder(self.orders, call, input))
        finally:
            for pipe in self._pipes:
                pipe.drain()  # what was printed before the answer is in the pipe already
        if isinstance(answer, Ready) or answer.number != self.orders:
            raise Died
        self.left = answer.left
        if isinstance(answer, Raised):
            raise ToolFailed(answer.fault)
        return answer.result

    async def close(self, grace: float) -> None:
        """Ask the process to end, and kill what does not end by itself."""
        self._connection.send(Bye())
        if not self.left:
            await asyncio.wait([self._program.over], timeout=grace)
        await self.kill()

    async def stop(self, grace: float) -> Fault:
        """Ask it and everything it started to end, and kill what is left after the grace; return how it ended."""
        await self._program.stopped(grace)
        self._close()
        over = self._program.over
        if over.done() and (error := over.exception()) is not None:
            raise error
        return fault_of_death(over.result() if over.done() else None, self._last_output(), self._limits)

    async def end_without_answer(self) -> Fault:
        """End a process that gave no answer, which is most likely dead, and return how it ended."""
        await asyncio.wait([self._program.over], timeout=DEATH_LIMIT)
        was_running = not self._program.over.done()
        fault = await self.kill()
        why = "the process lost its connection to the engine before the step ended"
        return Fault("process_died", why, traceback=fault.traceback) if was_running else fault

    async def kill(self) -> Fault:
        return await self.stop(0.0)

    def _last_output(self) -> str:
        return self._pipes[1].lines.tail.decode(errors="replace")

    def _close(self) -> None:
        self._connection.close()
        for pipe in self._pipes:
            pipe.close()

    def _ended(self, _: object) -> None:
        # Its last output may still be on the way; and before `greet`, the end of the socket is not seen.
        asyncio.get_running_loop().call_soon(self._connection.give_up)
