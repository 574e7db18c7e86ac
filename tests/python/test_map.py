"""`ctx.map`: steps, workflows and functions over lists, iterators and sources, with policies for those that fail."""

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from refold import Context, Retry, StartEvent, StopEvent, SyncContext, Workflow, flow, open_engine, step
from refold.core.facts import ItemsIssued, RunStarted
from refold.errors import ChildFailed, InvalidValue, StepFailed
from tests.python.house import SHORT, error, result
from tests.python.mapped import Number, Squared, Squares, double, later, numbers


async def test_a_step_is_run_for_each_event_and_gives_its_events_back_in_order() -> None:
    assert await result(Squares, count=10) == [n * n for n in range(10)]


async def test_the_window_bounds_how_many_run_at_once() -> None:
    seen = {"now": 0, "most": 0}

    class Counted(Workflow):
        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.map(self.one, [Number(n=n) for n in range(12)], max_in_flight=3)
            return StopEvent()

        @step(mapped=True)
        async def one(self, ev: Number) -> Squared:
            seen["now"] += 1
            seen["most"] = max(seen.values())
            await asyncio.sleep(0.01)
            seen["now"] -= 1
            return Squared(n=0)

    await result(Counted)
    assert seen == {"now": 0, "most": 3}


async def test_each_item_can_be_a_run_of_its_own_with_lineage_and_usage() -> None:
    @flow
    async def doubled(ctx: Context) -> Any:
        return await ctx.map(double, [{"n": n} for n in range(4)])

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(doubled)
        assert await handle.result() == [0, 2, 4, 6]
        assert await handle.usage() == {"calls": 4}
        runs = {each.run: each.parent for each in engine.store.views.runs(limit=10).rows}
        [mapped] = [run for run, parent in runs.items() if parent == handle.id]
        assert sorted(runs.values()) == sorted(["", handle.id, *[mapped] * 4])


async def test_items_that_are_no_events_or_inputs_are_refused_by_number() -> None:
    class Wrong(Workflow):
        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.map(self.one if ev.step else double, [{"n": 1}, 2] if not ev.step else [Squared(n=1)])
            return StopEvent()

        @step(mapped=True)
        async def one(self, ev: Number) -> Squared:
            return Squared(n=ev.n)

    assert "item 1" in str(await error(Wrong, step=False)) and "not a map" in str(await error(Wrong, step=False))
    assert "takes Number, not Squared" in str(await error(Wrong, step=True))


