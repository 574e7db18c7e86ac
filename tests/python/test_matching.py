"""Which durable call is which when a body starts over, and what happens if it makes other calls than before."""

import asyncio
import random
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import refold
from refold import Context, Engine, Handle, Retry, SyncContext
from refold.core.outcomes import Cancelled, Succeeded, TimedOut
from refold.errors import Diverged, InvalidValue, StepFailed
from refold.python.call_records import TASK, CallRecords, TaskNumbers, called_function
from tests.python.house import SHORT


async def restarted(db: Path, flow: Any, steer: Callable[[Handle], Any], **inputs: Any) -> Any:
    """Run a flow until it waits for a signal, in one engine; steer it in another one, and return its result."""
    async with refold.open_engine(db=db, settings=SHORT) as engine:
        handle = await engine.start(flow, **inputs)
        await until_it_waits(engine, handle.id)
    async with refold.open_engine(db=db, settings=SHORT) as engine:
        again = await engine.attach(handle.id, flow)
        await steer(again)
        return await asyncio.wait_for(again.result(), 60)


async def until_it_waits(engine: Engine, run: str, waits: int = 1) -> None:
    while sum(len(each.calls) for each in (await engine.show(run)).state.open.values()) < waits:
        await asyncio.sleep(0.01)


def go(handle: Handle) -> Any:
    return handle.signal("go", "went")


def charge(order: str, id: str = "") -> str:
    return f"{order} charged"


def report(text: str) -> str:
    return text


# what a body that starts over finds


async def test_a_sleep_of_another_length_is_the_same_sleep(tmp_path: Path) -> None:
    passes: list[float] = []

    @refold.flow
    def nap(ctx: SyncContext) -> int:
        passes.append(random.uniform(0.01, 0.02))
        ctx.sleep(passes[-1])
        ctx.sleep(random.uniform(0.01, 0.02))
        return len(passes)

    async with refold.open_engine(settings=SHORT) as engine:
        assert await asyncio.wait_for(engine.run(nap), 60) == 3  # a body without `async` starts over after each wait


async def test_a_call_with_an_argument_of_chance_is_refused_and_not_made_again(tmp_path: Path) -> None:
    charged: list[str] = []

    def charge(order: str, id: str) -> str:
        charged.append(id)
        return id

    @refold.flow(retry=Retry(attempts=3))
    async def pay(ctx: Context, order: str) -> str:
        paid: str = await ctx.call(charge, order, str(uuid.uuid4()))
        await ctx.wait_for("go")
        return paid

    with pytest.raises(StepFailed) as failed:
        await restarted(tmp_path / "r.db", pay, go, order="o1")
    assert isinstance(failed.value.__cause__, Diverged)
    assert len(charged) == 1
    text = str(failed.value)
    assert f'charge("o1", "{charged[0]}")' in text and text.count("charge(") == 2
    for remedy in ("ctx.now()", "ctx.uuid()", "ctx.random()", "ctx.options(key=...)"):
        assert remedy in text


async def test_a_body_that_swallows_the_refusal_fails_all_the_same(tmp_path: Path) -> None:
    @refold.flow
    async def pay(ctx: Context) -> str:
        try:
            await ctx.call(report, str(time.perf_counter_ns()))
        except Exception:
            return "swallowed"
        return str(await ctx.wait_for("go"))

    with pytest.raises(StepFailed, match="started over"):
        await restarted(tmp_path / "r.db", pay, go)


async def test_time_ids_and_chance_of_the_context_are_the_same_in_every_pass(tmp_path: Path) -> None:
    seen: list[tuple[Any, ...]] = []

    @refold.flow
    async def values(ctx: Context) -> str:
        seen.append((await ctx.now(), await ctx.uuid(), await ctx.uuid(), await ctx.random()))
        await ctx.call(report, str(seen[-1]))
        return str(await ctx.wait_for("go"))

    before = datetime.now(UTC)
    assert await restarted(tmp_path / "r.db", values, go) == "went"
    first, second = seen
    assert first == second
    now, one, two, number = first
    assert before <= now <= datetime.now(UTC) and one != two and one.version == 4 and 0 <= number < 1


