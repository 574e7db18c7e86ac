"""The simulated loop keeps asyncio's promises, breaks processes as an operating system would, and repeats itself."""

import asyncio
import gc
import random
import time
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from refold.testing.simulator.event_loop import Killed, SimLoop, SimProcess, current_process

Work = Callable[[], Coroutine[Any, Any, None]]


async def tick() -> None:
    while True:
        await asyncio.sleep(1)


async def stubborn() -> None:
    while True:
        try:
            await asyncio.sleep(1)
        except BaseException:
            continue


async def careful() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        task = asyncio.create_task(asyncio.sleep(1))
        await asyncio.wait_for(asyncio.sleep(5), 2)
        await task


async def generate() -> AsyncIterator[int]:
    yield 1
    yield 2


async def manifold() -> None:
    loop = asyncio.get_running_loop()
    unawaited, generated = asyncio.sleep(1), generate()
    loop.call_later(50, loop.create_task, asyncio.sleep(1))
    loop.call_soon(loop.create_task, careful())
    async with asyncio.TaskGroup() as group:
        group.create_task(careful())
        await anext(generated)
        await asyncio.sleep(100)
    await unawaited


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    loop = SimLoop(random.Random(7))
    yield loop
    loop.close()
    gc.collect()  # whatever the loop left behind complains here, inside the test that made it


def notes_of(seed: int, *, fifo: bool = False) -> list[str]:
    """Three processes of two tasks each take notes while they sleep, yield, wait, cancel and fail together."""
    loop = SimLoop(random.Random(seed), fifo=fifo)
    notes: list[str] = []

    async def member(name: str, count: int) -> None:
        try:
            for turn in range(count):
                notes.append(f"{loop.time():g} {name} {turn}")
                await asyncio.sleep(turn % 2)
        finally:
            notes.append(f"{name} ends")

    async def group(name: str) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(12):
                tasks.create_task(member(f"{name}{number}", 4))
            await asyncio.sleep(1)
            raise ValueError

    for name in "abc":
        loop.process(name).spawn(group(name))
    loop.run_until(lambda: False)
    loop.close()
    return notes


def test_a_sleep_of_seven_days_is_instant(loop: SimLoop) -> None:
    started = time.process_time()
    loop.run_until_complete(asyncio.sleep(7 * 86400))
    assert loop.time() == 7 * 86400
    assert time.process_time() - started < 1


def test_the_clock_starts_at_nought_and_stands_while_callbacks_run(loop: SimLoop) -> None:
    async def busy() -> float:
        for _ in range(1000):
            await asyncio.sleep(0)
        return loop.time()

    assert loop.run_until_complete(busy()) == 0.0


def test_the_same_seed_gives_the_same_order() -> None:
    assert notes_of(3) == notes_of(3)


def test_different_seeds_give_different_orders() -> None:
    assert len({tuple(notes_of(seed)) for seed in range(10)}) == 10


def test_no_seed_matters_when_first_in_is_first_out() -> None:
    assert notes_of(1, fifo=True) == notes_of(2, fifo=True)
    assert notes_of(1, fifo=True)[:3] == ["0 a0 0", "0 a1 0", "0 a2 0"]


def test_chance_only_mixes_processes_and_never_reorders_one(loop: SimLoop) -> None:
    seen: list[tuple[str, int]] = []

    async def schedule(name: str) -> None:
        for number in range(20):
            loop.call_soon(seen.append, (name, number))

    for name in "abc":
        loop.process(name).spawn(schedule(name))
    loop.run_until(lambda: len(seen) == 60)
    for name in "abc":
        assert [number for owner, number in seen if owner == name] == list(range(20))
    assert [owner for owner, _ in seen] != sorted(owner for owner, _ in seen)


def test_timers_of_one_moment_fire_in_order_of_creation(loop: SimLoop) -> None:
    seen: list[int] = []
    for number in range(50):
        loop.call_at(5.0, seen.append, number)
    loop.call_at(4.0, seen.append, -1)
    loop.run_until(lambda: False)
    assert seen == list(range(-1, 50))