async def test_an_item_that_fails_fails_the_map_when_all_are_through() -> None:
    ran = list[int]()

    class Failing(Workflow):
        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
            try:
                await ctx.map(self.one, [Number(n=n) for n in range(4)])
            except ChildFailed as failed:
                return StopEvent(result=str(failed))
            return StopEvent()

        @step(mapped=True)
        async def one(self, ev: Number) -> Squared:
            ran.append(ev.n)
            return Squared(n=1 // ev.n)

    assert await result(Failing) == "one: 1 of 4 items failed: 0"
    assert sorted(ran) == [0, 1, 2, 3]


async def test_what_is_tolerated_is_told_with_the_results() -> None:
    class Tolerant(Workflow):
        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
            got = await ctx.map(self.one, [Number(n=n) for n in range(4)], tolerate="25%")
            told = [each["status"] for each in got.items]
            return StopEvent(result=[got[0], [each.n for each in got[1:]], got.failed, told])

        @step(mapped=True)
        async def one(self, ev: Number) -> Squared:
            return Squared(n=6 // ev.n)

    told = ["failed", "completed", "completed", "completed"]
    assert await result(Tolerant) == [None, [6, 3, 2], [0], told]


async def test_retries_and_order_are_those_of_the_call() -> None:
    order, tries = list[int](), Counter[int]()

    class Ordered(Workflow):
        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.options(retry=Retry(attempts=2)).map(
                self.one,
                [Number(n=2), Number(n=1), Number(n=0)],
                item_key="n",
                after=lambda item: [item.n - 1] if item.n else [],
            )
            return StopEvent()

        @step(mapped=True)
        async def one(self, ev: Number) -> Squared:
            tries[ev.n] += 1
            if tries[ev.n] == 1:
                raise ConnectionError("away")
            order.append(ev.n)
            return Squared(n=ev.n)

    await result(Ordered)
    assert (order, tries) == ([0, 1, 2], {0: 2, 1: 2, 2: 2})


async def test_a_source_a_generator_and_iterators_give_items() -> None:
    class Pulled(Workflow):
        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
            source = {"kind": "list", "items": [{"n": 5}, {"n": 6}]}
            pulled = await ctx.map(self.one, source, page=1)
            made = await ctx.map(self.one, numbers)
            awaited = await ctx.map(double, later())
            given = await ctx.options(key="given").map(double, iter([{"n": 1}]))
            return StopEvent(result=[[e.n for e in pulled], [e.n for e in made], list(awaited), list(given)])

        @step(mapped=True)
        async def one(self, ev: Number) -> Squared:
            return Squared(n=ev.n * ev.n)

    assert await result(Pulled) == [[25, 36], [0, 1, 4, 9, 16, 25, 36], [0, 2, 4, 6, 8], [2]]


async def test_durable_calls_inside_an_item_are_made_once() -> None:
    made = Counter[int]()

    def charge(n: int) -> int:
        made[n] += 1
        if made[n] > 3:
            raise ValueError("it is made again and again")
        return n

    class Charging(Workflow):
        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
            return StopEvent(result=[each.n for each in await ctx.map(self.one, [Number(n=n) for n in range(3)])])

        @step(mapped=True)
        async def one(self, ctx: Context, ev: Number) -> Squared:
            charged = await ctx.call(charge, ev.n)
            await ctx.sleep(0.01)
            return Squared(n=charged)

    class Starting(Workflow):
        """Its item has no `async`, so it starts over behind each wait."""

        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
            return StopEvent(result=[each.n for each in await ctx.map(self.one, [Number(n=n) for n in range(3)])])

        @step(mapped=True)
        def one(self, ctx: SyncContext, ev: Number) -> Squared:
            charged = ctx.call(charge, ev.n)
            ctx.sleep(0.01)
            return Squared(n=charged)

    for workflow in (Charging, Starting):
        made.clear()
        assert await result(workflow) == [0, 1, 2]
        assert made == {0: 1, 1: 1, 2: 1}


async def test_an_item_that_writes_to_the_context_says_why_not() -> None:
    class Writing(Workflow):
        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
            return StopEvent(result=await ctx.map(self.one, [Number(n=0)], tolerate=1))

        @step(mapped=True)
        async def one(self, ctx: Context, ev: Number) -> Squared:
            ctx.set("n", ev.n)
            return Squared(n=0)

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(Writing)
        await handle.result()
        lost = [each for each in engine.store.views.dead() if each.kind == "context"]
        assert len(lost) == 1 and "return what is to be kept" in lost[0].message


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"windows": 3}, "there is no option windows"),
        ({"max_in_flight": 0}, "at least 1"),
        ({"on_item_error": "stop"}, "is none of continue"),
        ({"after": "needs"}, "need an `item_key`"),
    ],
)
async def test_options_that_mean_nothing_are_refused_by_name(how: Any, said: str) -> None:
    @flow
    async def mapped(ctx: Context) -> Any:
        return await ctx.map(double, [], **how)

    caught = await error(mapped)
    assert isinstance(caught, StepFailed) and isinstance(caught.__cause__, InvalidValue) and said in str(caught)


async def test_a_plain_function_may_fail_for_some_items_too() -> None:
    @flow
    async def mapped(ctx: Context) -> Any:
        got = await ctx.map(lambda n: 6 // n, [1, 0, 2], tolerate=1)
        return [list(got), got.failed]

    assert await result(mapped) == [[6, None, 3], [1]]


def run_in(folder: Path, run: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "tests.python.mapped", run]
    home = Path(__file__).parents[2]
    env = {"PYTHONPATH": f"{home / 'src'}:{home}", "PATH": "/usr/bin:/bin"}
    return subprocess.run(program, cwd=folder, env=env, capture_output=True, text=True, timeout=100)


def test_killed_in_the_midst_of_a_map_it_goes_on_with_what_was_not_done(tmp_path: Path) -> None:
    (tmp_path / "die").touch()
    assert run_in(tmp_path, "r").returncode == -signal.SIGKILL
    (tmp_path / "die").unlink()
    went_on = run_in(tmp_path, "r")
    assert went_on.stdout.strip() == str(list(range(20))), went_on.stderr
    marks = Counter((tmp_path / "marks").read_text(encoding="utf-8").split())
    assert marks.keys() == {str(n) for n in range(20)} and marks["11"] == 2
    assert sum(marks.values()) <= 22  # the two that were in flight


def test_killed_behind_a_durable_call_of_an_item_it_does_not_make_the_call_again(tmp_path: Path) -> None:
    (tmp_path / "die").touch()
    assert run_in(tmp_path, "charged").returncode == -signal.SIGKILL
    before = (tmp_path / "marks").read_text(encoding="utf-8").split()
    (tmp_path / "die").unlink()
    went_on = run_in(tmp_path, "charged")
    assert went_on.stdout.strip() == str(list(range(5))), went_on.stderr
    after = (tmp_path / "marks").read_text(encoding="utf-8").split()
    assert after.count("3") == 1 and set(after) == set("01234") and after[: len(before)] == before


async def test_what_was_mapped_is_a_run_with_items_like_any_other() -> None:
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(Squares, count=3)
        await handle.result()
        [mapped] = [each.run for each in engine.store.views.runs(limit=9).rows if each.parent == handle.id]
        facts = [fact for _, _, fact in engine.store.facts(mapped)]
        assert isinstance(facts[0], RunStarted) and facts[0].parent is not None
        assert ItemsIssued("square", 1, 0, 3) in facts
