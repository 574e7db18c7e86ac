"""What another process writes continues a run here, without a poll, a sweep or a heartbeat: all of those are switched
off in these tests. Another process is another connection to the same file."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from refold.core.outcomes import SECOND
from refold.core.plan import plan_hash
from refold.errors import Unavailable
from refold.plan import Arc, Call, Child, Gate, Plan, Step, Wait
from refold.ports import ANYTHING, Ring
from refold.runtime.background import SHARE, Listener
from refold.runtime.mail import Cancel, DecideGate, Mail, Pause, Resume, Signal
from refold.runtime.mailroom import Intake
from refold.runtime.turn_thread import inline
from refold.settings import Settings
from refold.stores.memory import MemoryStore
from refold.wiring import Process, open_engine, open_process
from refold.wiring.store import open_intake
from refold.wiring.world import wall
from tests.stores.sqlite_files import opened

DEAF = Settings(lease_for=3600.0, sweep_every=3600.0, poll=3600.0)
WORK = Plan(name="work", steps=(Step(name="work", work=Call(tool="note"), input="work"),))


def after(first: Any, then: Any) -> Plan:
    return Plan(name="p", steps=(Step(name="first", work=first, arcs=(Arc(to="then"),)), Step(name="then", work=then)))


GATED_KID = after(Gate(), Child(plan=plan_hash(WORK)))
GATED_GRANDKID = after(Wait(seconds=0), Child(plan=plan_hash(GATED_KID)))
PLANS = (WORK, GATED_KID, GATED_GRANDKID)


class Notes:
    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.begun, self.stopped, self.go = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.go.set()

    async def __call__(self, call: Any) -> Any:
        self.seen.append(call.input)
        self.begun.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.stopped.set()
            raise
        return call.input


@asynccontextmanager
async def serving(folder: Path, notes: Notes, only: str = "") -> AsyncIterator[Process]:
    async with (
        asyncio.timeout(60),
        open_process({"note": notes}, db=folder / "refold.db", settings=DEAF, only=only) as process,
    ):
        for plan in PLANS:
            await process.engine.register(plan)
        yield process


async def elsewhere(folder: Path, work: Callable[[Intake], Any]) -> None:
    """Done by another process, or as good as."""

    def there() -> None:
        with open_intake(folder / "refold.db") as (intake, _):
            work(intake)

    await asyncio.to_thread(there)


async def sent(folder: Path, run: str, mail: Mail) -> None:
    await elsewhere(folder, lambda intake: intake.send(run, mail))


async def waits(process: Process, run: str) -> None:
    while (await process.engine.show(run)).status != "waiting":
        await asyncio.sleep(0.01)


async def test_a_run_that_another_process_starts_is_served(tmp_path: Path) -> None:
    async with serving(tmp_path, Notes()) as process:
        await elsewhere(tmp_path, lambda intake: intake.start(WORK, {}, "r"))
        assert (await process.engine.wait("r")).result == "work"


async def test_a_signal_from_another_process_continues_its_run(tmp_path: Path) -> None:
    async with serving(tmp_path, Notes()) as process:
        await process.engine.options(run="r").start(after(Wait(signal="go"), Call(tool="note")))
        await waits(process, "r")
        await sent(tmp_path, "r", Signal("go"))
        assert (await process.engine.wait("r")).status == "completed"


@pytest.mark.parametrize("only", ["", "r"])
async def test_a_decision_from_another_process_continues_its_run_and_the_child_that_follows(
    tmp_path: Path, only: str
) -> None:
    async with serving(tmp_path, Notes(), only) as process:
        await process.engine.options(run="r").start(GATED_KID)
        await waits(process, "r")
        await sent(tmp_path, "r", DecideGate("first", "approve"))
        assert (await process.engine.wait("r")).result == "work"


@pytest.mark.parametrize("only", ["", "r"])
async def test_a_decision_about_a_child_continues_the_whole_family(tmp_path: Path, only: str) -> None:
    async with serving(tmp_path, Notes(), only) as process:
        await process.engine.options(run="r").start(GATED_GRANDKID)
        while not (state := (await process.engine.show("r")).state).children:
            await asyncio.sleep(0.01)
        (child,) = state.children.values()
        await waits(process, child)
        await sent(tmp_path, child, DecideGate("first", "approve"))
        assert (await process.engine.wait("r")).result == "work"


async def test_a_step_of_a_run_that_another_process_cancels_is_stopped(tmp_path: Path) -> None:
    notes = Notes()
    notes.go.clear()
    async with serving(tmp_path, notes) as process:
        await process.engine.options(run="r").start(WORK)
        await notes.begun.wait()
        await sent(tmp_path, "r", Cancel("enough"))
        await notes.stopped.wait()
        assert (await process.engine.wait("r")).status == "cancelled"


async def test_whoever_waits_for_a_run_learns_that_another_process_has_ended_it(tmp_path: Path) -> None:
    async with serving(tmp_path, Notes()) as process:
        await process.engine.options(run="r").start(after(Wait(signal="go"), Call(tool="note")))
        await waits(process, "r")
        waiting = asyncio.create_task(process.engine.wait("r"))
        await asyncio.sleep(0.05)
        await sent(tmp_path, "r", Cancel("enough"))
        assert (await waiting).status == "cancelled"


async def test_who_waits_for_a_run_that_only_another_process_executes_learns_of_its_end(tmp_path: Path) -> None:
    async with serving(tmp_path, Notes(), only="mine") as process:
        await elsewhere(tmp_path, lambda intake: intake.start(WORK, {}, "r"))
        waiting = asyncio.create_task(process.engine.wait("r"))
        while not (ends := process.engine.ends)._watched or ends._unseen or ends._first_looks:
            await asyncio.sleep(0.01)
        async with serving(tmp_path, Notes()):
            assert (await waiting).status == "completed"


async def test_a_run_that_other_processes_pause_and_resume_goes_on(tmp_path: Path) -> None:
    async with serving(tmp_path, Notes()) as process:
        await process.engine.options(run="r").start(GATED_KID)
        await waits(process, "r")
        await sent(tmp_path, "r", Pause())
        await sent(tmp_path, "r", DecideGate("first", "approve"))
        assert (await process.engine.show("r")).status == "paused"
        await sent(tmp_path, "r", Resume())
        assert (await process.engine.wait("r")).result == "work"


async def test_only_what_others_write_is_heard(tmp_path: Path) -> None:
    heard = 0

    async def hear(rings: Collection[Ring]) -> None:
        nonlocal heard
        heard += 1

    with opened(tmp_path) as one, opened(tmp_path) as two:
        listener = Listener(one.foreign_writes, inline, StepClock(), hear, 0.1)
        await listener.once()
        assert heard == 1, "what was written before it listened"
        one.put_plan("a" * 64, b"mine")
        await listener.once()
        assert heard == 1
        two.put_plan("b" * 64, b"theirs")
        for _ in range(3):
            await listener.once()
        assert heard == 2


class StepClock:
    """Its time goes on in what is done, and in sleep."""

    def __init__(self) -> None:
        self.at = 0
        self.slept: list[float] = []

    def now(self) -> int:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if len(self.slept) == 4:
            raise asyncio.CancelledError


async def test_a_look_that_takes_long_is_taken_less_often() -> None:
    clock, numbers = StepClock(), iter([1, 2, 2, 2])

    async def hear(rings: Collection[Ring]) -> None:
        clock.at += SECOND // 10

    listener = Listener(lambda: next(numbers), inline, clock, hear, 0.1)
    with pytest.raises(asyncio.CancelledError):
        await listener.run()
    assert clock.slept == [0.1 / SHARE, 0.1 / SHARE, 0.1, 0.1]


async def test_what_could_not_be_looked_at_is_looked_at_again() -> None:
    heard: list[int] = []
    failures = iter([True, False])

    async def hear(rings: Collection[Ring]) -> None:
        if next(failures):
            raise Unavailable("the disk is full")
        heard.append(1)

    listener = Listener(lambda: 7, inline, StepClock(), hear, 0.1)
    for _ in range(3):
        await listener.once()
    assert heard == [1]


async def test_a_listener_that_is_called_looks_at_what_was_rung_and_at_everything_after_an_error() -> None:
    seen: list[set[Ring]] = []
    fails = iter([False, True, False])
    called: list[Callable[[Collection[Ring]], None]] = []

    async def hear(rings: Collection[Ring]) -> None:
        seen.append(set(rings))
        if next(fails):
            raise Unavailable("the server is away")

    def listen(heard: Callable[[Collection[Ring]], None]) -> bool:
        called.append(heard)
        return True

    numbers = [1]
    listener = Listener(lambda: numbers[0], inline, StepClock(), hear, 0.1, listen)
    serving = asyncio.create_task(listener.run())
    while len(seen) < 1:
        await asyncio.sleep(0)
    numbers[0] += 1
    called[0]([Ring("work", "q"), Ring("ended", "r")])
    while len(seen) < 2:
        await asyncio.sleep(0)
    called[0]([Ring("work", "q")])
    while len(seen) < 3:
        await asyncio.sleep(0)
    serving.cancel()
    rung = {Ring("work", "q"), Ring("ended", "r")}
    assert seen == [{ANYTHING}, rung, rung], "what could not be looked at is looked at with what comes next"


async def test_an_end_that_nobody_has_heard_of_is_found_soon_by_who_begins_to_wait() -> None:
    store = MemoryStore(wall)  # the doorbells of the two processes are not connected
    async with (
        asyncio.timeout(60),
        open_engine(store=store, settings=DEAF) as deaf,
        open_engine(store=store, settings=DEAF) as other,
    ):
        run = (await deaf.start(Plan(name="p", steps=(Step(name="first", work=Gate()),)))).id
        while not deaf.mailroom.turns.is_open(run) or not store.views.summary(run):
            await asyncio.sleep(0)
        await other.cancel(run)
        assert (await other.wait(run)).status == "cancelled"
        assert deaf.mailroom.turns.is_open(run), "the other process has not heard of the end"
        assert (await deaf.wait(run)).status == "cancelled"
