"""Programs of steps: each under a warden, heard while it runs, and ended with all it has started."""

import asyncio
import os
from collections.abc import Mapping

from refold.errors import ToolFailed
from refold.executors.ends import death
from refold.executors.limits import environment
from refold.executors.lines import Lines
from refold.executors.supervised import Start, Ward, Wardens
from refold.ports import Ended, Program, Say

CHUNK = 1 << 16
CHUNKS = 32  # more than a pipe can hold
LISTEN_AFTER = 0.01  # seconds; a program that ends sooner is heard at once, and wakes nobody before


class Programs:
    """`env` is what all programs see of the environment, beside what each of them is given."""

    def __init__(
        self, grace: float = 2.0, *, wardens: Wardens | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        self.grace = grace
        self.wardens = wardens if wardens is not None else Wardens()
        self.env = env if env is not None else environment(os.environ)
        self._ours = wardens is None
        self._ending: set[asyncio.Task[None]] = set()

    async def run(self, program: Program, say: Say | None = None) -> Ended:
        running = Running(self.wardens, program, self.env, say)
        try:
            code = await asyncio.shield(running.ward.over)
        except OSError:
            running.close()
            raise
        except BaseException:
            await asyncio.shield(self._later(running))
            raise
        running.close()
        if code is None:
            raise ToolFailed(death(None, "", self.wardens.limits))
        return running.ended(code)

    async def close(self) -> None:
        """Returns when nothing is left of what was started."""
        while self._ending:
            await asyncio.wait(self._ending)
        if self._ours:
            await self.wardens.close()

    def _later(self, running: "Running") -> "asyncio.Task[None]":
        task = asyncio.create_task(self._stop(running))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    async def _stop(self, running: "Running") -> None:
        await running.ward.stopped(self.grace)
        running.close()


class Running:
    """One program, and its streams."""

    def __init__(self, wardens: Wardens, program: Program, env: Mapping[str, str], say: Say | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._left = memoryview(program.stdin)
        self._stdin = -1
        self._listening: asyncio.TimerHandle | None = None
        self._heard = Heard("stdout", program.keep, say), Heard("stderr", program.keep, say)
        files = {number: heard.theirs for number, heard in enumerate(self._heard, 1)}
        try:
            if program.stdin:
                files[0], self._stdin = os.pipe()
                os.set_blocking(self._stdin, False)
                self._loop.add_writer(self._stdin, self._write)
            whole = {**env, **program.env}
            start = Start(argv=program.argv, env=whole, files=files, cwd=program.cwd, cpu=wardens.limits.cpu)
            self.ward: Ward = wardens.start(start)
        except BaseException:
            self.close()
            raise
        finally:
            for each in files.values():
                os.close(each)
        self._listening = self._loop.call_later(LISTEN_AFTER, self._listen)

    def ended(self, code: int) -> Ended:
        out, err = self._heard
        return Ended(code=code, stdout=bytes(out.kept), stderr=bytes(err.kept), left_out=out.left_out + err.left_out)

    def close(self) -> None:
        """It is over, and what it has said is in the pipes; nobody who could say more holds them."""
        if self._listening is not None:
            self._listening.cancel()
        self._close_stdin()
        for heard in self._heard:
            heard.close()

    def _listen(self) -> None:
        for heard in self._heard:
            heard.listen()

    def _write(self) -> None:
        try:
            self._left = self._left[os.write(self._stdin, self._left[:CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:
            self._left = self._left[:0]  # it does not read on, which is its right
        if not self._left:
            self._close_stdin()

    def _close_stdin(self) -> None:
        if self._stdin >= 0:
            self._loop.remove_writer(self._stdin)
            os.close(self._stdin)
            self._stdin = -1


class Heard:
    """One stream of a program: passed on as lines, and kept up to a limit; the rest is counted."""

    def __init__(self, stream: str, keep: int, say: Say | None) -> None:
        self.keep = keep
        self.kept = bytearray()
        self.left_out = 0
        self._lines = Lines(stream)
        self._lines.begin(say)
        self._ours, self.theirs = os.pipe()
        os.set_blocking(self._ours, False)
        self._loop = asyncio.get_running_loop()
        self._listening = False

    def listen(self) -> None:
        self._loop.add_reader(self._ours, self._read)
        self._listening = True

    def close(self) -> None:
        for _ in range(CHUNKS):
            if not self._read():
                break
        self._lines.end()
        if self._listening:
            self._loop.remove_reader(self._ours)
        os.close(self._ours)

    def _read(self) -> bool:
        """Whether something was there."""
        try:
            data = os.read(self._ours, CHUNK)
        except BlockingIOError:
            return False
        if not data:
            if self._listening:
                self._loop.remove_reader(self._ours)
            return False
        room = self.keep - len(self.kept)
        self.kept += data[:room]
        self.left_out += max(len(data) - room, 0)
        self._lines.feed(data)
        return True
