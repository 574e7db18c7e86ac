"""Bodies of steps, good and bad, that the tests of executors and workers call by name."""

import asyncio
import ctypes
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from refold.executors.wire import Returned, frame

SLEEPER = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(100)"

LIST_FILES = """
import json, os

def is_open(number):
    try:
        return bool(os.fstat(number))
    except OSError:
        return False  # the folder that was just listed

print(json.dumps(sorted(n for n in map(int, os.listdir("/proc/self/fd")) if is_open(n))))
"""

colour: ContextVar[str] = ContextVar("colour", default="none")
kept = {"calls": 0}
number = 17


def echo(value: Any) -> Any:
    return value


async def echo_later(value: Any) -> Any:
    await asyncio.sleep(0.01)
    return value


def pid() -> int:
    return os.getpid()


def count_calls() -> int:
    kept["calls"] += 1
    return kept["calls"]


def thread_name() -> str:
    return threading.current_thread().name


async def loop_thread() -> str:
    return threading.current_thread().name


def context_colour() -> str:
    return colour.get()


def fail(value: Any) -> None:
    raise Unlucky(f"no luck with {value}")


async def fail_later(value: Any) -> None:
    await asyncio.sleep(0)
    fail(value)


class Unlucky(Exception):
    kind, retryable, retry_after = "unlucky", True, 7.5


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even its message")


def fail_unspeakably() -> None:
    raise Unspeakable


def stop_iteration() -> None:
    raise StopIteration("from a thread")


def leave() -> None:
    sys.exit(3)


async def leave_later() -> None:
    sys.exit(3)


def exit_hard(code: int) -> None:
    print("last words", file=sys.stderr, flush=True)
    os._exit(code)


def crash() -> None:
    ctypes.string_at(0)


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def eat_memory() -> int:
    """A limit on the address space stands in for the kernel's killer: here it is an ordinary error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, hard))
    try:
        return len(bytearray(1 << 31))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def not_json(_: Any) -> Any:
    return {"rows": [1, {"when": object()}]}


def not_a_number() -> Any:
    return {"rate": float("nan")}


def wait_for(folder: str) -> int:
    """Note that it began, then wait until it is let go."""
    begun = Path(folder)
    (begun / str(os.getpid())).touch()
    while not (begun / "go").exists():
        time.sleep(0.01)
    return os.getpid()


def shout(lines: int) -> int:
    for i in range(lines):
        print(f"line {i} " + 90 * "x")
    print("done", file=sys.stderr)
    return lines


def speak(text: str) -> None:
    sys.stdout.write(text)
    os.write(2, b"\xff raw\n")
    subprocess.run(["echo", "from a program"], check=True)


def hang(folder: str) -> None:
    """Ignores the polite way, and has children: one in its group, one that left it, one orphaned in between."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    near = subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE)
    far = subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, start_new_session=True)
    for each in (near, far):
        assert each.stdout is not None
        each.stdout.readline()
    if (middle := os.fork()) == 0:
        if os.fork() == 0:
            os.setsid()
            _note(folder, os.getpid())
            time.sleep(100)
        os._exit(0)
    os.waitpid(middle, 0)
    for pid in (os.getpid(), near.pid, far.pid):
        _note(folder, pid)
    time.sleep(100)


def hang_politely(folder: str) -> None:
    try:
        _note(folder, os.getpid())
        time.sleep(100)
    finally:
        Path(folder, "cleaned up").touch()


async def hang_later(folder: str) -> None:
    try:
        _note(folder, os.getpid())
        await asyncio.sleep(100)
    finally:
        Path(folder, "cleaned up").touch()


def _note(folder: str, pid: int) -> None:
    Path(folder, f"pid {pid}").touch()


def forget_a_child() -> list[Any]:
    """Returns twice: first in a fork of this process, and then here."""
    started = os.fork()
    if started == 0:
        return ["copy", os.getpid()]
    time.sleep(0.2)
    return ["body", started]


def babble() -> None:
    os.write(3, b"\0\0\0\1x")
    time.sleep(100)


def spoil(what: str) -> str:
    """Write to the line of this process what is no answer, or one that nobody asked for; then go on as usual."""
    forged = {
        "a byte": b"x",
        "a great length": b"xxxx",
        "a short length": b"\0\0\1\0",
        "no text": b'\0\0\0\4"\xff\xff"',
        "a forged answer": frame(Returned(1, "forged")),
        "a forged answer to the next": frame(Returned(2, "forged")),
        "a deep answer": (100_000).to_bytes(4, "big") + 100_000 * b"[",
        "half an answer": frame(Returned(1, "forged"))[:-3],
    }
    os.write(3, forged[what])
    return "as usual"


def open_files() -> list[int]:
    """The numbers of the files that this process has open."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            os.fstat(int(name))
        except OSError:
            continue  # the folder that was just listed
        found.append(int(name))
    return sorted(found)


def open_files_of_a_fork() -> list[int]:
    heard, said = os.pipe()
    if os.fork() == 0:
        os.close(heard)
        os.write(said, json.dumps([each for each in open_files() if each != said]).encode())
        os._exit(0)
    os.close(said)
    with open(heard, "rb") as file:
        data = file.read()
    os.wait()
    return list(json.loads(data))


def end_a_fork() -> int:
    """How a copy of this process ends when it is asked to."""
    heard, said = os.pipe()
    if (forked := os.fork()) == 0:
        os.write(said, b"up")
        time.sleep(60)
        os._exit(0)
    os.read(heard, 2)
    os.kill(forked, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1])


def open_files_of_a_program() -> list[int]:
    done = subprocess.run([sys.executable, "-c", LIST_FILES], stdout=subprocess.PIPE, check=True, close_fds=False)
    return list(json.loads(done.stdout))


def log(text: str) -> None:
    logging.getLogger("body").warning(text)


def burn(seconds: float) -> int:
    """Keeps a processor and the interpreter busy."""
    until, turns = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        turns += 1
    return turns


def noted(given: dict[str, Any]) -> str:
    """Write down that it ran, then work for a while."""
    with open(given["file"], "a") as file:
        file.write(f"{os.getpid()}\n")
    burn(given["seconds"])
    return "done"


async def block_the_loop(given: dict[str, Any]) -> str:
    """Until a file is there, and the first time only: whoever comes second only notes it."""
    with open(given["file"], "a") as file:
        is_first = file.tell() == 0
        file.write("began\n")
    while is_first and not os.path.exists(given["until"]):
        time.sleep(0.01)
    return "done"


async def block_for_ever(folder: str) -> None:
    _note(folder, os.getpid())
    time.sleep(100)
