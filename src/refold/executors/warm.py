"""One warm interpreter process, as its pool sees it: start it, give it orders, end it and all it started."""

import asyncio
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import IO, Any

import msgspec

from refold.core.facts import Fault
from refold.errors import ToolFailed
from refold.executors import group
from refold.executors.ends import gone_within, signal_name, watch_end
from refold.executors.lines import Lines
from refold.executors.wire import Answer, Bye, Frames, Hello, Order, Raised, Ready, frame, from_child
from refold.ports import Say

START_LIMIT = 60.0  # seconds for its imports
CHUNK = 1 << 16
CHUNKS = 32  # more than a pipe can hold


class Died(Exception):
    """The process ended, or said what it cannot mean, while an answer was due."""


class _Line(asyncio.Protocol):
    """The socket to the process: one question at a time."""

    def __init__(self) -> None:
        self.broken = False
        self._frames = Frames()
        self._answer: asyncio.Future[Ready | Answer] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for each in self._frames.cut(data):
            try:
                answer = from_child.decode(each)
            except msgspec.DecodeError:
                self.give_up()
                return
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(answer)

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


class WarmProcess:
    """Its number is kept from being given away (it is not reaped) until its whole group has been killed."""

    def __init__(self, process: "subprocess.Popen[bytes]", mark: str) -> None:
        assert process.stdout is not None and process.stderr is not None
        self.pid, self.mark = process.pid, mark
        self.orders = 0
        self._process = process
        self._line = _Line()
        self._over = asyncio.Event()
        self._printed = ((process.stdout, Lines("stdout")), (process.stderr, Lines("stderr")))
        self._watching = watch_end(process, self._ended)
        loop = asyncio.get_running_loop()
        for pipe, lines in self._printed:
            os.set_blocking(pipe.fileno(), False)
            loop.add_reader(pipe.fileno(), self._read, pipe, lines)

    @classmethod
    def start(cls) -> "tuple[WarmProcess, socket.socket]":
        """In a session of its own, so that a Ctrl-C at the terminal is for the parent alone."""
        mark = secrets.token_hex(8)
        marks = "/".join(filter(None, [os.environ.get(group.MARK), mark]))  # a pool within a pool is found by both
        ours, theirs = socket.socketpair()
        module = ["-m", "refold.executors.child", str(theirs.fileno()), str(os.getpid())]
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", *module],
                bufsize=0,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                env={**os.environ, group.MARK: marks},
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return cls(process, mark), ours

    @property
    def dead(self) -> bool:
        return self._line.broken or self._over.is_set()

    async def greet(self, line: socket.socket, preload: Sequence[str]) -> None:
        """Returns when its imports are done. Raises Died."""
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self._line, sock=line)
        try:
            async with asyncio.timeout(START_LIMIT):
                await self._line.ask(Hello(sys.path, tuple(preload)))
        except TimeoutError:
            raise Died from None

    async def run(self, call: str, input: Any, say: Say | None) -> Any:
        """The result. Raises ToolFailed with what the body raised, or Died."""
        self.orders += 1
        for _, lines in self._printed:
            lines.begin(say)
        try:
            answer = await self._line.ask(Order(self.orders, call, input))
        finally:
            for pipe, lines in self._printed:
                for _ in range(CHUNKS):  # what was printed before the answer is in the pipe already
                    if not self._read(pipe, lines):
                        break
                lines.end()
        if isinstance(answer, Raised):
            raise ToolFailed(answer.fault)
        if isinstance(answer, Ready) or answer.number != self.orders:
            raise Died
        return answer.result

    async def close(self, grace: float) -> None:
        """There is nothing more to do; what does not end by itself is killed."""
        self._line.tell(Bye())
        await self._over_within(grace)
        await self.kill()

    async def stop(self, grace: float) -> None:
        """Ask its whole group to end, and kill what is left after the grace."""
        group.ask(self.pid, self.mark)
        await self._over_within(grace)
        await self.kill()

    async def kill(self) -> Fault:
        """Everything it started goes too; says how the process itself ended."""
        group.kill(self.pid, self.mark)
        await self._over.wait()
        code = self._process.wait()
        self._line.close()
        loop = asyncio.get_running_loop()
        for pipe, _ in self._printed:
            loop.remove_reader(pipe.fileno())
            pipe.close()
        return self._fault(code)

    async def _over_within(self, grace: float) -> None:
        await gone_within(grace, self._over, self.pid, self.mark)

    def _fault(self, code: int) -> Fault:
        last_words = self._printed[1][1].tail.decode(errors="replace")
        if code < 0:
            name = signal_name(-code)
            return Fault("process_died", f"the process was killed by {name}", code=name, traceback=last_words)
        why = f"the process ended with exit code {code} before the step did"
        return Fault("process_died", why, code=code, traceback=last_words)

    def _read(self, pipe: IO[bytes], lines: Lines) -> bool:
        try:
            data = os.read(pipe.fileno(), CHUNK)
        except BlockingIOError:
            return False
        if not data:
            asyncio.get_running_loop().remove_reader(pipe.fileno())
            return False
        lines.feed(data)
        return True

    def _ended(self) -> None:
        self._over.set()
        # Its last words may still be on the way; and if a process that it forked holds the line, no end of it comes.
        asyncio.get_running_loop().call_later(0.05, self._line.give_up)
