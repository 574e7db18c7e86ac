"""A workflow with every construct, its bodies with their side effects, and a process that drives it to its end."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from refold.core.facts import GateDecided, SignalReceived, StepIssued
from refold.core.outcomes import AddTo, AppendTo, Awaited, DeleteKey, Parked, SetKey, Succeeded, Suspended
from refold.core.plan import Arc, Call, Child, Gate, Loop, Plan, Retry, Step, Wait, plan_hash
from refold.errors import Conflict, NotFound, Unavailable
from refold.ports import Done, ToolCall
from refold.runtime.engine import Engine
from refold.runtime.turn import Delivery, TurnResult
from refold.settings import Settings
from refold.testing.core import Scripted
from refold.wiring import Process, open_process

MOMENT = 10_000  # microseconds
KEY = "reference"
QUICK = Settings(lease_for=0.3, sweep_every=0.05, poll=0.05, slots=4)

CHILD = Plan(
    name="child",
    steps=(
        Step(name="one", work=Call(tool="plain"), arcs=(Arc(to="two"),)),
        Step(name="two", work=Call(tool="plain"), input={"path": ["one"]}),
    ),
)

REFERENCE = Plan(
    name="reference",
    timeout=600.0,
    always=("tidy",),
    steps=(
        Step(
            name="begin",
            work=Call(tool="plain"),
            mode="inclusive",
            arcs=(Arc(to="left"), Arc(to="right"), Arc(to="never", when={"script": [False]})),
        ),
        Step(
            name="left",
            work=Call(tool="flaky"),
            retry=Retry(attempts=3, delay=0.01),
            set={"ctx.left": {"path": ["left"]}},
            arcs=(Arc(to="join"),),
        ),
        Step(name="right", work=Child(plan=plan_hash(CHILD)), input={"n": 1}, arcs=(Arc(to="join"),)),
        Step(name="never", work=Call(tool="plain"), arcs=(Arc(to="join"),)),
        Step(name="join", work=Call(tool="writes"), arcs=(Arc(to="head"),)),
        Step(name="head", work=Call(tool="adds"), arcs=(Arc(to="turn"),)),
        Step(
            name="turn",
            work=Call(tool="plain"),
            arcs=(Arc(to="head", when={"script": [True, True, False]}), Arc(to="items")),
        ),
        Step(
            name="items",
            work=Call(tool="counts"),
            loop=Loop(items=[0, 1, 2, 3, 4], max_in_flight=3),
            input={"path": ["item"]},
            retry=Retry(attempts=2, delay=0.01),
            arcs=(Arc(to="nap"),),
        ),
        Step(name="nap", work=Wait(seconds=0.01), arcs=(Arc(to="ask"),)),
        Step(name="ask", work=Wait(signal="go"), arcs=(Arc(to="gate"),)),
        Step(name="gate", work=Gate(), arcs=(Arc(to="parked"),)),
        Step(name="parked", work=Call(tool="parks"), arcs=(Arc(to="suspended"),)),
        Step(name="suspended", work=Call(tool="suspends"), arcs=(Arc(to="late"),)),
        Step(
            name="late",
            work=Call(tool="hangs_once"),
            timeout=0.1,
            retry=Retry(attempts=9, delay=0.01),
            arcs=(Arc(to="guarded"),),
        ),
        Step(name="guarded", when={"script": [False]}, work=Call(tool="plain"), arcs=(Arc(to="sum"),)),
        Step(name="sum", input={"total": {"path": ["ctx", "total"]}, "order": {"path": ["ctx", "order"]}}),
        Step(name="tidy", work=Call(tool="plain")),
    ),
)

RESULT = {"total": 10 + 3, "order": [0, 1, 2, 3, 4]}


class Diary:
    """A line appended in one system call is there whatever happens to the process next."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, *words: object) -> None:
        os.write(self._descriptor, ("\t".join(map(str, words)) + "\n").encode())


