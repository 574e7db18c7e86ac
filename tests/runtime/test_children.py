"""Children in a running engine: how deep they go, who pauses them, and how fast a cancellation reaches their work."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from refold import Retry
from refold.core.commands import child_id
from refold.core.outcomes import Awaited, Failed, Succeeded, Suspended
from refold.core.plan import plan_hash
from refold.plan import Arc, Call, Child, Loop, Plan, Step, Wait
from refold.ports import Done
from refold.runtime.engine import Engine
from refold.runtime.mail import Cancel
from refold.settings import Settings
from refold.wiring import open_engine, open_intake

QUICK = Settings(lease_for=0.9, sweep_every=0.05, poll=0.05)


class Bodies:
    """Tools: one that waits until it is cancelled, one that uses something up, one that calls a child."""

    def __init__(self) -> None:
        self.began, self.stopped = asyncio.Event(), asyncio.Event()

    async def waits(self, call: Any) -> None:
        self.began.set()
        try:
            await asyncio.sleep(3600)
        finally:
            self.stopped.set()

    async def uses(self, call: Any) -> Done:
        return Done(Succeeded("used"), usage={"tokens": 1})

    async def fails(self, call: Any) -> None:
        raise RuntimeError("no")

    async def calls(self, call: Any) -> Any:
        outcome = call.command.recorded.get("kid")
        if outcome is None:
            return Suspended((Awaited("kid", child="0" * 64),))
        assert isinstance(outcome, Failed)
        return outcome.fault.kind

    def tools(self) -> dict[str, Any]:
        return {"waits": self.waits, "uses": self.uses, "fails": self.fails, "calls": self.calls}


@asynccontextmanager
async def engine(bodies: Bodies, **more: Any) -> AsyncIterator[Engine]:
    settings = more.pop("settings", QUICK)
    async with open_engine(bodies.tools(), settings=settings, **more) as opened:
        yield opened


def leaf(tool: str) -> Plan:
    return Plan(name="leaf", steps=(Step(name="work", work=Call(tool=tool)),))


def above(child: Plan, name: str = "above", **more: Any) -> Plan:
    return Plan(name=name, steps=(Step(name="kid", work=Child(plan=plan_hash(child)), **more),))


async def test_a_workflow_that_starts_itself_fails_at_the_limit_and_names_the_chain() -> None:
    again = Plan(name="again", steps=(Step(name="me", work=Child()),))
    async with engine(Bodies(), settings=Settings(depth_limit=8)) as opened:
        run = (await opened.start(again)).id
        shown = await asyncio.wait_for(opened.wait(run), 60)
        rows = await opened.runs()
        deepest = next(row for row in rows if not any(other.parent == row.run for other in rows))
        assert (shown.status, len(rows)) == ("failed", 9)
        assert deepest.error is not None and deepest.error.fault is not None
        fault = deepest.error.fault
        assert (fault.kind, fault.retryable) == ("too_deep", False)
        assert "again > again > again > (3 more) > again > again > again" in fault.message


async def test_a_hundred_levels_are_enough_for_most() -> None:
    assert Settings().depth_limit == 100
    chain = [leaf("uses")]
    for _ in range(100):
        chain.append(above(chain[-1]))
    async with engine(Bodies()) as opened:
        for plan in chain:
            await opened.register(plan)
        run = (await opened.start(chain[-1])).id
        shown = await asyncio.wait_for(opened.wait(run), 60)
        assert (shown.status, shown.result, shown.usage) == ("completed", "used", {"tokens": 1})
        top = above(chain[-1])
        run = (await opened.start(top)).id
        assert (await asyncio.wait_for(opened.wait(run), 60)).status == "failed"


async def test_the_child_of_a_child_that_nobody_registered_is_a_failure_and_no_endless_wait() -> None:
    middle = above(Plan(name="unheard", steps=(Step(name="a"),)), "middle")
    async with engine(Bodies()) as opened:
        await opened.register(middle)
        run = (await opened.start(above(middle))).id
        shown = await asyncio.wait_for(opened.wait(run), 60)
        assert shown.status == "failed" and shown.error is not None and shown.error.fault is not None
        assert "there is no workflow" in shown.error.fault.message


async def test_a_call_of_an_unknown_workflow_fails_in_the_body_that_makes_it() -> None:
    async with engine(Bodies()) as opened:
        assert await asyncio.wait_for(opened.run(leaf("calls")), 60) == "no_workflow"


async def test_one_child_is_cancelled_from_outside_and_the_run_goes_on() -> None:
    bodies = Bodies()
    plan = Plan(
        name="plan",
        steps=(
            Step(name="kid", work=Child(plan=plan_hash(leaf("waits"))), arcs=(Arc(to="mend", on="failure"),)),
            Step(name="mend", work=Call(tool="uses")),
        ),
    )
    async with engine(bodies) as opened:
        await opened.register(leaf("waits"))
        run = (await opened.start(plan)).id
        await asyncio.wait_for(bodies.began.wait(), 60)
        await opened.cancel(run, "enough", command="kid/1")
        shown = await asyncio.wait_for(opened.wait(run), 60)
        assert (shown.status, shown.result, bodies.stopped.is_set()) == ("completed", "used", True)
        assert (await opened.show(child_id(run, "kid/1"))).status == "cancelled"


async def test_a_child_that_somebody_paused_stays_so_when_its_parent_is_resumed() -> None:
    sleeper = Plan(name="sleeper", steps=(Step(name="w", work=Wait(signal="go")),))
    async with engine(Bodies()) as opened:
        await opened.register(sleeper)
        run = (await opened.start(above(sleeper))).id
        child = child_id(run, "kid/1")
        await until(opened, child, "waiting")
        for order in ((child, run), (run, child)):
            for each in order:
                await opened.pause(each, by="ada")
                await until(opened, child, "paused")  # or the letter of its parent comes after ada
            await opened.resume(run, by="ada")
            await asyncio.sleep(0.2)
            assert (await opened.show(child)).status == "paused"
            await opened.resume(child, by="ada")
            await until(opened, child, "waiting")
        await opened.pause(run)
        await until(opened, child, "paused")
        await opened.resume(run)
        await until(opened, child, "waiting")


async def until(opened: Engine, run: str, status: str) -> None:
    async def look() -> None:
        while not any(row.run == run for row in await opened.runs()) or (await opened.show(run)).status != status:
            await asyncio.sleep(0.01)

    await asyncio.wait_for(look(), 60)


async def test_a_cancellation_from_another_process_reaches_the_work_of_a_grandchild_within_a_heartbeat(
    tmp_path: Path,
) -> None:
    """And a second. Others use this machine too, and make nothing faster: the fastest of a few is the measure."""
    bodies, db, took = Bodies(), tmp_path / "refold.db", list[float]()
    middle = above(leaf("waits"), "middle")

    def cancel(run: str) -> None:
        with open_intake(db) as (intake, _):
            intake.send(run, Cancel("enough"))

    async with engine(bodies, db=db) as opened:
        for plan in (leaf("waits"), middle):
            await opened.register(plan)
        while len(took) < 5 and min(took, default=60.0) > QUICK.lease_for / 3 + 1.0:
            bodies.began.clear()
            bodies.stopped.clear()
            run = (await opened.start(above(middle))).id
            await asyncio.wait_for(bodies.began.wait(), 60)
            await asyncio.to_thread(cancel, run)
            began = time.monotonic()
            await asyncio.wait_for(bodies.stopped.wait(), 60)
            took.append(time.monotonic() - began)
            assert (await asyncio.wait_for(opened.wait(run), 60)).status == "cancelled"
    assert min(took) <= QUICK.lease_for / 3 + 1.0


async def test_what_children_use_up_is_added_once_over_tries_and_items() -> None:
    wasteful = Plan(
        name="wasteful",
        steps=(
            Step(name="use", work=Call(tool="uses"), arcs=(Arc(to="fail"),)),
            Step(name="fail", work=Call(tool="fails")),
        ),
    )
    middle = above(wasteful, "middle", loop=Loop(items=[1, 2]), retry=Retry(attempts=3))
    async with engine(Bodies()) as opened:
        for plan in (wasteful, middle):
            await opened.register(plan)
        run = (await opened.start(above(middle, retry=Retry(attempts=2)))).id
        shown = await asyncio.wait_for(opened.wait(run), 60)
        assert (shown.status, shown.usage) == ("failed", {"tokens": 2 * 3 * 2})


async def test_a_child_that_is_ending_runs_what_always_runs_when_its_parent_is_cancelled() -> None:
    bodies = Bodies()
    slow = Plan(
        name="slow",
        steps=(Step(name="w", work=Wait(signal="go")), Step(name="tidy", work=Call(tool="waits"))),
        always=("tidy",),
    )
    async with engine(bodies) as opened:
        await opened.register(slow)
        run = (await opened.start(above(slow))).id
        child = child_id(run, "kid/1")
        await until(opened, child, "waiting")
        await opened.cancel(child)
        await asyncio.wait_for(bodies.began.wait(), 60)
        await opened.cancel(run)
        await asyncio.sleep(0.2)
        assert (await opened.show(child)).status == "ending" and not bodies.stopped.is_set()
        await opened.cancel(run)
        await asyncio.wait_for(bodies.stopped.wait(), 60)
        assert (await asyncio.wait_for(opened.wait(run), 60)).status == "cancelled"
