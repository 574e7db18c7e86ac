"""Parked bodies in several processes: the one that claims the command has the body, the others drop theirs."""

import asyncio
from typing import Any

from msgspec import structs

from refold import Context, flow
from refold.core.facts import StepSettled
from refold.core.outcomes import Suspended
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
