"""Questions to people: asked, shown, answered, however late or early and in whatever process."""

import asyncio
from typing import Any

import pytest

from refold import (
    Collect,
    Context,
    Handle,
    InputRequestEvent,
    InputResponseEvent,
    StartEvent,
    StopEvent,
    Workflow,
    flow,
    open_engine,
    step,
)
from refold.errors import NotFound
from tests.python.house import SHORT, Done, Page, result, started


async def asked(handle: Handle, count: int = 1) -> list[str]:
    async with asyncio.timeout(60):
        while len(found := await handle.requests()) < count:
            await asyncio.sleep(0.005)
    return [each.id for each in found]


async def test_a_returned_request_is_shown_and_its_answer_is_an_event() -> None:
    async def begin(ev: StartEvent) -> InputRequestEvent:
        return InputRequestEvent(request_id="r1", prompt="Name?", metadata={"a": (1,)})

    async def last(ev: InputResponseEvent) -> StopEvent:
        return StopEvent(result=[ev.request_id, ev.response])

    async with started(begin, last) as handle:
        assert await asked(handle) == ["r1"]
        [request] = await handle.requests()
        assert (request.prompt, request.metadata) == ("Name?", {"a": (1,)})
        await handle.answer("r1", "Ada")
        assert await handle.result() == ["r1", "Ada"]
        shown = [each.value async for each in handle.stream()]
        assert shown == [InputRequestEvent(request_id="r1", prompt="Name?", metadata={"a": (1,)})]


@flow
async def asks(ctx: Context, id: str = "r1") -> Any:
    return await ctx.ask("well?", id=id)


async def test_an_answer_to_a_wrong_id_is_refused_and_the_request_stays_open() -> None:
    async with started(asks) as handle:
        await asked(handle)
        with pytest.raises(NotFound, match="no request 'WRONG'; open: r1"):
            await handle.answer("WRONG", 1)
        assert await asked(handle) == ["r1"]
        await handle.answer("r1", 2)
        assert await handle.result() == 2


async def test_an_early_answer_is_kept() -> None:
    async with open_engine(settings=SHORT) as engine:
        for n in range(10):
            handle = await engine.start(asks)
            await handle.answer("r1", n)
            assert await asyncio.wait_for(handle.result(), 60) == n


async def test_only_the_branch_that_asks_waits() -> None:
    async def begin(ev: StartEvent) -> list[Page]:
        return [Page(n=0), Page(n=1)]

    done = asyncio.Event()

    async def fetch(ctx: Context, ev: Page) -> Done:
        if ev.n == 0:
            return Done(n=await ctx.ask("how many?"))
        done.set()
        return Done(n=1)

    @step(collect=Collect(Done, n=2))
    async def join(found: list[Done]) -> StopEvent:
        return StopEvent(result=sorted(each.n for each in found))

    async with started(begin, fetch, join) as handle:
        [id] = await asked(handle)
        await asyncio.wait_for(done.wait(), 60)
        await handle.answer(id, 7)
        assert await handle.result() == [1, 7]


async def test_several_open_requests_can_be_answered_in_reverse() -> None:
    @flow
    async def both(ctx: Context) -> Any:
        return list(await asyncio.gather(ctx.ask("first", id="a"), ctx.ask("second", id="b")))

    async with started(both) as handle:
        assert sorted(await asked(handle, 2)) == ["a", "b"]
        await handle.answer("b", "B")
        assert await asked(handle) == ["a"]
        await handle.answer("a", "A")
        assert await handle.result() == ["A", "B"]


async def test_the_request_of_a_child_is_on_the_handle_of_its_parent() -> None:
    @flow
    async def parent(ctx: Context) -> Any:
        return await ctx.run_child(asks, id="of the child")

    async with started(parent) as handle:
        assert await asked(handle) == ["of the child"]
        await handle.answer("of the child", 3)
        assert await handle.result() == 3


async def test_a_question_without_an_answer_in_time_is_a_timeout_error() -> None:
    @flow
    async def impatient(ctx: Context) -> str:
        try:
            await ctx.ask("now?", timeout="50ms")
        except TimeoutError:
            return "nobody"
        return "somebody"

    assert await result(impatient) == "nobody"


async def test_a_request_is_answered_in_another_process_and_the_rest_continues() -> None:
    class Asking(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> list[Page]:
            return [Page(n=0), Page(n=1)]

        @step(workers=1)
        async def fetch(self, ctx: Context, ev: Page) -> Done:
            return Done(n=await ctx.ask(f"page {ev.n}", id=f"p{ev.n}"))

        @step(collect=Collect(Done, n=2))
        async def join(self, found: list[Done]) -> StopEvent:
            return StopEvent(result=[each.n for each in found])

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(Asking)
        assert await asked(handle) == ["p0"]  # the other page waits for its turn
        await handle.pause()
        data = await handle.export()
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.attach(await engine.restore(data), Asking)
        assert [each.id for each in await handle.requests()] == ["p0"]
        with pytest.raises(NotFound, match="open: p0"):
            await handle.answer("p9", 0)
        await handle.answer("p1", 11, early=True)
        await handle.answer("p0", 10)
        await handle.resume()
        assert await asyncio.wait_for(handle.result(), 60) == [10, 11]


async def test_requests_are_answered_while_the_result_is_awaited() -> None:
    @flow
    async def two(ctx: Context) -> Any:
        return [await ctx.ask("first", id="a"), await ctx.ask("second", id="b")]

    async def answer(request: Any) -> str:
        return f"{request.prompt}!"

    async with started(two) as handle:
        assert await handle.result(answer) == ["first!", "second!"]
