"""A run that waits for others is carried with them, wherever they stand and whatever is on its way between them."""

import asyncio
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from refold import Context, Handle, flow, open_engine
from refold.core.commands import LetterStart, child_id
from refold.core.expressions import Values, unknown
from refold.core.graph import prepare
from refold.core.plan import Child, Plan, Step, Wait, canonical, plan_hash
from refold.errors import Conflict
from refold.runtime.archive import export_run, import_run
from refold.runtime.mail import Start
from refold.runtime.turn import Delivery, Turns
from refold.stages import LoopStage, ParallelStage, Pipeline, Stage
from tests.contracts.stores import FakeClock, opened
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


def test_the_letter_that_starts_a_child_is_unread_there_as_it_was_here(tmp_path: Path) -> None:
    kid = Plan(name="kid", steps=(Step(name="w", work=Wait(signal="go")),))
    above = Plan(name="above", steps=(Step(name="kid", work=Child(plan=plan_hash(kid))),))
    child, ids = child_id("r", "kid/1"), count()
    with opened("memory", tmp_path, FakeClock()) as here, opened("sqlite", tmp_path, FakeClock()) as there:
        for store in (here, there):
            store.put_plan(plan_hash(kid), canonical(kid))
        turns = Turns(here, Values(), lambda: 0.5, lambda: f"turn{next(ids)}")
        turns.commit([Delivery("r", Start(prepare(above)))])
        import_run(there, export_run(here, "r", {}), Values(), unknown, lambda: f"id{next(ids)}")
        with here.turn([child]) as turn:
            sent = list(turn.letters(child))
        with there.turn([child]) as turn:
            assert list(turn.letters(child)) == sent
        assert [type(letter.body) for letter in sent] == [LetterStart]


async def test_a_child_is_not_carried_without_its_parent() -> None:
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(pipeline())
        await asked(handle, 2)
        at = await handle.progress()
        assert at is not None
        with pytest.raises(Conflict, match=f"belongs to run {handle.id}: export that one"):
            await engine.export(at.runs[0])
