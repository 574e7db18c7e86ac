"""JamJet's contract about leases: losses, fences, the reclaim guard, cancel, and one settlement per command."""

import asyncio
from functools import partial
from typing import Any

import pytest
from msgspec import structs

from refold import Retry
from refold.core.facts import RunEnded, RunEnding, StepIssued, StepSettled
from refold.core.outcomes import Awaited, Failed, Fault, Parked, Succeeded, Suspended
from refold.errors import LeaseLost
from refold.plan import Call, Loop
from refold.ports import Abilities, Done, Lease, ToolCall
from refold.runtime.background import LOSSES
from refold.runtime.mail import Expire
from refold.stores.memory import StoredFact
from refold.testing.simulator.event_loop import current_process
from tests.compat.stage import NOON, Stage, names, plan, step, tables, work

ONE = plan(step("a", "b", retry=Retry(attempts=1)), step("b"))


def by_hand(stage: Stage) -> str:
    """A run whose commands nobody takes but the test."""
    stage.house(serves=False)
    return stage.start(ONE)


def taken(stage: Stage, worker: str = "me", **more: Any) -> Lease:
    lease = stage.claim(worker, **more)
    assert lease is not None
    return lease


def expire(stage: Stage) -> list[Any]:
    return list(stage.store.expire(LOSSES))


def lose(stage: Stage, times: int) -> None:
    for n in range(times):
        assert taken(stage, f"mayfly{n}").losses == n
        stage.pass_time(31)
        assert expire(stage) == []


def test_a_lost_lease_is_a_loss_and_no_try(stage: Stage) -> None:
    run = stage.start(plan(step("a", "b", work=work(takes=20)), step("b")))  # one try is all its policy allows
    for _ in range(3):
        stage.pass_time(5)
        stage.first.kill()
        stage.house()
        assert stage.until(lambda: stage.houses[-1].sim.name in [each.process for each in stage.began])
    shown = stage.end(run)
    assert shown.status == "completed"
    assert [(each.command, each.attempt) for each in stage.began] == [("a/1", 1)] * 4 + [("b/1", 1)]
    [first, second] = stage.facts(run, StepSettled)
    assert (first.report.attempt, first.report.losses) == (1, 3)
    assert (second.report.attempt, second.report.losses) == (1, 0)
    assert shown.steps["a"]["attempts"] == 1


def test_a_step_that_kills_its_worker_each_time_is_given_up_by_name(stage: Stage) -> None:
    async def poison(call: ToolCall) -> None:
        process = current_process()
        assert process is not None
        process.kill()
        await asyncio.sleep(1)

    stage.tools["poison"] = poison
    run = stage.start(
        plan(step("a", work=Call(tool="poison"), retry=Retry(attempts=3)), step("clean"), always=("clean",))
    )
    while stage.status(run) != "failed":
        alive = stage.first.sim
        assert stage.until(partial(lambda one: not one.alive or stage.status(run) == "failed", alive), 100)
    shown = stage.end(run)
    assert stage.calls("a") == ["a/1"] * (LOSSES + 1)
    assert shown.status == "failed" and shown.error is not None and shown.error.fault is not None
    assert (shown.error.step, shown.error.fault.kind) == ("a", "lost")
    assert shown.error.fault.message == f"{LOSSES + 1} workers were lost while they ran it"
    assert names(stage.calls())[-1] == "clean"


def test_giving_up_a_lost_command_is_one_commit_and_can_be_listed(stage: Stage) -> None:
    run = by_hand(stage)
    lose(stage, LOSSES)
    taken(stage)
    stage.pass_time(31)
    stage.first.serve()
    assert stage.until(lambda: stage.status(run) == "failed")
    log = stage.store.logs[run]
    assert [entry.turn is not None for entry in log] == [True, False, True, False, False, False]
    assert [type(fact) for fact in stage.history(run)][2::3] == [StepSettled, RunEnded]
    [row] = stage.do(stage.engine.runs("failed"))
    assert row.error is not None and (row.error.step, row.error.fault and row.error.fault.kind) == ("a", "lost")


def found_at_the_limit(stage: Stage) -> tuple[str, Lease, Expire]:
    """A lease that ran out once too often, found by a sweep that has not acted on it yet."""
    run = by_hand(stage)
    lose(stage, LOSSES)
    lease = taken(stage)
    stage.pass_time(31)
    [found] = expire(stage)
    assert (found.run, found.command, found.generation) == (run, "a/1", LOSSES + 1)
    return run, lease, Expire(found.command, found.generation, LOSSES)


def test_a_completion_between_finding_and_giving_up_wins(stage: Stage) -> None:
    run, lease, found = found_at_the_limit(stage)
    stage.settle(lease, Done(Succeeded("in time")))
    stage.do(stage.engine.mailroom.send(run, found))
    assert [fact.report.outcome for fact in stage.facts(run, StepSettled)] == [Succeeded("in time")]
    assert stage.status(run) == "running"


