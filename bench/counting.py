"""What a workload writes: rows, commits and syncs, counted beside the timed runs, for to count costs time."""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct

from refold import Engine, open_engine
from refold.settings import Settings
from refold.stores.sqlite.store import SqliteStore


class Written(Struct, frozen=True):
    rows: int  # inserted, changed or deleted
    facts: int
    commits: int
    syncs: int  # of the log and of the file
    synchronous: int  # as the engine's own connection reads it back


class CountingDisk(apsw.VFS):
    def __init__(self) -> None:
        self.syncs = 0
        super().__init__("counting", base="unix")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return _CountingFile(self, name, flags)


class _CountingFile(apsw.VFSFile):
    def __init__(self, disk: CountingDisk, name: Any, flags: list[int]) -> None:
        self.disk = disk
        super().__init__("unix", name, flags)

    def xSync(self, flags: int) -> None:
        self.disk.syncs += 1
        super().xSync(flags)


def written(body: Callable[[Engine], Awaitable[object]], slots: int, folder: str) -> Written:
    """The workload once, on a file of its own."""
    disk = CountingDisk()
    commits = 0

    async def run(path: Path) -> Written:
        nonlocal commits
        store = SqliteStore(path, lambda: time.time_ns() // 1000, vfs="counting")
        db = store.file.db

        def committed() -> bool:
            nonlocal commits
            commits += 1
            return False

        db.set_commit_hook(committed)
        async with open_engine(store=store, settings=Settings(slots=slots)) as engine:
            rows, syncs, commits = db.total_changes(), disk.syncs, 0
            await body(engine)
            changed, synced, done = db.total_changes() - rows, disk.syncs - syncs, commits
        facts: Any = db.execute("select count(*) from facts").fetchall()[0][0]
        level = db.pragma("synchronous")
        store.close()
        return Written(changed, facts, done, synced, level)

    try:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            return asyncio.run(run(Path(place) / "refold.db"))
    finally:
        disk.unregister()
