"""Very many items in a process of its own, which is killed on the way and started again; what it needed, and what its
log says in the end."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct, json

from refold.core.plan import Call, Loop, Plan, Source, Step
from refold.core.state import RunState
from refold.ports import ToolCall
from refold.queries.reading import RunReader
from refold.settings import Settings
from refold.stores.sqlite.store import SqliteStore
from refold.testing.core import Scripted
from refold.wiring import open_process
from tests.crash.reference import Diary

ROOT = Path(__file__).parents[2]
WINDOW = 64
BUSY = Settings(lease_for=3.0, sweep_every=0.2, poll=0.2, slots=WINDOW)
PATIENCE = 3000.0  # seconds without an end are too many, on any machine
WIDTH = 12  # bytes of a line that a body writes when it begins


class Life(Struct):
    """What was seen of a run with all its processes."""

    items: int
    kills: int = 0
    seconds: float = 0.0
    peak: int = 0  # bytes of memory, of the largest process
    repeated: int = 0  # bodies that were under way when a process died


def plan(items: int, streamed: bool) -> Plan:
    source = Source(kind="range", settings={"stop": items}, page=1000)
    over = (
        Loop(source=source, max_in_flight=WINDOW)
        if streamed
        else Loop(items={"path": ["input", "items"]}, max_in_flight=WINDOW)
    )
    each = Step(name="each", work=Call(tool="count"), loop=over, input={"path": ["item"]})
    return Plan(name="many", steps=(each,))


async def live(folder: Path, items: int, streamed: bool) -> None:
    """One process: it starts the run or goes on with it."""
    diary = Diary(folder / "bodies")

    async def count(call: ToolCall) -> Any:
        diary.note(f"{call.input:{WIDTH - 1}}")
        return None

    given = {} if streamed else {"items": list(range(items))}
    tools = {"count": count}
    async with open_process(tools, evaluate=Scripted(), db=folder / "refold.db", settings=BUSY) as process:
        run = (await process.engine.options(key="many").start(plan(items, streamed), given)).id
        shown = await process.engine.wait(run)
        assert shown.status == "completed", shown.error


def survive(folder: Path, items: int, streamed: bool = False, kills: Sequence[float] = ()) -> Life:
    """Processes one after the other, each killed when so much of the work was begun, the last one to the end."""
    seen, began = Life(items), time.monotonic()
    for share in kills:
        _live_until(folder, streamed, seen, share)
        assert len(set(completed(folder))) < items, "it was done before it could be killed"
    _live_until(folder, streamed, seen, None)
    seen.seconds = time.monotonic() - began
    seen.repeated = len(begun(folder)) - items
    return seen


def _live_until(folder: Path, streamed: bool, seen: Life, share: float | None) -> None:
    """A process until this part of all bodies has begun, or to its end. What was recorded before is not begun again."""
    before, output = len(begun(folder)), folder / "output"
    known = set(completed(folder))
    arguments = [str(folder), str(seen.items), "streamed" if streamed else "listed"]
    with output.open("ab") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.fan_out", *arguments], cwd=ROOT, stdout=said, stderr=said
        )
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None:
        seen.peak = max(seen.peak, _peak(process.pid))
        if share is not None and _size(folder) >= share * seen.items:
            process.kill()
            process.wait()
            seen.kills += 1
        assert time.monotonic() < deadline, output.read_text()[-4000:]
        time.sleep(0.01)
    assert share is not None or process.returncode == 0, output.read_text()[-4000:]
    again = known & set(begun(folder)[before:])
    assert not again, f"items that had completed were begun again: {sorted(again)[:10]}"


def _size(folder: Path) -> int:
    path = folder / "bodies"
    return path.stat().st_size // WIDTH if path.exists() else 0


def _peak(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    lines = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(lines[0].split()[1]) * 1024 if lines else 0


def begun(folder: Path) -> list[int]:
    """The items whose bodies began, in order."""
    path = folder / "bodies"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def completed(folder: Path) -> Iterator[int]:
    """Every completion that the log tells of, as plain JSON."""
    for data in rows(folder, "select data from facts where kind = 'items_settled' order by number"):
        for report in json.decode(data)["reports"]:
            assert report["outcome"]["type"] == "succeeded", report
            yield report.get("item", 0)


def state_of(folder: Path) -> RunState:
    """As whoever opens the file has it."""
    store = SqliteStore(folder / "refold.db", lambda: 0)
    try:
        [run] = rows(folder, "select run from runs")
        return RunReader(store.views, run).read()[1]
    finally:
        store.close()


def rows(folder: Path, query: str) -> list[Any]:
    path = folder / "refold.db"
    if not path.exists():
        return []
    db = apsw.Connection(str(path))
    try:
        db.set_busy_timeout(10_000)
        return [data for (data,) in db.execute(query)]
    finally:
        db.close()


if __name__ == "__main__":
    asyncio.run(live(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "streamed"))
    os._exit(0)