def test_a_heartbeat_between_finding_and_giving_up_wins(stage: Stage) -> None:
    run, lease, found = found_at_the_limit(stage)
    stage.do(stage.first.desk.extend("me", 30.0))
    stage.do(stage.engine.mailroom.send(run, found))
    assert stage.facts(run, StepSettled) == []
    stage.settle(lease, Done(Succeeded("in time")))
    assert [fact.report.outcome for fact in stage.facts(run, StepSettled)] == [Succeeded("in time")]


def test_a_completion_and_the_sweep_in_one_turn_count_once(stage: Stage) -> None:
    run, lease, found = found_at_the_limit(stage)

    async def both() -> None:
        await asyncio.gather(stage.first.desk.settle(lease, Done(Succeeded())), stage.engine.mailroom.send(run, found))

    stage.do(both())
    assert [fact.report.outcome for fact in stage.facts(run, StepSettled)] == [Succeeded()]


def test_a_lost_command_without_completion_or_heartbeat_is_given_up(stage: Stage) -> None:
    run, lease, found = found_at_the_limit(stage)
    stage.do(stage.engine.mailroom.send(run, found))
    assert stage.status(run) == "failed"
    with pytest.raises(LeaseLost):
        stage.settle(lease, Done(Succeeded("too late")))


def refused_everywhere(stage: Stage, lease: Lease) -> None:
    """Each write that a worker can make is refused, and nothing has changed."""
    before = tables(stage.store)
    for outcome in (Succeeded("late"), Failed(Fault("late")), Parked(until=1), Suspended((Awaited("k", until=1),))):
        with pytest.raises(LeaseLost):
            stage.settle(lease, Done(outcome))
    with pytest.raises(LeaseLost):
        stage.do(stage.first.desk.publish(lease, ["late"]))
    kept = stage.do(stage.first.desk.extend(lease.worker, 30.0))
    assert lease.generation not in [each.generation for each in kept if each.command.id == lease.command.id]
    stage.do(stage.first.desk.hand_back(lease))
    assert tables(stage.store) == before


def test_a_stale_generation_is_refused_everywhere(stage: Stage) -> None:
    by_hand(stage)
    stale = taken(stage, "slow")
    stage.pass_time(31)
    assert expire(stage) == []
    refused_everywhere(stage, stale)  # nobody has it
    fresh = taken(stage, "fast")
    assert (fresh.generation, fresh.losses) == (stale.generation + 1, 1)
    refused_everywhere(stage, stale)  # another has it
    stage.settle(fresh, Done(Succeeded()))
    refused_everywhere(stage, stale)  # it is over
    refused_everywhere(stage, fresh)


@pytest.mark.parametrize("generation", [0, 1, 99])
def test_a_forged_generation_is_refused_everywhere(stage: Stage, generation: int) -> None:
    run = by_hand(stage)
    own = taken(stage)
    stage.do(stage.first.desk.hand_back(own))
    refused_everywhere(stage, structs.replace(own, generation=generation))  # on a command that nobody has
    taken(stage, "another")
    refused_everywhere(stage, structs.replace(own, generation=generation))  # on a command that another has
    assert stage.facts(run, StepSettled) == []


def test_a_hand_back_counts_as_nothing_and_the_command_can_be_taken_at_once(stage: Stage) -> None:
    by_hand(stage)
    first = taken(stage)
    stage.do(stage.first.desk.hand_back(first))
    second = taken(stage)
    assert (second.generation, second.losses, second.command.attempt) == (2, 0, 1)


def test_a_line_published_under_a_lease_is_in_the_side_stream(stage: Stage) -> None:
    run = by_hand(stage)
    lease = taken(stage)
    stage.do(stage.first.desk.publish(lease, ["half way"]))
    assert stage.store.views.lines(run) == [(1, "half way")]


def test_one_failing_command_does_not_stop_the_sweep(stage: Stage) -> None:
    stage.house(serves=False)
    runs = [stage.start(ONE, run=f"run{i}") for i in range(5)]
    for n in range(LOSSES + 1):
        for _ in runs:
            taken(stage, f"mayfly{n}")
        stage.pass_time(31)
        if n < LOSSES:
            assert expire(stage) == []
    stage.store.logs["run2"][1] = StoredFact(0, b"no fact", None)
    stage.first.kill()
    stage.house()
    assert stage.until(lambda: all(stage.status(run) == "failed" for run in runs if run != "run2"), 5)
    assert len(stage.store.logs["run2"]) == 2


def test_a_failure_report_and_the_next_try_are_one_commit(stage: Stage) -> None:
    stage.house(serves=False)
    run = stage.start(plan(step("a", retry=Retry(attempts=2, delay=4.0))))
    stage.settle(taken(stage), Done(Failed(Fault("io"))))
    assert [type(fact) for fact in stage.history(run)[2:]] == [StepSettled, StepIssued]
    assert [entry.turn is not None for entry in stage.store.logs[run][2:]] == [True, False]
    assert stage.store.commands[run, "a/1"].command.attempt == 2
    assert stage.claim() is None
    stage.pass_time(4)
    stage.settle(taken(stage), Done(Failed(Fault("io"))))
    rest = stage.history(run)[4:]
    assert [type(fact) for fact in rest if isinstance(fact, StepSettled | RunEnding | RunEnded)] == [
        StepSettled,
        RunEnding,
        RunEnded,
    ]
    assert [entry.turn is not None for entry in stage.store.logs[run][4:]] == [True] + [False] * (len(rest) - 1)


