"""An engine at work while somebody sets the machine's clock."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from refold import Retry, StartEvent, StopEvent, Workflow, open_engine, step
from refold.core.outcomes import Fault
from refold.errors import ToolFailed
from refold.plan import Call, Plan, Step, Wait
from refold.settings import Settings

HOUR = 3600 * 10**9
PATIENT = Settings(sweep_every=0.3)


class Machine:
    """Its clock shows another time than the one that tests wait by."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wrong, right = 0, time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: right() + self.wrong)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.fixture(params=["memory", "sqlite"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "refold.db" if request.param == "sqlite" else None


def nap(seconds: float) -> Plan:
    return Plan(name="nap", steps=(Step(name="nap", work=Wait(seconds=seconds)),))


async def test_a_wait_ends_in_time_when_the_clock_is_set_back(db: Path | None, machine: Machine) -> None:
    async with asyncio.timeout(30), open_engine(db=db, settings=PATIENT) as engine:
        run = (await engine.start(nap(0.5))).id
        machine.wrong = -HOUR
        assert (await engine.wait(run)).status == "completed"


async def test_a_wait_that_begins_after_the_clock_was_set_back_is_not_cut_short(
    db: Path | None, machine: Machine
) -> None:
    async with asyncio.timeout(30), open_engine(db=db, settings=PATIENT) as engine:
        await engine.run(nap(0))
        machine.wrong = -HOUR
        began = time.monotonic()
        await engine.run(nap(0.5))
        assert time.monotonic() - began >= 0.5


async def test_a_retry_comes_in_time_when_the_clock_is_set_back(db: Path | None, machine: Machine) -> None:
    tries = 0

    async def once(call: Any) -> str:
        nonlocal tries
        tries += 1
        if tries == 1:
            machine.wrong = -HOUR
            raise ToolFailed(Fault("not_yet", "not yet", retryable=True))
        return "done"

    plan = Plan(name="again", steps=(Step(name="a", work=Call(tool="once"), retry=Retry(attempts=2, delay=0.3)),))
    async with asyncio.timeout(30), open_engine({"once": once}, db=db, settings=PATIENT) as engine:
        assert await engine.run(plan) == "done"


class Sleeper(Workflow):
    @step
    async def sleep(self, ctx: Any, event: StartEvent) -> StopEvent:
        MACHINES[0].wrong = -HOUR
        await ctx.sleep(0.5)
        return StopEvent()


MACHINES: list[Machine] = []


async def test_a_durable_sleep_takes_its_time_when_the_clock_is_set_back(db: Path | None, machine: Machine) -> None:
    MACHINES[:] = [machine]
    async with asyncio.timeout(30), open_engine(db=db, settings=PATIENT) as engine:
        began = time.monotonic()
        await engine.run(Sleeper)
        assert time.monotonic() - began >= 0.5


def program(folder: Path, hours: float, run: str, seconds: float) -> "subprocess.Popen[str]":
    command = [sys.executable, str(Path(__file__).parent / "shifted.py"), str(folder), str(hours), run, str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("hours", [-1.0, -24 * 365.0])
def test_a_process_started_after_the_clock_was_set_back_is_no_later(tmp_path: Path, hours: float) -> None:
    """The first one is killed, and the second one ends the wait that the first has begun."""
    with program(tmp_path, 0, "r", 2.0) as first:
        assert first.stdout is not None and first.stdout.readline() == "there\n"
        first.kill()
    with program(tmp_path, hours, "r", 2.0) as second:
        assert second.communicate(timeout=60)[0].startswith("there\nended")


def test_after_a_year_in_the_future_new_waits_take_their_time(tmp_path: Path) -> None:
    with program(tmp_path, 24 * 365.0, "wrong", 0.1) as first:
        assert first.communicate(timeout=60)[0] == "there\nended in time\n"
    with program(tmp_path, 0, "right", 0.5) as second:
        assert second.communicate(timeout=60)[0] == "there\nended in time\n"
