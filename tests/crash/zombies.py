"""Two workers take turns at being stopped in the middle of a body for longer than their lease, and report too late."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct

from refold.core.plan import Call, Loop, Plan, Step
from refold.errors import LeaseLost
from refold.ports import Abilities, Done, Lease, ToolCall
from refold.settings import Settings
from refold.testing.core import Scripted
from refold.wiring import open_process
from tests.alive import state
from tests.crash.evidence import lines, read
from tests.crash.processes import Stuck, ended, fork, kill
from tests.crash.reference import Diary

SHORT = Settings(lease_for=0.3, sweep_every=0.05, poll=0.05, slots=1)
PATIENCE = 60.0


class Buried(Struct):
    zombies: int = 0
    refused: int = 0
    while_running: int = 0  # reports that came while the new holder was still at work: only the generation tells


def bury(folder: Path, count: int) -> Buried:
    """One item after the other: stop its holder, let the other worker take over, wake the first one to report."""
    plan = Plan(
        name="zombies",
        steps=(
            Step(
                name="items",
                work=Call(tool="waits"),
                loop=Loop(items=list(range(count)), sequential=True),
                input={"path": ["item"]},
            ),
        ),
    )
    output, buried, accepted = folder / "output", Buried(), dict[str, int]()
    workers = [fork(lambda: asyncio.run(_serve(folder, plan)), output) for _ in range(2)]
    try:
        watch = Watch(folder, tuple(workers))
        for item in range(count):
            accepted[f"items/1/{item}"] = _bury_one(watch, f"items/1/{item}", item % 2 == 0, buried)
        for pid in workers.copy():
            workers.remove(pid)
            assert ended(pid, PATIENCE, output) == 0, output.read_text()
    finally:
        for pid in workers:
            kill(pid)
    found = read(folder / "refold.db")
    found.check()
    settled = found.settled()
    assert {(each.command, each.generation) for each in settled} == set(accepted.items())
    assert len(settled) == count
    assert {each.outcome for each in settled} == {"succeeded"}
    assert "Traceback" not in output.read_text(), output.read_text()
    return buried


def _bury_one(watch: "Watch", command: str, while_running: bool, buried: Buried) -> int:
    """The generation of the report that was believed."""
    zombie = watch.until(lambda: watch.holders(command))[0]
    late = watch.stop(zombie, command)
    [heir] = {*watch.workers} - {zombie}
    watch.until(lambda: heir in watch.holders(command))
    assert watch.generation(command) > late, "nobody can tell the two holders apart"
    buried.zombies += 1
    if while_running:
        os.kill(zombie, signal.SIGCONT)
        watch.let_go(command, zombie)
        watch.until(lambda: watch.was_refused(command, zombie))
        assert watch.accepted(command) != late, f"the late report of {command} was believed"
        buried.while_running += not watch.is_over(command)
        watch.let_go(command, heir)
        watch.until(lambda: watch.is_over(command))
    else:
        watch.let_go(command, heir)
        watch.until(lambda: watch.is_over(command))
        os.kill(zombie, signal.SIGCONT)
        watch.let_go(command, zombie)
        watch.until(lambda: watch.was_refused(command, zombie))
    buried.refused += 1
    believed = watch.accepted(command)
    assert believed > late, f"the late report of {command} was believed"
    return believed


class Watch:
    """What can be seen from outside: the side effects, the refusals, and the file."""

    def __init__(self, folder: Path, workers: tuple[int, ...]) -> None:
        self.folder, self.workers = folder, workers
        self.until(lambda: list(lines(folder / "effects")))
        self.db = apsw.Connection(str(folder / "refold.db"), flags=apsw.SQLITE_OPEN_READONLY)
        self.db.set_busy_timeout(10_000)

    def until(self, found: Callable[[], Any], within: float = PATIENCE) -> Any:
        deadline = time.monotonic() + within
        while not (what := found()):
            if time.monotonic() > deadline:
                raise Stuck(f"not within {within:g} s; {(self.folder / 'output').read_text()[-4000:]}")
            time.sleep(0.003)
        return what

    def stop(self, pid: int, command: str) -> int:
        """Between two writes, or nobody could take over; returns the generation of what it holds."""
        while True:
            os.kill(pid, signal.SIGSTOP)
            self.until(lambda: not is_running(pid))
            if not self._locks() & held_by(pid):
                return self.generation(command)
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.003)

    def _locks(self) -> set[int]:
        """The inodes of the files that a writer locks."""
        return {os.stat(path).st_ino for path in self.folder.glob("refold.db*") if path.is_file()}

    def holders(self, command: str) -> list[int]:
        return [int(pid) for pid, of in lines(self.folder / "effects") if of == command]

    def was_refused(self, command: str, pid: int) -> bool:
        return [str(pid), command] in list(lines(self.folder / "refused"))

    def let_go(self, command: str, pid: int) -> None:
        (self.folder / _name(command, pid)).touch()

    def generation(self, command: str) -> int:
        generation: int = self.db.execute("select generation from commands where id = ?", (command,)).get
        return generation

    def is_over(self, command: str) -> bool:
        return self.accepted(command) > 0

    def accepted(self, command: str) -> int:
        """The generation of its report in the log."""
        item = command.rpartition("/")[2]
        query = """select report.value ->> 'generation' from facts, json_each(facts.data, '$.reports') as report
            where facts.kind = 'items_settled' and report.value ->> 'item' = ?"""
        found: list[Any] = self.db.execute(query, (int(item),)).fetchall()
        assert len(found) <= 1, f"{command} was settled twice"
        return int(found[0][0]) if found else 0


async def _serve(folder: Path, plan: Plan) -> None:
    effects, refused = Diary(folder / "effects"), Diary(folder / "refused")
    me = os.getpid()

    async def waits(call: ToolCall) -> Any:
        """Stubborn: it does not listen when it is told that its lease is lost."""
        effects.note(me, call.command.id)
        while not (folder / _name(call.command.id, me)).exists():
            try:
                await asyncio.sleep(0.005)
            except asyncio.CancelledError:
                continue
        return call.input

    async with open_process({"waits": waits}, evaluate=Scripted(), db=folder / "refold.db", settings=SHORT) as process:
        settle = process.desk.settle

        async def noted(lease: Lease, done: Done, then: Abilities | None = None) -> Lease | None:
            try:
                return await settle(lease, done, then)
            except LeaseLost:
                refused.note(me, lease.command.id)
                raise

        process.desk.settle = noted  # type: ignore[method-assign]
        run = (await process.engine.options(key="zombies").start(plan)).id
        await process.engine.result(run)


def is_running(pid: int) -> bool:
    """Whether any of its threads is not stopped yet."""
    return any(state(int(each)) != "T" for each in os.listdir(f"/proc/{pid}/task"))


def held_by(pid: int) -> set[int]:
    """The inodes of the files of which it has a lock that lets nobody else in."""
    told = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    mine = (words for words in told if words[1] != "->" and words[3:5] == ["WRITE", str(pid)])
    return {int(words[5].rpartition(":")[2]) for words in mine}


def _name(command: str, pid: int) -> str:
    return f"go-{command.replace('/', '-')}-{pid}"
