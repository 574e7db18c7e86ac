"""A run that waits for others is carried with them, wherever they stand and whatever is on its way between them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from refold import Context, Handle, LoopStage, ParallelStage, Pipeline, Stage, flow, open_engine
from refold.errors import Conflict
from tests.python.house import SHORT


@flow
async def asks(ctx: Context, id: str, folder: Any = None) -> Any:
    ctx.usage(asked=1)
    return await ctx.ask("well?", id=id)


@flow
async def between(ctx: Context, id: str) -> Any:
    return await ctx.run_child(asks, id=id)


@flow
async def at_once(ctx: Context, id: str) -> str:
    ctx.usage(tokens=1)
    return id


def pipeline() -> Pipeline:
    both = ParallelStage(
        "both",
        [
            Stage("deep", between, input=lambda state: {"id": "deep"}),
            Stage("flat", asks, input=lambda state: {"id": "flat"}),
            Stage("done", at_once, input=lambda state: {"id": "done"}),
        ],
    )
    loop = LoopStage(
        "loop",
        Stage("s", at_once, input=lambda state: {"id": "x"}),
        until=lambda state, n: n == 2,
        max_rounds=3,
    )
    return Pipeline("carried", [both, loop])


async def asked(handle: Handle, count: int) -> list[str]:
    async with asyncio.timeout(60):
        while len(found := await handle.requests()) < count:
            await asyncio.sleep(0.005)
    return sorted(each.id for each in found)


@pytest.mark.parametrize("where", ["memory", "file"])
async def test_a_pipeline_continues_in_another_process_inside_its_stage(tmp_path: Path, where: str) -> None:
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(pipeline())
        assert await asked(handle, 2) == ["deep", "flat"]
        await handle.pause()
        data = await handle.export()
    async with open_engine(db=tmp_path / "refold.db" if where == "file" else None, settings=SHORT) as engine:
        handle = await engine.attach(await engine.restore(data), pipeline())
        assert await asked(handle, 2) == ["deep", "flat"]
        await handle.answer("flat", "F")
        await handle.answer("deep", "D")
        await handle.resume()
        done = await asyncio.wait_for(handle.result(), 60)
        assert done.stage("both").output == {"deep": "D", "flat": "F", "done": "done"}
        assert await handle.usage() == {"tokens": 3, "asked": 2}
        assert all(0 <= each.duration < 60 for each in done.stages)
        with pytest.raises(Conflict, match="is here already"):
            await engine.restore(data)


async def test_letters_that_nobody_has_read_go_along() -> None:
    """A child is started by a letter: exported at any moment, it is begun here or there."""
    for n in range(20):
        async with open_engine(settings=SHORT) as engine:
            handle = await engine.start(pipeline())
            for _ in range(n):
                await asyncio.sleep(0)
            data = await handle.export()
        async with open_engine(settings=SHORT) as engine:
            handle = await engine.attach(await engine.restore(data), pipeline())
            assert await asked(handle, 2) == ["deep", "flat"]


async def test_a_child_is_not_carried_without_its_parent() -> None:
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(pipeline())
        await asked(handle, 2)
        at = await handle.progress()
        assert at is not None
        with pytest.raises(Conflict, match=f"belongs to run {handle.id}: export that one"):
            await engine.export(at.runs[0])