def test_timers_of_one_moment_all_go_before_what_they_schedule(loop: SimLoop) -> None:
    seen: list[str] = []
    loop.call_at(5.0, loop.call_soon, seen.append, "scheduled by the first")
    loop.call_at(5.0, seen.append, "the second")
    loop.run_until(lambda: False)
    assert seen == ["the second", "scheduled by the first"]


def test_a_cancelled_timer_does_not_move_the_clock(loop: SimLoop) -> None:
    loop.call_later(100, pytest.fail, "it was cancelled").cancel()
    assert not loop.run_until(lambda: False)
    assert (loop.time(), loop.steps) == (0.0, 0)


def test_a_timer_of_the_past_is_ready_at_once(loop: SimLoop) -> None:
    seen: list[float] = []
    loop.call_at(-3, lambda: seen.append(loop.time()))
    loop.run_until(lambda: False)
    assert seen == [0.0]


def test_a_stuck_loop_says_so(loop: SimLoop) -> None:
    process = loop.process("stuck")
    process.spawn(asyncio.Event().wait())
    assert loop.run_until(lambda: False) is False
    with pytest.raises(RuntimeError, match="nothing is left to run"):
        loop.run_until_complete(loop.create_future())


def test_a_run_ends_at_its_limits(loop: SimLoop) -> None:
    loop.process("clock").spawn(tick())
    assert not loop.run_until(lambda: False, limit_time=10.5)
    assert loop.time() == 10.5
    steps = loop.steps
    assert not loop.run_until(lambda: False, limit_steps=7)
    assert loop.steps == steps + 7
    assert loop.run_until(lambda: loop.time() >= 100, limit_time=1000, limit_steps=1000)


def test_every_handle_made_by_a_process_belongs_to_it(loop: SimLoop) -> None:
    seen: list[SimProcess | None] = []

    def note(*_: object) -> None:
        seen.append(current_process())

    async def main() -> None:
        note()
        loop.call_soon(note)
        loop.call_later(1, note)
        future = loop.create_future()
        future.add_done_callback(note)
        future.set_result(None)
        child = asyncio.create_task(asyncio.sleep(0))
        child.add_done_callback(note)
        await asyncio.sleep(2)

    process = loop.process("p")
    process.spawn(main())
    loop.call_soon(note)
    loop.run_until(lambda: False)
    assert seen.count(process) == 5
    assert seen.count(None) == 1


def test_a_process_starts_with_an_empty_context(loop: SimLoop) -> None:
    variable: ContextVar[str] = ContextVar("variable", default="unset")
    variable.set("outside")

    async def read() -> str:
        return variable.get()

    async def write() -> None:
        variable.set("another task")

    process = loop.process("p")
    loop.run_until_complete(process.spawn(write()))
    assert loop.run_until_complete(process.spawn(read())) == "unset"
    assert loop.run_until_complete(read()) == "outside"


def test_a_name_is_free_again_after_death(loop: SimLoop) -> None:
    first = loop.process("worker")
    with pytest.raises(ValueError, match="worker"):
        loop.process("worker")
    first.kill()
    assert loop.process("worker").alive
    with pytest.raises(RuntimeError, match="dead"):
        first.spawn(asyncio.sleep(1))


def test_a_killed_process_runs_no_finally_and_no_callback(loop: SimLoop) -> None:
    notes: list[str] = []

    async def main() -> None:
        loop.call_later(5, notes.append, "timer")
        try:
            notes.append("begin")
            await asyncio.sleep(10)
        except BaseException:
            notes.append("except")
            raise
        finally:
            notes.append("finally")

    victim = loop.process("victim")
    task = victim.spawn(main())
    loop.call_later(1, victim.kill)
    assert not loop.run_until(lambda: False)
    gc.collect()
    assert notes == ["begin"]
    assert loop.time() == 1.0
    assert not victim.alive
    assert not task.done()
    assert task not in asyncio.all_tasks(loop)


