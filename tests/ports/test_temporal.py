"""Programs of Temporal's samples, written as users of Refold would: activities, signals, timers, children, sagas."""

import asyncio
from dataclasses import dataclass

import pytest

import refold
from refold import Context, RunCancelled, RunFailed, open_engine, testing


@dataclass
class ComposeGreeting:
    greeting: str
    name: str


def compose(wanted: ComposeGreeting) -> str:
    return f"{wanted.greeting}, {wanted.name}!"


@refold.flow
async def greet(ctx: Context, name: str) -> str:
    """hello_activity: one activity with an input that is a dataclass."""
    return await ctx.call(compose, ComposeGreeting("Hello", name))


async def test_an_activity_gets_a_dataclass_and_its_result_is_that_of_the_workflow() -> None:
    async with open_engine() as engine:
        assert await engine.run(greet, "World") == "Hello, World!"


@refold.flow
async def greet_many(ctx: Context) -> list[str]:
    """hello_parallel_activity: five activities at once, sorted."""
    names = ["user1", "user2", "user3", "user4", "user5"]
    greetings = await asyncio.gather(*(ctx.call(compose, ComposeGreeting("Hello", name)) for name in names))
    return sorted(greetings)


async def test_parallel_activities_are_gathered() -> None:
    async with open_engine() as engine:
        assert await engine.run(greet_many) == [f"Hello, user{number}!" for number in range(1, 6)]


@refold.flow
async def greet_until_exit(ctx: Context) -> list[str]:
    """hello_signal: names come as signals, until one says that it is enough."""
    greetings: list[str] = []
    while (name := await ctx.wait_for("submit", type=str)) != "exit":
        greetings.append(f"Hello, {name}")
    return greetings


async def test_signals_are_taken_in_their_order_until_the_exit() -> None:
    async with open_engine() as engine:
        handle = await engine.start(greet_until_exit)
        for name in ("user1", "user2", "user3", "exit"):
            await handle.signal("submit", name)
        assert await handle.result() == ["Hello, user1", "Hello, user2", "Hello, user3"]


emails: list[int] = []


def send_email(number: int) -> None:
    emails.append(number)


@refold.flow
async def sleep_for_days(ctx: Context) -> str:
    """sleep_for_days: an e-mail every 30 days, until somebody completes it."""
    number = 0
    while True:
        number += 1
        await ctx.call(send_email, number)
        try:
            await ctx.wait_for("complete", timeout="30d")
        except TimeoutError:
            continue
        return "done!"


def test_a_workflow_sleeps_for_months_of_virtual_time_and_sends_what_is_due() -> None:
    emails.clear()
    with testing.engine() as t:
        run = t.start(sleep_for_days)
        t.advance("90d")
        assert emails == [1, 2, 3, 4]
        run.signal("complete")
        assert run.result() == "done!"


@refold.flow
async def updatable_timer(ctx: Context, seconds: int) -> str:
    """updatable_timer: a timer whose end can be moved while it runs."""
    while True:
        try:
            seconds = await ctx.wait_for("wake up after", timeout=seconds, type=int)
        except TimeoutError:
            return "fired"


def test_a_timer_is_moved_while_it_runs() -> None:
    with testing.engine() as t:
        run = t.start(updatable_timer, 24 * 3600)
        t.advance("1h")
        run.signal("wake up after", 600)
        t.advance("9m")
        assert run.status == "waiting"
        t.advance("1m")
        assert run.result() == "fired"


booked: list[str] = []


def book(what: str) -> str:
    if what == "flight":
        raise ConnectionError("no seat is left")
    booked.append(what)
    return what


def undo(what: str) -> None:
    booked.remove(what)


@refold.flow
async def trip(ctx: Context) -> list[str]:
    """The saga: what was booked is taken back in the opposite order, when a later booking fails."""
    compensations: list[str] = []
    try:
        for what in ("car", "hotel", "flight"):
            compensations.append(await ctx.call(book, what))
    except ConnectionError:
        for what in reversed(compensations):
            await ctx.call(undo, what)
        raise
    return compensations


async def test_a_saga_takes_back_what_was_booked() -> None:
    booked.clear()
    async with open_engine() as engine:
        with pytest.raises(RunFailed, match="no seat is left"):
            await engine.run(trip)
    assert booked == []


cleaned: list[str] = []


def clean_up() -> None:
    cleaned.append("cleaned up")


@refold.flow
async def never_ending(ctx: Context) -> None:
    """hello_cancellation: the workflow waits for ever, and runs an activity when it is cancelled."""
    try:
        await ctx.wait_for("never")
    finally:
        await ctx.call(clean_up)


def test_a_cancelled_workflow_runs_its_clean_up_activity() -> None:
    cleaned.clear()
    with testing.engine() as t:
        run = t.start(never_ending)
        t.advance("1h")
        assert run.status == "waiting"
        run.cancel()
        with pytest.raises(RunCancelled):
            run.result()
    assert cleaned == ["cleaned up"]


@refold.flow
async def parent(ctx: Context, names: list[str]) -> list[str]:
    """batch_sliding_window: a child for each item, three of them at a time."""
    return [*await ctx.map(greet, [{"name": name} for name in names], max_in_flight=3)]


async def test_children_run_in_a_window_and_their_results_keep_the_order() -> None:
    names = [f"user{number}" for number in range(12)]
    async with open_engine() as engine:
        assert await engine.run(parent, names) == [f"Hello, {name}!" for name in names]
