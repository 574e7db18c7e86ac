"""Looking into a run, asking it and steering it from outside, while it runs."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from refold import (
    Context,
    Event,
    Retry,
    Settings,
    StartEvent,
    StopEvent,
    SyncContext,
    Workflow,
    flow,
    open_engine,
    step,
)
from refold.core.facts import StepSettled
from refold.core.outcomes import Suspended
from refold.core.state import RunState
from refold.errors import Conflict, RequestRefused, StepFailed
from refold.plan import Plan, Step, Wait
from tests.python.test_parking import facts, suspended

SHORT = Settings(poll=0.05, sweep_every=0.05)


@dataclass
class Basket:
    apples: int


class Bought(Event):
    basket: Basket


class Shop(Workflow[int]):
    @step
    async def open(self, ctx: Context, ev: StartEvent) -> Bought:
        ctx.set("basket", Basket(3))
        await ctx.publish("open")
        await ctx.publish(Bought(basket=Basket(1)))
        ctx.log("a line that is not published")
        return Bought(basket=Basket(2))

    @step
    async def sell(self, ctx: Context, ev: Bought) -> StopEvent:
        return StopEvent(result=await ctx.wait_for("close"))


async def seen(handle: Any, wanted: Any) -> None:
    """Wait until the run is in this state."""
    while not wanted((await handle.engine.show(handle.id)).state):
        await asyncio.sleep(0.005)


def waits(state: RunState) -> bool:
    return bool(state.waiting)


async def test_a_value_of_the_context_is_read_from_outside() -> None:
    async with open_engine() as engine:
        handle = await engine.start(Shop)
        await seen(handle, waits)
        assert await handle.get("basket") == Basket(3)
        assert (await handle.get("nothing"), await handle.get("nothing", 7)) == (None, 7)
        other = await engine.attach(handle.id, Shop)
        assert await other.get("basket") == Basket(3)
        await handle.signal("close", 1)
        await handle.result()
        assert await handle.get("basket") == Basket(3)


@pytest.mark.parametrize("is_async", [True, False])
async def test_what_a_flow_has_set_is_read_while_it_waits(is_async: bool) -> None:
    """It is shown, and is no write: if the body fails, its next try does not find it."""

    @flow(retry=Retry(attempts=2, delay=0.01), types=[Basket])
    async def parked(ctx: Context) -> int:
        found = ctx.get("basket")
        ctx.set("basket", Basket(ctx.attempt))
        ctx.set("gone", 1)
        await ctx.wait_for("go")
        ctx.state.delete("gone")
        ctx.set("basket", Basket(10 * ctx.attempt))
        await ctx.wait_for("go")
        if ctx.attempt == 1:
            raise ConnectionError("not today")
        return 0 if found is None else 1

    @flow(retry=Retry(attempts=2, delay=0.01), types=[Basket])
    def unwound(ctx: SyncContext) -> int:
        found = ctx.get("basket")
        ctx.set("basket", Basket(ctx.attempt))
        ctx.set("gone", 1)
        ctx.wait_for("go")
        ctx.state.delete("gone")
        ctx.set("basket", Basket(10 * ctx.attempt))
        ctx.wait_for("go")
        if ctx.attempt == 1:
            raise ConnectionError("not today")
        return 0 if found is None else 1

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(parked if is_async else unwound)
        await suspended(handle)
        assert (await handle.get("basket"), await handle.get("gone", 7)) == (Basket(1), 1)
        await handle.signal("go")
        await suspended(handle, 2)
        assert (await handle.get("basket"), await handle.get("gone", 7)) == (Basket(10), 7)
        await handle.signal("go")  # its second try finds both signals
        assert await handle.result() == 0
        assert (await handle.get("basket"), await handle.get("gone", 7)) == (Basket(20), 7)


async def test_a_wait_reports_what_the_body_has_set_since_the_last_one() -> None:
    @flow
    async def waits_twice(ctx: Context) -> None:
        ctx.set("large", "x" * 1000)
        ctx.set("small", 1)
        await ctx.sleep(0.01)
        ctx.set("small", 2)
        await ctx.sleep(0.01)
        await ctx.sleep(0.01)

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(waits_twice)
        await handle.result()
        settled = await facts(engine, handle.id, StepSettled)
        told = [fact.report.outcome.progress for fact in settled if isinstance(fact.report.outcome, Suspended)]
        assert told == [{"context.large": [1, "x" * 1000], "context.small": [1, 1]}, {"context.small": [1, 2]}, None]


async def test_what_was_published_last_is_read_without_waiting(tmp_path: Path) -> None:
    async with open_engine(db=tmp_path / "r.db", settings=SHORT) as engine:
        handle = await engine.start(Shop)
        await seen(handle, waits)
        last = await handle.latest()
        assert last is not None and last.value == Bought(basket=Basket(1)) and last.step == "open"
        quiet = await engine.start(silent)
        assert await quiet.latest() is None
        await handle.signal("close", 1)


@flow
async def silent(ctx: Context) -> int:
    return 1


def paid(amount: int) -> int:
    return amount * 2


@flow
async def till(ctx: Context) -> list[int]:
    total: list[int] = []
    async for request in ctx.requests("pay"):
        if request.value == "close":
            await request.reply(len(total))
            return total
        if not isinstance(request.value, int) or request.value < 0:
            await request.refuse(f"{request.value!r} is not an amount")
            continue
        total.append(await ctx.call(paid, request.value))
        await request.reply(Basket(total[-1]).apples)
    return total


async def test_a_request_is_replied_to_by_the_body() -> None:
    async with open_engine() as engine:
        handle = await engine.start(till)
        assert [await handle.request("pay", n) for n in (1, 2)] == [2, 4]
        with pytest.raises(RequestRefused, match="-3 is not an amount"):
            await handle.request("pay", -3)
        many = await asyncio.gather(*(handle.request("pay", n) for n in range(5)))
        assert many == [0, 2, 4, 6, 8]
        assert await handle.request("pay", "close") == 7
        assert sorted(await handle.result()) == [0, 2, 2, 4, 4, 6, 8]


async def test_the_same_request_again_is_answered_from_the_log() -> None:
    async with open_engine() as engine:
        handle = await engine.start(till)
        assert await handle.request("pay", 5, id="a") == 10
        assert await handle.request("pay", 5, id="a") == 10
        assert await handle.request("pay", "close") == 1
        assert await handle.result() == [10]
        assert await handle.request("pay", 5, id="a") == 10
        with pytest.raises(Conflict, match="completed"):
            await handle.request("pay", 1)


async def test_a_request_to_a_run_that_ends_without_an_answer_is_refused() -> None:
    @flow
    async def rude(ctx: Context) -> str:
        request = await ctx.next_request("hello")
        return str(request.value)

    async with open_engine() as engine:
        handle = await engine.start(rude)
        with pytest.raises(RequestRefused, match="is completed, and has not answered the request 'hello'"):
            await handle.request("hello", "you")
        assert await handle.result() == "you"


async def test_a_request_can_have_a_time_limit_and_stays_when_it_is_over() -> None:
    @flow
    async def slow(ctx: Context) -> int:
        await ctx.wait_for("go")
        request = await ctx.next_request("hello")
        await request.reply(request.value + 1)
        with pytest.raises(Conflict, match="was answered already"):
            await request.refuse("too late")
        return 0

    async with open_engine() as engine:
        handle = await engine.start(slow)
        with pytest.raises(TimeoutError):
            await handle.request("hello", 1, id="x", timeout="10ms")
        await handle.signal("go")
        assert await handle.request("hello", 1, id="x") == 2
        assert await handle.result() == 0


async def test_a_body_waits_for_a_request_no_longer_than_it_says() -> None:
    @flow
    async def patient(ctx: Context) -> str:
        try:
            await ctx.next_request("hello", timeout="10ms")
        except TimeoutError:
            return "nobody asked"
        return "somebody asked"

    async with open_engine() as engine:
        assert await engine.run(patient) == "nobody asked"


async def test_a_body_without_async_answers_requests() -> None:
    @flow
    def plain(ctx: SyncContext) -> int:
        for request in ctx.requests("double"):
            if request.value is None:
                request.refuse("no number")
                return 0
            request.reply(request.value * 2)
        return 1

    async with open_engine() as engine:
        handle = await engine.start(plain)
        assert await handle.request("double", 4) == 8
        with pytest.raises(RequestRefused, match="no number"):
            await handle.request("double")
        assert await handle.result() == 0


async def test_a_playbook_answers_no_requests() -> None:
    async with open_engine() as engine:
        handle = await engine.start(Plan(name="waits", steps=(Step(name="a", work=Wait(signal="go")),)))
        with pytest.raises(Conflict, match="only bodies of those answer requests"):
            await handle.request("hello")


async def test_a_large_reply_is_given_whole() -> None:
    @flow
    async def large(ctx: Context) -> int:
        request = await ctx.next_request("more")
        await request.reply("x" * 200_000)
        return 1

    async with open_engine() as engine:
        handle = await engine.start(large)
        assert await handle.request("more") == "x" * 200_000


async def test_a_child_that_is_not_waited_for_continues_when_its_parent_has_ended() -> None:
    @flow
    async def child(ctx: Context, n: int) -> int:
        return int(await ctx.wait_for("go")) + n

    @flow
    async def parent(ctx: Context) -> list[str]:
        return [await ctx.start_child(child, n=n) for n in (1, 2)] + [
            await ctx.options(key="third").start_child(child, 3)
        ]

    async with open_engine() as engine:
        runs = await engine.run(parent)
        assert len(set(runs)) == 3
        for n, run in enumerate(runs, 1):
            handle = await engine.attach(run, child)
            await handle.signal("go", 10)
            assert await handle.result() == 10 + n


async def test_a_child_that_is_not_waited_for_outlives_a_cancelled_parent_and_its_failure_harms_nobody() -> None:
    @flow
    async def child(ctx: Context) -> None:
        raise ValueError("no")

    @flow
    def parent(ctx: SyncContext) -> str:
        run = ctx.start_child(child)
        ctx.publish(run)
        ctx.wait_for("never")
        return run

    async with open_engine() as engine:
        handle = await engine.start(parent)
        await seen(handle, waits)
        last = await handle.latest()
        assert last is not None
        await handle.cancel()
        assert (await engine.wait(last.value)).status == "failed"
        assert (await engine.wait(handle.id)).status == "cancelled"


async def test_a_child_that_is_not_waited_for_has_no_timeout() -> None:
    @flow
    async def child(ctx: Context, n: int) -> int:
        return n

    @flow
    async def parent(ctx: Context) -> str:
        return await ctx.options(timeout="1s").start_child(child, n=1)

    async with open_engine() as engine:
        with pytest.raises(StepFailed, match="neither a retry nor a timeout"):
            await engine.run(parent)


async def test_a_row_of_the_list_of_runs_has_an_id_like_a_handle_and_a_report() -> None:
    async with open_engine() as engine:
        handle = await engine.start(Shop)
        [row] = await engine.runs()
        assert row.id == row.run == handle.id == (await engine.show(handle.id)).id
