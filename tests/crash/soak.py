"""Eight workers on one file, one of them killed every few milliseconds, and a client that keeps them busy."""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

from msgspec import Struct

from refold.core.plan import Call, Loop, Plan, Step
from refold.runtime import background
from refold.runtime.mail import Settle
from refold.runtime.turn import Delivery, TurnResult
from refold.settings import Settings
from refold.testing.core import Scripted
from refold.wiring import Process, open_process
from tests.crash.evidence import Command, effects, lines, read
from tests.crash.processes import ended, fork, kill
from tests.crash.reference import Bodies, Diary

WORKERS = 8
ITEMS = 250
OPEN_RUNS = 6
LOSSES = 1000  # here it is no sign of a deadly command that it has lost six workers
PATIENCE = 900.0  # seconds for what is left when the kills are over; a busy machine needs them
LIVELY = Settings(lease_for=20.0, sweep_every=0.1, poll=0.1, slots=4)

WORK = Plan(
    name="soak",
    steps=(
        Step(
            name="items",
            work=Call(tool="plain"),
            loop=Loop(items=list(range(ITEMS)), max_in_flight=32),
            input={"path": ["item"]},
        ),
    ),
)


class Soaked(Struct):
    seconds: float = 0.0
    kills: int = 0
    commands: int = 0
    bodies: int = 0
    lost_workers: int = 0  # leases that dead workers left behind
    appends: int = 0
    median: float = 0.0  # milliseconds, the wait for the lock included
    p999: float = 0.0
    slowest: float = 0.0


def soak(folder: Path, seconds: float, every: float, kills: int, least: int, seed: int) -> Soaked:
    """Until the time is over, so many were killed and the client has started enough commands; all of them must end."""
    chance, began, soaked = random.Random(seed), time.monotonic(), Soaked()
    output = folder / "output"
    client = fork(lambda: asyncio.run(_keep_busy(folder, least)), output)
    workers = [_fork_worker(folder) for _ in range(WORKERS)]
    try:
        while time.monotonic() - began < seconds or soaked.kills < kills:
            time.sleep(every * chance.uniform(0.5, 1.5))
            victim = chance.randrange(WORKERS)
            os.kill(workers[victim], signal.SIGKILL)
            code = ended(workers[victim], 60.0, output)
            assert code == -signal.SIGKILL, f"a worker had ended by itself, with {code}: {output.read_text()[-4000:]}"
            soaked.kills += 1
            workers[victim] = _fork_worker(folder)
        soaked.seconds = time.monotonic() - began
        (folder / "enough").touch()
        last, client = client, 0
        code = ended(last, PATIENCE, output)
        assert code == 0, output.read_text()[-4000:]
    finally:
        for pid in [*workers, *([client] if client else [])]:
            kill(pid)
    _check(folder, soaked)
    return soaked


def _fork_worker(folder: Path) -> int:
    return fork(lambda: asyncio.run(_serve(folder)), folder / "output")


async def _serve(folder: Path) -> None:
    background.LOSSES = LOSSES
    db = folder / "refold.db"
    async with open_process(Bodies(folder).tools(), evaluate=Scripted(), db=db, settings=LIVELY) as process:
        _time_appends(process, Diary(folder / "appends"))
        await asyncio.Event().wait()


async def _keep_busy(folder: Path, least: int) -> None:
    """Starts runs as others end, and has no tool to work on them itself."""
    background.LOSSES = LOSSES
    async with open_process(evaluate=Scripted(), db=folder / "refold.db", settings=LIVELY) as process:
        open_runs: set[asyncio.Task[object]] = set()
        started = 0
        while started * ITEMS < least or not (folder / "enough").exists():
            if len(open_runs) < OPEN_RUNS:
                started += 1
                run = (await process.engine.options(key=f"soak {started}").start(WORK)).id
                open_runs.add(asyncio.create_task(process.engine.result(run)))
                continue
            done, open_runs = await asyncio.wait(open_runs, return_when=asyncio.FIRST_COMPLETED, timeout=0.2)
            for each in done:
                each.result()
        await asyncio.gather(*open_runs)


def _time_appends(process: Process, diary: Diary) -> None:
    turns = process.desk.mailroom.turns
    commit = turns.commit

    def timed(posts: list[Delivery], *offer: Any) -> TurnResult:
        began = time.perf_counter_ns()
        turned = commit(posts, *offer)
        if any(isinstance(post.mail, Settle) and post.error is None for post in posts):
            diary.note((time.perf_counter_ns() - began) // 1000)
        return turned

    turns.commit = timed  # type: ignore[method-assign, assignment]


def _check(folder: Path, soaked: Soaked) -> None:
    said = (folder / "output").read_text()
    assert "locked" not in said and "Traceback" not in said, said[-4000:]
    found = read(folder / "refold.db")
    found.check()
    settled = found.settled()
    wanted = {(run, f"items/1/{item}") for run in found.logs for item in range(ITEMS)}
    reports = Counter[Command]((each.run, each.command) for each in settled)
    assert set(reports) == wanted
    assert [command for command, times in reports.items() if times != 1] == []
    assert {each.outcome for each in settled} == {"succeeded"}
    assert not found.commands, "commands are left over"
    assert {state.life for state in found.states().values()} == {"completed"}
    began = effects(folder)
    assert {command for _, _, command, _ in began} == wanted
    done_at = {(each.run, each.command): each.at for each in settled}
    late = [command for at, _, command, _ in began if at > done_at[command]]
    assert not late, f"bodies began after their success was written: {late[:5]}"
    soaked.commands, soaked.bodies = len(wanted), len(began)
    soaked.lost_workers = sum(each.generation - 1 for each in settled)
    appends = sorted(int(each) / 1000 for (each,) in lines(folder / "appends"))
    soaked.appends, soaked.slowest = len(appends), appends[-1]
    soaked.median, soaked.p999 = appends[len(appends) // 2], appends[int(len(appends) * 0.999)]