async def test_a_body_without_async_has_recorded_values_too() -> None:
    seen: list[tuple[Any, ...]] = []

    @refold.flow
    def values(ctx: SyncContext) -> int:
        seen.append((ctx.now(), ctx.uuid(), ctx.random()))
        ctx.sleep(0.01)
        return len(seen)

    async with refold.open_engine(settings=SHORT) as engine:
        assert await asyncio.wait_for(engine.run(values), 60) == 2
    assert seen[0] == seen[1]


async def test_a_call_of_another_object_is_another_call() -> None:
    class Client:
        def __init__(self, name: str) -> None:
            self.name = name

        def charge(self, order: str) -> str:
            return f"{self.name} charged {order}"

    stripe, paypal = Client("stripe"), Client("paypal")

    @refold.flow(retry=Retry(attempts=2))
    async def pay(ctx: Context) -> str:
        if ctx.attempt == 1:
            await ctx.call(stripe.charge, "o1")
            raise ConnectionError
        return await ctx.call(paypal.charge, "o1")

    async with refold.open_engine(settings=SHORT) as engine:
        assert await engine.run(pay) == "paypal charged o1"


async def test_a_closure_is_known_by_what_it_closes_over() -> None:
    def charging(name: str) -> Callable[[], str]:
        return lambda: f"{name} charged"

    @refold.flow(retry=Retry(attempts=2))
    async def pay(ctx: Context) -> str:
        if ctx.attempt == 1:
            await ctx.call(charging("stripe"))
            raise ConnectionError
        return await ctx.call(charging("paypal"))

    async with refold.open_engine(settings=SHORT) as engine:
        assert await engine.run(pay) == "paypal charged"


def test_what_an_object_or_a_closure_counts_is_no_part_of_the_call() -> None:
    class Client:
        def __init__(self) -> None:
            self.name, self.count, self.lines = "stripe", 0, list[str]()

        def charge(self) -> None:
            self.count += 1
            self.lines.append("charged")

    client, tries, made = Client(), 0, list[str]()

    def charge() -> None:
        nonlocal tries
        tries += 1
        made.append("charged")

    before = called_function(client.charge), called_function(charge)
    client.charge()
    charge()
    assert (called_function(client.charge), called_function(charge)) == before
    assert called_function(Client().charge) == before[0]
    client.name = "paypal"
    assert called_function(client.charge) != before[0]


def test_two_modules_may_have_a_function_of_one_name() -> None:
    assert called_function(charge).name == "tests.python.test_matching:charge"


def test_what_a_partial_is_bound_to_is_an_argument() -> None:
    bound = called_function(partial(charge, "o1", id="x"))
    assert (bound.name, bound.inputs, bound.named) == (called_function(charge).name, ("o1",), {"id": "x"})


async def test_child_runs_of_tasks_find_their_own_results_whichever_task_is_faster(tmp_path: Path) -> None:
    delays = {0: 0.06, 1: 0.03, 2: 0.0}

    async def fetch(number: int) -> int:
        await asyncio.sleep(delays[number])
        return number * 10

    @refold.flow
    async def kid(ctx: Context, x: int, salt: float) -> int:
        await ctx.wait_for("grow")
        return x + 1

    @refold.flow
    async def parent(ctx: Context) -> list[int]:
        async def one(number: int) -> int:
            fetched: int = await ctx.call(fetch, number)
            return await ctx.run_child(kid, x=fetched, salt=random.random())

        return list(await asyncio.gather(*(one(number) for number in range(3))))

    async def grow(handle: Handle) -> None:
        state = (await handle.engine.show(handle.id)).state
        for child in state.children.values():
            await handle.engine.signal(child, "grow")

    db = tmp_path / "r.db"
    async with refold.open_engine(db=db, settings=SHORT) as engine:
        handle = await engine.start(parent)
        await until_it_waits(engine, handle.id, waits=3)
    async with refold.open_engine(db=db, settings=SHORT) as engine:
        await engine.register(kid)
        again = await engine.attach(handle.id, parent)
        await grow(again)
        assert await asyncio.wait_for(again.result(), 60) == [1, 11, 21]


