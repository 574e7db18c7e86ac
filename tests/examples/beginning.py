"""An example as a user has it: copied by `refold init`, its stand-in started, its commands as it tells them."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

from refold.cli.app import called
from refold.cli.commands.examples import example
from tests.cli.program import Done, environment, refold


def begun(parent: Path, name: str) -> Path:
    """The new folder of the example."""
    folder = parent / name
    assert called(["init", str(folder), "--example", name]) == 0
    return folder


def told(name: str) -> list[list[str]]:
    """The arguments of every `refold` command that the example tells."""
    parts = [shlex.split(command, comments=True) for command in example(name).commands]
    return [part[1:-1] if part[-1] == "&" else part[1:] for part in parts if part[0] == "refold"]


def ran(folder: Path, arguments: list[str], *more: str, **env: str) -> Done:
    done = refold(folder, *arguments, *more, **env)
    assert done.code == 0, done.err
    return done


def looked(folder: Path, arguments: list[str], *more: str) -> str:
    """What a command prints that executes nothing; it is called in this process, which is faster."""
    with redirect_stdout(StringIO()) as shown, redirect_stderr(StringIO()) as said:
        code = called([*arguments, *more, "--db", str(folder / "refold.db")])
    return shown.getvalue() if code == 0 else said.getvalue()


def script(folder: Path, *arguments: str) -> None:
    """`python3 …`, run to its end."""
    subprocess.run([sys.executable, *arguments], cwd=folder, check=True, timeout=240)


@contextmanager
def stand_in(folder: Path, *arguments: str, **env: str) -> Iterator[str]:
    """A server of the example, on a port that is free; gives its address."""
    command = [sys.executable, "-u", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=folder, env={**os.environ, **env}, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout is not None
            found = re.search(r"http://127\.0\.0\.1:\d+", server.stdout.readline())
            assert found is not None
            yield found.group()
        finally:
            server.kill()


@contextmanager
def under_way(folder: Path, arguments: list[str], *more: str, **env: str) -> Iterator["subprocess.Popen[str]"]:
    """A command that goes on beside the test; it is killed at the end."""
    command = [sys.executable, "-m", "refold.cli", *arguments, *more]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=folder, env=environment(**env), stdout=pipe, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()
