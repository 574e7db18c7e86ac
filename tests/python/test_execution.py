"""How bodies are run: exceptions, cancellation, timeouts, threads and processes."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

from refold import (
    Collect,
    Context,
    Event,
    Retry,
    RunCancelled,
    StartEvent,
    StopEvent,
    SyncContext,
    Workflow,
    flow,
    open_engine,
    resource,
    run_sync,
    step,
    testing,
)
from refold.errors import ChildFailed, Conflict, InvalidValue, RunFailed, StepFailed
from refold.plan import Child, Plan, Step
from refold.worker.live_body import LiveBody
from tests.alive import living, noted_in, within
from tests.python.house import SHORT, Done, Page, error, result, started, until


class MyError(Exception):
    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(f"code {code}")


async def pages(ctx: Context, ev: StartEvent) -> list[Page]:
    return [Page(n=n) for n in range(ev.count)]


async def test_an_exception_is_raised_with_the_original_as_its_cause() -> None:
    async def only(ev: StartEvent) -> StopEvent:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise MyError(7) from inner

    found = await error(only)
    assert isinstance(found, StepFailed) and isinstance(found.__cause__, MyError)
    assert found.__cause__.code == 7
    assert isinstance(found.__cause__.__cause__, KeyError)
    assert str(found).startswith("step 'only' (visit 1) of run ")
    assert str(found).endswith("failed: MyError: code 7")


async def test_in_another_process_an_exception_is_shown_with_its_class_message_and_traceback(tmp_path: Path) -> None:
    async def only(ev: StartEvent) -> StopEvent:
        raise MyError(7)

    workflow, db = Workflow("w", [only]), tmp_path / "refold.db"
    async with open_engine(db=db) as engine:
        handle = await engine.start(workflow)
        with pytest.raises(StepFailed):
            await handle.result()
    async with open_engine(db=db) as engine:
        handle = await engine.attach(handle.id, workflow)
        with pytest.raises(StepFailed, match="MyError: code 7") as caught:
            await handle.result()
        assert caught.value.__cause__ is None
        assert "raise MyError(7)" in caught.value.__notes__[0]
        assert caught.value.error.fault.type.endswith("MyError")


class Marks:
    """Where a body came to, and whether it was told to end."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def wait(self, seconds: float = 3600.0) -> None:
        self.seen.append("began")
        try:
            await asyncio.sleep(seconds)
            self.seen.append("after")
        finally:
            self.seen.append("cleaned up")


async def test_cancel_really_cancels() -> None:
    marks = Marks()

    async def only(ev: StartEvent) -> StopEvent:
        await marks.wait()
        return StopEvent()

    async with started(only) as handle:
        await until(lambda: marks.seen)
        waiting = asyncio.create_task(handle.result())
        await handle.cancel("enough")
        with pytest.raises(RunCancelled, match="was cancelled"):
            await waiting
        await until(lambda: len(marks.seen) > 1)
    assert marks.seen == ["began", "cleaned up"]


async def test_the_failure_of_a_sibling_really_cancels() -> None:
    marks = Marks()

    async def fetch(ev: Page) -> StopEvent:
        if ev.n:
            await until(lambda: marks.seen)
            raise ValueError("broken")
        await marks.wait()
        return StopEvent()

    async with started(pages, fetch, count=2) as handle:
        with pytest.raises(StepFailed, match="broken"):
            await handle.result()
        await until(lambda: len(marks.seen) > 1)
    assert marks.seen == ["began", "cleaned up"]


async def test_a_failure_may_let_others_finish() -> None:
    marks = Marks()

    async def fetch(ev: Page) -> StopEvent:
        if ev.n:
            await until(lambda: marks.seen)
            raise ValueError("broken")
        await marks.wait(0.05)
        return StopEvent()

    class Gentle(Workflow):
        on_failure = "drain"

    assert "broken" in str(await error(Gentle("w", [pages, fetch]), count=2))
    assert marks.seen == ["began", "after", "cleaned up"]