def test_a_ready_callback_dies_with_its_process(loop: SimLoop) -> None:
    notes: list[str] = []

    async def main() -> None:
        loop.call_soon(notes.append, "soon")
        victim.kill()
        notes.append("still in its last step")
        await asyncio.sleep(0)
        notes.append("after death")

    victim = loop.process("victim")
    victim.spawn(main())
    loop.run_until(lambda: False)
    assert notes == ["still in its last step"]


def test_a_kill_in_the_middle_of_async_with_skips_the_exit_and_spares_the_others(loop: SimLoop) -> None:
    notes: list[str] = []

    @asynccontextmanager
    async def lease(name: str) -> AsyncIterator[None]:
        notes.append(f"{name} takes")
        try:
            yield
        finally:
            await asyncio.sleep(1)
            notes.append(f"{name} gives back")

    async def main(name: str) -> None:
        async with lease(name):
            await asyncio.sleep(5)

    victim, other = loop.process("victim"), loop.process("other")
    victim.spawn(main("victim"))
    other.spawn(main("other"))
    loop.call_later(3, victim.kill)
    loop.run_until(lambda: False)
    assert sorted(notes) == ["other gives back", "other takes", "victim takes"]


def test_a_future_of_a_dead_process_can_be_resolved_without_effect(loop: SimLoop) -> None:
    notes: list[str] = []
    bell = asyncio.Event()

    async def wait() -> None:
        await bell.wait()
        notes.append("woken")

    victim = loop.process("victim")
    victim.spawn(wait())
    loop.call_later(1, victim.kill)
    loop.call_later(2, bell.set)
    loop.run_until(lambda: False)
    assert notes == []


def test_waiting_for_a_killed_task_is_an_error_even_while_others_run(loop: SimLoop) -> None:
    loop.process("other").spawn(tick())
    victim = loop.process("victim")
    loop.call_later(3, victim.kill)
    with pytest.raises(RuntimeError, match="victim"):
        loop.run_until_complete(victim.spawn(asyncio.sleep(10)))


@pytest.mark.parametrize("made_outside", [False, True])
def test_killed_raised_in_a_task_kills_its_process_there(loop: SimLoop, made_outside: bool) -> None:
    notes: list[str] = []
    death = Killed() if made_outside else None

    async def sibling(name: str) -> None:
        try:
            await asyncio.sleep(2)
            notes.append(name)
        finally:
            notes.append(f"{name} finally")

    async def die() -> None:
        await asyncio.sleep(1)
        loop.call_soon(notes.append, "ready before the death")
        raise death or Killed()

    victim = loop.process("victim")
    task = victim.spawn(die())
    victim.spawn(sibling("same process"))
    loop.process("other").spawn(sibling("other"))
    task.add_done_callback(lambda _: notes.append("told"), context=victim._context)
    loop.run_until(lambda: False)
    assert not victim.alive
    assert notes == ["other", "other finally"]
    assert loop.errors == []


def test_killed_raised_under_awaiting_cleanup_does_not_let_the_process_live_on(loop: SimLoop) -> None:
    notes: list[str] = []

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(1)).add_done_callback(lambda _: notes.append("child ended"))
            await asyncio.sleep(0)
            try:
                raise Killed
            finally:
                await asyncio.sleep(1)
                notes.append("cleaned up")

    victim = loop.process("victim")
    victim.spawn(main())
    assert not loop.run_until(lambda: False)
    assert notes == []
    assert not victim.alive
    assert loop.errors == []


def test_killed_raised_in_a_plain_callback_kills_its_process(loop: SimLoop) -> None:
    def die() -> None:
        raise Killed

    async def main() -> None:
        loop.call_soon(die)
        await asyncio.sleep(1)
        pytest.fail("it should be dead")

    victim = loop.process("victim")
    victim.spawn(main())
    loop.run_until(lambda: False)
    assert not victim.alive
    assert loop.errors == []