class Bodies:
    """Each body notes that it began before it does anything."""

    def __init__(self, folder: Path) -> None:
        self.effects = Diary(folder / "effects")

    def tools(self) -> dict[str, Callable[[ToolCall], Awaitable[Any]]]:
        names = ("plain", "flaky", "writes", "adds", "counts", "parks", "suspends", "hangs_once")
        return {name: self._noted(getattr(self, name)) for name in names}

    def _noted(self, tool: Callable[[ToolCall], Awaitable[Any]]) -> Callable[[ToolCall], Awaitable[Any]]:
        async def noted(call: ToolCall) -> Any:
            self.effects.note(time.time_ns() // 1000, os.getpid(), call.run, call.command.id, call.command.attempt)
            return await tool(call)

        return noted

    async def plain(self, call: ToolCall) -> Any:
        return call.input

    async def flaky(self, call: ToolCall) -> Any:
        if call.command.attempt == 1:
            raise RuntimeError("flaky")
        return "left"

    async def writes(self, call: ToolCall) -> Any:
        return Done(Succeeded("joined"), writes=(SetKey("kept", [1, "two"]), SetKey("gone", 1), DeleteKey("gone")))

    async def adds(self, call: ToolCall) -> Any:
        return Done(Succeeded(call.command.visit), writes=(AddTo("total", 1),))

    async def counts(self, call: ToolCall) -> Any:
        if call.input == 3 and call.command.attempt == 1:
            raise RuntimeError("flaky")
        writes = (AddTo("total", call.input), AppendTo("order", call.input))
        return Done(Succeeded(call.input), writes=writes, usage={"calls": 1})

    async def parks(self, call: ToolCall) -> Any:
        if call.command.progress is None:
            return Parked(until=time.time_ns() // 1000 + MOMENT, progress={"half": True})
        return call.command.progress

    async def suspends(self, call: ToolCall) -> Any:
        calls = (
            Awaited("nap", until=time.time_ns() // 1000 + MOMENT),
            Awaited("kid", child=plan_hash(CHILD), input={"n": 2}),
        )
        if all(call.command.recorded.get(each.key) for each in calls):
            return sorted(call.command.recorded)
        return Suspended(tuple(each for each in calls if each.key not in call.command.recorded))

    async def hangs_once(self, call: ToolCall) -> Any:
        if call.command.attempt == 1:
            await asyncio.sleep(3600.0)
        return "in time"


class Witness:
    """Notes what this process was told is done: the facts it could read when a turn of its own had succeeded.

    `complain` gets what kept a turn from being taken.
    """

    def __init__(
        self, process: Process, tell: Callable[[str, int], object], complain: Callable[[str], object] = lambda why: None
    ) -> None:
        self.store, self.tell = process.engine.store, tell
        self.seen: dict[str, int] = {}
        turns = process.desk.mailroom.turns
        commit = turns.commit

        def watched(posts: list[Delivery], *offer: Any) -> TurnResult:
            turned = commit(posts, *offer)
            for run in sorted({post.run for post in posts if post.error is None}):
                self._look(run)
            for why in {str(post.error) for post in posts if isinstance(post.error, Unavailable)}:
                complain(why)
            return turned

        turns.commit = watched  # type: ignore[method-assign, assignment]

    def _look(self, run: str) -> None:
        before = self.seen.get(run, 0)
        now = before + len(self.store.facts(run, before))
        if now > before:
            self.seen[run] = now
            self.tell(run, now)


async def drive(engine: Engine) -> None:
    """What a person does, who may come back after a crash and does not remember what was done."""
    await engine.register(CHILD)
    run = (await engine.options(key=KEY).start(REFERENCE, {"n": 1})).id
    answering = asyncio.create_task(_answer(engine, run))
    try:
        shown = await engine.wait(run)
        assert shown.status == "completed", shown
    finally:
        answering.cancel()


async def _answer(engine: Engine, run: str) -> None:
    while True:
        facts = [fact for _, _, fact in await engine.history(run)]
        asked = {fact.step for fact in facts if isinstance(fact, StepIssued)}
        try:
            if "ask" in asked and not any(isinstance(fact, SignalReceived) for fact in facts):
                await engine.signal(run, "go", 1)
            if "gate" in asked and not any(isinstance(fact, GateDecided) for fact in facts):
                await engine.decide(run, "gate", "approve", by="ann")
        except (Conflict, NotFound, Unavailable):
            continue
        await asyncio.sleep(0.005)


def work(folder: Path, tell: Callable[[str, int], object] | None = None, settings: Settings = QUICK) -> None:
    """The whole life of a process: open the file, run the reference workflow to its end, close."""

    async def live() -> None:
        db, acks, failures = folder / "refold.db", Diary(folder / "acks"), Diary(folder / "failures")
        async with open_process(Bodies(folder).tools(), evaluate=Scripted(), db=db, settings=settings) as process:
            Witness(process, tell if tell is not None else acks.note, failures.note)
            await drive(process.engine)

    asyncio.run(live())
