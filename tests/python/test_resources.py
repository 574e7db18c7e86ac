"""Resources: functions and generators, with `async` or without, are opened once for a run, and closed with it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from refold import Collect, Context, StartEvent, StopEvent, SyncContext, Workflow, open_engine, resource, step
from refold.errors import EngineClosed, RefoldError, StepFailed
from tests.python.house import SHORT, Done, Page, until


class Pool:
    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name, self.open = log, name, True
        log.append(f"open {name}")

    def close(self) -> None:
        self.open = False
        self.log.append(f"close {self.name}")


LOG: list[str] = []


@pytest.fixture(autouse=True)
def empty_log() -> None:
    LOG.clear()


class Uses(Workflow):
    @resource
    async def pool(self) -> AsyncIterator[Pool]:
        pool = Pool(LOG, "pool")
        await asyncio.sleep(0)
        try:
            yield pool
        finally:
            await asyncio.sleep(0)
            pool.close()

    @resource
    def file(self) -> Iterator[Pool]:
        file = Pool(LOG, "file")
        yield file
        file.close()

    @resource
    async def client(self) -> Pool:
        await asyncio.sleep(0)
        return Pool(LOG, "client")

    @resource
    def plain(self) -> Pool:
        return Pool(LOG, "plain")

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> list[Page]:
        return [Page(n=n) for n in range(4)]

    @step
    async def fetch(self, ctx: Context, ev: Page) -> Done:
        pool, client = await ctx.resource("pool"), await ctx.resource("client")
        assert isinstance(pool, Pool) and pool.open and isinstance(client, Pool)
        assert await ctx.resource("pool") is pool is ctx.session["pool"]
        assert isinstance(ctx.session["plain"], Pool) and ctx.session["file"] is await ctx.resource("file")
        return Done(n=ev.n)

    @step(collect=Collect(Done, n=4))
    def join(self, ctx: SyncContext, done: list[Done]) -> StopEvent:
        return StopEvent(result=[ctx.resource(name).name for name in ("pool", "file", "client", "plain")])


async def test_resources_of_every_form_are_opened_once_for_a_run_and_closed_when_it_has_ended() -> None:
    async with open_engine(settings=SHORT) as engine:
        assert await engine.run(Uses) == ["pool", "file", "client", "plain"]
        await until(lambda: "close pool" in LOG)
        assert sorted(LOG) == ["close file", "close pool", "open client", "open file", "open plain", "open pool"]
        assert LOG.index("close file") < LOG.index("close pool")  # the last that was opened is closed first


async def test_resources_of_a_run_that_waits_are_closed_with_the_engine() -> None:
    class Waits(Uses):
        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> list[Page]:
            await ctx.resource("pool")
            await ctx.wait_for("never")
            return []

    async with open_engine(settings=SHORT) as engine:
        await engine.start(Waits)
        await until(lambda: LOG)
        assert LOG == ["open pool"]
    assert LOG == ["open pool", "close pool"]


async def test_a_resource_with_async_is_not_handed_out_as_a_coroutine() -> None:
    class Wrong(Uses):
        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> list[Page]:
            return [ctx.session["client"]]

    async with open_engine(settings=SHORT) as engine:
        with pytest.raises(StepFailed, match=r"write `await ctx\.resource\('client'\)`"):
            await engine.run(Wrong)


async def test_a_resource_that_cannot_be_opened_fails_the_step_and_one_that_cannot_be_closed_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Workflow):
        @resource
        async def away(self) -> Any:
            raise ConnectionError("no pool")

        @resource
        async def stuck(self) -> AsyncIterator[int]:
            yield 1
            raise OSError("cannot close")

        @step
        async def only(self, ctx: Context, ev: StartEvent) -> StopEvent:
            return StopEvent(result=await ctx.resource(ev.name))

    async with open_engine(settings=SHORT) as engine:
        with pytest.raises(StepFailed, match="no pool"):
            await engine.run(Broken, name="away")
        assert await engine.run(Broken, name="stuck") == 1
        await until(lambda: "a resource of a run could not be closed" in caplog.messages)


async def test_a_child_run_has_the_resources_of_its_own_workflow_beside_those_of_its_parent() -> None:
    class Child(Workflow):
        @resource
        async def below(self) -> str:
            return "below"

        @step
        async def only(self, ctx: Context, ev: StartEvent) -> StopEvent:
            return StopEvent(result=[await ctx.resource("below"), await ctx.resource("above")])

    class Parent(Workflow):
        @resource
        def above(self) -> str:
            return "above"

        @step
        async def only(self, ctx: Context, ev: StartEvent) -> StopEvent:
            ctx.session["above"]
            return StopEvent(result=await ctx.run_child(Child))

    async with open_engine(settings=SHORT) as engine:
        assert await engine.run(Parent) == ["below", "above"]


@pytest.mark.parametrize("in_file", [False, True])
async def test_after_the_engine_is_closed_every_call_raises_one_error(tmp_path: Any, in_file: bool) -> None:
    async def only(ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=await ctx.ask("well?", id="q"))

    workflow = Workflow("w", [only])
    async with open_engine(db=tmp_path / "refold.db" if in_file else None, settings=SHORT) as engine:
        handle = await engine.start(workflow)
        waiting = asyncio.create_task(handle.result())
        while not await handle.requests():
            await asyncio.sleep(0.005)
    with pytest.raises(EngineClosed, match="open another one"):
        await asyncio.wait_for(waiting, 60)

    async def stream() -> list[Any]:
        return [each async for each in handle.stream()]

    calls: list[Any] = [
        lambda: engine.start(workflow),
        lambda: engine.run(workflow),
        lambda: engine.attach(handle.id, workflow),
        lambda: engine.runs(),
        lambda: engine.show(handle.id),
        lambda: engine.restore(b"{}"),
        handle.result,
        handle.requests,
        handle.pause,
        handle.resume,
        handle.cancel,
        handle.why,
        handle.usage,
        handle.export,
        lambda: handle.answer("q", 1),
        lambda: handle.signal("s"),
        stream,
    ]
    for call in calls:
        with pytest.raises(RefoldError) as raised:
            await asyncio.wait_for(call(), 60)
        assert isinstance(raised.value, EngineClosed) or call is calls[5], raised.value
