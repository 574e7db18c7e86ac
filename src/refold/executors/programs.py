"""Programs of steps: each runs under a supervisor, which ends it with all it started; its output is read as it runs."""

import asyncio
import os
from collections.abc import Mapping

from refold.errors import ToolFailed
from refold.executors.limits import environment
from refold.executors.output import CHUNK, OutputPipe
from refold.executors.supervised import ProgramStart, SupervisedProgram, Supervisors, fault_of_death
from refold.ports import Program, ProgramEnd, Say

LISTEN_AFTER = 0.01  # seconds; the output of a program that ends sooner is read once, at its end


class Programs:
    """`env` is what all programs see of the environment, in addition to what each of them is given."""

    def __init__(
        self, grace: float = 2.0, *, supervisors: Supervisors | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        self.grace = grace
        self.supervisors = supervisors if supervisors is not None else Supervisors()
        self.env = env if env is not None else environment(os.environ)
        self._owns_supervisors = supervisors is None
        self._ending: set[asyncio.Task[None]] = set()

    async def run(self, program: Program, say: Say | None = None) -> ProgramEnd:
        running = RunningProgram(self.supervisors, program, self.env, say)
        try:
            code = await asyncio.shield(running.supervised.over)
        except OSError:
            running.close()
            raise
        except BaseException:
            await asyncio.shield(self._stop_in_background(running))
            raise
        running.close()
        if code is None:
            raise ToolFailed(fault_of_death(None, "", self.supervisors.limits))
        return running.ended(code)

    async def close(self) -> None:
        """Returns when no process of any program is left."""
        while self._ending:
            await asyncio.wait(self._ending)
        if self._owns_supervisors:
            await self.supervisors.close()

    def _stop_in_background(self, running: "RunningProgram") -> "asyncio.Task[None]":
        task = asyncio.create_task(self._stop(running))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    async def _stop(self, running: "RunningProgram") -> None:
        await running.supervised.stopped(self.grace)
        running.close()


class RunningProgram:
    """One program, with its streams."""

    def __init__(self, supervisors: Supervisors, program: Program, env: Mapping[str, str], say: Say | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._unwritten = memoryview(program.stdin)
        self._stdin = -1
        self._listening: asyncio.TimerHandle | None = None
        files: dict[int, int] = {}
        if program.stdout_file:
            path = os.path.join(program.cwd or "", program.stdout_file)
            files[1] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        streams = {2: "stderr"} if program.stdout_file else {1: "stdout", 2: "stderr"}
        self._pipes = {number: OutputPipe(stream, program.keep) for number, stream in streams.items()}
        for number, pipe in self._pipes.items():
            pipe.lines.begin(say)
            files[number] = pipe.theirs
        try:
            if program.stdin:
                files[0], self._stdin = os.pipe()
                os.set_blocking(self._stdin, False)
                self._loop.add_writer(self._stdin, self._write)
            whole_env = {**env, **program.env}
            start = ProgramStart(
                argv=program.argv, env=whole_env, files=files, cwd=program.cwd, cpu=supervisors.limits.cpu
            )
            self.supervised: SupervisedProgram = supervisors.start(start)
        except BaseException:
            self.close()
            raise
        finally:
            for file in files.values():
                os.close(file)
        self._listening = self._loop.call_later(LISTEN_AFTER, self._listen)

    def ended(self, code: int) -> ProgramEnd:
        out, out_end, out_left = self._pipes[1].kept() if 1 in self._pipes else (b"", b"", 0)
        err, err_end, err_left = self._pipes[2].kept()
        return ProgramEnd(
            code=code,
            stdout=out,
            stderr=err,
            stdout_end=out_end,
            stderr_end=err_end,
            stdout_left_out=out_left,
            stderr_left_out=err_left,
        )

    def close(self) -> None:
        """Call this when the program has ended: all it printed is in the pipes, and no process can write more."""
        if self._listening is not None:
            self._listening.cancel()
        self._close_stdin()
        for pipe in self._pipes.values():
            pipe.drain()
            pipe.close()

    def _listen(self) -> None:
        for pipe in self._pipes.values():
            pipe.listen()

    def _write(self) -> None:
        try:
            self._unwritten = self._unwritten[os.write(self._stdin, self._unwritten[:CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:
            self._unwritten = self._unwritten[:0]  # the program has closed its input, which it may do
        if not self._unwritten:
            self._close_stdin()

    def _close_stdin(self) -> None:
        if self._stdin >= 0:
            self._loop.remove_writer(self._stdin)
            os.close(self._stdin)
            self._stdin = -1
