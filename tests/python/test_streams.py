"""What a run shows to the outside: in order, without loss, for any number of readers; and what it uses up."""

import asyncio
import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from refold import Collect, Context, Retry, StartEvent, StopEvent, Workflow, flow, open_engine, step
from refold.core import codec
from tests.python import shown
from tests.python.house import SHORT, Done, Page, result, started


async def publishing(ctx: Context, ev: StartEvent) -> StopEvent:
    for n in range(ev.count):
        await ctx.publish(Page(n=n))
    return StopEvent(result="shown")


async def published(ev: Page) -> StopEvent:
    return StopEvent()


@step(sends=[Page])
async def shows(ctx: Context, ev: StartEvent) -> StopEvent:
    return await publishing(ctx, ev)


async def test_a_slow_reader_gets_everything_in_order() -> None:
    async with started(shows, published, count=5000) as handle:
        seen = []
        async for each in handle.stream():
            seen.append(each.value.n)
            if each.value.n % 1000 == 0:
                await asyncio.sleep(0.01)
        assert seen == list(range(5000))
        assert await handle.result() == "shown"


def shown_slowly(folder: Path, count: int, size: int) -> shown.Told:
    """In a process of its own, whose memory is nobody else's."""
    program = [sys.executable, "-m", "tests.python.shown", str(folder / "refold.db"), str(count), str(size)]
    done = subprocess.run(program, cwd=Path(__file__).parents[2], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=shown.Told)


def test_a_reader_who_waits_for_the_end_loses_nothing_and_nothing_is_held_for_it(tmp_path: Path) -> None:
    told = shown_slowly(tmp_path, 20_000, size=2000)
    assert told.events == 20_000
    assert told.published < 16 and told.read < 16, told  # of the 38 MB that they are


@pytest.mark.proof
def test_a_million_published_events_keep_memory_flat(tmp_path: Path) -> None:
    told = shown_slowly(tmp_path, 1_000_000, size=200)
    print(f"1,000,000 events: {told.published} MB more while they were published, {told.read} MB while they were read")
    assert told.events == 1_000_000
    assert told.published < 32 and told.read < 32, told  # of 190 MB and more


async def test_every_reader_gets_all_and_all_of_them_end() -> None:
    async def read(after: int = 0) -> list[int]:
        return [each.number async for each in handle.stream(after)]

    async with started(shows, published, count=100) as handle:
        first, second = await asyncio.gather(read(), read(95))
        assert (first, second) == (list(range(1, 101)), [96, 97, 98, 99, 100])
        assert await read() == first


async def test_events_come_back_as_what_they_are_and_other_values_too() -> None:
    async def only(ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.publish({"plain": (1, 2)})
        ctx.log("a line")
        return StopEvent()

    async with started(only) as handle:
        await handle.result()
        assert [each.value async for each in handle.stream()] == [{"plain": (1, 2)}]
        lines = [line async for _, line in handle.engine.follow(handle.id)]
        assert [line["text"] for line in lines if line["stream"] == "log"] == ["a line"]


@pytest.mark.usefixtures("parked")
async def test_a_body_that_starts_over_shows_nothing_twice() -> None:
    @flow
    async def naps(ctx: Context) -> None:
        await ctx.publish(1)
        await ctx.sleep(0.01)
        await ctx.publish(2)
        await ctx.sleep(0.02)
        await ctx.publish(3)

    async with started(naps) as handle:
        await handle.result()
        assert [each.value async for each in handle.stream()] == [1, 2, 3]


async def test_usage_is_counted_once_with_that_of_children() -> None:
    @flow
    async def child(ctx: Context) -> None:
        ctx.usage(tokens=5)
        await ctx.sleep(0.01)
        ctx.usage(tokens=1)

    @flow
    async def parent(ctx: Context) -> None:
        ctx.usage(tokens=100, usd=0.5)
        await ctx.run_child(child)

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(parent)
        await asyncio.wait_for(handle.result(), 60)
        assert await handle.usage() == {"tokens": 106, "usd": 0.5}


async def test_what_a_failed_try_has_used_up_counts_too() -> None:
    tries: list[int] = []

    @step(retry=Retry(attempts=2))
    async def only(ctx: Context, ev: StartEvent) -> StopEvent:
        tries.append(1)
        ctx.usage(calls=1)
        if len(tries) == 1:
            raise ConnectionError("away")
        return StopEvent()

    async with started(only) as handle:
        await handle.result()
        assert await handle.usage() == {"calls": 2}


async def test_a_map_keeps_the_order_of_its_items() -> None:
    async def slow(n: int) -> int:
        await asyncio.sleep(0.01 * (5 - n))
        return n * n

    @flow
    async def mapped(ctx: Context) -> Any:
        return await ctx.map(slow, range(5), max_in_flight=3)

    assert await result(mapped) == [0, 1, 4, 9, 16]


async def test_a_collector_gets_two_thousand_events() -> None:
    async def begin(ev: StartEvent) -> list[Page]:
        return [Page(n=n) for n in range(2000)]

    async def fetch(ev: Page) -> Done:
        return Done(n=ev.n)

    @step(collect=Collect(Done, n=2000))
    async def join(done: list[Done]) -> StopEvent:
        return StopEvent(result=sum(each.n for each in done))

    assert await result(begin, fetch, join) == sum(range(2000))


async def test_what_children_show_comes_with_what_their_parent_shows() -> None:
    @flow
    async def grandchild(ctx: Context) -> None:
        await ctx.publish((3,))

    @flow
    async def child(ctx: Context) -> None:
        await ctx.publish("child")
        await ctx.run_child(grandchild)

    @flow
    async def parent(ctx: Context) -> None:
        await ctx.publish("parent")
        await ctx.run_child(child)
        await ctx.publish("again")

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(parent)
        shown = [each async for each in handle.stream(children=True)]
        assert [each.value for each in shown if each.run == handle.id] == ["parent", "again"]
        assert [(each.step, each.value) for each in shown if each.run != handle.id] == [
            ("child", "child"),
            ("grandchild", (3,)),
        ]
        assert len({each.run for each in shown}) == 3


async def test_a_fan_out_does_not_read_its_beginning_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[bytes] = []
    decode = codec.decode_fact

    def counted(data: bytes) -> Any:
        read.append(data)
        return decode(data)

    monkeypatch.setattr(codec, "decode_fact", counted)

    async def begin(ev: StartEvent) -> list[Page]:
        return [Page(n=n) for n in range(600)]

    async def fetch(ev: Page) -> Done:
        return Done(n=ev.n)

    @step(collect=Collect(Done, n=600))
    async def join(done: list[Done]) -> StopEvent:
        return StopEvent()

    await result(begin, fetch, join)
    assert sum(b'"step":"begin"' in data and len(data) > 10_000 for data in read) <= 2
    assert len(read) < 1500


async def test_a_step_leaves_nothing_to_the_garbage_collector(tmp_path: Path) -> None:
    async def begin(ctx: Context, ev: StartEvent) -> Page:
        return Page(n=0)

    async def turn(ctx: Context, ev: Page) -> Page | StopEvent:
        return Page(n=ev.n + 1) if ev.n < 200 else StopEvent()

    async with open_engine(db=tmp_path / "refold.db", settings=SHORT) as engine:
        await (await engine.start(Workflow("first", [begin, turn]))).result()
        gc.collect()
        gc.disable()
        try:
            await (await engine.start(Workflow("then", [begin, turn]))).result()
            assert gc.collect() < 200, "objects that refer to each other stay until somebody searches for them"
        finally:
            gc.enable()
