"""A flow that uses all that bodies can wait for, over two runs that follow each other; killed at a commit, finished by
another process.

It parks, races, answers a request, waits for children, and cancels two: one that waits and one that works. Each cleans
up. Every call appends a line to a file, and the referee compares these lines with the records.
"""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import refold.stores.sqlite.file as file
from refold import Context, Engine, flow, open_engine
from refold.core.state import TERMINAL
from refold.settings import Settings
from tests.crash.evidence import Evidence, read
from tests.crash.interrupted import CHECKPOINT_AT, TRUNCATE_AT, Figures, copied, live
from tests.crash.processes import emptied

QUICK = Settings(lease_for=3.0, sweep_every=0.05, poll=0.05)  # a slow machine loses no lease; a dead worker is seen
ROUNDS = 2
LINES = Path("lines")  # in the folder that the process works in


def note(text: str) -> str:
    descriptor = os.open(LINES, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, f"{text}\n".encode())
    os.close(descriptor)
    return text


working: set[int] = set()  # rounds whose body works in this process, behind its first call


@flow
async def kid(ctx: Context, number: str) -> str:
    await ctx.call(note, f"kid {number}")
    await ctx.sleep(0.01)
    return f"kid {number} is done"


@flow
async def waits(ctx: Context, turn: int) -> None:
    await ctx.call(note, f"reserve {turn}")
    try:
        await ctx.wait_for("never")
    finally:
        await ctx.call(note, f"refund {turn}")
        await ctx.sleep(0.01)
        await ctx.call(note, f"release {turn}")


@flow
async def works(ctx: Context, turn: int) -> None:
    await ctx.call(note, f"lock {turn}")
    try:
        working.add(turn)
        await asyncio.sleep(3600)
    finally:
        await ctx.call(note, f"unlock {turn}")


@flow
async def whole(ctx: Context, turn: int, before: list[Any]) -> list[Any]:
    await ctx.call(note, f"begin {turn}")
    winner = await ctx.first(paid=ctx.wait_for("paid"), late=ctx.sleep("1h"))
    asked = await ctx.next_request("price")
    await asked.reply(asked.value * 2)
    kids = await asyncio.gather(*(ctx.run_child(kid, number=f"{turn}.{n}") for n in range(2)))
    over = await ctx.first(
        enough=ctx.wait_for("enough"), waits=ctx.run_child(waits, turn=turn), works=ctx.run_child(works, turn=turn)
    )
    await ctx.call(note, f"end {turn}")
    seen = [*before, winner, asked.value, kids, over]
    if turn < ROUNDS:
        ctx.continue_with(turn=turn + 1, before=seen)
    return seen


def seen_in(turn: int) -> list[Any]:
    """What one run adds to the result."""
    return [("paid", 5), 21, [f"kid {turn}.{n} is done" for n in range(2)], ("enough", None)]


AT_ONCE = 3  # bodies that call at a time: the flow, and two children that clean up after their cancellation
TURNS = range(1, ROUNDS + 1)
EVERY_LINE = Counter(
    [f"{what} {turn}" for turn in TURNS for what in ("begin", "end", "reserve", "refund", "release", "lock", "unlock")]
    + [f"kid {turn}.{n}" for turn in TURNS for n in range(2)]
)


async def drive(engine: Engine) -> None:
    for each in (kid, waits, works):
        await engine.register(each)
    handle = await engine.options(key="whole").start(whole, turn=1, before=[])
    steering = asyncio.create_task(_steer(engine))
    try:
        assert await handle.result() == [value for turn in TURNS for value in seen_in(turn)]
    finally:
        steering.cancel()
    while [row for row in await engine.runs() if row.status not in TERMINAL]:
        await asyncio.sleep(0.005)  # children that clean up


async def _steer(engine: Engine) -> None:
    """Send what has not been sent, as far as the logs tell; from the second look on, when bodies wait."""
    while True:
        for row in await engine.runs(workflow="whole"):
            if row.status not in TERMINAL:
                await _steer_run(engine, row.run)
        await asyncio.sleep(0.005)


