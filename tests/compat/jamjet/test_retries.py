"""JamJet's contract about failures: policies, delays, what a tool may say, parked work, and no failure that hangs."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from refold import Retry
from refold.core.facts import ItemsRetried, ItemsSettled, StepIssued, StepSettled
from refold.core.outcomes import SECOND, AddTo, AppendTo, Awaited, Failed, Fault, Parked, SetKey, Succeeded, Suspended
from refold.plan import Call, Loop
from refold.ports import Done, ToolCall
from tests.compat.stage import NOON, Refusal, Stage, chain, plan, step, work

SUCCESS = Succeeded()
IO = {"kind": "io", "message": "no route"}


def delays(stage: Stage, policy: Retry, faults: list[dict[str, Any]] | None = None) -> list[float]:
    """The seconds between the end of each failed try and the beginning of the next."""
    stage.run(plan(step("a", work=work(takes=2, faults=faults or [IO] * 20), retry=policy)))
    return [later.at - sooner.at - 2 for sooner, later in zip(stage.began, stage.began[1:], strict=False)]


@pytest.mark.parametrize(
    "policy, expected",
    [
        (Retry(attempts=1, delay=5.0), []),
        (Retry(attempts=4, delay=5.0), [5, 5, 5]),
        (Retry(attempts=4, backoff="linear", delay=2.0), [2, 4, 6]),
        (Retry(attempts=6, backoff="exponential", delay=1.0), [1, 2, 4, 8, 16]),
        (Retry(attempts=6, backoff="exponential", delay=1.0, max_delay=5.0), [1, 2, 4, 5, 5]),
        (Retry(attempts=3), [0, 0]),
    ],
)
def test_delays_are_exact_without_jitter(stage: Stage, policy: Retry, expected: list[float]) -> None:
    assert delays(stage, policy) == pytest.approx(expected)
    [row] = stage.do(stage.engine.runs("failed"))
    issued = stage.facts(row.run, StepIssued)
    settled = [at for _, at, fact in stage.do(stage.engine.history(row.run)) if isinstance(fact, StepSettled)]
    told = [fact.not_before - at for fact, at in zip(issued[1:], settled, strict=False) if fact.not_before]
    assert told == [round(each * SECOND) for each in expected if each], "the moment stands in the log"


@pytest.mark.parametrize("chance, share", [(0.0, 1.0), (1.0, 0.5), (0.5, 0.75)])
def test_jitter_takes_50_to_100_percent_of_the_delay(stage: Stage, chance: float, share: float) -> None:
    stage.chance = lambda: chance
    policy = Retry(attempts=4, backoff="exponential", delay=8.0, max_delay=16.0, jitter=0.5)
    assert delays(stage, policy) == pytest.approx([8 * share, 16 * share, 16 * share])


def test_chance_is_asked_once_and_recorded(stage: Stage) -> None:
    drawn: list[float] = []

    def chance() -> float:
        drawn.append(len(drawn) / 10)
        return drawn[-1]

    stage.chance = chance
    shape = plan(step("a", work=work(faults=[IO]), retry=Retry(attempts=2, delay=10.0, jitter=0.5)))
    run = stage.start(shape)
    stage.pass_time(1)
    stage.first.kill()
    stage.house()  # folds the log; what was drawn is not drawn again
    stage.end(run)
    assert drawn == [0.0]
    assert [each.at for each in stage.began] == pytest.approx([0.0, 10.0], abs=1.0)


def test_only_the_kinds_a_policy_names_are_tried_again(stage: Stage) -> None:
    policy = Retry(attempts=5, on=("io", "timeout"))
    run = stage.run(plan(step("a", work=work(faults=[IO, {"kind": "rights"}, IO]), retry=policy))).id
    assert [each.attempt for each in stage.began] == [1, 2], "an error outside the list is terminal"
    shown = stage.show(run)
    assert shown.error is not None and shown.error.fault is not None and shown.error.fault.kind == "rights"


def test_a_timeout_is_a_kind_that_a_policy_can_name(stage: Stage) -> None:
    policy = Retry(attempts=3, on=("timeout",))
    stage.run(plan(step("a", work=work(takes=100), timeout=4.0, retry=policy)))
    assert [each.at for each in stage.began] == [0.0, 4.0, 8.0]


def test_a_fault_that_says_it_is_final_is_not_tried_again(stage: Stage) -> None:
    stage.run(plan(step("a", work=work(faults=[{**IO, "retryable": False}]), retry=Retry(attempts=5))))
    assert len(stage.began) == 1


def test_a_raised_exception_follows_the_policy_and_says_its_kind(stage: Stage) -> None:
    class Flaky(Exception):
        kind = "flaky"

    async def flaky(call: ToolCall) -> str:
        if call.command.attempt < 3:
            raise Flaky("not yet")
        return "now"

    stage.tools["flaky"] = flaky
    shown = stage.run(plan(step("a", work=Call(tool="flaky"), retry=Retry(attempts=3, on=("flaky",)))))
    assert shown.result == "now"
    assert shown.steps["a"]["attempts"] == 3
    first = stage.facts(shown.id, StepSettled)[0].report.outcome
    assert isinstance(first, Failed) and first.fault.type.endswith("Flaky") and "not yet" in first.fault.traceback


def test_retry_after_is_honoured_if_it_is_longer_than_the_delay(stage: Stage) -> None:
    faults = [{**IO, "retry_after": 30.0}, {**IO, "retry_after": 1.0}]
    assert delays(stage, Retry(attempts=3, delay=5.0), faults) == pytest.approx([30, 5])


def test_no_way_of_claiming_takes_a_command_before_its_time(stage: Stage) -> None:
    stage.house(slots=1)
    late = stage.start(plan(step("a", work=work(faults=[{**IO, "retry_after": 60.0}]), retry=Retry(attempts=2))))
    others = [stage.start(chain(20, work=work(takes=1))) for _ in range(2)]  # each settlement brings a claim
    stage.end(late)
    assert [each.at for each in stage.began if each.run == late] == pytest.approx([0, 60], abs=1.5)
    assert all(stage.status(run) == "completed" for run in others)


def test_the_wait_for_a_retry_survives_a_restart(stage: Stage) -> None:
    run = stage.start(plan(step("a", work=work(faults=[IO]), retry=Retry(attempts=2, delay=40.0))))
    stage.pass_time(5)
    stage.first.kill()
    stage.pass_time(5)
    stage.house()
    stage.pass_time(29)
    assert len(stage.began) == 1
    stage.end(run)
    assert stage.began[1].at == pytest.approx(40, abs=1.0)


def test_each_item_has_tries_of_its_own(stage: Stage) -> None:
    async def flaky(call: ToolCall) -> int:
        item: int = call.input
        if call.command.attempt <= item:
            raise Refusal(kind="io")
        return item * 10

    stage.tools["flaky"] = flaky
    policy = Retry(attempts=3, backoff="linear", delay=4.0)
    shown = stage.run(plan(step("each", loop=Loop(items=[0, 1, 2]), work=Call(tool="flaky"), retry=policy)))
    assert shown.result == [0, 10, 20]
    retried = [each for fact in stage.facts(shown.id, ItemsRetried) for each in fact.items]
    assert [(item, attempt) for item, attempt, _ in retried] == [(1, 2), (2, 2), (2, 3)]
    assert {each.command: each.at for each in stage.began} == {"each/1/0": 0.0, "each/1/1": 4.0, "each/1/2": 12.0}


class _Weird(Exception):
    kind = 3
    retryable = "perhaps"
    retry_after = "soon"


class _Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("I cannot even say what happened")


async def _cancels_itself() -> None:
    raise asyncio.CancelledError


async def _cancels_a_part() -> None:
    part = asyncio.create_task(asyncio.sleep(10))
    part.cancel()
    await part


async def _raises(error: Exception) -> None:
    raise error


async def _gives(value: Any) -> Any:
    return value


def _done(outcome: Any = SUCCESS, **more: Any) -> Done:
    return Done(outcome, **more)


NASTY: dict[str, tuple[Callable[[], Awaitable[Any]], str]] = {
    "cancels itself": (_cancels_itself, "error"),
    "cancels a part of itself": (_cancels_a_part, "error"),
    "an error with attributes of wrong types": (lambda: _raises(_Weird("x")), "error"),
    "an error without words": (lambda: _raises(_Mute()), "error"),
    "an error with a lone surrogate": (lambda: _raises(ValueError("\ud800")), "error"),
    "an error that asks for an endless delay": (lambda: _raises(Refusal(kind="x", retry_after=math.inf)), "x"),
    "an object": (lambda: _gives(object()), "invalid_value"),
    "a set": (lambda: _gives({1}), "invalid_value"),
    "a tuple, which would come back as a list": (lambda: _gives((1, 2)), "invalid_value"),
    "a key that is not a text": (lambda: _gives({1: 2}), "invalid_value"),
    "not a number": (lambda: _gives(math.nan), "invalid_value"),
    "text that is none": (lambda: _gives("\udc00"), "invalid_value"),
    "a value nested without end": (lambda: _gives(_nested(5000)), "invalid_value"),
    "a fault with an object": (lambda: _gives(Failed(Fault("x", data=object()))), "invalid_value"),
    "a fault of wrong types": (lambda: _gives(Failed(Fault(kind=3))), "invalid_value"),  # type: ignore[arg-type]
    "progress that cannot be kept": (lambda: _gives(Parked(until=1, progress=object())), "invalid_value"),
    "a call that cannot be kept": (
        lambda: _gives(Suspended((Awaited("k", until=1, input=object()),))),
        "invalid_value",
    ),
    "parked until nothing": (lambda: _gives(Parked()), "invalid_value"),
    "suspended for nothing": (lambda: _gives(Suspended()), "invalid_value"),
    "a call that nothing ends": (lambda: _gives(Suspended((Awaited("k"),))), "invalid_value"),
    "an outcome that is none": (lambda: _gives(_done("fine")), "invalid_value"),
    "usage that is not a number": (lambda: _gives(_done(usage={"usd": math.nan})), "invalid_value"),
    "usage that is negative": (lambda: _gives(_done(usage={"usd": -1.0})), "invalid_value"),
    "usage that is text": (lambda: _gives(_done(usage={"usd": "1"})), "invalid_value"),
    "a write that cannot be kept": (lambda: _gives(_done(writes=(SetKey("k", object()),))), "invalid_value"),
    "an amount that is infinite": (lambda: _gives(_done(writes=(AddTo("n", math.inf),))), "invalid_value"),
    "a sum with text": (lambda: _gives(_done(writes=(AddTo("text", 1),))), "refused"),
    "an entry in a text": (lambda: _gives(_done(writes=(AppendTo("text", 1),))), "refused"),
    "writes that are none": (lambda: _gives(_done(writes=({"key": 1},))), "invalid_value"),
}


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("name", NASTY)
def test_nothing_a_tool_does_hangs_its_run(stage: Stage, name: str) -> None:
    do, kind = NASTY[name]

    async def nasty(call: ToolCall) -> Any:
        return await do()

    stage.tools["nasty"] = nasty
    shape = plan(step("first", "a", work=work(set={"text": "x"})), step("a", "b", work=Call(tool="nasty")), step("b"))
    shown = stage.run(shape)
    assert shown.status == "failed" and shown.error is not None and shown.error.fault is not None
    assert (shown.error.step, shown.error.fault.kind) == ("a", kind)
    assert stage.calls() == ["first/1", "a/1"]
    assert stage.loop.time() < 1
    assert shown.state.ctx == {"text": "x"} and shown.usage == {}
    stage.first.kill()
    stage.house()
    again = stage.show(shown.id)
    assert again == shown, "and what the log says is what was folded"


def test_a_parked_outcome_does_not_count_as_a_try(stage: Stage) -> None:
    async def limited(call: ToolCall) -> Any:
        seen = (call.command.progress or 0) + 1
        if seen <= 4:
            return Parked(until=stage.clock.now() + 60 * SECOND, progress=seen, reason="429")
        return {"tries": call.command.attempt, "seen": seen}

    stage.tools["limited"] = limited
    run = stage.start(plan(step("a", work=Call(tool="limited"))))  # its policy allows one try
    stage.pass_time(1)
    assert stage.status(run) == "waiting"
    assert stage.show(run).steps["a"]["attempts"] == 0
    shown = stage.end(run)
    assert shown.result == {"tries": 1, "seen": 5}
    assert [each.at for each in stage.began] == [0.0, 60.0, 120.0, 180.0, 240.0]
    assert [each.attempt for each in stage.began] == [1] * 5
    assert shown.steps["a"]["attempts"] == 1
    assert [type(fact) for fact in stage.history(run)][1:7] == [StepIssued] + [StepSettled] * 5
    assert [entry.turn is not None for entry in stage.store.logs[run][2:6]] == [True] * 4, "each in one commit"


def test_a_parked_item_does_not_count_as_a_try_and_keeps_its_place_in_the_window(stage: Stage) -> None:
    async def limited(call: ToolCall) -> Any:
        if call.input == 0 and call.command.progress is None:
            return Parked(until=NOON + 60 * SECOND, progress="waited")
        return [call.input, call.command.progress]

    stage.tools["limited"] = limited
    run = stage.start(plan(step("each", loop=Loop(items=[0, 1, 2], max_in_flight=2), work=Call(tool="limited"))))
    assert stage.end(run).result == [[0, "waited"], [1, None], [2, None]]
    assert stage.began[-1].at == 60.0
    reports = [report for fact in stage.facts(run, ItemsSettled) for report in fact.reports]
    assert [report.attempt for report in reports] == [1] * 4


def test_a_command_parked_until_a_signal_resumes_when_the_signal_comes(stage: Stage) -> None:
    async def wait_for_webhook(call: ToolCall) -> Any:
        arrived = call.command.recorded.get("webhook")
        return Parked(signal="webhook", progress="sent") if arrived is None else [call.command.progress, arrived]

    async def unpack(call: ToolCall) -> Any:
        value = await wait_for_webhook(call)
        return value if isinstance(value, Parked) else [value[0], value[1].result]

    stage.tools["webhook"] = unpack
    run = stage.start(plan(step("a", work=Call(tool="webhook"))))
    stage.pass_time(500)
    assert stage.show(run).waits == {"a/1": "parked until signal 'webhook'"}
    stage.do(stage.engine.signal(run, "webhook", {"paid": True}))
    assert stage.end(run).result == ["sent", {"paid": True}]
    assert len(stage.began) == 2


def test_a_signal_that_comes_while_a_parked_command_is_running_again_takes_no_lease_away(stage: Stage) -> None:
    async def poll(call: ToolCall) -> Any:
        told = call.command.recorded.get("hurry")
        if told is not None:
            return "hurried"
        if call.command.progress is None:
            return Parked(until=NOON + 20 * SECOND, signal="hurry", progress=1)
        await stage.clock.sleep(20)
        return Parked(signal="hurry", progress=call.command.progress + 1)

    stage.tools["poll"] = poll
    run = stage.start(plan(step("a", work=Call(tool="poll"))))
    stage.pass_time(30)  # its time came, and it is running
    assert len(stage.began) == 2
    stage.do(stage.engine.signal(run, "hurry"))
    stage.pass_time(2)
    assert len(stage.began) == 2, "the one who runs it is not disturbed"
    assert stage.end(run).result == "hurried"
    assert [each.at for each in stage.began] == [0.0, 20.0, 40.0]


def test_a_call_that_is_answered_while_the_body_runs_takes_no_lease_away(stage: Stage) -> None:
    ends: list[float] = []

    async def body(call: ToolCall) -> Any:
        await stage.clock.sleep(10)
        ends.append(stage.loop.time())
        calls = (Awaited("a", signal="a"), Awaited("nap", until=NOON + 25 * SECOND))
        if set(call.command.recorded) == {"a", "nap"}:
            return "both"
        return Suspended(calls)

    stage.tools["body"] = body
    run = stage.start(plan(step("a", work=Call(tool="body"))))
    stage.pass_time(20)
    stage.do(stage.engine.signal(run, "a", 1))  # the body starts over at 20 and the nap ends at 25
    assert stage.end(run).result == "both"
    assert [each.at for each in stage.began] == pytest.approx([0, 20, 30], abs=1e-3)
    assert ends == pytest.approx([10, 30, 40], abs=1e-3), "never two of it at once"
    assert not any(stage.store.timers.get(run, {}).values())
