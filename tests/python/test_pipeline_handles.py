"""A pipeline in the hands of whoever has started it: what its runs show, ask and use comes through it."""

import asyncio
from pathlib import Path
from typing import Any

from refold import Context, Handle, Retry, RunCancelled, StartEvent, StopEvent, Workflow, flow, open_engine, step
from refold.stages import LoopStage, ParallelStage, Pipeline, Stage
from tests.cli.program import refold
from tests.python.house import SHORT, result, started
from tests.python.test_pipelines import after, double, told, waiting


@flow
async def shows(ctx: Context, value: int = 0) -> int:
    await ctx.publish(("seen", value))
    return value + 1


@flow
async def asks(ctx: Context, **inputs: Any) -> Any:
    return await ctx.ask("well?", id="r1", metadata=inputs)


async def asked(handle: Handle) -> Any:
    async with asyncio.timeout(60):
        while not (found := await handle.requests()):
            await asyncio.sleep(0.005)
    return found[0]


async def test_what_its_runs_show_comes_with_run_step_and_stage() -> None:
    inner = Pipeline("inner", [Stage("deep", shows)])
    pipeline = Pipeline(
        "p",
        [
            Stage("one", shows),
            ParallelStage("both", [Stage("a", shows), Stage("b", shows, input=lambda state: 10)]),
            LoopStage("loop", Stage("x", shows, input=lambda state: 20), until=lambda _, n: n == 2, max_rounds=5),
            Stage("inner", inner),
        ],
    )
    async with started(pipeline, value=1) as handle:
        shown = [each async for each in handle.stream()]
        done = await handle.result()
        of_children = [each for each in shown if each.step == "shows"]
        assert sorted((each.stage, each.value) for each in of_children) == [
            ("both::a", ("seen", 2)),
            ("both::b", ("seen", 10)),
            ("inner", ("seen", 21)),
            ("loop[1]", ("seen", 20)),
            ("loop[2]", ("seen", 20)),
            ("one", ("seen", 1)),
        ]
        assert {each.run for each in of_children if each.stage == "one"} == {done.stage("one").run}
        own = [each.value for each in shown if each.run == handle.id]
        assert [(each["stage"], each["number"], each["of"], each.get("round")) for each in own] == [
            ("one", 1, 4, None),
            ("both", 2, 4, None),
            ("loop", 3, 4, None),
            ("loop", 3, 4, 1),
            ("loop", 3, 4, 2),
            ("inner", 4, 4, None),
        ]
        alone = [each.value async for each in handle.stream(children=False)]
        assert alone == own


async def test_a_question_of_a_run_is_one_of_the_pipeline_and_its_answer_gets_there() -> None:
    pipeline = Pipeline("p", [Stage("a", asks), Stage("b", told)])
    async with started(pipeline, x=1) as handle:
        request = await asked(handle)
        assert (request.id, request.prompt, request.metadata) == ("r1", "well?", {"x": 1})
        await handle.answer("r1", {"said": (1, 2)})
        assert (await asyncio.wait_for(handle.result(), 60)).output == {"said": (1, 2)}


async def test_totals_are_exact_with_tries_and_losers() -> None:
    tries: list[int] = []

    @step(retry=Retry(attempts=3))
    async def only(ctx: Context, ev: StartEvent) -> StopEvent:
        tries.append(1)
        ctx.usage(tokens=5)
        if len(tries) < 3:
            raise ConnectionError("away")
        return StopEvent(result=1)

    spent = asyncio.Event()

    class Loses(Workflow):
        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent | None:
            ctx.usage(tokens=1000)
            await ctx.run_child(spends)
            await ctx.sleep("1h")
            return StopEvent()

    @flow
    async def spends(ctx: Context) -> None:
        ctx.usage(tokens=70)

    @flow
    async def wins(ctx: Context, **inputs: Any) -> None:
        await asyncio.wait_for(spent.wait(), 60)
        ctx.usage(tokens=3)

    race = ParallelStage("race", [Stage("loses", Loses), Stage("wins", wins)], join="first")
    async with started(Pipeline("p", [Stage("a", Workflow("flaky", [only])), race])) as handle:
        async with asyncio.timeout(60):
            while (await handle.usage()).get("tokens") != 15 or "wins" not in await labels(handle):
                await asyncio.sleep(0.01)
            loser = (await labels(handle))["loses"]
            while not (await handle.engine.show(loser)).state.usage:
                await asyncio.sleep(0.01)
        spent.set()
        done = await asyncio.wait_for(handle.result(), 60)
        assert done.stage("a").usage == {"tokens": 15}
        assert await handle.usage() == {"tokens": 15 + 70 + 3}
        assert done.stage("race").usage == {"tokens": 73}