def test_a_pause_delays_timers_and_then_catches_up_in_order(loop: SimLoop) -> None:
    seen: list[tuple[float, str]] = []

    def note(what: str) -> None:
        seen.append((loop.time(), what))

    async def main(name: str) -> None:
        for number in range(4):
            loop.call_later(number, note, f"{name}{number}")

    sleeper, other = loop.process("sleeper"), loop.process("other")
    sleeper.spawn(main("s"))
    other.spawn(main("o"))
    loop.call_later(0.5, sleeper.pause, 2)
    loop.run_until(lambda: False)
    assert [note for note in seen if note[1][0] == "s"] == [(0.0, "s0"), (2.5, "s1"), (2.5, "s2"), (3.0, "s3")]
    assert [note for note in seen if note[1][0] == "o"] == [(0.0, "o0"), (1.0, "o1"), (2.0, "o2"), (3.0, "o3")]


def test_the_longest_of_several_pauses_counts(loop: SimLoop) -> None:
    seen: list[float] = []

    async def main() -> None:
        await asyncio.sleep(1)
        seen.append(loop.time())

    process = loop.process("p")
    process.spawn(main())
    process.pause(5)
    process.pause(3)
    loop.call_later(4, process.pause, 10)
    loop.run_until(lambda: False)
    assert seen == [15.0]  # the task itself only starts at 14


def test_a_process_that_pauses_itself_ends_its_step_first(loop: SimLoop) -> None:
    seen: list[float] = []

    async def main() -> None:
        process.pause(5)
        seen.append(loop.time())
        await asyncio.sleep(0)
        seen.append(loop.time())

    process = loop.process("p")
    process.spawn(main())
    loop.run_until(lambda: False)
    assert seen == [0.0, 5.0]


def test_a_kill_during_a_pause_leaves_nothing_to_wait_for(loop: SimLoop) -> None:
    process = loop.process("p")
    process.spawn(asyncio.sleep(1))
    process.pause(50)
    loop.call_later(2, process.kill)
    loop.run_until(lambda: False)
    assert loop.time() == 2.0


def test_the_wall_clock_of_a_process_is_skewed_and_its_timers_are_not(loop: SimLoop) -> None:
    process = loop.process("p")
    process.clock_skew = -30.0

    async def read() -> tuple[float, float]:
        await asyncio.sleep(5)
        return process.now(), loop.time()

    assert loop.run_until_complete(process.spawn(read())) == (-25.0, 5.0)


def test_hooks_see_every_step_with_its_process(loop: SimLoop) -> None:
    before: list[SimProcess | None] = []
    after: list[SimProcess | None] = []
    loop.before_step, loop.after_step = before.append, after.append
    process = loop.process("p")
    process.spawn(asyncio.sleep(1))
    loop.call_soon(lambda: None)
    loop.run_until(lambda: False)
    assert before == after
    assert len(before) == loop.steps
    assert set(before) == {process, None}


def test_a_hook_can_kill_or_pause_before_any_step(loop: SimLoop) -> None:
    seen: list[str] = []

    async def main() -> None:
        for number in range(3):
            seen.append(f"{loop.time():g}: {number}")
            await asyncio.sleep(0)

    def inject(running: SimProcess | None) -> None:
        if running is process and loop.steps == 1:
            process.pause(9)
        if running is process and loop.steps == 3:
            process.kill()

    process = loop.process("p")
    process.spawn(main())
    loop.before_step = inject
    loop.run_until(lambda: False)
    assert seen == ["0: 0", "9: 1"]  # the end of the pause is a step of its own


def test_what_an_oracle_raises_comes_out_of_the_run(loop: SimLoop) -> None:
    def oracle(_: SimProcess | None) -> None:
        assert loop.time() < 3, "too late"

    loop.after_step = oracle
    loop.process("p").spawn(asyncio.sleep(5))
    with pytest.raises(AssertionError, match="too late"):
        loop.run_until(lambda: False)
    assert not loop.is_running()


