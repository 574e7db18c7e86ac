"""Durable calls at the desk: recorded under the lease, once, and found by whoever runs the command next."""

import pytest

from refold.core.outcomes import Awaited, Succeeded, Suspended
from refold.core.plan import Call, EventType, Plan, Step
from refold.errors import LeaseLost
from refold.ports import Abilities, Done, Lease
from refold.wiring import Process
from tests.worker.houses import Town

PLAN = Plan(
    name="p",
    events=(EventType(name="StartEvent"), EventType(name="StopEvent")),
    steps=(Step(name="a", work=Call(tool="body"), accepts=("StartEvent",)),),
)
CAN = Abilities(worker="w", tools=frozenset({"body"}))


async def claimed(process: Process) -> Lease:
    lease = await process.desk.claim(CAN, 30.0)
    assert lease is not None
    return lease


async def test_what_was_recorded_is_there_for_the_next_holder() -> None:
    async with Town().house("one", serves=False) as process:
        await process.engine.options(run="r").start(PLAN)
        lease = await claimed(process)
        await process.desk.record(lease, "k", Succeeded(1))
        await process.desk.record(lease, "k", Succeeded(2))
        await process.desk.hand_back(lease)
        again = await claimed(process)
        assert (await process.desk.recall(again)).recorded == {"k": Succeeded(1)}


async def test_a_note_of_a_former_holder_is_refused() -> None:
    async with Town().house("one", serves=False) as process:
        await process.engine.options(run="r").start(PLAN)
        lease = await claimed(process)
        await process.desk.hand_back(lease)
        await claimed(process)
        with pytest.raises(LeaseLost):
            await process.desk.record(lease, "k", Succeeded(1))


async def test_a_command_that_is_over_recalls_nothing() -> None:
    async with Town().house("one", serves=False) as process:
        await process.engine.options(run="r").start(PLAN)
        lease = await claimed(process)
        await process.desk.settle(lease, Done(Succeeded(1)))
        with pytest.raises(LeaseLost, match="is over"):
            await process.desk.recall(lease)


async def test_a_large_result_is_in_a_blob_and_a_claim_of_the_same_turn_brings_the_memory() -> None:
    async with Town().house("one", serves=False) as process:
        await process.engine.options(run="r").start(PLAN)
        lease = await claimed(process)
        await process.desk.record(lease, "big", Succeeded("x" * 100_000))
        waits = Suspended((Awaited("go", signal="go"),))
        assert await process.desk.settle(lease, Done(waits), CAN) is None
        await process.engine.signal("r", "go", 3)
        memory = await process.desk.recall(await claimed(process))
        assert memory.recorded["go"] == Succeeded(3)
        big = memory.recorded["big"]
        assert isinstance(big, Succeeded) and big.blob is not None and big.blob.size > 100_000


async def test_a_claim_brings_no_memory_that_lacks_what_another_process_has_recorded() -> None:
    town = Town()
    async with town.house("one", serves=False) as one, town.house("two", serves=False) as two:
        await one.engine.options(run="r").start(PLAN)
        await one.engine.options(run="s").start(PLAN)
        elsewhere, here = await claimed(two), await claimed(one)
        await two.desk.record(elsewhere, "k", Succeeded(1))
        await two.desk.hand_back(elsewhere)
        again = await one.desk.settle(here, Done(Succeeded(1)), CAN)
        assert again is not None and again.run == elsewhere.run and again.memory is None
        assert (await one.desk.recall(again)).recorded == {"k": Succeeded(1)}


async def test_a_claim_brings_the_memory_of_a_run_that_had_no_mail_in_the_turn() -> None:
    async with Town().house("one", serves=False) as process:
        for run in ("r", "s"):
            await process.engine.options(run=run).start(PLAN)
        first, second = await claimed(process), await claimed(process)
        await process.desk.record(first, "k", Succeeded(1))
        await process.desk.hand_back(first)
        again = await process.desk.settle(second, Done(Succeeded(1)), CAN)
        assert again is not None and again.run == first.run
        assert again.memory is not None and again.memory.recorded == {"k": Succeeded(1)}