async def test_a_body_that_was_killed_in_a_gather_makes_the_missing_calls() -> None:
    done: list[int] = []
    first = asyncio.Event()

    async def work(number: int) -> int:
        if number == 0 and not first.is_set():
            while 1 not in done:
                await asyncio.sleep(0)
            first.set()
            raise ConnectionError
        done.append(number)
        return number

    @refold.flow(retry=Retry(attempts=2))
    async def both(ctx: Context) -> list[int]:
        return list(await asyncio.gather(ctx.call(work, 0), ctx.call(work, 1)))

    async with refold.open_engine(settings=SHORT) as engine:
        assert await engine.run(both) == [0, 1]
    assert done == [1, 0]


async def test_a_call_in_another_order_finds_its_record(tmp_path: Path) -> None:
    made: list[str] = []

    def work(name: str) -> str:
        made.append(name)
        return name

    orders = iter((["a", "b"], ["b", "a"]))

    @refold.flow
    async def both(ctx: Context) -> list[str]:
        found = [await ctx.call(work, name) for name in next(orders)]
        await ctx.wait_for("go")
        return found

    assert await restarted(tmp_path / "r.db", both, go) == ["b", "a"]
    assert made == ["a", "b"]


async def test_calls_that_a_body_no_longer_asks_for_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    passes: list[int] = []

    @refold.flow
    async def changes(ctx: Context) -> str:
        passes.append(1)
        if len(passes) == 1:
            await ctx.call(report, "once")
        return str(await ctx.wait_for("go"))

    assert await restarted(tmp_path / "r.db", changes, go) == "went"
    (line,) = [each for each in caplog.records if "not asked for" in each.getMessage()]
    assert 'report("once")' in vars(line)["fields"]["calls"]


# the records themselves


def pass_of(records: CallRecords, *asked: Callable[[CallRecords], str]) -> list[str]:
    token = TASK.set(records.body)
    try:
        return [ask(records) for ask in asked]
    finally:
        TASK.reset(token)


def charged(*inputs: Any) -> Callable[[CallRecords], str]:
    return lambda records: records.call(called_function(charge), list(inputs), {})


def test_a_record_of_a_later_place_is_no_divergence() -> None:
    first = CallRecords({})
    _, second = pass_of(first, charged("failed"), charged("done"))
    again = CallRecords({second: Succeeded(1)})
    made = pass_of(again, charged("failed"), charged("done"))
    assert made[1] == second and made[0] != second
    assert again.unasked() == []


def test_a_record_that_was_passed_without_being_asked_for_is_a_divergence() -> None:
    one, two = pass_of(CallRecords({}), charged("a"), charged("b"))
    again = CallRecords({one: Succeeded(1), two: Succeeded(2)})
    assert pass_of(again, charged("b")) == [two]
    with pytest.raises(Diverged) as diverged:
        pass_of(again, charged("c"))
    assert (diverged.value.now, diverged.value.recorded) == ('"c"', '"a"')


def test_equal_calls_are_told_apart_by_their_order() -> None:
    keys = pass_of(CallRecords({}), charged("a"), charged("a"), charged("a"))
    assert len(set(keys)) == 3
    again = CallRecords({key: Succeeded(None) for key in keys[1:]})  # the first one has failed
    found = pass_of(again, charged("a"), charged("a"), charged("a"))
    assert found[:2] == [keys[1], keys[2]] and found[2] not in keys


def test_a_wait_is_found_by_its_name_and_not_by_its_input() -> None:
    def child(value: int) -> Callable[[CallRecords], str]:
        return lambda records: records.child("child", "kid", "hash", {"x": value})

    def signal(records: CallRecords) -> str:
        return records.signal("paid")

    keys = pass_of(CallRecords({}), child(1), child(2), signal, signal)
    again = CallRecords({keys[0]: Succeeded(1), keys[2]: TimedOut()}, frozenset({keys[1], keys[3]}))
    assert pass_of(again, child(7), child(8), signal, signal) == keys