async def labels(handle: Handle) -> dict[str, str]:
    children = (await handle.engine.show(handle.id)).state.children
    return {owner.rpartition("::")[2]: run for owner, run in children.items()}


async def test_a_pipeline_reports_which_stage_it_has_reached() -> None:
    pipeline = Pipeline("p", [Stage("a", told), Stage("b", asks), Stage("c", told)])
    async with started(pipeline) as handle:
        await asked(handle)
        at = await handle.progress()
        assert at is not None
        assert (at.number, at.of, at.name, at.done) == (2, 3, "b", 1)
        assert round(at.percent) == 33
        assert at.runs == tuple((await labels(handle)).values()) and len(at.runs) == 1
        await handle.answer("r1", 1)
        await asyncio.wait_for(handle.result(), 60)
        at = await handle.progress()
        assert at is not None
        assert (at.number, at.name, at.percent, at.runs) == (3, "c", 100, ())


async def test_no_other_workflow_has_stages() -> None:
    async with started(told) as handle:
        await handle.result()
        assert await handle.progress() is None


async def test_cancelling_a_pipeline_really_cancels_the_runs_it_has_started() -> None:
    marks: list[str] = []
    async with started(Pipeline("p", [Stage("a", waiting(marks)), Stage("b", told)])) as handle:
        async with asyncio.timeout(60):
            while not marks:
                await asyncio.sleep(0.005)
        await handle.cancel("enough")
        try:
            await asyncio.wait_for(handle.result(), 60)
        except RunCancelled:
            assert await after(marks) == ["begun", "cleaned up"]
        else:
            raise AssertionError("it was not cancelled")


async def test_pausing_a_pipeline_pauses_the_runs_it_has_started() -> None:
    async with started(Pipeline("p", [Stage("a", asks), Stage("b", double)])) as handle:
        await asked(handle)
        await handle.pause()
        [child] = (await labels(handle)).values()
        async with asyncio.timeout(60):
            while (await handle.engine.show(child)).status != "paused":  # type: ignore[attr-defined]
                await asyncio.sleep(0.01)
        await handle.answer("r1", 4)
        await asyncio.sleep(0.1)
        at = await handle.progress()
        assert at is not None and at.name == "a"
        await handle.resume()
        assert (await asyncio.wait_for(handle.result(), 60)).output == 8


async def test_a_handle_is_found_again_and_another_pipeline_is_refused() -> None:
    pipeline = Pipeline("p", [Stage("a", asks)])
    async with open_engine(settings=SHORT) as engine:
        first = await engine.options(key="once").start(pipeline)
        again = await engine.options(key="once").start(pipeline)
        assert first.id == again.id
        await asked(again)
        handle = await engine.attach(first.id, Pipeline("p", [Stage("a", asks)]))
        await handle.answer("r1", 5)
        assert (await asyncio.wait_for(first.result(), 60)).output == 5


async def test_a_large_output_goes_through() -> None:
    @flow
    async def large(ctx: Context) -> dict[str, str]:
        return {"text": "x" * 300_000}

    done = await result(Pipeline("p", [Stage("a", large), Stage("b", told)]))
    assert len(done.output["text"]) == 300_000


MODULE = """
from refold import flow
from refold.stages import ParallelStage, Pipeline, Stage

@flow
async def double(ctx, value):
    return value * 2

@flow
async def told(ctx, **inputs):
    return inputs

pipeline = Pipeline("grow", [Stage("first", double), ParallelStage("both", [Stage("a", double), Stage("b", told)])])
"""


def test_it_is_run_and_drawn_by_name(tmp_path: Path) -> None:
    tmp_path.joinpath("shop.py").write_text(MODULE, encoding="utf-8")
    done = refold(tmp_path, "run", "shop:pipeline", "-i", "value=3", "--quiet")
    assert done.code == 0, done.err
    assert '"a": 12' in done.out and "$refold" not in done.out
    drawing = refold(tmp_path, "graph", "shop:pipeline").out
    assert [name for name in ("StartEvent", "first", "both", "first is done") if name not in drawing] == []
    refused = refold(tmp_path, "run", "shop:Pipeline")
    assert (refused.code, "a pipeline needs a name" in refused.err) == (2, True), refused.err
