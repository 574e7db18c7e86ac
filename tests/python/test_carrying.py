"""A run as text: carried to another store with everything that waits in it, or refused by name."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from refold import Collect, Context, Event, StartEvent, StopEvent, Workflow, open_engine, step
from refold.errors import Conflict, InvalidValue, NotFound
from tests.python.house import SHORT, Done, Page, until


class Blob(Event):
    text: str


class Carried(Workflow):
    """Three pages, one after the other; the first waits."""

    seen: list[Any]
    hold: asyncio.Event

    def __init__(self) -> None:
        super().__init__()
        self.seen = []
        self.hold = asyncio.Event()

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> list[Page | Blob]:
        return [*(Page(n=n) for n in range(3)), Blob(text="x" * 100_000)]

    @step(workers=1)
    async def fetch(self, ctx: Context, ev: Page) -> Done:
        self.seen.append(ev.n)
        await self.hold.wait()
        return Done(n=ev.n)

    @step
    async def big(self, ctx: Context, ev: Blob) -> Done:
        await ctx.wait_for("big")
        return Done(n=len(ev.text))

    @step(collect=Collect(Done, n=4))
    async def join(self, done: list[Done]) -> StopEvent:
        return StopEvent(result=sorted(each.n for each in done))


async def exported() -> bytes:
    first = Carried()
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(first)
        await until(lambda: first.seen)
        return await handle.export()


@pytest.mark.parametrize("where", ["memory", "file"])
async def test_what_is_queued_and_in_flight_continues_in_another_process(tmp_path: Path, where: str) -> None:
    data, second = await exported(), Carried()
    second.hold.set()
    async with open_engine(db=tmp_path / "refold.db" if where == "file" else None, settings=SHORT) as engine:
        run = await engine.restore(data)
        handle = await engine.attach(run, second)
        await handle.signal("big")
        assert await asyncio.wait_for(handle.result(), 60) == [0, 1, 2, 100_000]
        assert second.seen == [0, 1, 2]
        with pytest.raises(Conflict, match="is here already"):
            await engine.restore(data)


async def test_an_export_is_json_with_a_version() -> None:
    carried = json.loads(await exported())
    assert (carried["format"], carried["version"]) == ("refold.run", 1)


def changed(data: bytes, **more: Any) -> bytes:
    return json.dumps({**json.loads(data), **more}).encode()


async def test_an_export_that_is_not_a_run_or_is_of_a_newer_version_is_refused() -> None:
    data = await exported()
    bad = {
        "this is not a run": [b"", b"[]", b"\xff", b"{}", changed(data, format="x"), changed(data, run="")],
        "it is of version 2, and this Refold reads version 1": [changed(data, version=2)],
        "do not belong together": [changed(data, facts=[]), changed(data, plan={"name": "x", "steps": []})],
        "not what its name says": [changed(data, blobs={"0": "aGk="})],
        "a newer Refold": [changed(data, facts=[[1, {"type": "moon_landed"}]])],
    }
    async with open_engine(settings=SHORT) as engine:
        for why, texts in bad.items():
            for text in texts:
                with pytest.raises(InvalidValue, match=why):
                    await engine.restore(text)


async def test_another_workflow_is_refused_with_both_names() -> None:
    async def only(ev: StartEvent) -> StopEvent:
        return StopEvent()

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(Workflow("one", [only]))
        other = Workflow("other", [only])
        with pytest.raises(Conflict, match=r"is one of one \(.*\), and this is other \("):
            await engine.attach(handle.id, other)
        with pytest.raises(NotFound):
            await engine.attach("nowhere", other)


async def test_a_run_continues_when_its_handle_is_gone(tmp_path: Path) -> None:
    db, first, second = tmp_path / "refold.db", Carried(), Carried()
    async with open_engine(db=db, settings=SHORT) as engine:
        run = (await engine.start(first)).id
        await until(lambda: first.seen)
    second.hold.set()
    async with open_engine(db=db, settings=SHORT) as engine:
        handle = await engine.attach(run, second)
        await handle.signal("big")
        assert await asyncio.wait_for(handle.result(), 60) == [0, 1, 2, 100_000]


async def test_a_run_waits_for_who_has_its_code_and_why_says_so(tmp_path: Path) -> None:
    db, first = tmp_path / "refold.db", Carried()
    async with open_engine(db=db, settings=SHORT) as engine:
        handle = await engine.start(first)
        await until(lambda: first.seen)
    async with open_engine(db=db, settings=SHORT) as engine:
        await asyncio.sleep(0.3)
        shown = await engine.show(handle.id)
        assert shown.status == "running"
        assert handle.definition is not None
        assert handle.definition.hash[:12] in shown.waits["fetch/1"]


async def test_two_processes_that_serve_one_run_do_nothing_twice(tmp_path: Path) -> None:
    class Once(Workflow):
        def __init__(self, seen: list[int]) -> None:
            super().__init__()
            self.list = seen

        @step
        async def begin(self, ev: StartEvent) -> list[Page]:
            return [Page(n=n) for n in range(30)]

        @step
        async def fetch(self, ev: Page) -> Done:
            self.list.append(ev.n)
            await asyncio.sleep(0.005)
            return Done(n=ev.n)

        @step(collect=Collect(Done, n=30))
        async def join(self, done: list[Done]) -> StopEvent:
            return StopEvent(result=len(done))

    db = tmp_path / "refold.db"
    seen: list[int] = []
    async with open_engine(db=db, settings=SHORT) as one, open_engine(db=db, settings=SHORT) as two:
        await two.register(Once(seen))
        handle = await one.start(Once(seen))
        other = await two.attach(handle.id, Once(seen))
        assert list(await asyncio.gather(handle.result(), other.result())) == [30, 30]
    assert sorted(seen) == list(range(30))
