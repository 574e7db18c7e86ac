"""The doorbell between the processes of one file: whoever has committed writes a byte, and the kernel wakes the others.

The byte goes into the file of the writers' queue (`-door`), after the commit, so that whoever is woken sees what was
committed. Watching that file (inotify) costs nothing while no process writes. Where there is no inotify, the file is
asked from time to time. A process of an older release does not ring; what it writes is found a few seconds later.
"""

import ctypes
import os
import select
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

PAUSE = 0.005  # seconds between two calls: rings that come meanwhile are one
_MODIFIED = 0x2
_CLOSE_ON_EXEC = 0o2000000
_EVENTS = 65536  # bytes that are read at once


class Bell:
    """Calls back when a process has rung, its own included. It ends with `close`."""

    def __init__(self, path: str) -> None:
        """Raises OSError if the kernel cannot watch the file."""
        self._watch = _watching(path)
        self._ended, self._end = os.pipe()
        self._callbacks: list[Callable[[], None]] = []
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="refold-bell", daemon=True)

    def listen(self, heard: Callable[[], None]) -> None:
        self._callbacks.append(heard)
        if self._thread.ident is None:
            self._thread.start()

    def close(self) -> None:
        self._closing.set()
        os.close(self._end)  # the other end becomes readable
        if self._thread.ident is not None:
            self._thread.join()
        os.close(self._watch)
        os.close(self._ended)

    def _run(self) -> None:
        waiting = select.poll()
        for descriptor in (self._watch, self._ended):
            waiting.register(descriptor, select.POLLIN)
        while True:
            waiting.poll()
            if self._closing.is_set():
                return
            with suppress(BlockingIOError):
                os.read(self._watch, _EVENTS)
            for heard in self._callbacks:
                heard()
            if self._closing.wait(PAUSE):
                return


def _watching(path: str) -> int:
    """Return a descriptor that is readable once the file was written to."""
    if not sys.platform.startswith("linux"):
        raise OSError("there is no inotify")
    library = ctypes.CDLL(None, use_errno=True)
    watch = library.inotify_init1(_CLOSE_ON_EXEC | os.O_NONBLOCK)
    if watch < 0:
        raise OSError(ctypes.get_errno(), "inotify_init1")
    if library.inotify_add_watch(watch, os.fsencode(path), _MODIFIED) < 0:
        error = OSError(ctypes.get_errno(), "inotify_add_watch")
        os.close(watch)
        raise error
    return int(watch)
