"""A body has its own task from its first step on, and costs no turn of the event loop if it does not wait."""

import asyncio
import gc
import weakref
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any

import pytest

from refold.worker.run_tool import StartedBody

SEEN: ContextVar[str] = ContextVar("seen", default="outside")


async def test_a_body_that_does_not_wait_has_ended_when_it_has_begun() -> None:
    async def body() -> int:
        return 7

    begun = StartedBody(body())
    assert begun.ended and begun.result == 7 and not begun.is_cancelled()
    assert await asyncio.wait_for(begun.task, 60) is None, "what its task is told later is nobody's business"


async def test_a_body_has_a_task_of_its_own_before_and_after_it_waits() -> None:
    async def body() -> list[Any]:
        first = asyncio.current_task()
        await asyncio.sleep(0)
        return [first, asyncio.current_task()]

    mine = asyncio.current_task()
    begun = StartedBody(body())
    assert not begun.ended and asyncio.current_task() is mine
    assert await begun.task == [begun.task, begun.task]


async def test_what_a_body_sets_in_its_context_stays_with_it() -> None:
    async def body() -> str:
        SEEN.set("inside")
        await asyncio.sleep(0)
        return SEEN.get()

    begun = StartedBody(body())
    assert SEEN.get() == "outside"
    assert await begun.task == "inside"


async def test_a_body_that_cancels_its_own_task_is_cancelled_and_nobody_else() -> None:
    async def at_once() -> int:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return 1

    async def later() -> None:
        await at_once()
        await asyncio.sleep(0)

    for coroutine in (at_once(), later()):
        begun = StartedBody(coroutine)
        if not begun.ended:
            await asyncio.wait((begun.task,))
        assert begun.is_cancelled()
        await asyncio.sleep(0)  # would raise here


async def test_what_a_body_leaves_behind_may_cancel_its_task_and_reaches_nobody() -> None:
    loop = asyncio.get_running_loop()

    async def body() -> int:
        task = asyncio.current_task()
        assert task is not None
        loop.call_soon(task.cancel)
        return 1

    begun = StartedBody(body())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert begun.ended and begun.result == 1


async def test_a_cancel_before_the_task_has_run_reaches_what_the_body_waits_for() -> None:
    seen = []

    async def inner() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("inner")
            raise

    async def body() -> None:
        try:
            await asyncio.create_task(inner())
        finally:
            seen.append("body")

    begun = StartedBody(body())
    await asyncio.sleep(0)
    begun.task.cancel()
    await asyncio.wait((begun.task,))
    assert begun.is_cancelled() and seen == ["inner", "body"]

    bare = StartedBody(asyncio.sleep(0))
    bare.task.cancel()
    await asyncio.wait((bare.task,))
    assert bare.is_cancelled()


async def test_a_cancel_at_once_ends_a_task_that_the_body_has_begun() -> None:
    begun_by_body: list[asyncio.Task[Any]] = []

    async def body() -> None:
        begun_by_body.append(asyncio.create_task(asyncio.Event().wait()))
        await begun_by_body[0]

    begun = StartedBody(body())
    begun.task.cancel()  # its task has not run yet
    await asyncio.wait((begun.task,))
    assert begun.is_cancelled() and begun_by_body[0].cancelled()


async def test_time_limits_inside_a_body_hold_from_its_first_step_on() -> None:
    async def body() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            return "in time"
        return "never"

    assert await StartedBody(body()).task == "in time"


async def test_what_a_body_raises_at_once_comes_out_where_it_was_begun() -> None:
    async def body() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        StartedBody(body())
    assert asyncio.current_task() is not None


async def test_a_loop_that_makes_eager_tasks_begins_a_body_once() -> None:
    begun = 0

    async def body() -> int:
        nonlocal begun
        begun += 1
        await asyncio.sleep(0)
        return begun

    class Begun(Coroutine[Any, Any, Any]):
        def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
            self.coroutine, self.first = coroutine, [coroutine.send(None)]

        def send(self, value: Any) -> Any:
            return self.first.pop() if self.first else self.coroutine.send(value)

        def throw(self, *error: Any) -> Any:
            return self.coroutine.throw(*error)

        def close(self) -> None:
            self.coroutine.close()

        def __await__(self) -> Any:
            raise NotImplementedError

    loop = asyncio.get_running_loop()
    loop.set_task_factory(lambda loop, coroutine, **options: asyncio.Task(Begun(coroutine), loop=loop, **options))
    try:
        assert await StartedBody(body()).task == 1
    finally:
        loop.set_task_factory(None)


async def test_a_body_leaves_nothing_to_the_garbage_collector() -> None:
    async def at_once() -> None: ...

    async def later() -> None:
        await asyncio.sleep(0)

    gc.collect()
    gc.disable()
    try:
        for coroutine in (at_once(), later()):
            begun = StartedBody(coroutine)
            await begun.task
            task = weakref.ref(begun.task)
            del begun
            await asyncio.sleep(0)
            assert task() is None
    finally:
        gc.enable()
