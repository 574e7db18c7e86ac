"""What is computed once is handed on: plans, inputs of items, and runs that have just ended."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from refold import Engine, Event, StartEvent, StopEvent, Workflow, flow, step
from refold.core import graph as prepared
from refold.core import plan as plans
from refold.core.expressions import TemplateScope, Values
from refold.core.fold.apply import Record
from refold.core.graph import analyse
from refold.core.plan import Call, Child, Loop, Plan, Step, read_plan
from refold.core.read.summary import Summary
from refold.ports import ToolCall
from refold.queries import reading
from refold.runtime import run_waiters
from refold.settings import Settings
from refold.stores.memory import MemoryStore, MemoryTurn
from refold.wiring import open_engine
from refold.wiring.world import wall

LARGE = "x" * 1_000_000


class CountingStore(MemoryStore):
    """Counts what is read of the logs and values of runs."""

    def __init__(self) -> None:
        super().__init__(wall)
        self.reads: list[str] = []
        self.looks: list[str] = []  # at rows of runs, and turns that write nothing

    def facts(self, run: str, after: int = 0, limit: int | None = None) -> Sequence[Record]:
        self.reads.append("facts")
        return super().facts(run, after, limit)

    def summary(self, run: str) -> Summary | None:
        self.looks.append("summary")
        return super().summary(run)

    @contextmanager
    def turn(self, runs: Sequence[str]) -> Iterator[MemoryTurn]:
        before = sum(len(self.logs.get(run, ())) for run in runs)
        with super().turn(runs) as turn:
            blob, facts = turn.blob, turn.facts

            def counted_blob(run: str, hash: str) -> bytes:
                self.reads.append("blob")
                return blob(run, hash)

            def counted_facts(run: str, after: int = 0) -> Sequence[Record]:
                self.reads.append("facts")
                return facts(run, after)

            turn.blob, turn.facts = counted_blob, counted_facts  # type: ignore[method-assign]
            yield turn
        if runs and before == sum(len(self.logs.get(run, ())) for run in runs):
            self.looks.append("turn")  # a turn that was opened only to read


class Second(Event):
    v: int


class CountingLanguage(Values):
    """Counts how often each template is rendered."""

    def __init__(self) -> None:
        self.rendered: list[Any] = []

    def value(self, template: Any, view: TemplateScope) -> Any:
        self.rendered.append(template)
        return super().value(template, view)


async def large(call: ToolCall) -> Any:
    return LARGE


async def test_a_plan_is_decoded_once_and_analysed_once_for_all_of_its_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, as_stored = {"decoded": 0, "analysed": 0}, plans._as_stored

    def counted_analysis(plan: Plan) -> Any:
        counts["analysed"] += 1
        return analyse(plan)

    def counted_decoding(data: bytes) -> Plan:
        counts["decoded"] += 1
        return read_plan(data)

    def counted_normalising(plan: Plan) -> Plan:
        counts["decoded"] += 1
        return as_stored(plan)

    monkeypatch.setattr(prepared, "analyse", counted_analysis)
    monkeypatch.setattr(reading, "read_plan", counted_decoding)
    monkeypatch.setattr(plans, "_as_stored", counted_normalising)
    plan = Plan(name="p", steps=(Step(name="a"),))
    async with open_engine() as engine:
        await engine.register(plan)
        for _ in range(3):
            await engine.run(plan)
    assert counts == {"decoded": 1, "analysed": 1}


@pytest.mark.parametrize("works", [Call(), Child()], ids=["a tool", "a child run"])
async def test_the_input_of_an_item_is_rendered_once(works: Call | Child) -> None:
    language = CountingLanguage()
    child = Plan(name="child", steps=(Step(name="b"),))
    async with open_engine(evaluate=language) as engine:
        work = works if isinstance(works, Call) else Child(plan=await engine.register(child))
        await engine.run(Plan(name="p", steps=(Step(name="a", work=work, loop=Loop(items=[1, 2, 3]), input={"n": 1}),)))
    assert language.rendered.count({"n": 1}) == 3


@pytest.mark.parametrize("written_as", ["a plan", "a workflow"])
async def test_a_run_that_has_just_ended_is_not_read_back(written_as: str) -> None:
    store = CountingStore()

    @flow
    async def whole(ctx: Any) -> str:
        return LARGE

    workflow: Any = (
        Plan(name="p", steps=(Step(name="a", work=Call(tool="large")),)) if written_as == "a plan" else whole
    )
    async with open_engine({"large": large}, store=store) as engine:
        assert await engine.run(workflow) == LARGE
        run = getattr(await engine.start(workflow), "id", "") or (await engine.runs())[0].run
        assert (await engine.wait(run)).result == LARGE
        assert await engine.result(run) == LARGE
    assert store.reads == []


class Steps(Workflow[int]):
    @step
    async def first(self, ev: StartEvent) -> Second:
        return Second(v=1)

    @step
    async def second(self, ev: Second) -> StopEvent:
        return StopEvent(result=ev.v)


async def test_the_memory_of_a_body_comes_with_its_claim_and_an_open_run_is_waited_for_without_a_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_waiters, "SOON", 3600.0)  # no run takes so long that a look is due
    store = CountingStore()

    async def one(engine: Engine) -> int:
        handle = await engine.start(Steps)
        return await handle.result()

    async with open_engine(store=store, settings=Settings(slots=2, poll=3600.0)) as engine:
        assert await asyncio.gather(*(one(engine) for _ in range(20))) == [1] * 20
        assert store.looks == []


async def test_a_run_that_was_reopened_is_not_taken_for_the_one_that_had_ended() -> None:
    store, fails = CountingStore(), [True]

    async def flaky(call: ToolCall) -> Any:
        if fails.pop():
            raise ValueError("not yet")
        return "done"

    async with open_engine({"flaky": flaky}, store=store) as engine:
        handle: Any = await engine.start(Plan(name="p", steps=(Step(name="a", work=Call(tool="flaky")),)))
        run = getattr(handle, "id", handle)
        assert (await engine.wait(run)).status == "failed"
        fails.append(False)
        await engine.retry(run)
        assert (await engine.show(run)).status != "failed"
        assert (await engine.wait(run)).result == "done"


def test_a_plan_runs_without_the_reader_of_playbooks() -> None:
    code = """
import asyncio, sys
from refold import open_engine
from refold.plan import Plan, Step

async def run() -> None:
    async with open_engine() as engine:
        await engine.run(Plan(name="p", steps=(Step(name="a"),)))

asyncio.run(run())
print([name for name in sys.modules if name.startswith("refold.playbooks")])
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
