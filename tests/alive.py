"""Which processes live: for tests that must leave none."""

import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path


def living(pids: Iterable[int]) -> set[int]:
    """Those that have not ended; one that only waits to be reaped has."""
    return {pid for pid in pids if state(pid) not in ("", "Z", "X")}


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def children(pid: int) -> set[int]:
    """All descendants that are known by their parents."""
    direct = own_children(pid)
    return direct | {each for child in direct for each in children(child)}


def own_children(pid: int) -> set[int]:
    return {int(each) for each in _read(f"/proc/{pid}/task/{pid}/children").split()}


def noted_in(folder: Path, count: int, seconds: float = 60.0) -> Collection[int]:
    """The process ids that a body has written down as names of files."""

    def found() -> set[int]:
        return {int(each.name.removeprefix("pid ")) for each in folder.iterdir() if each.name.startswith("pid ")}

    assert within(seconds, lambda: len(found()) >= count), f"only {found()} began"
    return found()


def state(pid: int) -> str:
    """One letter of the kernel's, or nothing once it is gone; of a thread too."""
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].strip()[:1]


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
