"""Process groups: how to end one for good, with a guard that ends those whose owner was killed.

Only the standard library is imported, and little of it: the guard runs this file as a script and starts fast.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import IO

MARK = "REFOLD_CHILD"  # in the environment of each process of a group, whatever session it moves to
ROUNDS = 20


def send(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # it is gone; the latter is what macOS says of zombies
        os.killpg(group, number)


def ask(group: int, mark: str) -> None:
    """Ask all of it to end."""
    send(group, signal.SIGTERM)
    for pid in living(group, mark):
        if _group_of(pid) != group:
            _send_one(pid, signal.SIGTERM)


def kill(group: int, mark: str) -> None:
    """Everything at once, also what has left the group but carries its mark; what forks meanwhile is found again.

    A process that has left the session and wiped its environment cannot be known, and escapes.
    """
    for _ in range(ROUNDS):
        send(group, signal.SIGKILL)
        found = list(living(group, mark))
        for pid in found:
            _send_one(pid, signal.SIGKILL)
        if not found:
            return


def kill_strays(marks: Collection[str]) -> None:
    """Processes that carry one of these marks, wherever they are."""
    wanted = {mark.encode() for mark in marks}
    for _ in range(ROUNDS):
        found = [int(pid) for pid in _processes() if not wanted.isdisjoint(_marks(pid))]
        for pid in found:
            _send_one(pid, signal.SIGKILL)
        if not found:
            return


def _send_one(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def living(group: int, mark: str) -> Iterator[int]:
    """Processes of this group or session, or with this mark, that are not dead yet; nothing where there is no /proc."""
    return (int(pid) for pid in _processes() if _belongs(pid, group, mark.encode()))


def _processes() -> Iterator[str]:
    return filter(str.isdigit, os.listdir("/proc")) if os.path.isdir("/proc/self") else iter(())


def _belongs(pid: str, group: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, _, its_group, its_session = file.read().rpartition(b")")[2].split()[:4]
        if state in b"ZX":
            return False
        if group in (int(its_group), int(its_session)):
            return True
        return mark in _marks(pid)
    except OSError:
        return False  # it has just ended


def _marks(pid: str) -> Sequence[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            _, _, found = (b"\0" + file.read()).partition(b"\0" + MARK.encode() + b"=")
    except OSError:
        return ()  # it has just ended, or is somebody else's
    return found.partition(b"\0")[0].split(b"/")


class Guard:
    """Another process, which learns by the end of a pipe that this one is dead, and then ends its groups."""

    def __init__(self) -> None:
        command = [sys.executable, "-I", "-S", __file__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, text=True)

    @property
    def pid(self) -> int:
        return self._process.pid

    def watch(self, group: int, mark: str) -> None:
        self._tell(f"{group} {mark}\n")

    def forget(self, group: int) -> None:
        """The group has ended; its number may soon be another's."""
        self._tell(f"{group}\n")

    def close(self) -> None:
        """What is still watched is ended."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # somebody killed it; then only the processes themselves notice our end
            self._process.stdin.write(line)
            self._process.stdin.flush()


def guard(told: IO[str]) -> None:
    watched: dict[int, str] = {}
    for line in told:
        group, *mark = line.split()
        watched.pop(int(group), None)
        if mark:
            watched[int(group)] = mark[0]
    for each, its_mark in watched.items():
        kill(each, its_mark)


if __name__ == "__main__":
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)  # its work begins when the others are dead
    guard(sys.stdin)
