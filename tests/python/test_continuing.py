"""A run that continues with other inputs: it ends, and its successor starts in the same commit."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from refold import Context, Event, Settings, StartEvent, StopEvent, SyncContext, Workflow, flow, open_engine, step
from refold.errors import StepFailed
from refold.plan import Child, Plan, Step
from refold.python.definition import define

SHORT = Settings(poll=0.05, sweep_every=0.05)


@flow
async def count(ctx: Context, n: int, until: int = 5) -> int:
    if n < until:
        ctx.continue_with(n=n + 1, until=until)
    return n


class Count(Workflow[int]):
    @step
    async def only(self, ctx: Context, ev: StartEvent) -> StopEvent:
        ctx.set("n", ev.n)
        if ev.n < 3:
            ctx.continue_with(n=ev.n + 1)
        return StopEvent(result=ev.n)


@flow
def sync_count(ctx: SyncContext, n: int) -> int:
    if n < 3:
        ctx.continue_with(n + 1)
    return n


@pytest.mark.parametrize(("workflow", "last"), [(count, 5), (Count, 3), (sync_count, 3)])
async def test_the_result_of_a_run_is_that_of_its_last_successor(workflow: Any, last: int) -> None:
    async with open_engine() as engine:
        handle = await engine.options(name="n", labels={"a": "b"}).start(workflow, n=0)
        assert await handle.result() == last
        assert await engine.run(workflow, n=last - 1) == last
        assert (await engine.wait(handle.id)).status == "completed"
        rows = await engine.runs(name="n")
        assert [row.status for row in rows] == ["completed"] + ["continued"] * last
        assert all(row.labels == {"a": "b"} for row in rows)
        assert [row.successor for row in rows] == ["", *(row.run for row in rows[:-1])]
        first = (await engine.show(handle.id)).state
        assert (first.life, first.successor) == ("continued", rows[-2].run)
        assert (await engine.show(rows[-2].run)).state.predecessor == handle.id


async def test_a_handle_steers_the_run_that_continues_its_own() -> None:
    @flow
    async def serves(ctx: Context, round: int) -> list[Any]:
        ctx.set("round", round)
        await ctx.publish(f"round {round}")
        request = await ctx.next_request("more")
        await request.reply(round)
        if round < 2:
            ctx.continue_with(round=round + 1)
        return [await ctx.wait_for("a"), await ctx.wait_for("b")]

    async with open_engine() as engine:
        handle = await engine.start(serves, round=0)
        await handle.signal("a", 1)  # it is not taken before the last successor waits for it
        assert [await handle.request("more") for _ in range(3)] == [0, 1, 2]
        await handle.signal("b", 2)
        assert await handle.result() == [1, 2]
        assert await handle.get("round") == 2
        last = await handle.latest()
        assert last is not None and last.value == "round 2"


async def test_requests_that_were_not_taken_go_to_the_successor() -> None:
    @flow
    async def serves(ctx: Context, round: int) -> int:
        await ctx.wait_for("go")
        request = await ctx.next_request("more")
        await request.reply((round, request.value))
        if round < 2:
            ctx.continue_with(round=round + 1)
        return round

    async with open_engine() as engine:
        handle = await engine.start(serves, round=0)
        asked = [asyncio.ensure_future(handle.request("more", n, id=f"r{n}")) for n in range(3)]
        await asyncio.sleep(0)
        for _ in range(3):
            await handle.signal("go")
        assert sorted(await asyncio.gather(*asked)) == [(0, 0), (1, 1), (2, 2)]
        assert await handle.result() == 2


async def test_a_parent_waits_for_the_last_successor_of_its_child() -> None:
    @flow
    async def parent(ctx: Context) -> list[int]:
        both = await asyncio.gather(ctx.run_child(count, n=0, until=4), ctx.run_child(count, n=2, until=3))
        return [*both, await ctx.run_child(Count, n=0)]

    async with open_engine() as engine:
        assert await engine.run(parent) == [4, 3, 3]


async def test_a_cancelled_parent_cancels_the_successor_of_its_child() -> None:
    @flow
    async def child(ctx: Context, n: int) -> None:
        if n == 0:
            ctx.continue_with(n=1)
        await ctx.wait_for("never")

    @flow
    async def parent(ctx: Context) -> None:
        await ctx.run_child(child, n=0)

    async with open_engine() as engine:
        handle = await engine.start(parent)
        while [row.status for row in await engine.runs(workflow=child)] != ["waiting", "continued"]:
            await asyncio.sleep(0.005)
        await handle.cancel()
        assert (await engine.wait(handle.id)).status == "cancelled"
        assert [row.status for row in await engine.runs(workflow=child)] == ["cancelled", "continued"]


async def test_the_failure_of_a_successor_is_the_failure_of_the_run() -> None:
    @flow
    async def fails(ctx: Context, n: int) -> None:
        if n == 0:
            ctx.continue_with(n=1)
        raise ValueError("no luck")

    async with open_engine() as engine:
        with pytest.raises(StepFailed, match="no luck") as raised:
            await engine.run(fails, n=0)
        assert isinstance(raised.value.__cause__, ValueError)


async def test_a_key_belongs_to_the_successor_while_it_runs() -> None:
    @flow
    async def long(ctx: Context, n: int) -> Any:
        if n == 0:
            ctx.continue_with(n=1)
        return await ctx.wait_for("go")

    async with open_engine() as engine:
        keyed = engine.options(key="k", key_policy="while_running")
        first = await keyed.start(long, n=0)
        while len(await engine.runs(key="k")) < 2:
            await asyncio.sleep(0.005)
        again = await keyed.start(long, n=0)
        await again.signal("go", 3)
        assert (await first.result(), await again.result()) == (3, 3)
        assert len(await engine.runs(key="k")) == 2
        forever = await engine.options(key="other").run(count, n=4)
        assert forever == await engine.options(key="other").run(count, n=4) == 5


async def test_events_of_the_step_that_continues_are_not_handled_any_more(tmp_path: Path) -> None:
    class Extra(Event):
        pass

    seen: list[str] = []

    class Sends(Workflow[int]):
        @step(sends=[Extra])
        async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
            if ev.n == 0:
                ctx.send(Extra())
                ctx.continue_with(n=1)
            return StopEvent(result=ev.n)

        @step
        async def extra(self, ev: Extra) -> None:
            seen.append("extra")

    async with open_engine(db=tmp_path / "r.db", settings=SHORT) as engine:
        assert await engine.run(Sends, n=0) == 1
    assert seen == []


async def test_the_stream_of_a_handle_goes_on_with_the_runs_that_continue_its_own() -> None:
    @flow
    async def shows(ctx: Context, n: int) -> int:
        await ctx.publish(f"begin {n}")
        if n < 2:
            ctx.continue_with(n=n + 1)
        await ctx.publish("end")
        return n

    @flow
    async def parent(ctx: Context) -> int:
        return await ctx.run_child(shows, n=0)

    expected = ["begin 0", "begin 1", "begin 2", "end"]
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(shows, n=0)
        seen = [shown async for shown in handle.stream()]
        assert [shown.value for shown in seen] == expected
        assert [shown.number for shown in seen] == [1, 1, 1, 2]
        assert len({shown.run for shown in seen}) == 3
        assert [shown.value async for shown in handle.stream(1)] == expected[1:]
        above = await engine.start(parent)
        assert [shown.value async for shown in above.stream(children=True)] == expected


@pytest.mark.parametrize("budget", [{}, {"tokens": 1000}])
async def test_a_parent_counts_what_the_runs_that_continue_its_child_have_used(budget: dict[str, int | float]) -> None:
    @flow
    async def child(ctx: Context, n: int) -> int:
        ctx.usage(tokens=5)
        if n < 3:
            ctx.continue_with(n=n + 1)
        return n

    @flow
    async def above(ctx: Context) -> None:
        await ctx.run_child(child, n=1)

    root = Plan(name="root", steps=(Step(name="s", work=Child(plan=define(above).hash)),), budget=budget)
    async with open_engine() as engine:
        await engine.run(above)  # the engine knows both workflows now
        handle = await engine.start(root)
        await handle.result()
        assert await handle.usage() == {"tokens": 15}
