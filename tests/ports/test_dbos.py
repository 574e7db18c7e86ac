"""Programs of DBOS, written as users of Refold would: functions with recorded calls, messages, keys and many tasks."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import refold
from refold import Context, Retry, RunFailed, open_engine


@dataclass
class Shop:
    """The outside world of the widget store."""

    inventory: int = 12
    orders: dict[str, str] = field(default_factory=dict[str, str])
    dispatched: list[str] = field(default_factory=list[str])

    def reset(self) -> None:
        self.inventory, self.orders, self.dispatched = 12, {}, []

    def reserve(self) -> bool:
        if self.inventory == 0:
            return False
        self.inventory -= 1
        return True

    def release(self) -> None:
        self.inventory += 1

    def update(self, order: str, status: str) -> None:
        self.orders[order] = status

    def dispatch(self, order: str) -> None:
        self.dispatched.append(order)


shop = Shop()


def reserve(order: str) -> bool:
    return shop.reserve()


def release(order: str) -> None:
    shop.release()


def update(order: str, status: str) -> None:
    shop.update(order, status)


def dispatch(order: str) -> None:
    shop.dispatch(order)


@refold.flow
async def checkout(ctx: Context, order: str) -> str:
    """The widget store: reserve, wait for the payment, and give the widget back if it does not come."""
    if not await ctx.call(reserve, order):
        await ctx.call(update, order, "cancelled")
        return "sold out"
    try:
        paid = await ctx.wait_for("payment", timeout="120s", type=str)
    except TimeoutError:
        paid = "expired"
    if paid != "paid":
        await ctx.call(release, order)
        await ctx.call(update, order, "cancelled")
        return "cancelled"
    await ctx.call(update, order, "paid")
    await ctx.call(dispatch, order)
    await ctx.call(update, order, "dispatched")
    return "dispatched"


async def test_the_widget_store_ships_what_is_paid_and_gives_back_what_is_not() -> None:
    shop.reset()
    async with open_engine() as engine:
        paid = await engine.options(key="order-1").start(checkout, "1")
        refused = await engine.options(key="order-2").start(checkout, "2")
        await paid.signal("payment", "paid")
        await refused.signal("payment", "declined")
        assert (await paid.result(), await refused.result()) == ("dispatched", "cancelled")
    assert shop == Shop(inventory=11, orders={"1": "dispatched", "2": "cancelled"}, dispatched=["1"])


@refold.flow(retry=Retry(attempts=1))
async def fetch(ctx: Context, url: str) -> int:
    """A step with retries: only the call is tried again, not the workflow."""
    return await ctx.options(retry=Retry(attempts=4)).call(unsteady, url)


tries: list[str] = []


def unsteady(url: str) -> int:
    tries.append(url)
    if len(tries) % 4:
        raise ConnectionError(url)
    return 200


async def test_a_step_is_tried_again_until_it_succeeds() -> None:
    tries.clear()
    async with open_engine() as engine:
        assert await engine.run(fetch, "https://shop.example") == 200
    assert len(tries) == 4


async def test_a_step_that_has_no_tries_left_fails_its_workflow() -> None:
    async with open_engine() as engine:
        with pytest.raises(RunFailed, match=r"shop\.example"):
            await engine.run(hopeless, "https://shop.example")


@refold.flow
async def hopeless(ctx: Context, url: str) -> int:
    return await ctx.options(retry=Retry(attempts=2)).call(refused, url)


def refused(url: str) -> int:
    raise ConnectionError(url)


@refold.flow
async def once(ctx: Context, number: int) -> int:
    calls.append(number)
    return number * 2


calls: list[int] = []


async def test_the_same_key_is_the_same_workflow_however_often_it_is_started(tmp_path: Path) -> None:
    calls.clear()
    async with open_engine(db=tmp_path / "refold.db") as engine:
        handles = [await engine.options(key="only").start(once, 21) for _ in range(5)]
        assert len({handle.id for handle in handles}) == 1
        assert [await handle.result() for handle in handles] == [42] * 5
    assert calls == [21]


@refold.flow
async def fan_out(ctx: Context, count: int) -> list[int]:
    """A queue of tasks whose results are gathered in their order, five of them at a time."""
    return [*await ctx.map(square, range(count), max_in_flight=5)]


def square(number: int) -> int:
    return number * number


async def test_a_queue_of_tasks_is_gathered_in_its_order() -> None:
    async with open_engine() as engine:
        assert await engine.run(fan_out, 20) == [number * number for number in range(20)]


@refold.flow
async def progress(ctx: Context, steps: int) -> int:
    """Events of a workflow: what it has published last can be read while it waits."""
    for number in range(steps):
        await ctx.publish({"progress": number + 1})
    await ctx.wait_for("go")
    return steps


async def test_what_a_workflow_has_published_is_read_while_it_runs() -> None:
    async with open_engine() as engine:
        handle = await engine.start(progress, 3)
        seen: list[object] = []
        async for shown in handle.stream():
            seen.append(shown.value)
            if len(seen) == 3:
                break
        await handle.signal("go")
        assert await handle.result() == 3
    assert seen == [{"progress": number} for number in (1, 2, 3)]


async def test_sleeping_workflows_hold_no_thread() -> None:
    async with open_engine() as engine:
        handles = [await engine.start(nap, 0.05) for _ in range(100)]
        assert await asyncio.gather(*(handle.result() for handle in handles)) == [0.05] * 100


@refold.flow
async def nap(ctx: Context, span: float) -> float:
    await ctx.sleep(span)
    return span
