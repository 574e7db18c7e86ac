"""The real program in a process of its own, as scripts and people use it: over pipes, and on a pseudo-terminal."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyte
from msgspec import json

PROGRAM = (sys.executable, "-m", "refold.cli")
LIMIT = 60.0  # seconds

HEAD = "apiVersion: refold/v1\nkind: Playbook\nmetadata: {name: play}\nworkflow:\n"


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.decode(self.out)


ELSEWHERE = ("REFOLD_", "NO_COLOR", "FORCE_", "COLUMNS", "LINES")  # what is set where the tests run is not for these


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ELSEWHERE)}
    quick = {"REFOLD_STOP_GRACE": "0.3", "REFOLD_POLL": "0.1", "REFOLD_SWEEP_EVERY": "0.1", "REFOLD_LEASE_FOR": "2"}
    return {**kept, "TERM": "xterm-256color", "USER": "ann", **quick, **more}


def refold(folder: Path, *arguments: str, stdin: str = "", **env: str) -> Done:
    """Run it to its end, without a terminal."""
    done = subprocess.run(
        [*PROGRAM, *arguments],
        cwd=folder,
        env=environment(**env),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def playbook(folder: Path, *steps: str, name: str = "play.yaml", more: str = "") -> str:
    """Steps without their dash and their indentation."""
    lines = "".join("  - " + step.strip().replace("\n", "\n    ") + "\n" for step in steps)
    (folder / name).write_text(HEAD + lines + more)
    return name


def noop(step: str, then: str = "", result: str = "null") -> str:
    return f"step: {step}\ntool: {{kind: noop, result: {result}}}" + (f"\nnext: {then}" if then else "")


def shell(step: str, script: str, then: str = "", more: str = "") -> str:
    indented = script.replace("\n", "\n    ")
    work = f"step: {step}\ntool:\n  kind: shell\n  script: |\n    {indented}"
    return work + (f"\nnext: {then}" if then else "") + (f"\n{more}" if more else "")


@contextmanager
def started(folder: Path, *arguments: str, **env: str) -> Iterator["subprocess.Popen[str]"]:
    """Under way, without a terminal."""
    process = subprocess.Popen(
        [*PROGRAM, *arguments],
        cwd=folder,
        env=environment(**env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


class Terminal:
    """A program on a terminal of its own, and what stands on the screen."""

    def __init__(self, folder: Path, *arguments: str, columns: int = 80, rows: int = 24, **env: str) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=1000)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.chdir(folder)
            with suppress(OSError):
                os.execve(PROGRAM[0], [*PROGRAM, *arguments], environment(**env))
            os._exit(99)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display if line.strip()]

    def read(self, seconds: float = 0.05) -> bool:
        """False once the program has let go of the terminal."""
        ready, _, _ = select.select([self.master], [], [], seconds)
        if not ready:
            return True
        try:
            data = os.read(self.master, 65536)
        except OSError:
            return False
        self.raw += data
        self._stream.feed(data)
        return bool(data)

    def until(self, text: str, seconds: float = 60.0) -> None:
        """Until it stands on the screen."""
        end = time.monotonic() + seconds
        while not any(text in line for line in self.lines):
            assert time.monotonic() < end, f"{text!r} does not come: {self.lines}"
            assert self.read(), f"{text!r} did not come: {self.lines}"

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def end(self, seconds: float = 60.0) -> int:
        """The exit code; minus the signal that killed it."""
        end = time.monotonic() + seconds
        while self.read():
            assert time.monotonic() < end, f"it does not end: {self.lines}"
        return self.wait()

    def wait(self) -> int:
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def hang_up(self) -> None:
        os.close(self.master)
        self.master = -1

    def close(self) -> None:
        if self.master >= 0:
            self.hang_up()
        if self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.wait()


@contextmanager
def terminal(folder: Path, *arguments: str, columns: int = 80, rows: int = 24, **env: str) -> Iterator[Terminal]:
    opened = Terminal(folder, *arguments, columns=columns, rows=rows, **env)
    try:
        yield opened
    finally:
        opened.close()
