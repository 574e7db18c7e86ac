"""What one process wrote, synced and was told, in order: all that can be known of a disk when the power goes."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct, msgpack

import refold.stores.sqlite.file as file
from refold.core.plan import Call, Loop, Plan, Retry, Step
from refold.testing.core import Scripted
from refold.wiring import open_process
from tests.crash.failpoints import become_disk
from tests.crash.processes import ended, fork
from tests.crash.reference import QUICK, Bodies, Witness, drive

CHECKPOINT_AT, TRUNCATE_AT = 40, 90  # pages: many checkpoints, and files small enough to rebuild often

FAN = Plan(
    name="fan",
    steps=(
        Step(
            name="items",
            work=Call(tool="counts"),
            loop=Loop(items=list(range(20)), max_in_flight=4),
            input={"path": ["item"]},
            retry=Retry(attempts=2),
        ),
    ),
)


class Operation(Struct, array_like=True):
    """`write`, `truncate`, `sync`, `delete` of a file; or `ack`: somebody heard of this fact of this run."""

    kind: str
    file: str
    place: int = 0  # offset, size, or the number of a fact
    data: bytes = b""


class Recording(Struct):
    operations: list[Operation] = []
    commits: list[list[tuple[str, int]]] = []  # the facts that each commit added


def record(folder: Path, synchronous: int | None = None) -> Recording:
    """Of a process that runs the reference workflow beside two others, so that commits hold facts of several runs."""

    def life() -> None:
        if synchronous is not None:
            file.PRAGMAS["synchronous"] = synchronous
        file.CHECKPOINT_AT, file.TRUNCATE_AT = CHECKPOINT_AT, TRUNCATE_AT
        recording = Recording()
        operations = recording.operations
        apsw.connection_hooks.append(lambda db: _watch_commits(db, recording))
        become_disk("recording", lambda *told: operations.append(Operation(*told)))
        asyncio.run(_live(folder, lambda run, number: operations.append(Operation("ack", run, number))))
        (folder / "recording").write_bytes(msgpack.encode(recording))

    output = folder / "output"
    code = ended(fork(life, output), 60.0, output)
    assert code == 0, output.read_text()
    return msgpack.decode((folder / "recording").read_bytes(), type=Recording)


def _watch_commits(db: apsw.Connection, recording: Recording) -> None:
    """The file's own account of what a commit holds, whatever the engine believes."""
    added: list[tuple[str, int]] = []

    def changed(change: apsw.PreUpdate) -> None:
        if change.table_name == "facts" and change.op == "INSERT":
            row: Any = change.new
            added.append((row[1], row[2]))

    def committed() -> bool:
        recording.commits.append(added.copy())
        added.clear()
        return False

    db.preupdate_hook(changed, id="recording")
    db.set_commit_hook(committed, id="recording")
    db.set_rollback_hook(added.clear, id="recording")


async def _live(folder: Path, tell: Callable[[str, int], object]) -> None:
    db = folder / "refold.db"
    async with open_process(Bodies(folder).tools(), evaluate=Scripted(), db=db, settings=QUICK) as process:
        Witness(process, tell)
        others = [asyncio.create_task(process.engine.run(FAN)) for _ in range(2)]
        await drive(process.engine)
        await asyncio.gather(*others)