def test_event_queue_lock_and_condition_keep_their_order(loop: SimLoop) -> None:
    async def main() -> list[object]:
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=1)
        lock, changed, started = asyncio.Lock(), asyncio.Condition(), asyncio.Event()
        got: list[object] = []

        async def produce() -> None:
            await started.wait()
            for number in range(3):
                await queue.put(number)

        async def consume(name: str) -> None:
            async with lock:
                got.append((name, await queue.get()))
            async with changed:
                changed.notify_all()

        async def watch() -> None:
            async with changed:
                await changed.wait_for(lambda: len(got) == 3)
                got.append("all")

        tasks = [asyncio.create_task(work) for work in (produce(), watch(), *map(consume, "abc"))]
        started.set()
        await asyncio.gather(*tasks)
        return got

    assert loop.run_until_complete(main()) == [("a", 0), ("b", 1), ("c", 2), "all"]


def test_wait_for_timeout_shield_and_wait_work(loop: SimLoop) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(10), 3)
        assert await asyncio.wait_for(asyncio.sleep(1, "value"), 3) == "value"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await asyncio.sleep(10)
        inner = asyncio.create_task(asyncio.sleep(5, "survived"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(inner), 1)
        done, pending = await asyncio.wait([inner, asyncio.create_task(asyncio.sleep(50))], timeout=10)
        assert [task.result() for task in done] == ["survived"]
        assert len(pending) == 1
        assert loop.time() == 3 + 1 + 2 + 1 + 10

    loop.run_until_complete(main())


def test_a_task_group_cancels_its_members_and_collects_their_errors(loop: SimLoop) -> None:
    ended: list[int] = []

    async def member(number: int) -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            ended.append(number)
            raise

    async def fail() -> None:
        await asyncio.sleep(1)
        raise ValueError("once")

    async def main() -> None:
        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.TaskGroup() as group:
                for number in range(40):
                    group.create_task(member(number))
                group.create_task(fail())
        assert [str(error) for error in caught.value.exceptions] == ["once"]

    loop.run_until_complete(main())
    assert sorted(ended) == list(range(40))
    assert loop.time() == 1.0
    assert loop.errors == []


def test_sets_of_tasks_iterate_alike_in_every_run() -> None:
    kept: list[asyncio.Task[None]] = []  # so that no address is used twice

    async def main() -> list[str]:
        tasks = {asyncio.create_task(asyncio.sleep(0)) for _ in range(40)}
        kept.extend(tasks)
        done, _ = await asyncio.wait(tasks)
        return [task.get_name() for task in (*tasks, *done)]

    orders: set[tuple[str, ...]] = set()
    for _ in range(5):
        loop = SimLoop(random.Random(1))
        orders.add(tuple(loop.run_until_complete(main())))
        loop.close()
    assert len(orders) == 1


def test_cancellation_runs_cleanup_that_awaits(loop: SimLoop) -> None:
    notes: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(1)
            notes.append("cleaned up")

    async def main() -> None:
        task = asyncio.create_task(work(), name="work")
        await asyncio.sleep(1)
        task.cancel("enough")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (task.get_name(), task.cancelled()) == ("work", True)

    loop.run_until_complete(main())
    assert notes == ["cleaned up"]


def test_a_dropped_async_generator_is_ended_by_its_process(loop: SimLoop) -> None:
    notes: list[SimProcess | None] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(1)
            notes.append(current_process())

    async def main() -> None:
        async for _ in numbers():
            break
        await asyncio.sleep(2)

    process = loop.process("p")
    loop.run_until_complete(process.spawn(main()))
    assert notes == [process]


def test_a_runner_can_use_the_loop() -> None:
    with asyncio.Runner(loop_factory=lambda: SimLoop(random.Random(1))) as runner:
        victim = runner.get_loop().process("victim")  # type: ignore[attr-defined]
        victim.spawn(asyncio.sleep(100))

        async def main() -> str:
            await asyncio.sleep(1)
            victim.kill()
            return "done"

        assert runner.run(main()) == "done"


def test_an_unexpected_exception_is_recorded_with_its_process(loop: SimLoop) -> None:
    def fail() -> None:
        raise ValueError("of a callback")

    async def main() -> None:
        loop.call_soon(fail)
        await asyncio.sleep(2)
        raise ValueError("of a task")

    loop.process("worker").spawn(main())
    loop.process("other").spawn(asyncio.sleep(3))
    assert not loop.run_until(lambda: False)
    assert [str(error) for error in loop.errors] == ["of a callback", "of a task"]
    places = [note.split(":")[0] for error in loop.errors for note in error.__notes__]
    assert places == ["worker at 0.0", "worker at 2.0"]
    assert loop.time() == 3.0


def test_a_failure_that_nobody_asks_about_is_recorded_when_the_loop_is_closed(loop: SimLoop) -> None:
    kept: list[asyncio.Task[None]] = []

    async def fail() -> None:
        raise ValueError("unheard")

    async def main() -> None:
        kept.append(asyncio.create_task(fail()))
        await asyncio.sleep(1)

    loop.process("p").spawn(main())
    loop.run_until(lambda: False)
    assert loop.errors == []
    loop.close()
    assert [str(error) for error in loop.errors] == ["unheard"]


def test_a_failure_that_is_handled_is_not_recorded(loop: SimLoop) -> None:
    async def fail() -> None:
        raise ValueError

    async def main() -> None:
        task = asyncio.create_task(fail())
        await asyncio.sleep(1)
        with pytest.raises(ValueError):
            await task

    loop.process("p").spawn(main())
    loop.run_until(lambda: False)
    loop.close()
    assert loop.errors == []


REAL_WORLD = sorted(
    name
    for name in vars(asyncio.AbstractEventLoop)
    if not name.startswith("_") and getattr(vars(SimLoop).get(name), "__qualname__", "").split(".")[0] != "SimLoop"
)


@pytest.mark.parametrize("call", REAL_WORLD)
def test_calls_to_the_real_world_are_refused_by_name(loop: SimLoop, call: str) -> None:
    with pytest.raises(RuntimeError, match=f"^{call}: not in a simulation$"):
        getattr(loop, call)()


def test_threads_sockets_and_subprocesses_of_asyncio_are_refused(loop: SimLoop) -> None:
    assert {"run_in_executor", "create_connection", "subprocess_exec", "add_reader"} <= set(REAL_WORLD)
    with pytest.raises(RuntimeError, match="run_in_executor"):
        loop.run_until_complete(asyncio.to_thread(time.sleep, 1))
    with pytest.raises(RuntimeError, match="create_connection"):
        loop.run_until_complete(asyncio.open_connection("localhost", 80))
    with pytest.raises(RuntimeError, match="subprocess_exec"):
        loop.run_until_complete(asyncio.create_subprocess_exec("true"))


@pytest.mark.parametrize("end", ["killed", "paused", "alive"])
@pytest.mark.parametrize("work", [tick, stubborn, careful, manifold])
@pytest.mark.parametrize("steps", range(6))
def test_closing_is_silent_whatever_is_left(work: Work, steps: int, end: str) -> None:
    loop = SimLoop(random.Random(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        process = loop.process("p")
        process.spawn(work())
        loop.run_until(lambda: False, limit_steps=steps)
        if end == "killed":
            process.kill()
        if end == "paused":
            process.pause(10)
        loop.close()
        gc.collect()
    assert loop.is_closed()
    assert loop.errors == []
    loop.close()


def test_a_closed_or_running_loop_does_not_run(loop: SimLoop) -> None:
    async def nested() -> None:
        assert loop.is_running()
        assert asyncio.get_running_loop() is loop
        with pytest.raises(RuntimeError, match="running"):
            loop.run_until(lambda: True)
        with pytest.raises(RuntimeError, match="running"):
            loop.close()

    loop.run_until_complete(nested())
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.run_until(lambda: True)