async def _steer_run(engine: Engine, run: str) -> None:
    told = [fact for _, _, fact in await engine.history(run)]
    names = [getattr(fact, "name", "") for fact in told if type(fact).__name__ == "SignalReceived"]
    turn = told[0].input["turn"]  # type: ignore[union-attr]
    if "paid" not in names:
        await engine.signal(run, "paid", 5)
    elif "request:price" not in names:
        await engine.request(run, "price", 21, id=f"price {turn}")
    elif "enough" not in names and turn in working and await _waits(engine, turn):
        await engine.signal(run, "enough")


async def _waits(engine: Engine, turn: int) -> bool:
    """Whether the child of this turn that waits has recorded its first call and is parked."""
    for row in await engine.runs(workflow="waits"):
        facts = [fact for _, _, fact in await engine.history(row.run)]
        if facts[0].input == {"turn": turn}:  # type: ignore[union-attr]
            return any(type(fact).__name__ == "StepSettled" for fact in facts)
    return False


def armed(folder: Path, arm: Callable[[], object] = lambda: None) -> Callable[[], None]:
    async def live_on() -> None:
        async with open_engine(db="refold.db", settings=QUICK) as engine:
            await drive(engine)

    def life() -> None:
        file.CHECKPOINT_AT, file.TRUNCATE_AT = CHECKPOINT_AT, TRUNCATE_AT
        os.chdir(folder)
        arm()
        asyncio.run(live_on())

    return life


def uninterrupted(folder: Path) -> Counter[tuple[str, str]]:
    emptied(folder)
    live(folder, armed(folder), 0)
    assert lines(folder) == EVERY_LINE
    return ends(read(folder / "refold.db"))


def interrupt(folder: Path, arm: Callable[[], object], expected: Counter[tuple[str, str]], figures: Figures) -> bool:
    """False if all was done before."""
    emptied(folder)
    if live(folder, armed(folder, arm), -signal.SIGKILL, 0) == 0:
        return False
    figures.kills += 1
    before, done = copied(folder), lines(folder)
    before.check()
    recorded = recorded_calls(before)
    live(folder, armed(folder), 0)  # checks the result
    after = read(folder / "refold.db")
    after.check()
    for run, log in before.logs.items():
        assert after.logs[run][: len(log)] == log, f"the log of {run} was changed"
    assert ends(after) == expected
    assert after.commands == {}
    again = lines(folder) - done
    assert not recorded & set(again), f"completed calls were made again: {recorded & set(again)}"
    assert set(lines(folder)) == set(EVERY_LINE), f"never made: {set(EVERY_LINE) - set(lines(folder))}"
    assert recorded_calls(after) == set(EVERY_LINE)
    twice = lines(folder) - EVERY_LINE
    unrecorded = Counter({text: count for text, count in done.items() if text not in recorded})
    assert twice <= unrecorded, f"made twice, though recorded or not begun at the kill: {twice - unrecorded}"
    repeated = twice.total()
    assert repeated <= AT_ONCE, "no more bodies than these call at a time"
    figures.bodies_repeated += repeated
    return True


def lines(folder: Path) -> Counter[str]:
    path = folder / LINES
    return Counter(path.read_text(encoding="utf-8").splitlines() if path.exists() else ())


def recorded_calls(found: Evidence) -> set[str]:
    """The texts of the calls that are recorded, from their keys: `...note("begin 1")`."""
    told = [fact.told() for log in found.logs.values() for fact in log]
    keys = [fact["key"] for fact in told if fact["type"] == "call_settled" and fact["key"].startswith("call/")]
    return {key.split('note("', 1)[1].removesuffix('")') for key in keys}


def ends(found: Evidence) -> Counter[tuple[str, str]]:
    """How many runs of each workflow have ended how."""
    counted: Counter[tuple[str, str]] = Counter()
    for run, state in found.states().items():
        workflow = found.plans[found.logs[run][0].told()["plan"]]
        name = next(each for each in ("kid", "waits", "works", "whole") if f'"{each}"'.encode() in workflow)
        counted[name, state.life] += 1
    return counted
