"""A process that serves one run serves what that run starts, however deep, and nothing else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from refold.core.plan import plan_hash
from refold.plan import Arc, Call, Child, Loop, Plan, Step, Wait
from refold.settings import Settings
from refold.wiring import Process, open_process

QUICK = Settings(lease_for=2.0, sweep_every=0.05, poll=0.05)
LEAF = Plan(name="leaf", steps=(Step(name="work", work=Call(tool="note"), input="leaf"),))
MIDDLE = Plan(name="middle", steps=(Step(name="kid", work=Child(plan=plan_hash(LEAF))),))
TOP = Plan(
    name="top",
    steps=(
        Step(
            name="kids",
            work=Child(plan=plan_hash(MIDDLE)),
            loop=Loop(items=[1, 2, 3], max_in_flight=2),
            arcs=(Arc(to="z"),),
        ),
        Step(name="z", work=Call(tool="note"), input="top"),
    ),
)
ALONE = Plan(name="alone", steps=(Step(name="a", work=Call(tool="note"), input="alone"),))


class Notes:
    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self, call: Any) -> Any:
        self.seen.append(call.input)
        await self.go.wait()
        return call.input


@asynccontextmanager
async def serving(folder: Path, only: str, notes: Notes) -> AsyncIterator[Process]:
    async with open_process({"note": notes}, db=folder / "refold.db", settings=QUICK, only=only) as process:
        for plan in (LEAF, MIDDLE, TOP, ALONE):
            await process.engine.register(plan)
        yield process


async def test_the_runs_of_others_are_left_alone(tmp_path: Path) -> None:
    notes = Notes()
    async with serving(tmp_path, "mine", notes) as process:
        await process.engine.options(run="other").start(ALONE)
        await process.engine.options(run="mine").start(ALONE)
        assert (await process.engine.wait("mine")).status == "completed"
        await asyncio.sleep(0.2)
        assert (await process.engine.show("other")).status == "running"
        assert notes.seen == ["alone"]


async def test_timers_of_others_are_left_to_others(tmp_path: Path) -> None:
    pause = Plan(name="pause", steps=(Step(name="w", work=Wait(seconds=0.05)),))
    async with serving(tmp_path, "elsewhere", Notes()) as process:
        await process.engine.options(run="other").start(pause)
    async with serving(tmp_path, "mine", Notes()) as process:
        await asyncio.sleep(0.3)
        assert (await process.engine.show("other")).status == "waiting"


async def test_children_of_children_are_served(tmp_path: Path) -> None:
    notes = Notes()
    async with serving(tmp_path, "mine", notes) as process:
        await process.engine.options(run="mine").start(TOP)
        shown = await asyncio.wait_for(process.engine.wait("mine"), 60)
        assert (shown.status, shown.result, notes.seen) == ("completed", "top", ["leaf"] * 3 + ["top"])
        assert process.served_runs is not None
        assert process.served_runs.runs == {"mine"}, "what is over costs nothing"
        assert process.worker.can.runs == frozenset({"mine"})


async def test_children_that_were_there_before_are_served(tmp_path: Path) -> None:
    notes = Notes()
    notes.go.clear()
    async with serving(tmp_path, "mine", notes) as process:
        await process.engine.options(run="mine").start(TOP)
        async with asyncio.timeout(60):
            while len(notes.seen) < 2:
                await asyncio.sleep(0.01)
    again = Notes()
    async with serving(tmp_path, "mine", again) as process:
        shown = await asyncio.wait_for(process.engine.wait("mine"), 60)
        assert (shown.status, again.seen) == ("completed", ["leaf"] * 3 + ["top"])


async def test_a_child_served_alone_does_not_bring_its_parent_along(tmp_path: Path) -> None:
    notes = Notes()
    notes.go.clear()
    async with serving(tmp_path, "mine", notes) as process:
        await process.engine.options(run="mine").start(TOP)
        async with asyncio.timeout(60):
            while not notes.seen:
                await asyncio.sleep(0.01)
        (child, *_) = [row.run for row in await process.engine.runs() if row.workflow == "leaf"]
    again = Notes()
    async with serving(tmp_path, child, again) as process:
        assert (await asyncio.wait_for(process.engine.wait(child), 60)).status == "completed"
        await asyncio.sleep(0.2)
        assert again.seen == ["leaf"]
        assert process.served_runs is not None
        assert process.served_runs.runs == {child}


async def test_the_name_of_the_worker_says_what_it_serves(tmp_path: Path) -> None:
    async with serving(tmp_path, "0123456789abcdef", Notes()) as process:
        assert process.worker.can.worker.startswith("run-01234567-")
    async with serving(tmp_path, "", Notes()) as process:
        assert process.worker.can.worker.startswith("worker-")
        assert (process.served_runs, process.worker.can.runs) == (None, None)


async def test_a_run_that_has_not_begun_has_no_kin(tmp_path: Path) -> None:
    async with serving(tmp_path, "mine", Notes()) as process:
        assert process.served_runs is not None
        await process.served_runs.gather()
        assert process.served_runs.runs == {"mine"}
        assert await process.engine.progress("mine") is None


async def test_progress_is_read_from_memory_while_a_run_goes_on(tmp_path: Path) -> None:
    notes = Notes()
    notes.go.clear()
    async with serving(tmp_path, "mine", notes) as process:
        await process.engine.options(run="mine", name="named").start(ALONE)
        seen = await process.engine.progress("mine")
        assert seen is not None
        assert (seen.name, seen.workflow, seen.status, [row.status for row in seen.rows]) == (
            "named",
            "alone",
            "running",
            ["issued"],
        )
        notes.go.set()
        await process.engine.wait("mine")


async def test_the_run_stays_in_memory_after_its_end_so_that_later_looks_do_not_read_its_log(tmp_path: Path) -> None:
    async with serving(tmp_path, "mine", Notes()) as process:
        await process.engine.options(run="mine").start(ALONE)
        assert (await process.engine.wait("mine")).status == "completed"
        known = process.engine.mailroom.turns.known["mine"]
        assert (await process.engine.show("mine")).status == "completed"
        await process.sweep.once()
        assert process.engine.mailroom.turns.known["mine"] is known