def test_a_completion_after_cancel_is_refused(stage: Stage) -> None:
    run = by_hand(stage)
    lease = taken(stage)
    stage.do(stage.engine.cancel(run))
    refused_everywhere(stage, lease)
    assert isinstance(stage.history(run)[-1], RunEnded)


def test_the_same_command_never_settles_twice(stage: Stage) -> None:
    run = by_hand(stage)
    lease = taken(stage)

    async def twice() -> list[Any]:
        reports = (stage.first.desk.settle(lease, Done(Succeeded(n))) for n in (1, 2))
        return await asyncio.gather(*reports, return_exceptions=True)

    first, second = stage.do(twice())
    assert first is None and isinstance(second, LeaseLost)
    assert [fact.report.outcome for fact in stage.facts(run, StepSettled)] == [Succeeded(1)]
    with pytest.raises(LeaseLost):
        stage.settle(lease, Done(Succeeded(3)))
    assert [fact.step for fact in stage.facts(run, StepIssued)] == ["a", "b"]


def test_one_item_never_settles_twice_in_one_turn(stage: Stage) -> None:
    stage.house(serves=False)
    run = stage.start(plan(step("each", loop=Loop(items=[1, 2]))))
    one, two = taken(stage), taken(stage)

    async def race() -> list[Any]:
        reports = (stage.first.desk.settle(lease, Done(Succeeded(n))) for n, lease in ((1, one), (2, one), (3, two)))
        return await asyncio.gather(*reports, return_exceptions=True)

    results = stage.do(race())
    assert [isinstance(each, LeaseLost) for each in results] == [False, True, False]
    assert stage.show(run).result == [1, 3]


def test_every_try_of_a_command_has_the_same_idempotency_key(stage: Stage) -> None:
    shape = plan(step("a", work=work(takes=5, faults=[{"kind": "io"}]), retry=Retry(attempts=2, delay=1.0)))
    run = stage.start(shape)
    stage.pass_time(2)
    stage.first.kill()
    stage.house()
    stage.end(run)
    assert [each.attempt for each in stage.began] == [1, 1, 2]
    assert {each.call.idempotency_key for each in stage.began} == {f"{run}/a/1"}


def test_a_durable_call_that_gave_none_is_not_made_again(stage: Stage) -> None:
    bodies: list[dict[str, Any]] = []

    async def body(call: ToolCall) -> Any:
        bodies.append(dict(call.command.recorded))
        if "answer" not in call.command.recorded:
            return Suspended((Awaited("answer", signal="answer"),))
        if "nap" not in call.command.recorded:
            return Suspended((Awaited("answer", signal="answer"), Awaited("nap", until=NOON + 50_000_000)))
        return "through"

    stage.tools["body"] = body
    run = stage.start(plan(step("a", work=Call(tool="body"))))
    stage.pass_time(1)
    stage.do(stage.engine.signal(run, "answer", None))
    stage.pass_time(1)
    stage.first.kill()
    stage.house()
    shown = stage.end(run)
    assert shown.result == "through"
    assert [sorted(each) for each in bodies] == [[], ["answer"], ["answer", "nap"]]
    assert bodies[2]["answer"] == Succeeded(None), "that it was nothing is a result too"
    assert {fact.attempt for fact in stage.facts(run, StepIssued)} == {1}
    assert shown.steps["a"]["attempts"] == 1, "a body that was put aside has not been tried"


def test_a_worker_that_stops_hands_back_what_it_holds(stage: Stage) -> None:
    leaving, staying = stage.house(slots=1), stage.house(slots=1)
    run = stage.do(leaving.engine.start(plan(step("a", work=work(takes=50)))), leaving).id
    stage.pass_time(5)
    holder, other = (leaving, staying) if stage.began[0].process == "house0" else (staying, leaving)
    stage.do(holder.parts.stop(), holder)
    shown = stage.end(run)
    assert [each.process for each in stage.began] == [holder.sim.name, other.sim.name]
    [settled] = stage.facts(run, StepSettled)
    assert (settled.report.losses, settled.report.attempt, shown.status) == (0, 1, "completed")
    assert stage.loop.time() < 57, "without waiting for the lease to run out"


def test_abilities_keep_a_worker_to_its_queues_and_tools(stage: Stage) -> None:
    stage.house(serves=False)
    stage.start(plan(step("a", queue="gpu", work=Call(tool="paint"))))
    assert stage.claim() is None
    assert stage.claim(queues=("gpu",), tools=frozenset({"draw"})) is None
    found = stage.do(stage.first.desk.claim(Abilities("painter", ("gpu",), frozenset({"paint"})), 30.0))
    assert found is not None and found.command.tool == "paint"
