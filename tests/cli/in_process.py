"""The command line in the process of the test: as fast as can be, where a process of its own would end the same."""

import contextlib
import io
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from refold.cli.app import called
from tests.cli.program import Done, environment

SLOW = 60.0  # seconds for one command
PATIENT = 15.0  # seconds after which a run that waits is told to stop; no test depends on how long it is


@contextlib.contextmanager
def here(folder: Path) -> Iterator[None]:
    """In the folder, with an environment like that of a program of its own."""
    before, variables = os.getcwd(), dict(os.environ)
    os.environ.update({**environment(), "REFOLD_DEBUG": "1", "HOME": str(folder)})
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        os.chdir(before)
        os.environ.clear()
        os.environ.update(variables)


def command(*arguments: str) -> Done:
    """As `refold` would run it. A run that still waits after a while gets Ctrl-C; what hangs fails the test."""

    def stop(number: int, frame: object) -> None:
        signal.signal(signal.SIGALRM, hang)
        signal.setitimer(signal.ITIMER_REAL, SLOW)
        os.kill(os.getpid(), signal.SIGINT)

    def hang(number: int, frame: object) -> None:
        raise AssertionError(f"it hangs: {arguments}")

    stdout, stderr = io.StringIO(), io.StringIO()
    waits = may_wait(arguments)
    signal.signal(signal.SIGALRM, stop if waits else hang)
    signal.setitimer(signal.ITIMER_REAL, PATIENT if waits else SLOW)
    try:
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            code = called(arguments)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    return Done(code, stdout.getvalue(), stderr.getvalue())


def may_wait(arguments: Sequence[str]) -> bool:
    return arguments[0] == "run" or tuple(arguments[:2]) == ("runs", "resume")
