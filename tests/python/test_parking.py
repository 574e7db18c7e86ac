"""A body that waits is parked: its coroutine stays where it is, without a slot and without a lease."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from refold import Context, Event, StartEvent, StopEvent, SyncContext, Workflow, flow, open_engine, step
from refold.body_tasks import BodyTasks
from refold.core import codec
from refold.core.facts import BodyWoke, CallsAwaited, CallSettled, ChildEnded, Fact, SignalTaken, StepSettled
from refold.core.outcomes import Suspended
from refold.errors import InvalidValue
from refold.python import parking
from refold.runtime.handle import Handle
from refold.settings import Settings
from refold.wiring import open_process

SHORT = Settings(lease_for=2.0, sweep_every=0.05, poll=0.05)


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.005)


async def facts(engine: Any, run: str, kind: type[Fact]) -> list[Any]:
    return [fact for _, _, fact in await engine.history(run) if isinstance(fact, kind)]


async def suspended(handle: Handle, times: int = 1) -> None:
    """Wait until the run has recorded so many times that its body waits."""
    async with asyncio.timeout(30):
        while True:
            settled = await facts(handle.engine, handle.id, StepSettled)
            if sum(isinstance(fact.report.outcome, Suspended) for fact in settled) >= times:
                return
            await asyncio.sleep(0.005)


async def result(handle: Handle) -> Any:
    return await asyncio.wait_for(handle.result(), 30)


async def test_no_line_runs_twice_and_finally_does_not_run_while_it_waits() -> None:
    lines: list[str] = []

    @flow
    async def order(ctx: Context) -> Any:
        lines.append("start")
        try:
            paid = await ctx.wait_for("paid")
            lines.append("paid")
            await ctx.sleep(0.01)
        finally:
            lines.append("finally")
        return paid

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(order)
        await suspended(handle)
        assert lines == ["start"]
        await handle.signal("paid", 3)
        assert await result(handle) == 3
    assert lines == ["start", "paid", "finally"]


async def test_a_reservation_is_released_at_the_end_and_not_while_the_body_waits() -> None:
    calls: list[str] = []

    def note(what: str) -> None:
        calls.append(what)

    @flow
    async def order(ctx: Context) -> None:
        await ctx.call(note, "reserve")
        try:
            await ctx.wait_for("paid")
            await ctx.call(note, "ship")
        finally:
            await ctx.call(note, "release")

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(order)
        await suspended(handle)
        assert calls == ["reserve"]
        await handle.signal("paid")
        await result(handle)
    assert calls == ["reserve", "ship", "release"]


async def test_parked_bodies_take_no_slot_and_no_lease() -> None:
    @flow
    async def waits(ctx: Context, n: int) -> Any:
        return n, await ctx.wait_for("go")

    async with open_engine(settings=Settings(lease_for=2.0, sweep_every=0.05, poll=0.05, slots=2)) as engine:
        handles = [await engine.start(waits, n=n) for n in range(6)]
        for handle in handles:
            await suspended(handle)
        assert not engine.store.views.leases()
        for handle in reversed(handles):
            await handle.signal("go", "!")
        assert [await result(handle) for handle in handles] == [(n, "!") for n in range(6)]


@flow
async def doubled(ctx: Context, n: int) -> int:
    await ctx.sleep(0.01 * (3 - n))
    if n == 2:
        raise ValueError("two")
    return 2 * n


async def test_gather_with_return_exceptions_gives_what_came_of_each_child() -> None:
    notes: list[str] = []

    @flow
    async def parent(ctx: Context) -> None:
        came = await asyncio.gather(*(ctx.run_child(doubled, n=n) for n in range(3)), return_exceptions=True)
        good = [each for each in came if not isinstance(each, BaseException)]
        await ctx.call(notes.append, f"{len(good)} of {len(came)}")

    async with open_engine(settings=SHORT) as engine:
        await result(await engine.start(parent))
    assert notes == ["2 of 3"]


async def test_wait_as_completed_and_task_groups_over_durable_waits() -> None:
    passes: list[int] = []

    @flow
    async def parent(ctx: Context) -> Any:
        passes.append(1)
        first = [asyncio.create_task(ctx.wait_for(name)) for name in ("a", "b")]
        done, pending = await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        order = []
        slow_and_quick: list[Any] = [ctx.wait_for("slow"), ctx.run_child(doubled, n=1)]
        for each in asyncio.as_completed(slow_and_quick):
            order.append(await each)
        async with asyncio.TaskGroup() as group:
            one = group.create_task(ctx.run_child(doubled, n=0))
            two = group.create_task(ctx.wait_for("c"))
        return [task.result() for task in done], order, one.result(), two.result()

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(parent)
        await suspended(handle)
        await handle.signal("b", "B")
        await handle.signal("c", "C")
        async with asyncio.timeout(30):
            while not await facts(engine, handle.id, ChildEnded):
                await asyncio.sleep(0.005)
        await handle.signal("slow", "S")
        assert await result(handle) == (["B"], [2, "S"], 0, "C")
    assert passes == [1]


async def test_a_wait_that_the_body_gives_up_is_withdrawn_and_swallows_no_signal() -> None:
    @flow
    async def patient(ctx: Context) -> Any:
        try:
            await asyncio.wait_for(ctx.wait_for("news"), 0.1)
        except TimeoutError:
            await ctx.call(str, "late")
        return await ctx.wait_for("news")

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(patient)
        await suspended(handle, 2)
        await handle.signal("news", 7)
        assert await result(handle) == 7
        assert len(await facts(engine, handle.id, BodyWoke)) == 1  # a plain timer woke it, and it asked for its command


async def test_the_first_of_several_waits_wins_and_the_others_are_withdrawn() -> None:
    passes: list[int] = []

    @flow
    async def slow(ctx: Context) -> None:
        await ctx.sleep("1h")

    @flow
    async def race(ctx: Context) -> Any:
        passes.append(1)
        first = await ctx.first(
            paid=ctx.wait_for("paid"),
            cancelled=ctx.wait_for("cancelled"),
            child=ctx.run_child(slow),
            answer=ctx.ask("well?"),
            late=ctx.sleep("1d"),
        )
        again = await ctx.first(paid=ctx.wait_for("paid"), late=ctx.sleep("1d"))
        return first, again, await ctx.first(soon=ctx.sleep(0.01), paid=ctx.wait_for("paid"))

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(race)
        await suspended(handle)
        await handle.signal("cancelled", "no money")
        await suspended(handle, 2)
        await handle.signal("paid", 5)
        expected = ("cancelled", "no money"), ("paid", 5), ("soon", None)
        assert await result(handle) == expected
        statuses = {row.workflow: row.status for row in engine.store.views.runs().rows}
    assert statuses == {"race": "completed", "slow": "cancelled"}
    assert passes == [1]


async def test_a_body_without_async_waits_for_the_first_of_several_waits_too() -> None:
    winners: list[Any] = []

    @flow
    async def slow(ctx: Context) -> None:
        await ctx.sleep("1h")

    @flow
    def race(ctx: SyncContext) -> Any:
        later = ctx.later
        first = ctx.first(
            paid=later.wait_for("paid"),
            cancelled=later.wait_for("cancelled"),
            child=later.run_child(slow),
            answer=later.ask("well?"),
            late=later.sleep("1d"),
        )
        winners.append(first)
        again = ctx.first(paid=later.wait_for("paid"), late=later.sleep("1d"))
        return first, again, ctx.first(soon=later.sleep(0.01), paid=later.wait_for("paid"))

    async with open_engine(settings=SHORT) as engine:
        handle: Any = await engine.start(race)
        await suspended(handle)
        await handle.signal("cancelled", "no money")
        await suspended(handle, 2)
        await handle.signal("paid", 5)
        assert await result(handle) == (("cancelled", "no money"), ("paid", 5), ("soon", None))
        statuses = {row.workflow: row.status for row in engine.store.views.runs().rows}
    assert statuses == {"race": "completed", "slow": "cancelled"}
    assert len(winners) > 1 and set(winners) == {("cancelled", "no money")}


async def test_a_race_without_async_raises_what_its_winner_raises_and_takes_only_waits() -> None:
    @flow
    def race(ctx: SyncContext) -> str:
        try:
            ctx.first(paid=ctx.later.wait_for("paid", timeout=0.01), late=ctx.later.sleep("1d"))
        except TimeoutError:
            with pytest.raises(InvalidValue, match=r"soon is not a wait: .*soon=ctx.later.wait_for"):
                ctx.first(soon=ctx.sleep(0))  # type: ignore[arg-type, func-returns-value]
            return "timeout"
        return "paid"

    async with open_engine(settings=SHORT) as engine:
        assert await asyncio.wait_for(engine.run(race), 30) == "timeout"


async def test_signals_for_the_losers_of_a_race_without_async_are_kept_for_the_next_wait() -> None:
    @flow
    def two(ctx: SyncContext) -> Any:
        name, value = ctx.first(a=ctx.later.wait_for("a"), b=ctx.later.wait_for("b"))
        return [name, value, ctx.wait_for("b" if name == "a" else "a", timeout="60s")]

    async with open_engine(settings=SHORT) as engine:
        for early in (True, False):
            handle: Any = await engine.start(two)
            if not early:
                await suspended(handle)
            await asyncio.gather(handle.signal("a", 1), handle.signal("b", 2))
            assert await result(handle) == ["a", 1, 2]


async def test_a_durable_sleep_is_ended_by_a_plain_timeout() -> None:
    @flow
    async def impatient(ctx: Context) -> str:
        try:
            await asyncio.wait_for(ctx.sleep("10s"), 0.1)
        except TimeoutError:
            return "timeout"
        return "slept"

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(impatient)
        assert await result(handle) == "timeout"
        assert [fact.outcome.reason for fact in await facts(engine, handle.id, CallSettled)] == [
            "the body no longer waits for it"
        ]


async def test_a_body_that_keeps_running_gets_its_signal_and_is_not_parked() -> None:
    ticks: list[int] = []

    @flow
    async def ticker(ctx: Context) -> Any:
        async def tick() -> None:
            while True:
                ticks.append(1)
                await asyncio.sleep(0.005)

        ticking = asyncio.create_task(tick())
        try:
            return await ctx.wait_for("stop")
        finally:
            ticking.cancel()

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(ticker)
        async with asyncio.timeout(30):
            while not await facts(engine, handle.id, CallsAwaited):
                await asyncio.sleep(0.01)
        await handle.signal("stop", "now")
        assert await result(handle) == "now"
        assert len(await facts(engine, handle.id, StepSettled)) == 1


async def test_a_body_that_wakes_by_itself_has_its_command_before_it_calls_or_ends() -> None:
    held: list[bool] = []

    @flow
    async def wakes(ctx: Context) -> str:
        waiting = asyncio.create_task(ctx.wait_for("never"))
        await asyncio.sleep(0.2)
        await ctx.call(note)
        waiting.cancel()
        return "done"

    async with open_engine(settings=SHORT) as engine:

        def note() -> None:
            held.append(len(engine.store.views.leases()) == 1)

        handle = await engine.start(wakes)
        await suspended(handle)
        assert not engine.store.views.leases()
        assert await result(handle) == "done"
    assert held == [True]


async def test_too_many_parked_bodies_are_dropped_and_start_over() -> None:
    starts: list[int] = []

    @flow
    async def waits(ctx: Context, n: int) -> int:
        starts.append(n)
        await ctx.wait_for("go")
        return n

    few = Settings(lease_for=2.0, sweep_every=0.05, poll=0.05, parked_bodies=1)
    async with open_process(settings=few) as process:
        handles = []
        for n in range(3):
            handles.append(await process.engine.start(waits, n=n))
            await suspended(handles[-1])
        assert len(process.worker.parked) == 1
        for handle in reversed(handles):
            await handle.signal("go")
        assert [await result(handle) for handle in handles] == [0, 1, 2]
    assert sorted(starts) == [0, 0, 1, 1, 2]  # the last one was parked until its signal came


async def test_durable_calls_of_a_dropped_body_do_nothing_and_what_it_returns_is_ignored() -> None:
    done: list[str] = []
    starts: list[int] = []

    @flow
    async def stubborn(ctx: Context) -> str:
        starts.append(1)
        try:
            await ctx.wait_for("go")
        except BaseException:
            done.append("plain")
            try:
                await ctx.call(done.append, "durable")
            except BaseException:
                return "swallowed"
            raise
        finally:
            done.append("finally")
        return "went"

    few = Settings(lease_for=2.0, sweep_every=0.05, poll=0.05, parked_bodies=0)
    async with open_engine(settings=few) as engine:
        handle = await engine.start(stubborn)
        await suspended(handle)
        await until(lambda: "finally" in done)
        assert done == ["plain", "finally"]
        await handle.signal("go")
        assert await result(handle) == "went"
    assert len(starts) == 2


async def test_a_parked_body_of_a_closed_engine_starts_over_in_the_next_one(tmp_path: Any) -> None:
    starts: list[int] = []
    calls: list[str] = []

    @flow
    async def order(ctx: Context) -> Any:
        starts.append(1)
        await ctx.call(calls.append, "reserve")
        try:
            return await ctx.wait_for("paid")
        finally:
            await ctx.call(calls.append, "release")

    async with open_engine(db=tmp_path / "refold.db", settings=SHORT) as engine:
        handle = await engine.start(order)
        await suspended(handle)
        run = handle.id
    assert calls == ["reserve"]
    async with open_engine(db=tmp_path / "refold.db", settings=SHORT) as engine:
        handle = await engine.attach(run, order)
        await handle.signal("paid", 1)
        assert await result(handle) == 1
    assert (len(starts), calls) == (2, ["reserve", "release"])


async def test_recorded_outcomes_reach_a_body_that_starts_over_in_their_order() -> None:
    seen: list[list[str]] = []

    @flow
    async def race(ctx: Context) -> list[str]:
        order: list[str] = []
        seen.append(order)

        async def one(name: str) -> None:
            order.append(await ctx.wait_for(name))

        waits = [asyncio.create_task(one(name)) for name in ("a", "b", "c")]
        await asyncio.gather(*waits)
        await ctx.wait_for("end")
        return order

    few = Settings(lease_for=2.0, sweep_every=0.05, poll=0.05, parked_bodies=0)
    async with open_engine(settings=few) as engine:
        handle = await engine.start(race)
        for times, name in enumerate(("c", "a", "b", "end"), 1):
            await suspended(handle, times)
            await handle.signal(name, name)
        assert await result(handle) == ["c", "a", "b"]
    assert len(seen) == 5


async def test_a_race_has_the_same_winner_when_the_body_starts_over() -> None:
    winners: list[Any] = []

    @flow
    async def race(ctx: Context) -> Any:
        winner = await ctx.first(a=ctx.wait_for("a"), b=ctx.wait_for("b"))
        winners.append(winner)
        await ctx.sleep(0.01)
        return winner, await ctx.wait_for("a")

    few = Settings(lease_for=2.0, sweep_every=0.05, poll=0.05, parked_bodies=0)
    async with open_engine(settings=few) as engine:
        handle = await engine.start(race)
        await suspended(handle)
        await handle.signal("b", "B")
        await suspended(handle, 3)
        await handle.signal("a", "A")
        assert await result(handle) == (("b", "B"), "A")
    assert len(winners) > 1 and set(winners) == {("b", "B")}


async def test_a_body_that_waits_often_runs_once_and_each_wait_costs_the_same() -> None:
    passes: list[int] = []

    @flow
    async def loops(ctx: Context, times: int) -> int:
        passes.append(times)
        for _ in range(times):
            await ctx.sleep(0)
        return times

    costs: dict[int, tuple[int, int]] = {}
    async with open_engine(settings=SHORT) as engine:
        for times in (50, 200):
            handle = await engine.start(loops, times=times)
            await result(handle)
            log = [codec.encode_fact(fact) for _, _, fact in await engine.history(handle.id)]
            costs[times] = len(log), sum(map(len, log))
    assert passes == [50, 200]
    for few, many in zip(costs[50], costs[200], strict=True):
        assert many < 4.2 * few


async def test_the_time_of_a_step_does_not_run_while_its_body_is_parked() -> None:
    class Flow(Workflow):
        @step(timeout=0.5)
        async def only(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.sleep(0.7)
            return StopEvent(result=await ctx.wait_for("go"))

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(Flow)
        await suspended(handle, 2)
        await handle.signal("go", 1)
        assert await result(handle) == 1


async def test_a_run_that_is_paused_keeps_its_parked_body() -> None:
    starts: list[int] = []

    @flow
    async def waits(ctx: Context) -> Any:
        starts.append(1)
        return await ctx.wait_for("go")

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(waits)
        await suspended(handle)
        await handle.pause()
        await handle.signal("go", 5)
        await handle.resume()
        assert await result(handle) == 5
    assert starts == [1]


async def test_a_run_that_ends_lets_go_of_its_parked_bodies() -> None:
    class Ask(Event):
        pass

    class Two(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> list[Ask]:
            return [Ask()]

        @step
        async def waits(self, ctx: Context, ev: Ask) -> StopEvent:
            await ctx.wait_for("never")
            return StopEvent()

    async with open_process(settings=SHORT) as process:
        handle = await process.engine.start(Two)
        await suspended(handle)
        assert len(process.worker.parked) == 1
        await handle.cancel()
        with pytest.raises(Exception, match="cancelled"):
            await result(handle)
        await until(lambda: not len(process.worker.parked))


async def test_a_running_body_that_is_cancelled_may_still_call_what_undoes() -> None:
    calls: list[str] = []

    @flow
    async def works(ctx: Context) -> None:
        calls.append("start")
        try:
            await asyncio.sleep(60)
        finally:
            await ctx.call(calls.append, "undo")

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(works)
        await until(lambda: calls)
        await handle.cancel()
        await until(lambda: len(calls) == 2)
    assert calls == ["start", "undo"]


async def test_a_sync_body_starts_over_and_calls_nothing_once_it_is_suspended() -> None:
    calls: list[str] = []

    class Order(Workflow):
        @step
        def order(self, ctx: SyncContext, ev: StartEvent) -> StopEvent:
            calls.append("start")
            try:
                paid = ctx.wait_for("paid")
            except BaseException:
                ctx.call(calls.append, "never")
                raise ValueError("this does not count") from None
            finally:
                ctx.call(calls.append, "release")
            return StopEvent(result=paid)

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(Order)
        await suspended(handle)
        assert calls == ["start"]
        await handle.signal("paid", 1)
        assert await result(handle) == 1
    assert calls == ["start", "start", "release"]


async def test_a_body_that_returns_before_its_tasks_withdraws_what_they_wait_for() -> None:
    @flow
    async def sleeps(ctx: Context) -> None:
        await ctx.wait_for("never")

    @flow
    async def races(ctx: Context) -> Any:
        waits = [asyncio.ensure_future(wait) for wait in (ctx.wait_for("a"), ctx.wait_for("b"), ctx.run_child(sleeps))]
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        return next(iter(done)).result()

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(races)
        await suspended(handle)
        await handle.signal("a", 1)
        assert await asyncio.wait_for(handle.result(), 60) == 1
        [child] = [row.run for row in await engine.runs() if row.run != handle.id]
        assert (await engine.wait(child)).status == "cancelled"


async def test_a_signal_for_the_loser_of_a_race_is_kept_for_the_next_wait() -> None:
    @flow
    async def two(ctx: Context) -> Any:
        name, value = await ctx.first(a=ctx.wait_for("a"), b=ctx.wait_for("b"))
        other = await ctx.wait_for("b" if name == "a" else "a", timeout="60s")
        return [name, value, other]

    async with open_engine(settings=SHORT) as engine:
        for early in (True, False):
            handle = await engine.start(two)
            if not early:
                await suspended(handle)
            await asyncio.gather(handle.signal("a", 1), handle.signal("b", 2))
            assert await result(handle) == ["a", 1, 2]


@pytest.mark.parametrize("parked", [10_000, 0])
async def test_a_signal_that_a_restless_body_gives_up_is_kept_for_its_next_wait(
    monkeypatch: pytest.MonkeyPatch, parked: int
) -> None:
    monkeypatch.setattr(parking, "ASK_EVERY", 60)  # the body does not hear of the signal that its first wait has taken
    is_taken = asyncio.Event()

    @flow
    async def restless(ctx: Context) -> Any:
        async def tick() -> None:
            while True:
                await asyncio.sleep(0.005)

        ticking, wait = asyncio.create_task(tick()), asyncio.create_task(ctx.wait_for("paid"))
        await asyncio.sleep(0)  # both have begun, in each try
        await is_taken.wait()
        for task in (ticking, wait):
            task.cancel()
        await asyncio.wait([ticking, wait])
        return [await ctx.wait_for("paid"), await ctx.wait_for("paid")]

    async with open_engine(settings=Settings(poll=0.05, sweep_every=0.05, parked_bodies=parked)) as engine:
        handle = await engine.start(restless)
        async with asyncio.timeout(30):
            while not await facts(engine, handle.id, CallsAwaited):
                await asyncio.sleep(0.005)
            for n in (1, 2):
                await handle.signal("paid", n)
            while not await facts(engine, handle.id, SignalTaken):
                await asyncio.sleep(0.005)
        is_taken.set()
        assert await result(handle) == [1, 2]


async def test_a_gather_of_waits_gets_every_signal() -> None:
    @flow
    async def all_of(ctx: Context) -> Any:
        return await asyncio.gather(*(ctx.wait_for(name) for name in "abc"))

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(all_of)
        await suspended(handle)
        for name in "cab":
            await handle.signal(name, name)
        assert await result(handle) == ["a", "b", "c"]


@flow
async def sleeps(ctx: Context, n: int) -> int:
    for _ in range(n):
        await ctx.sleep(0)
    return n


class Next(Event):
    left: int


class Sleeps(Workflow):
    """The same loop, written with events."""

    @step
    async def begin(self, ev: StartEvent) -> Next:
        return Next(left=ev.n)

    @step
    async def sleep(self, ctx: Context, ev: Next) -> Next | StopEvent:
        await ctx.sleep(0)
        return Next(left=ev.left - 1) if ev.left > 1 else StopEvent(result="slept")


def cpu_seconds(workflow: Any, waits: int, runs: int) -> float:
    async def all_runs() -> float:
        async with open_engine() as engine:
            began = time.process_time()
            handles = [await engine.start(workflow, n=waits) for _ in range(runs)]
            for handle in handles:
                await handle.result()
            return time.process_time() - began

    return asyncio.run(all_runs())


@pytest.mark.timeout(300)
def test_the_800th_wait_costs_as_much_as_the_first_and_hardly_more_than_a_loop_of_events() -> None:
    """Of several tries one is enough: other work on the machine makes each of them slower by chance."""
    for _ in range(4):
        short, long = cpu_seconds(sleeps, 100, 8), cpu_seconds(sleeps, 800, 1)
        if long < 1.5 * short and long < 1.5 * cpu_seconds(Sleeps, 800, 1):
            return
    raise AssertionError(f"800 waits of one body took {long:.2f} s, of eight bodies {short:.2f} s")


async def test_what_a_body_has_recorded_is_not_in_the_row_of_its_command() -> None:
    """It would be written again at each wait."""
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(sleeps, n=50)
        await handle.result()
        other = await engine.start(waits_often)
        await suspended(other, 31)
        [row] = [row for key, row in engine.store.commands.items() if key[0] == other.id]  # type: ignore[attr-defined]
        assert len(row.data) < 1000
        await other.signal("go")
        assert await result(other) is None


@flow
async def waits_often(ctx: Context) -> None:
    for _ in range(30):
        await ctx.sleep(0)
    await ctx.wait_for("go")


async def test_asyncio_shows_what_a_task_waits_for() -> None:
    """Parking reads three names that asyncio does not document: a Python in which they mean something else must not go
    unnoticed. Without them no body is parked, and nothing else changes."""

    async def wait(future: "asyncio.Future[None]") -> None:
        await future

    async def nested() -> None:
        await asyncio.gather(*futures)

    loop = asyncio.get_running_loop()
    futures: list[asyncio.Future[None]] = [loop.create_future() for _ in range(2)]
    tasks = [asyncio.create_task(wait(futures[0])), asyncio.create_task(nested())]
    assert [getattr(task, "_fut_waiter", 0) for task in tasks] == [None, None]  # they have not begun
    await asyncio.sleep(0)
    assert getattr(tasks[0], "_fut_waiter", None) is futures[0]
    gathered = getattr(tasks[1], "_fut_waiter", None)
    assert getattr(gathered, "_children", None) == futures
    for future in futures:
        future.set_result(None)
    assert futures[0].done() and getattr(tasks[0], "_fut_waiter", None) in (None, futures[0])  # it is about to run
    await asyncio.gather(*tasks)
    assert callable(asyncio.tasks._enter_task) and callable(asyncio.tasks._leave_task)  # documented for task classes


async def test_without_a_view_of_what_tasks_wait_for_bodies_are_not_parked_and_get_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @flow
    async def waits(ctx: Context) -> Any:
        values = await asyncio.gather(ctx.wait_for("a"), ctx.wait_for("b"))
        await ctx.sleep(0.01)
        return [*values, await ctx.first(a=ctx.wait_for("a"), late=ctx.sleep("1d"))]

    monkeypatch.setattr(BodyTasks, "waiters", lambda tasks: dict.fromkeys(tasks.running))
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(waits)
        for name, value in (("b", 2), ("a", 1), ("a", 3)):
            await handle.signal(name, value)
        assert await result(handle) == [1, 2, ("a", 3)]
        settled = await facts(engine, handle.id, StepSettled)
        assert not any(isinstance(fact.report.outcome, Suspended) for fact in settled)