async def test_a_stop_really_cancels_what_is_still_running() -> None:
    marks = Marks()

    async def fetch(ev: Page) -> StopEvent:
        if ev.n:
            await until(lambda: marks.seen)
            return StopEvent(result="first")
        await marks.wait()
        return StopEvent()

    async with started(pages, fetch, count=2) as handle:
        assert await handle.result() == "first"
        await until(lambda: len(marks.seen) > 1)
    assert marks.seen == ["began", "cleaned up"]


def test_the_timeout_of_a_step_really_cancels_and_counts_as_a_try() -> None:
    marks = Marks()

    @step(timeout="1s", retry=Retry(attempts=2))
    async def only(ev: StartEvent) -> StopEvent:
        await marks.wait(30.0 if len(marks.seen) < 2 else 0.0)
        return StopEvent(result="done")

    with testing.engine() as t:
        assert t.run(Workflow("w", [only])) == "done"
    assert marks.seen == ["began", "cleaned up", "began", "after", "cleaned up"]


def test_the_timeout_of_a_run_really_cancels() -> None:
    marks = Marks()

    async def only(ev: StartEvent) -> StopEvent:
        await marks.wait()
        return StopEvent()

    with testing.engine() as t:
        with pytest.raises(RunFailed, match=r"no end after 0\.2 s"):
            t.run(Workflow("w", [only], timeout="200ms"))
        t.advance("1m")
        assert marks.seen == ["began", "cleaned up"]


def test_a_pause_does_not_count_towards_the_timeout_of_a_run() -> None:
    async def fetch(ctx: Context, ev: StartEvent) -> Page:
        return Page()

    async def last(ctx: Context, ev: Page) -> StopEvent:
        await ctx.wait_for("go")
        return StopEvent(result="well")

    with testing.engine() as t:
        run = t.start(Workflow("w", [fetch, last], timeout="2s"))
        run.pause()
        t.advance("3s")
        run.signal("go")
        run.resume()
        assert run.result() == "well"


async def test_a_run_without_a_timeout_has_none() -> None:
    async def only(ev: StartEvent) -> StopEvent:
        return StopEvent()

    async with started(only) as handle:
        assert (await handle.engine.show(handle.id)).state.deadline is None


async def test_verbs_and_several_awaited_results_work_together() -> None:
    async def only(ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=await ctx.wait_for("go"))

    async with started(only) as handle:
        waiting = [asyncio.create_task(handle.result()) for _ in range(3)]
        await asyncio.sleep(0.02)
        await handle.pause()
        await handle.resume()
        await handle.signal("go", 5)
        assert await asyncio.gather(*waiting) == [5, 5, 5]
        assert await handle.result() == 5


async def test_pause_reports_what_is_running_and_nothing_new_begins() -> None:
    begun: list[int] = []
    go = asyncio.Event()

    @step(workers=1)
    async def fetch(ev: Page) -> Done:
        begun.append(ev.n)
        await go.wait()
        return Done(n=ev.n)

    @step(collect=Collect(Done, n=2))
    async def join(done: list[Done]) -> StopEvent:
        return StopEvent(result=len(done))

    async with started(pages, fetch, join, count=2) as handle:
        await until(lambda: begun)
        assert await handle.pause() == ["fetch/1"]
        go.set()
        await asyncio.sleep(0.1)
        assert begun == [0]
        await handle.resume()
        assert await handle.result() == 2


async def test_sync_steps_do_not_hold_the_loop() -> None:
    all_there = threading.Barrier(8)

    def fetch(ev: Page) -> Done:
        all_there.wait(60)  # nobody goes on before the others have begun
        return Done(n=ev.n)

    @step(collect=Collect(Done, n=8))
    async def join(done: list[Done]) -> StopEvent:
        return StopEvent(result=len(done))

    assert await result(pages, fetch, join, count=8) == 8


