"""The files of DuckDB that are open: a process can open each only once, and its steps share it."""

import threading
import time
from typing import Any

import duckdb
from msgspec import Struct

CONFIG: dict[str, Any] = {"autoinstall_known_extensions": "false"}  # nothing is fetched from anywhere unasked
PATIENCE = 5.0  # seconds, for those who read to let a writer in


class _Open(Struct):
    root: duckdb.DuckDBPyConnection
    read_only: bool
    users: int = 0


class Files:
    """Each is closed with its last user, so that other processes can have it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open: dict[str, _Open] = {}

    def open(self, path: str, read_only: bool) -> duckdb.DuckDBPyConnection:
        """Who only reads takes part in what is open for writing; who writes waits for those who read. Raises what
        DuckDB raises."""
        until = time.monotonic() + PATIENCE
        with self._changed:
            while (found := self._open.get(path)) is not None and found.read_only and not read_only:
                if not self._changed.wait(until - time.monotonic()):
                    raise duckdb.ConnectionException(f"{path} is being read, and is not free for writing")
            if found is None:
                found = self._open[path] = _Open(duckdb.connect(path, read_only=read_only, config=CONFIG), read_only)
            found.users += 1
            return found.root.cursor()

    def close(self, path: str) -> None:
        with self._changed:
            found = self._open[path]
            found.users -= 1
            if not found.users:
                del self._open[path]
                found.root.close()
            self._changed.notify_all()


FILES = Files()