def test_a_signal_is_found_if_the_tasks_of_the_body_have_changed() -> None:
    recorded = "signal/1:1/paid"
    assert pass_of(CallRecords({recorded: Succeeded(1)}), lambda records: records.signal("paid")) == [recorded]
    assert pass_of(CallRecords({}, frozenset({recorded})), lambda records: records.signal("paid")) == [recorded]


def test_records_of_the_former_rule_are_found_by_it() -> None:
    formerly = {
        "sleep:6b86b273ff34:1": Succeeded(None),  # of one second
        "call:charge:0d1c6b1f4f87:1": Succeeded("o1 charged"),
    }
    records = CallRecords(formerly)
    assert records.by_former_rule
    (sleep,) = pass_of(records, lambda records: records.sleep(1))
    assert sleep == "sleep:6b86b273ff34:1"
    (key,) = pass_of(records, charged("o1"))
    assert key.startswith("call:charge:") and key.endswith(":1")
    assert not CallRecords({"call:charge:mine": Succeeded(1), "sleep/1": Succeeded(None)}).by_former_rule


def test_a_wait_that_was_withdrawn_need_not_be_asked_for() -> None:
    assert CallRecords({"signal/1/a": Cancelled("another was first"), "sleep/1": Succeeded(None)}).unasked() == [
        "sleep/1"
    ]


def test_long_arguments_are_described_and_never_cut() -> None:
    (key,) = pass_of(CallRecords({}), charged("s" * 100, [1] * 100))
    assert key.endswith("charge(<text of 102 bytes>, <list of 201 bytes>)")
    (key,) = pass_of(CallRecords({}), charged(*(f"{n:050}" for n in range(10))))
    assert key.endswith(", …)") and len(key) < 350


async def test_tasks_are_numbered_by_their_creation() -> None:
    async def place(delay: float) -> str:
        await asyncio.sleep(delay)
        records = CallRecords({})
        del records
        here = TASK.get()
        assert here is not None
        return here.path

    async def nested() -> list[str]:
        return list(await asyncio.gather(place(0), place(0)))

    records, numbers = CallRecords({}), TaskNumbers()
    numbers.begin(asyncio.get_running_loop())
    another = TaskNumbers()
    another.begin(asyncio.get_running_loop())
    token = TASK.set(records.body)
    try:
        assert list(await asyncio.gather(place(0.02), place(0), nested())) == ["1", "2", ["3.1", "3.2"]]
    finally:
        TASK.reset(token)
        another.end()
        numbers.end()
    assert asyncio.get_running_loop().get_task_factory() is None


async def test_what_a_durable_call_does_inside_does_not_number_the_tasks_of_the_body(tmp_path: Path) -> None:
    async def busy() -> None:
        await asyncio.gather(*(asyncio.sleep(0) for _ in range(3)))

    asked: list[str] = []

    @refold.flow
    async def body(ctx: Context) -> str:
        async def ask() -> Any:
            return await ctx.wait_for("go")

        await ctx.call(busy)
        await ctx.publish("shown")
        task = asyncio.create_task(ask())
        asked.append("asked")
        return str(await task)

    assert await restarted(tmp_path / "r.db", body, go) == "went"
    assert len(asked) == 2


async def test_a_key_in_place_of_arguments_finds_a_call_whatever_they_are(tmp_path: Path) -> None:
    @refold.flow
    async def pay(ctx: Context) -> str:
        paid: str = await ctx.options(key="pay").call(charge, "o1", str(uuid.uuid4()))
        await ctx.wait_for("go")
        return paid

    assert await restarted(tmp_path / "r.db", pay, go) == "o1 charged"


async def test_an_argument_that_cannot_be_stored_is_named_with_its_function() -> None:
    @refold.flow
    async def hot(ctx: Context) -> None:
        await ctx.call(report, object())  # type: ignore[call-overload]

    async with refold.open_engine(settings=SHORT) as engine:
        with pytest.raises(StepFailed) as failed:
            await engine.run(hot)
    assert isinstance(failed.value.__cause__, InvalidValue)
    text = str(failed.value.__cause__)
    assert text.startswith("argument 1 of report: ") and "ctx.options(key=...)" in text