async def test_a_step_that_holds_a_thread_runs_out_of_time_all_the_same() -> None:
    go = threading.Event()

    @step(timeout="200ms")
    def only(ev: StartEvent) -> StopEvent:
        go.wait(60)
        return StopEvent()

    try:
        assert "no result after 0.2 s" in str(await error(only))
    finally:
        go.set()


async def test_too_many_live_objects_are_an_exception() -> None:
    async def only(ctx: Context, ev: StartEvent) -> StopEvent:
        for n in range(10_001):
            ctx.session[str(n)] = n
        return StopEvent()

    assert isinstance((await error(only)).__cause__, Conflict)


class Sum(Event):
    of: list[int]


class Apart(Workflow):
    """Its steps run in processes of their own."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Sum:
        ctx.set("seen", 1)
        return Sum(of=ev.numbers)

    @step(isolation="process")
    def add(self, ctx: Context, ev: Sum) -> Done:
        ctx.update("seen", lambda held: held + 1)
        ctx.set("pid", os.getpid())
        ctx.usage(sums=1)
        return Done(n=sum(ev.of))

    @step
    async def last(self, ctx: Context, ev: Done) -> StopEvent:
        return StopEvent(result=[ev.n, ctx.get("seen"), ctx.get("pid") != os.getpid()])


async def test_a_step_runs_in_a_process_of_its_own() -> None:
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(Apart, numbers=[1, 2, 3])
        assert await handle.result() == [6, 2, True]
        assert await handle.usage() == {"sums": 1}


class Naps(Workflow):
    @step(isolation="process")
    async def nap(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.sleep(1)
        return StopEvent()


async def test_a_step_in_a_process_of_its_own_makes_no_durable_calls() -> None:
    assert "waits for nothing; let another step wait" in str(await error(Naps))


@flow
async def doubled(ctx: Context, n: int) -> int:
    """Twice the number, if it is one."""
    if n < 0:
        raise ValueError("below nothing")
    return 2 * n


async def test_a_child_run_and_its_failure() -> None:
    async def only(ctx: Context, ev: StartEvent) -> StopEvent:
        first = await ctx.run_child(doubled, n=4)
        try:
            await ctx.run_child(doubled, n=-1)
        except ChildFailed as failed:
            return StopEvent(result=[first, str(failed)])
        return StopEvent()

    assert await result(only) == [8, "doubled: ValueError: below nothing"]


async def test_a_playbook_is_a_child_of_a_python_workflow_and_the_other_way_round() -> None:
    plan = Plan(name="echo", steps=(Step(name="say", input={"a": 1}),))

    async def only(ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=await ctx.run_child(plan))

    assert await result(only) == {"a": 1}
    async with open_engine(settings=SHORT) as engine:
        hash = await engine.register(doubled)
        parent = Plan(name="parent", steps=(Step(name="kid", work=Child(plan=hash), input={"n": 21}),))
        assert await asyncio.wait_for(engine.run(parent), 60) == 42


async def test_durable_calls_at_once_wait_for_each_other() -> None:
    made: list[str] = []

    async def slow(n: int) -> int:
        await asyncio.sleep(0.05)
        made.append(f"slow {n}")
        return n

    @flow
    async def at_once(ctx: Context) -> Any:
        found = await asyncio.gather(ctx.call(slow, 1), ctx.sleep(0.02), ctx.sleep(0.01), ctx.call(slow, 2))
        return [found[0], found[3]]

    assert await result(at_once) == [1, 2]
    assert sorted(made) == ["slow 1", "slow 2"]


async def test_a_body_cannot_swallow_a_suspension() -> None:
    @flow
    async def stubborn(ctx: Context) -> str:
        try:
            await ctx.sleep(0.05)
        except BaseException:
            return "swallowed"
        return "slept"

    @flow
    def stubborn_without_async(ctx: SyncContext) -> str:
        try:
            ctx.sleep(0.05)
        except BaseException:
            return "swallowed"
        return "slept"

    assert await result(stubborn) == "slept"
    assert await result(stubborn_without_async) == "slept"


async def test_a_suspension_passes_through_a_group_of_tasks() -> None:
    @flow
    async def grouped(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.sleep(0.02))
            group.create_task(ctx.sleep(0.05))
        return "both"

    assert await result(grouped) == "both"


async def test_two_calls_with_one_key_are_refused() -> None:
    @flow
    async def twice(ctx: Context) -> None:
        await ctx.options(key="k").call(abs, -1)
        await ctx.options(key="k").call(abs, -2)

    assert isinstance((await error(twice)).__cause__, InvalidValue)


async def test_a_timeout_of_what_is_waited_for() -> None:
    @flow
    async def patient(ctx: Context) -> str:
        try:
            await ctx.wait_for("never", timeout=0.05)
        except TimeoutError as late:
            return str(late)
        return ""

    assert "nothing came for signal" in await result(patient)


async def test_the_idempotency_key_is_the_same_for_every_try() -> None:
    seen: list[str] = []

    @step(retry=Retry(attempts=3))
    async def only(ctx: Context, ev: StartEvent) -> StopEvent:
        seen.append(ctx.idempotency_key)
        if len(seen) < 3:
            raise ValueError("again")
        return StopEvent(result=[ctx.idempotency_key, ctx.attempt])

    async with started(only) as handle:
        assert await handle.result() == [f"{handle.id}/only/1", 3]
    assert len(set(seen)) == 1


async def test_starts_at_once_store_their_workflow_once(tmp_path: Path) -> None:
    async def only(ev: StartEvent) -> StopEvent:
        return StopEvent(result=ev.n)

    workflow = Workflow("at-once", [only])
    async with open_engine(db=tmp_path / "refold.db") as engine:
        stored: list[str] = []
        put = engine.store.put_plan

        def counted(hash: str, data: bytes) -> None:
            stored.append(hash)
            put(hash, data)

        engine.store.put_plan = counted  # type: ignore[method-assign]
        assert await asyncio.gather(*(engine.run(workflow, n=n) for n in range(20))) == list(range(20))
    assert len(stored) == 1


@pytest.mark.parametrize("waits", [False, True])
async def test_nothing_of_a_body_is_left_in_memory_when_it_has_ended(waits: bool) -> None:
    tasks: list[weakref.ref[asyncio.Task[Any]]] = []

    async def only(ctx: Context, ev: StartEvent) -> StopEvent:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(weakref.ref(task))
        del task
        if waits:
            await ctx.sleep(0)
        return StopEvent(result=await ctx.call(len, "four"))

    gc.disable()  # what only a search for garbage can free is left over
    try:
        async with open_engine() as engine:
            for _ in range(3):
                assert await engine.run(Workflow("short", [only])) == 4
            await until(lambda: not any(task() for task in tasks), within=10)
    finally:
        gc.enable()


async def test_a_body_that_does_not_wait_ends_in_its_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    rested: list[LiveBody] = []

    async def rest(body: LiveBody) -> None:
        rested.append(body)
        await kept(body)

    kept = LiveBody.rest
    monkeypatch.setattr(LiveBody, "rest", rest)

    async def first(ev: StartEvent) -> Page:
        return Page(n=1)

    async def last(ctx: Context, ev: Page) -> StopEvent:
        return StopEvent(result=ev.n)

    assert await result(first, last) == 1
    assert not rested


async def test_the_same_key_means_the_same_run() -> None:
    async def only(ev: StartEvent) -> StopEvent:
        return StopEvent(result=ev.n)

    workflow = Workflow("w", [only])
    async with open_engine(settings=SHORT) as engine:
        first = await engine.options(key="k").start(workflow, n=1)
        second = await engine.options(key="k").start(workflow, n=2)
        assert first.id == second.id
        assert await second.result() == 1


def test_run_sync_works_in_a_loop_too() -> None:
    async def in_a_notebook() -> Any:
        return run_sync(doubled, n=3)

    assert run_sync(doubled, n=2) == 4
    assert asyncio.run(in_a_notebook()) == 6


async def test_inputs_that_a_class_declares_are_checked_at_the_start() -> None:
    class Begin(StartEvent):
        url: str
        depth: int = 1

    async def only(ev: Begin) -> StopEvent:
        return StopEvent(result=[ev.url, ev.depth])

    assert await result(only, url="x") == ["x", 1]
    workflow = Workflow("w", [only])
    async with open_engine(settings=SHORT) as engine:
        with pytest.raises(InvalidValue, match="input `url`: `w` needs it, and it is not given"):
            await engine.start(workflow)
        with pytest.raises(InvalidValue, match="input `depth`: int is declared, and this is a str"):
            await engine.start(workflow, url="x", depth="deep")


def test_importing_refold_costs_little_and_star_shadows_nothing() -> None:
    code = "import builtins; from refold import *; print([n for n in dir() if n in vars(builtins) and n[0] != '_'])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


class Begun(Event):
    folder: str


class Stubborn(Workflow):
    """Its last step ignores everything but being killed."""

    @step(isolation="process")
    def warm(self, ctx: Context, ev: StartEvent) -> Begun:
        return Begun(folder=ev.folder)

    @step(isolation="process", timeout="500ms")
    def nap(self, ctx: Context, ev: Begun) -> StopEvent:
        Path(ev.folder, f"pid {os.getpid()}").touch()
        time.sleep(3600)
        return StopEvent()


async def test_a_step_in_a_process_of_its_own_is_killed_when_its_time_is_up(tmp_path: Path) -> None:
    async with open_engine(settings=SHORT) as engine:
        for _ in range(10):  # a busy machine may be out of time before it has begun
            handle = await engine.start(Stubborn, folder=str(tmp_path))
            with pytest.raises(StepFailed, match=r"no result after 0\.5 s"):
                await handle.result()
            if any(tmp_path.iterdir()):
                break
        pids = noted_in(tmp_path, 1)
        assert await asyncio.to_thread(within, 60.0, lambda: living(pids) == set())


async def test_a_resource_is_made_once_for_a_run_whenever_this_process_has_none() -> None:
    made: list[object] = []

    class Uses(Workflow):
        @resource
        def db(self) -> object:
            made.append(object())
            return made[-1]

        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> Page:
            assert ctx.session["db"] is ctx.session["db"]
            return Page()

        @step
        async def last(self, ctx: Context, ev: Page) -> StopEvent:
            return StopEvent(result=ctx.session["db"] is made[-1])

    async with open_engine(settings=SHORT) as engine:
        assert await engine.run(Uses) is True
        assert await engine.run(Uses) is True
    assert len(made) == 2


async def test_a_step_without_async_makes_durable_calls_too() -> None:
    seen: list[str] = []

    def work(n: int) -> int:
        seen.append(f"work {n}")
        return n + 1

    def only(ctx: Context, ev: StartEvent) -> StopEvent:
        seen.append("began")
        n = ctx.call(work, 1)
        ctx.sleep(0.05)  # type: ignore[unused-coroutine]
        return StopEvent(result=[n, ctx.wait_for("go")])

    async with started(only) as handle:
        await handle.signal("go", "word")
        assert await asyncio.wait_for(handle.result(), 60) == [2, "word"]
    assert (seen.count("work 1"), seen.count("began") >= 2) == (1, True)


async def test_a_body_that_exits_ends_its_step_and_not_the_worker() -> None:
    async def only(ev: StartEvent) -> StopEvent:
        sys.exit(3)

    async def well(ev: StartEvent) -> StopEvent:
        return StopEvent(result="well")

    async with open_engine(settings=SHORT) as engine:
        with pytest.raises(StepFailed, match="SystemExit: 3"):
            await engine.run(Workflow("w", [only]))
        assert await engine.run(Workflow("v", [well])) == "well"
