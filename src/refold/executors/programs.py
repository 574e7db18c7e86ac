"""Programs of steps: each in a session of its own, heard while it runs, and ended with all it has started.

What has left the group of a program that ended by itself is looked for a moment later, for all of them at once, and
not while a step waits. For systems with process groups: Linux, macOS and the like; only Linux knows what has left.
"""

import asyncio
import os
import secrets
import signal
import subprocess
from contextlib import suppress
from typing import IO, Any

from refold.executors import group
from refold.executors.ends import gone_within, watch_end
from refold.executors.group import Guard
from refold.executors.lines import Lines
from refold.executors.threads import Threads
from refold.ports import Ended, Program, Say

CHUNK = 1 << 16
CHUNKS = 32  # more than a pipe can hold
STRAYS_AFTER = 0.3  # seconds until those that have left their group are looked for


class Programs:
    def __init__(self, grace: float = 2.0) -> None:
        self.grace = grace
        self._guard: Guard | None = None
        self._ending: set[asyncio.Task[Any]] = set()
        self._marks: set[str] = set()  # of programs that have ended by themselves
        self._threads = Threads(1)
        self._closing = asyncio.Event()

    async def run(self, program: Program, say: Say | None = None) -> Ended:
        if self._guard is None:
            self._guard = Guard()
        running = Running(program, say)
        self._guard.watch(running.pid, running.mark)
        try:
            await running.over.wait()
        except BaseException:
            await asyncio.shield(self._later(self._stop(running)))
            raise
        ended = running.end()
        self._guard.forget(running.pid)
        self._marks.add(running.mark)
        if len(self._marks) == 1:
            self._later(self._end_strays())
        return ended

    async def close(self) -> None:
        """Returns when nothing is left of what was started."""
        self._closing.set()
        while self._ending:
            await asyncio.wait(self._ending)
        self._threads.close()
        if self._guard is not None:
            await asyncio.to_thread(self._guard.close)
            self._guard = None

    async def _stop(self, running: "Running") -> None:
        group.ask(running.pid, running.mark)
        await gone_within(self.grace, running.over, running.pid, running.mark)
        group.kill(running.pid, running.mark)
        await running.over.wait()
        running.end()
        assert self._guard is not None
        self._guard.forget(running.pid)

    async def _end_strays(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), STRAYS_AFTER)
        marks, self._marks = self._marks, set()
        await self._threads.run(lambda: group.kill_strays(marks))

    def _later(self, work: Any) -> "asyncio.Task[Any]":
        task = asyncio.create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task


class Running:
    """One program. Its number is kept from being given away (it is not reaped) until its group has been killed."""

    def __init__(self, program: Program, say: Say | None) -> None:
        self.mark = secrets.token_hex(8)
        marks = "/".join(filter(None, [os.environ.get(group.MARK), self.mark]))
        self._process = subprocess.Popen(
            program.argv,
            bufsize=0,
            stdin=subprocess.PIPE if program.stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=program.cwd,
            env={**os.environ, **program.env, group.MARK: marks},
            start_new_session=True,
        )
        self.pid = self._process.pid
        self.over = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._watching = watch_end(self._process, self.over.set)
        self._left = memoryview(program.stdin)
        if self._process.stdin is not None:
            os.set_blocking(self._process.stdin.fileno(), False)
            self._loop.add_writer(self._process.stdin.fileno(), self._write)
        assert self._process.stdout is not None and self._process.stderr is not None
        self._heard = [Heard(self._process.stdout, "stdout", program.keep, say)]
        self._heard += [Heard(self._process.stderr, "stderr", program.keep, say)]
        for each in self._heard:
            self._loop.add_reader(each.pipe.fileno(), self._read, each)

    def end(self) -> Ended:
        """It is over; whoever still holds its pipes is not waited for."""
        group.send(self.pid, signal.SIGKILL)
        code = self._process.wait()
        self._close_stdin()
        for each in self._heard:
            self._loop.remove_reader(each.pipe.fileno())
            each.read_the_rest()
            each.pipe.close()
        out, err = self._heard
        return Ended(code=code, stdout=bytes(out.kept), stderr=bytes(err.kept), left_out=out.left_out + err.left_out)

    def _read(self, heard: "Heard") -> None:
        if heard.read() == b"":
            self._loop.remove_reader(heard.pipe.fileno())

    def _write(self) -> None:
        assert self._process.stdin is not None
        try:
            self._left = self._left[os.write(self._process.stdin.fileno(), self._left[:CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:
            self._left = self._left[:0]  # it does not read on, which is its right
        if not self._left:
            self._close_stdin()

    def _close_stdin(self) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._loop.remove_writer(self._process.stdin.fileno())
            self._process.stdin.close()


class Heard:
    """One stream of a program: passed on as lines, and kept up to a limit; the rest is counted."""

    def __init__(self, pipe: IO[bytes], stream: str, keep: int, say: Say | None) -> None:
        self.pipe, self.keep = pipe, keep
        self.kept = bytearray()
        self.left_out = 0
        self._lines = Lines(stream)
        self._lines.begin(say)
        os.set_blocking(pipe.fileno(), False)

    def read(self) -> bytes | None:
        """None: nothing is there now; empty: nothing will come any more."""
        try:
            data = os.read(self.pipe.fileno(), CHUNK)
        except BlockingIOError:
            return None
        room = self.keep - len(self.kept)
        self.kept += data[:room]
        self.left_out += max(len(data) - room, 0)
        self._lines.feed(data)
        return data

    def read_the_rest(self) -> None:
        for _ in range(CHUNKS):
            if not self.read():
                break
        self._lines.end()
