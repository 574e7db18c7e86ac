"""Functions that a user hands in: what they raise fails what they belong to, at once and with its traceback."""

import asyncio
import logging
import traceback
from typing import Any

import pytest

from refold import Collect, Context, ErrorEvent, Event, Retry, StartEvent, StopEvent, Workflow, flow, open_engine, step
from refold.errors import StepFailed
from tests.python.house import SHORT, Done, Page, result, started


class Seat(Event):
    n: int


def sold(seats: int) -> int:
    if seats == 0:
        raise ValueError("sold out")
    return seats - 1


async def take_seats(change: Any, **options: Any) -> Any:
    """Three steps read the same number of seats before any of them is reported."""
    reading = asyncio.Barrier(3)

    async def begin(ctx: Context, ev: StartEvent) -> list[Seat]:
        ctx.set("seats", 2)
        return [Seat(n=n) for n in range(3)]

    @step(**options)
    async def take(ctx: Context, ev: Seat) -> Done:
        change(ctx)
        await asyncio.wait_for(reading.wait(), 60)
        return Done(n=ev.n)

    @step(collect=Collect(Done, n=3))
    async def all_taken(ctx: Context, done: list[Done]) -> StopEvent:
        return StopEvent(result=ctx.get("seats"))

    return await result(begin, take, all_taken)


async def test_an_update_that_raises_when_it_is_applied_again_fails_its_step_at_once() -> None:
    passes: list[int] = []

    def take(ctx: Context) -> None:
        passes.append(ctx.attempt)
        ctx.update("seats", sold, 2)

    with pytest.raises(StepFailed, match="sold out") as failed:
        await asyncio.wait_for(take_seats(take), SHORT.lease_for)
    assert passes == [1, 1, 1]  # the body did not have to run again to fail
    assert isinstance(failed.value.__cause__, ValueError)
    assert "in sold" in "".join(traceback.format_exception(failed.value))


async def test_an_update_that_raises_when_it_is_applied_again_can_become_an_event() -> None:
    class SoldOut(ErrorEvent):
        pass

    reading = asyncio.Barrier(3)

    async def begin(ctx: Context, ev: StartEvent) -> list[Seat]:
        ctx.set("seats", 2)
        return [Seat(n=n) for n in range(3)]

    @step(on_error=SoldOut)
    async def take(ctx: Context, ev: Seat) -> None:
        ctx.update("seats", sold, 2)
        await asyncio.wait_for(reading.wait(), 60)

    async def refused(ev: SoldOut) -> StopEvent:
        return StopEvent(result=[ev.error["message"], ev.step])

    assert await result(begin, take, refused) == ["sold out", "take"]


async def test_an_exception_in_the_answer_callback_is_raised_by_result_at_once_and_the_run_goes_on_waiting() -> None:
    @flow
    async def asks(ctx: Context) -> Any:
        return await ctx.ask("well?", id="q")

    def broken(request: Any) -> Any:
        raise LookupError(f"no answer to {request.prompt}")

    async def broken_later(request: Any) -> Any:
        await asyncio.sleep(0)
        return broken(request)

    async with started(asks) as handle:
        for answer in (broken, broken_later):
            with pytest.raises(LookupError, match="no answer to well") as raised:
                await asyncio.wait_for(handle.result(answer), 60)
            assert raised.traceback[-1].name == "broken"
        assert await handle.result(lambda request: 7) == 7


async def test_a_lost_update_of_get_and_set_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "refold"):
        seats = await take_seats(lambda ctx: ctx.set("seats", ctx.get("seats") - 1))
        assert seats == 1  # two updates were lost
    lost = [each for each in caplog.records if each.getMessage() == "an update of the context was lost"]
    assert len(lost) == 2
    caplog.clear()
    with caplog.at_level(logging.WARNING, "refold"):
        assert await take_seats(lambda ctx: ctx.update("seats", lambda seats: seats - 1)) == -1
        assert await take_seats(lambda ctx: ctx.set("seats", 5)) == 5
    assert not [each for each in caplog.records if "lost" in each.getMessage()]


async def test_the_last_of_several_steps_decides_with_ctx_collect() -> None:
    async def begin(ev: StartEvent) -> list[Page]:
        return [Page(n=n) for n in range(20)]

    async def count(ctx: Context, ev: Page) -> StopEvent | None:
        pages = ctx.collect(ev, 20)
        return None if pages is None else StopEvent(result=sum(page.n for page in pages))

    assert await result(begin, count) == 190


class Broken(ErrorEvent):
    pass


class Other(ErrorEvent):
    pass


async def test_a_whole_workflow_says_what_the_failures_of_its_steps_become() -> None:
    class Careful(Workflow):
        on_error = Broken

        @step
        async def begin(self, ev: StartEvent) -> list[Page | Seat]:
            return [Page(n=1), Seat(n=1)]

        @step(retry=Retry(attempts=2))
        async def fetch(self, ev: Page) -> None:
            raise ValueError("page")

        @step(on_error=Other)
        async def sit(self, ev: Seat) -> None:
            raise ValueError("seat")

        @step(collect=Collect(Broken, Other, n=2))
        async def mend(self, found: list[Broken | Other]) -> StopEvent:
            return StopEvent(result=sorted((type(each).__name__, each.step) for each in found))

    assert await result(Careful) == [("Broken", "fetch"), ("Other", "sit")]


async def test_the_step_that_takes_the_failures_of_a_workflow_does_not_take_its_own() -> None:
    async def begin(ev: StartEvent) -> StopEvent:
        raise ValueError("first")

    async def mend(ev: Broken) -> StopEvent:
        raise RuntimeError("cannot be mended")

    async with open_engine(settings=SHORT) as engine:
        with pytest.raises(StepFailed, match="cannot be mended"):
            await asyncio.wait_for(engine.run(Workflow("w", [begin, mend], on_error=Broken)), 60)
