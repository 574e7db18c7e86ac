"""Real processes, forked from the one that has imported everything: each writes what it says to a file."""

import faulthandler
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")


class Stuck(AssertionError):
    """A process that should have ended did not; its stacks are in the output."""


def fork(work: Callable[[], object], output: Path) -> int:
    """Its process id. It ends with 0, with 1 after an error, or by whatever kills it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads in the parent, which the child does not need
        pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", 1), os.fdopen(2, "w", 1)  # pytest's own no more
        logging.root.handlers.clear()
        faulthandler.register(signal.SIGUSR1, file=descriptor, all_threads=True)
        work()
        code = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def ended(pid: int, within: float, output: Path) -> int:
    """The exit code, or minus the signal that killed it. What does not end is killed, and is a failure."""
    deadline = time.monotonic() + within
    pause = 0.0005
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(pause)
        pause = min(pause * 1.5, 0.01)
    os.kill(pid, signal.SIGUSR1)
    time.sleep(0.2)
    kill(pid)
    raise Stuck(f"{output}: still running after {within:g} s\n{output.read_text()[-6000:]}")


def kill(pid: int) -> None:
    """For good, and reaped; also one that is stopped or dead already."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def kill_myself() -> None:
    """No handler, no cleanup, no flush: as the kernel does it to a process at any moment."""
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder where syncs cost nothing: for what dies with its process, and not with the machine."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None, prefix="refold-crash-") as folder:
        yield Path(folder)


def emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder
