"""A tree of runs on three levels, with gates, timers and signals on each; killed at a commit, finished by another."""

import asyncio
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import refold.stores.sqlite.file as file
from refold.core.facts import GateDecided, SignalReceived, StepIssued
from refold.core.plan import Arc, Call, Child, Gate, Loop, Plan, Retry, Step, Wait, plan_hash
from refold.core.state import TERMINAL
from refold.errors import Conflict, NotFound, Unavailable
from refold.runtime.engine import Engine
from refold.testing.core import Scripted
from refold.wiring import open_process
from tests.crash.evidence import Evidence, effects, read
from tests.crash.interrupted import CHECKPOINT_AT, TRUNCATE_AT, Figures, copied, endings, live
from tests.crash.processes import emptied
from tests.crash.reference import QUICK, Bodies

TIDY = Step(name="tidy", work=Call(tool="plain"))
LEAF = Plan(
    name="leaf",
    always=("tidy",),
    steps=(
        Step(name="nap", work=Wait(seconds=0.01), arcs=(Arc(to="ask"),)),
        Step(name="ask", work=Wait(signal="go"), arcs=(Arc(to="work"),)),
        Step(name="work", work=Call(tool="flaky"), retry=Retry(attempts=3, delay=0.01), arcs=(Arc(to="use"),)),
        Step(name="use", work=Call(tool="counts"), input=1),
        TIDY,
    ),
)
MIDDLE = Plan(
    name="middle",
    always=("tidy",),
    steps=(
        Step(name="gate", work=Gate(), arcs=(Arc(to="kid"),)),
        Step(name="kid", work=Child(plan=plan_hash(LEAF)), arcs=(Arc(to="nap"),)),
        Step(name="nap", work=Wait(seconds=0.01)),
        TIDY,
    ),
)
ROOT = Plan(
    name="root",
    always=("tidy",),
    steps=(
        Step(name="kids", work=Child(plan=plan_hash(MIDDLE)), loop=Loop(items=[1, 2]), arcs=(Arc(to="ask"),)),
        Step(name="ask", work=Wait(signal="go", seconds=600), arcs=(Arc(to="gate"),)),
        Step(name="gate", work=Gate(), arcs=(Arc(to="sum"),)),
        Step(name="sum", work=Call(tool="plain"), input={"path": ["kids", "results"]}),
        TIDY,
    ),
)
RUNS = 5
Life = Callable[..., Callable[[], None]]  # of a process in a folder, with what it is armed with


async def drive(engine: Engine) -> None:
    for plan in (LEAF, MIDDLE):
        await engine.register(plan)
    run = (await engine.options(key="tree").start(ROOT)).id
    answering = asyncio.create_task(_answer_all(engine))
    try:
        shown = await engine.wait(run)
        assert shown.status == "completed", shown
    finally:
        answering.cancel()


async def _answer_all(engine: Engine) -> None:
    while True:
        for row in await engine.runs():
            if row.status not in TERMINAL:
                await _answer(engine, row.run)
        await asyncio.sleep(0.005)


async def _answer(engine: Engine, run: str) -> None:
    """What has been asked for and not been answered, as far as the log tells."""
    facts = [fact for _, _, fact in await engine.history(run)]
    asked = {fact.step for fact in facts if isinstance(fact, StepIssued)}
    try:
        if "ask" in asked and not any(isinstance(fact, SignalReceived) for fact in facts):
            await engine.signal(run, "go", 1)
        if "gate" in asked and not any(isinstance(fact, GateDecided) for fact in facts):
            await engine.decide(run, "gate", "approve", by="ann")
    except (Conflict, NotFound, Unavailable):
        return  # somebody or something else was faster


def armed(
    folder: Path, arm: Callable[[], object] = lambda: None, drive: Callable[[Engine], Awaitable[None]] = drive
) -> Callable[[], None]:
    async def live_on() -> None:
        tools = Bodies(folder).tools()
        async with open_process(tools, evaluate=Scripted(), db=folder / "refold.db", settings=QUICK) as process:
            await drive(process.engine)

    def life() -> None:
        file.CHECKPOINT_AT, file.TRUNCATE_AT = CHECKPOINT_AT, TRUNCATE_AT
        arm()
        asyncio.run(live_on())

    return life


def uninterrupted(folder: Path, life: Life = armed, runs: int = RUNS) -> dict[str, Any]:
    emptied(folder)
    live(folder, life(folder), 0)
    found = read(folder / "refold.db")
    agree(found)
    assert len(found.logs) == runs
    return endings(found)


def interrupt(
    folder: Path, arm: Callable[[], object], expected: dict[str, Any], figures: Figures, life: Life = armed
) -> bool:
    """False if the tree was done before."""
    emptied(folder)
    if live(folder, life(folder, arm), -signal.SIGKILL, 0) == 0:
        return False
    figures.kills += 1
    before = copied(folder)
    before.check()
    done, began = before.successes(), len(effects(folder))
    live(folder, life(folder), 0)
    after = read(folder / "refold.db")
    agree(after)
    for run, log in before.logs.items():
        assert after.logs[run][: len(log)] == log, f"the log of {run} was changed"
    assert endings(after) == expected
    again = effects(folder)[began:]
    assert not [command for _, _, command, _ in again if command in done], "a finished body ran again"
    figures.bodies_repeated += len(again)
    return True


def agree(found: Evidence) -> None:
    """Each run began and ended once, and each side tells its half of a child's life once and alike."""
    found.check()
    told = {run: [fact.told() for fact in log] for run, log in found.logs.items()}
    heard: dict[str, str] = {}
    for run, facts in told.items():
        kinds = Counter(fact["type"] for fact in facts)
        assert (kinds["run_started"], kinds["run_ended"]) == (1, 1), run
        for fact in facts:
            if fact["type"] == "child_ended":
                assert fact["child"] not in heard, f"run {fact['child']} was heard of twice"
                heard[fact["child"]] = fact["outcome"]["type"]
    children = {run: facts for run, facts in told.items() if facts[0].get("parent")}
    ended = {run: facts[-1]["status"] for run, facts in children.items()}
    assert heard == {run: {"completed": "succeeded"}.get(status, status) for run, status in ended.items()}
    assert found.commands == {}
