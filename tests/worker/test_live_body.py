"""Parked bodies in several processes: the one that claims the command has the body, the others drop theirs."""

import asyncio
from typing import Any

from msgspec import structs

from refold import Context, flow
from refold.core.facts import StepSettled
from refold.core.outcomes import Succeeded, Suspended
from refold.wiring import Process
from tests.worker.houses import SHORT, Town


async def suspended(process: Process, run: str, times: int = 1) -> None:
    async with asyncio.timeout(30):
        while True:
            history = await process.engine.history(run)
            outcomes = [fact.report.outcome for _, _, fact in history if isinstance(fact, StepSettled)]
            if sum(isinstance(each, Suspended) for each in outcomes) >= times:
                return
            await asyncio.sleep(0.005)


async def test_a_parked_body_whose_command_another_worker_had_is_dropped() -> None:
    starts: list[str] = []

    @flow
    async def waits(ctx: Context) -> Any:
        starts.append("start")
        first = await ctx.wait_for("first")
        return first, await ctx.wait_for("second")

    town = Town()
    async with town.house("one", SHORT) as one:
        handle = await one.engine.start(waits)
        await suspended(one, handle.id)
        assert len(one.worker.parked) == 1
        [live] = one.worker.parked.bodies()
        claimed_twice = structs.replace(live.lease, generation=live.lease.generation + 2)
        assert one.worker.parked.take(claimed_twice) is None and not one.worker.parked
        await handle.signal("first", 1)
        await suspended(one, handle.id, 2)
        await handle.signal("second", 2)
        assert await asyncio.wait_for(handle.result(), 30) == (1, 2)
    assert starts == ["start", "start"]


async def test_the_process_that_holds_a_parked_body_continues_it_although_another_one_brings_the_signal() -> None:
    starts: list[int] = []

    @flow
    async def waits(ctx: Context, n: int) -> Any:
        starts.append(n)
        return [await ctx.wait_for(f"signal {i}") for i in range(4)]

    town = Town()
    async with town.house("one", SHORT) as one:
        handles = [await one.engine.start(waits, n=n) for n in range(5)]
        for handle in handles:
            await suspended(one, handle.id)
        async with town.house("two", SHORT) as two:
            for handle in handles:
                await two.engine.attach(handle.id, waits)
            for i in range(4):
                for handle in handles:
                    await suspended(two, handle.id, i + 1)
                    await two.engine.signal(handle.id, f"signal {i}", i)
            results = [await asyncio.wait_for(handle.result(), 30) for handle in handles]
    assert results == [[0, 1, 2, 3]] * 5
    assert sorted(starts) == [0, 1, 2, 3, 4]


async def test_another_process_continues_a_parked_body_if_its_own_does_not_claim_it_within_a_second() -> None:
    starts: list[str] = []

    @flow
    async def waits(ctx: Context) -> Any:
        starts.append("start")
        return await ctx.wait_for("go")

    town = Town()
    async with town.house("one", SHORT) as one:
        handle = await one.engine.start(waits)
        await suspended(one, handle.id)
        async with town.house("two", SHORT) as two:
            one.worker.serve_runs(frozenset())  # it claims nothing more, as if all of its slots were taken
            await two.engine.attach(handle.id, waits)
            await two.engine.signal(handle.id, "go", 1)
            assert await asyncio.wait_for(two.engine.result(handle.id), 30) == 1
        history = await one.engine.history(handle.id)
        [by] = [
            fact.report.worker
            for _, _, fact in history
            if isinstance(fact, StepSettled) and isinstance(fact.report.outcome, Succeeded)
        ]
    assert starts == ["start", "start"] and by.startswith("two")
