"""Parked bodies in several processes: the one that claims the command has the body, the others drop theirs."""

import asyncio
from typing import Any

import pytest
from msgspec import structs

from refold import Context, flow
from refold.core.commands import Command
from refold.core.facts import StepSettled
from refold.core.outcomes import Succeeded, Suspended
from refold.ports import Done, Lease, Memory
from refold.wiring import Process
from refold.worker.leases import HeldLease, place
from refold.worker.live_body import LiveBody, ParkedBodies
from refold.worker.run_tool import NO_REDACTION
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


class Begun:
    """What the worker says to a body that has begun."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def resumed(self, memory: Memory) -> None:
        self.heard.append("resumed")

    def interrupted(self) -> None:
        self.heard.append("interrupted")

    def dropped(self) -> None:
        self.heard.append("dropped")


@pytest.mark.parametrize("parks", [True, False])
async def test_a_body_whose_run_is_cancelled_before_it_has_its_memory_is_told_when_it_begins(parks: bool) -> None:
    """An earlier try of it may have done what it must undo, so it is not ended before. One without `async` is."""
    town, begun, has_memory = Town(), Begun(), asyncio.Event()
    command = Command("works/1", "works", 1, 1, tool="workflow:plan")
    lease = Lease("run", command, "worker", 1, until=0, claimed_at=0, plan="plan")
    async with town.house("one", SHORT, serves=False) as one:
        desk = one.worker.desk
        live = LiveBody(HeldLease(place(lease), lease), desk, one.engine.clock, 0.1, NO_REDACTION)

        async def body() -> Done:
            await has_memory.wait()
            live.attach(begun if parks else None)
            await asyncio.sleep(0)
            return Done(Succeeded("cleaned up"))

        live.begin(body(), ParkedBodies(1), None)
        live.interrupt()
        has_memory.set()
        await live.rest()
        assert begun.heard == (["interrupted"] if parks else [])
        assert (live.body.task.cancelled(), live.is_withdrawn) == (not parks, not parks)
