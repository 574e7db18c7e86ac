"""What every desk promises a worker, whether the store is in the same process or behind HTTP."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from refold.core.facts import StepSettled
from refold.core.outcomes import Awaited, Failed, Fault, PutIf, SetKey, Succeeded, Suspended
from refold.core.plan import EventType, Loop
from refold.errors import InvalidValue, LeaseLost, StaleWrite
from refold.plan import Arc, Call, Plan, Step
from refold.ports import Done
from tests.contracts.desks import DESKS, Office

WORK = Call(tool="body")
ONE = Plan(name="one", steps=(Step(name="a", work=WORK, input={"n": 1}),))
TWO = Plan(name="two", steps=(Step(name="a", work=WORK, arcs=(Arc(to="b"),)), Step(name="b", work=WORK)))
WITH_CALLS = Plan(
    name="calls",
    events=(EventType(name="StartEvent"), EventType(name="StopEvent")),
    steps=(Step(name="a", work=WORK, accepts=("StartEvent",)),),
)


@pytest.fixture(params=DESKS)
async def office(request: pytest.FixtureRequest) -> AsyncIterator[Office]:
    async with DESKS[request.param]() as opened:
        yield opened


async def start(office: Office, plan: Plan, run: str = "r") -> None:
    await office.engine.options(run=run).start(plan)


async def settled(office: Office, run: str = "r") -> list[StepSettled]:
    return [fact for _, _, fact in await office.engine.history(run) if isinstance(fact, StepSettled)]


async def test_a_claim_brings_the_command_with_its_input_or_nothing(office: Office) -> None:
    assert await office.desk.claim(office.can(), 30.0) is None
    await start(office, ONE)
    lease = await office.claimed()
    assert (lease.run, lease.command.id, lease.command.input, lease.generation) == ("r", "a/1", {"n": 1}, 1)
    assert lease.worker == office.worker
    assert lease.until > lease.claimed_at > 0
    assert await office.desk.claim(office.can(), 30.0) is None


async def test_a_report_ends_the_run_and_the_next_claim_comes_with_its_commit(office: Office) -> None:
    await start(office, TWO)
    following = await office.desk.settle(await office.claimed(), Done(Succeeded({"x": [1]})), office.can())
    assert following is not None and following.command.id == "b/1"
    assert await office.desk.settle(following, Done(Succeeded(None)), office.can()) is None
    assert (await office.engine.wait("r")).status == "completed"
    assert [fact.report.worker for fact in await settled(office)] == [office.worker] * 2


async def test_no_next_command_comes_if_none_is_wanted(office: Office) -> None:
    await start(office, TWO)
    assert await office.desk.settle(await office.claimed(), Done(Succeeded(None))) is None
    assert (await office.claimed()).command.id == "b/1"


@pytest.mark.parametrize(
    "value", [None, 0.1, -0.0, 10**30, -(2**63), "ü\u0000"[:1], {"ä": [1, {"b": None}]}, "x" * 200_000, [[]] * 1000]
)
async def test_a_value_arrives_as_it_was_sent(office: Office, value: Any) -> None:
    await start(office, ONE)
    await office.desk.settle(await office.claimed(), Done(Succeeded({"value": value})))
    result = (await office.engine.wait("r")).result
    assert result == {"value": value} and repr(result) == repr({"value": value})


async def test_a_value_of_several_megabytes_arrives_too(office: Office) -> None:
    await start(office, ONE)
    value = "0123456789" * 300_000
    await office.desk.settle(await office.claimed(), Done(Succeeded(value)))
    assert (await office.engine.wait("r")).result == value


@pytest.mark.parametrize("value", [{1, 2}, float("nan"), {"a": object()}, {1: 2}, "\ud800"])
async def test_what_cannot_be_stored_fails_its_step_and_names_the_place(office: Office, value: Any) -> None:
    await start(office, ONE)
    await office.desk.settle(await office.claimed(), Done(Succeeded({"deep": [value]})))
    [fact] = await settled(office)
    outcome = fact.report.outcome
    assert isinstance(outcome, Failed) and outcome.fault.kind == "invalid_value"
    assert outcome.fault.message.startswith("result.deep[0]")


async def test_a_failure_arrives_with_everything_it_says(office: Office) -> None:
    await start(office, ONE)
    fault = Fault("http", "no", type="HttpError", traceback="x", code=404, retryable=False, data={"a": 1})
    await office.desk.settle(await office.claimed(), Done(Failed(fault), usage={"tokens": 3}))
    [fact] = await settled(office)
    assert fact.report.outcome == Failed(fault)
    assert fact.report.usage == {"tokens": 3}


async def test_a_report_of_a_former_holder_is_refused(office: Office) -> None:
    await start(office, ONE)
    late = await office.claimed()
    await office.desk.hand_back(late)
    now = await office.claimed()
    assert now.generation == late.generation + 1
    with pytest.raises(LeaseLost):
        await office.desk.settle(late, Done(Succeeded("late")))
    with pytest.raises(LeaseLost):
        await office.desk.publish(late, [{"text": "late"}])
    with pytest.raises(LeaseLost):
        await office.desk.record(late, "k", Succeeded(1))
    await office.desk.settle(now, Done(Succeeded("now")))
    assert (await office.engine.wait("r")).result == "now"


async def test_a_write_over_a_newer_value_is_refused_with_that_value(office: Office) -> None:
    await start(office, TWO)
    await office.desk.settle(await office.claimed(), Done(Succeeded(None), writes=(SetKey("k", {"x": 1}),)))
    second = await office.claimed()
    with pytest.raises(StaleWrite) as stale:
        await office.desk.settle(second, Done(Succeeded(None), writes=(PutIf("k", 0, 2),)))
    assert (stale.value.key, stale.value.current, stale.value.version, stale.value.is_there) == ("k", {"x": 1}, 1, True)
    await office.desk.settle(second, Done(Succeeded(None), writes=(PutIf("k", 1, 2),)))
    assert (await office.engine.wait("r")).state.ctx == {"k": 2}


async def test_a_claim_takes_what_the_worker_can_do_and_has_a_place_for(office: Office) -> None:
    await start(office, Plan(name="strange", steps=(Step(name="a", work=Call(tool="strange")),)))
    await start(office, Plan(name="big", steps=(Step(name="a", work=Call(tool="other"), queue="big"),)), "s")
    assert (await office.claimed()).run == "s"
    assert await office.desk.claim(office.can(), 30.0) is None


async def test_a_heartbeat_returns_what_is_held_and_moves_its_end(office: Office) -> None:
    await start(office, TWO)
    await start(office, ONE, "s")
    one, two = await office.claimed(), await office.claimed()
    held = await office.desk.extend(office.worker, 60.0, {(two.run, two.command.id, two.generation): 5.0})
    assert sorted((each.run, each.command.id, each.generation) for each in held) == [("r", "a/1", 1), ("s", "a/1", 1)]
    assert all(each.until >= one.until for each in held)
    await office.desk.settle(one, Done(Succeeded(None)))
    assert [each.run for each in await office.desk.leases_of(office.worker)] == ["s"]


async def test_lines_are_shown_in_their_order(office: Office) -> None:
    await start(office, ONE)
    lease = await office.claimed()
    for lines in (["one", {"two": 2}], [], ["x" * 100_000]):
        await office.desk.publish(lease, lines)
    await office.desk.settle(lease, Done(Succeeded(None), lines=("last",)))
    lines = [line for _, line in office.engine.store.views.lines("r")]
    assert lines == ["one", {"two": 2}, "x" * 100_000, "last"]


async def test_many_lines_at_once_are_shown_once_each(office: Office) -> None:
    await start(office, ONE)
    lease = await office.claimed()
    await asyncio.gather(*(office.desk.publish(lease, [n]) for n in range(20)))
    assert sorted(line for _, line in office.engine.store.views.lines("r")) == list(range(20))


async def test_the_first_record_of_a_durable_call_counts_and_the_next_holder_finds_it(office: Office) -> None:
    await start(office, WITH_CALLS)
    lease = await office.claimed()
    await office.desk.record(lease, "k", Succeeded(1))
    await office.desk.record(lease, "k", Succeeded(2))
    await office.desk.record(lease, "big", Succeeded("x" * 100_000))
    await office.desk.hand_back(lease)
    memory = await office.desk.recall(await office.claimed())
    assert memory.recorded["k"] == Succeeded(1)
    big = memory.recorded["big"]
    assert isinstance(big, Succeeded) and big.blob is not None


async def test_a_record_that_cannot_be_stored_is_refused_with_its_place(office: Office) -> None:
    await start(office, WITH_CALLS)
    with pytest.raises(InvalidValue, match=r"^k\.a"):
        await office.desk.record(await office.claimed(), "k", Succeeded({"a": {1}}))


async def test_a_body_that_waits_gets_its_command_again_by_a_signal_and_by_asking(office: Office) -> None:
    await start(office, WITH_CALLS)
    waits = Done(Suspended((Awaited("go", signal="go"),)))
    first = await office.claimed()
    assert await office.desk.settle(first, waits, office.can()) is None
    await office.desk.wake(first)
    second = await office.claimed()
    await office.desk.expect(second, [Awaited("more", signal="more")])
    assert await office.desk.settle(second, waits) is None
    await office.engine.signal("r", "go", 3)
    third = await office.claimed()
    assert (await office.desk.recall(third)).recorded["go"] == Succeeded(3)
    await office.desk.settle(third, Done(Succeeded(None)))
    with pytest.raises(LeaseLost):
        await office.desk.wake(first)


async def test_a_run_that_is_cancelled_while_its_body_runs_is_reported(office: Office) -> None:
    await start(office, WITH_CALLS)
    lease = await office.claimed()
    await office.desk.record(lease, "k", Succeeded(1))
    assert list(await office.desk.interrupted([lease])) == []
    await office.engine.cancel("r")
    assert list(await office.desk.interrupted([lease])) == [("r", "a/1", 1)]
    assert (await office.desk.recall(lease)).is_cancelled


async def test_what_a_run_withdraws_is_not_held_any_more(office: Office) -> None:
    await start(office, ONE)
    await office.claimed()
    await office.engine.cancel("r")
    assert list(await office.desk.leases_of(office.worker)) == []
    assert list(await office.desk.extend(office.worker, 30.0)) == []


async def test_a_command_that_is_given_up_counts_as_a_loss(office: Office) -> None:
    await start(office, ONE)
    lease = await office.claimed()
    await office.desk.hand_back(lease, lost=True)
    async with asyncio.timeout(30):
        while (again := await office.desk.claim(office.can(), 30.0)) is None:
            await asyncio.sleep(0.02)
    assert (again.generation, again.losses) == (2, 1)


async def test_the_items_of_a_loop_are_handed_out_one_by_one(office: Office) -> None:
    plan = Plan(name="loop", steps=(Step(name="a", work=WORK, loop=Loop(items=[1, 2, 3])),))
    await start(office, plan)
    lease, seen = await office.claimed(), []
    while lease is not None:
        seen.append(lease.command.item)
        lease = await office.desk.settle(lease, Done(Succeeded(lease.command.item)), office.can())  # type: ignore[assignment]
    assert seen == [0, 1, 2]
    assert (await office.engine.wait("r")).result == [0, 1, 2]
