"""New code: old runs stay on their plan and say that nobody has it, until they are moved to the new one."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refold import Collect, Context, Engine, Event, Retry, StartEvent, StopEvent, Workflow, open_engine, step
from refold.core.facts import RunMigrated
from refold.core.plan import Arc, Call, Step
from refold.errors import CannotMigrate, Conflict, RunCancelled
from refold.plan import Plan
from refold.wiring import rebuild_file
from tests.python.house import SHORT, Done, Page, stops, until


class Note(Event):
    text: str = ""


def crawl(fetch: Any, *more: Any, collect: Collect | None = None, **policy: Any) -> Workflow:
    """Two pages, fetched one after the other by this function, and what comes of them."""

    @step
    async def begin(ev: StartEvent) -> list[Page]:
        return [Page(n=1), Page(n=2)]

    @step(collect=collect or Collect(Done, n=2))
    async def join(done: list[Done]) -> StopEvent:
        return StopEvent(result=sorted(each.n for each in done))

    async def body(ctx: Context, ev: Page) -> Done:
        return Done(n=await fetch(ctx, ev))

    body.__name__ = "fetch"
    return Workflow("Crawl", [begin, step(workers=1, **policy)(body), join, *more])


async def waits(ctx: Context, ev: Page) -> int:
    await ctx.wait_for("go")
    return ev.n


async def tens(ctx: Context, ev: Page) -> int:
    return 10 * ev.n


async def hundreds(ctx: Context, ev: Page) -> int:
    await ctx.wait_for("go")
    return 100 * ev.n


async def suspended(engine: Engine, run: str) -> None:
    async with asyncio.timeout(60):
        while not any(each.held for each in (await engine.show(run)).state.open.values()):
            await asyncio.sleep(0.01)


async def left(db: Path, workflow: Workflow) -> str:
    """A run that waits in its first page, where nobody works any more."""
    async with open_engine(db=db, settings=SHORT) as engine:
        run = (await engine.start(workflow)).id
        await suspended(engine, run)
    return run


def test_the_bodies_of_a_workflow_are_no_part_of_its_hash_but_names_types_and_policies_are() -> None:
    from refold.python.definition import define

    first = define(crawl(waits)).hash
    assert define(crawl(tens)).hash == first
    assert define(crawl(waits, timeout=5.0)).hash != first
    assert define(crawl(waits, collect=Collect(Done, n=3))).hash != first


async def test_new_code_does_not_touch_an_old_run_which_says_who_has_what(tmp_path: Path) -> None:
    db = tmp_path / "refold.db"
    run, new = await left(db, crawl(waits)), crawl(tens, timeout=300.0)
    async with open_engine(db=db, settings=SHORT) as engine:
        hash = await engine.register(new)
        await engine.signal(run, "go")
        shown = await engine.show(run)
        assert shown.status == "running"
        old = shown.state.plan[:12]
        said = f"no live worker has the code of plan {old} (Crawl); workers have {hash[:12]}: "
        assert shown.waits == {"fetch/1": said + f"migrate with `refold runs migrate {run} --to {hash[:12]}`"}
        await asyncio.sleep(0.2)
        assert (await engine.show(run)).status == "running", "nobody took it"
        with pytest.raises(Conflict, match=r"is one of Crawl \(.*\), and this is Crawl \(.*\); `migrate\(run"):
            await engine.attach(run, new)
        await engine.migrate(run, hash, "ann")
        handle = await engine.attach(run, new)
        assert await asyncio.wait_for(handle.result(), 60) == [10, 20]
        assert (await engine.show(run)).state.plan == hash
        assert RunMigrated(hash, "ann") in [fact for _, _, fact in await engine.history(run)]


async def test_in_memory_a_handle_says_that_the_code_is_not_here(tmp_path: Path) -> None:
    run = await left(tmp_path / "refold.db", crawl(waits))
    async with open_engine(db=tmp_path / "refold.db", settings=SHORT) as engine:
        data = await engine.export(run)
    async with open_engine(settings=SHORT) as engine:
        await engine.restore(data)
        await engine.signal(run, "go")
        assert next(iter((await engine.show(run)).waits.values())).endswith("(Crawl); start one that has it")
        handle = await engine.attach(run, crawl(waits))
        assert "no live worker" not in str(await handle.why())
        await engine.signal(run, "go")
        assert await asyncio.wait_for(handle.result(), 60) == [1, 2]


async def test_what_a_body_has_recorded_is_there_for_the_new_code(tmp_path: Path) -> None:
    made: list[str] = []

    async def calls(ctx: Context, ev: Page) -> int:
        append: Callable[[str], Any] = made.append
        first = await ctx.options(key="first").call(append, f"made {ev.n}")
        assert first is None
        await ctx.wait_for("go")
        return ev.n

    run = await left(tmp_path / "refold.db", crawl(calls))
    async with open_engine(db=tmp_path / "refold.db", settings=SHORT) as engine:
        new = crawl(calls, timeout=300.0)
        hash = await engine.register(new)
        await engine.migrate(run, hash)
        handle = await engine.attach(run, new)
        for _ in range(2):
            await engine.signal(run, "go")
        assert await asyncio.wait_for(handle.result(), 60) == [1, 2]
    assert made == ["made 1", "made 2"]


async def test_code_that_is_at_work_is_stopped_and_starts_over_with_the_new_code() -> None:
    ends: list[str] = []
    begun: list[int] = []

    async def hangs(ctx: Context, ev: Page) -> int:
        begun.append(ev.n)
        try:
            await asyncio.sleep(3600)
            ends.append("never")
        finally:
            ends.append("cleaned up")
        return 0

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(crawl(hangs))
        await until(lambda: begun)
        new = await handle.migrate(crawl(tens, timeout=300.0), by="ann")
        assert await asyncio.wait_for(new.result(), 60) == [10, 20]
        await until(lambda: ends)
    assert ends == ["cleaned up"]


async def test_a_paused_run_is_moved_and_stays_paused() -> None:
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(crawl(waits))
        await suspended(engine, handle.id)
        await handle.pause()
        new = await handle.migrate(crawl(tens, timeout=300.0))
        assert (await engine.show(handle.id)).status == "paused"
        await engine.signal(handle.id, "go")
        await new.resume()
        assert await asyncio.wait_for(new.result(), 60) == [10, 20]


async def refused(new: Workflow, old: Workflow | None = None) -> tuple[tuple[str, str], ...]:
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(old or crawl(waits))
        await suspended(engine, handle.id)
        before = (await engine.show(handle.id)).state
        with pytest.raises(CannotMigrate, match="cannot follow plan") as caught:
            await handle.migrate(new)
        assert (await engine.show(handle.id)).state == before, "nothing was changed"
        return caught.value.refusals


def renamed() -> Workflow:
    async def load(ev: Page) -> Done:
        return Done()

    @step
    async def begin(ev: StartEvent) -> list[Page]:
        return [Page(n=1)]

    @step(collect=Collect(Done, n=2))
    async def join(done: list[Done]) -> StopEvent:
        return StopEvent()

    return Workflow("CrawlAnew", [begin, load, join])


async def test_a_step_that_is_open_and_gone_stands_in_the_way() -> None:
    assert await refused(renamed()) == (("fetch", "fetch/1 is open, and the new plan has no such step"),)


async def test_events_that_nobody_would_take_stand_in_the_way() -> None:
    async def fetch(ev: Note) -> Done:
        return Done()

    @step
    async def begin(ev: StartEvent) -> list[Note]:
        return [Note()]

    @step(collect=Collect(Done, n=2))
    async def join(done: list[Done]) -> StopEvent:
        return StopEvent()

    [(name, why)] = await refused(Workflow("CrawlNotes", [begin, fetch, join]))
    assert (name, why) == ("fetch", "1 events wait for it, and it would no longer take Page")


async def test_a_batch_that_would_be_gathered_in_another_way_stands_in_the_way() -> None:
    async def first_only(ctx: Context, ev: Page) -> int:
        if ev.n == 2:
            await ctx.wait_for("go")
        return ev.n

    old, new = crawl(first_only), crawl(first_only, collect=Collect(Done, n=2, by="n"))
    assert await refused(new, old) == (("join", "1 events wait for it, and it would collect them in another way"),)


async def test_a_plan_of_arcs_is_no_plan_for_a_run_of_events() -> None:
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(crawl(waits))
        await suspended(engine, handle.id)
        hash = await engine.register(Plan(name="Crawl", steps=(Step(name="fetch"),)))
        with pytest.raises(CannotMigrate, match="its steps follow events, and those of the new plan arcs"):
            await engine.migrate(handle.id, hash)


async def test_a_run_that_is_over_is_not_moved_and_says_what_to_do() -> None:
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(crawl(waits))
        await suspended(engine, handle.id)
        await handle.cancel()
        with pytest.raises(RunCancelled):
            await asyncio.wait_for(handle.result(), 60)
        with pytest.raises(Conflict, match=r"is cancelled, and only one that is under way .* retry .* reopens it"):
            await handle.migrate(crawl(waits))
        await engine.retry(handle.id)
        with pytest.raises(Conflict, match=r"follows plan .* already"):
            await handle.migrate(crawl(waits))
        new = await handle.migrate(crawl(tens, timeout=300.0))
        assert await asyncio.wait_for(new.result(), 60) == [10, 20]


async def test_another_limit_of_a_gathering_counts_from_the_first_event_on() -> None:
    async def first_only(ctx: Context, ev: Page) -> int:
        if ev.n == 2:
            await ctx.wait_for("go")
        return ev.n

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(crawl(first_only))
        await suspended(engine, handle.id)
        new = await handle.migrate(crawl(first_only, collect=Collect(Done, n=2, timeout=0.2)))
        with pytest.raises(Exception, match=r"1 of 2 events came within 0\.2 s"):
            await asyncio.wait_for(new.result(), 60)


async def test_a_run_that_was_moved_is_rebuilt_exported_and_restored(tmp_path: Path) -> None:
    db, new = tmp_path / "refold.db", crawl(hundreds, timeout=300.0)
    run = await left(db, crawl(waits))
    async with open_engine(db=db, settings=SHORT) as engine:
        await engine.migrate(run, await engine.register(new))
        await suspended(engine, run)
        before = (await engine.show(run)).state
    assert rebuild_file(db) == {run: None}
    async with open_engine(db=db, settings=SHORT) as engine:
        assert (await engine.show(run)).state == before
        data = await engine.export(run)
    async with open_engine(settings=SHORT) as engine:
        assert await engine.restore(data) == run
        handle = await engine.attach(run, new)
        for _ in range(2):
            await handle.signal("go")
        assert await asyncio.wait_for(handle.result(), 60) == [100, 200]


async def test_a_snapshot_knows_the_plan_of_its_time(tmp_path: Path) -> None:
    db, new = tmp_path / "refold.db", crawl(tens, timeout=300.0)
    run = await left(db, crawl(waits))
    async with open_engine(db=db, settings=SHORT) as engine:
        turns = engine.mailroom.turns
        turns.look(run)
        turns.snapshot(run)
        await engine.migrate(run, await engine.register(new))
        turns.known.clear()
        handle = await engine.attach(run, new)
        await handle.signal("go")
        assert await asyncio.wait_for(handle.result(), 60) == [10, 20]


class Marks:
    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.seen: list[str] = []

    def workflow(self) -> Workflow:
        async def only(ev: StartEvent) -> StopEvent:
            self.begun.set()
            try:
                await asyncio.sleep(3600)
                self.seen.append("after")
            except asyncio.CancelledError:
                self.seen.append("cancelled")
                raise
            finally:
                self.seen.append("cleaned up")
            return StopEvent()

        return Workflow("w", [only])


async def test_a_cancelled_wait_for_a_run_cancels_the_run_if_that_is_asked_for() -> None:
    marks = Marks()
    async with open_engine(settings=SHORT) as engine:
        waiting = asyncio.create_task(engine.options(cancel_with_caller=True).run(marks.workflow()))
        await asyncio.wait_for(marks.begun.wait(), 60)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        [row] = await engine.runs()
        assert (await engine.wait(row.run)).status == "cancelled"
        await until(lambda: len(marks.seen) == 2)
    assert marks.seen == ["cancelled", "cleaned up"]


async def test_a_cancelled_wait_for_a_plan_cancels_the_run_if_that_is_asked_for() -> None:
    begun, ended = asyncio.Event(), list[str]()

    async def hang(call: Any) -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("cleaned up")

    plan = Plan(name="p", steps=(Step(name="a", work=Call(tool="hang"), arcs=(Arc(to="b"),)), Step(name="b")))
    async with open_engine({"hang": hang}, settings=SHORT) as engine:
        running = asyncio.create_task(engine.options(cancel_with_caller=True).run(plan))
        await asyncio.wait_for(begun.wait(), 60)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(running, 0.01)
        [row] = await engine.runs()
        assert row.status == "cancelled"
        await until(lambda: ended)


async def test_dropping_a_handle_leaves_the_run_alone() -> None:
    marks = Marks()
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(marks.workflow())
        waiting = asyncio.create_task(handle.result())
        await asyncio.wait_for(marks.begun.wait(), 60)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        del handle
        await asyncio.sleep(0.1)
        [row] = await engine.runs()
        assert (row.status, marks.seen) == ("running", [])


async def test_a_cancelled_wait_for_a_run_that_another_caller_started_does_not_cancel_it() -> None:
    marks = Marks()
    async with open_engine(settings=SHORT) as engine:
        workflow = marks.workflow()
        await engine.options(key="one").start(workflow)
        waiting = asyncio.create_task(engine.options(key="one", cancel_with_caller=True).run(workflow))
        await asyncio.wait_for(marks.begun.wait(), 60)
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        [row] = await engine.runs()
        assert row.status == "running"


async def doubled(n: int) -> int:
    return 2 * n


async def test_a_run_continues_in_another_process_with_every_option_of_the_original(tmp_path: Path) -> None:
    db, tries = tmp_path / "refold.db", list[int]()

    @step
    async def child(ev: StartEvent) -> StopEvent:
        return StopEvent(result=await doubled(ev.n))

    below = Workflow("below", [child])

    @step(retry=Retry(attempts=3), timeout=30.0, queue="default", priority=3)
    async def only(ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.publish("begun")
        tries.append(len(tries))
        if len(tries) == 1:
            raise ValueError("once")
        answer = await ctx.ask("how many?")
        return StopEvent(result=await ctx.run_child(below, n=answer))

    workflow = Workflow("w", [only], timeout=60.0)
    async with open_engine(db=db, settings=SHORT) as engine:
        run = (await engine.start(workflow)).id
        await suspended(engine, run)
        before = (await engine.show(run)).state
    async with open_engine(db=db, settings=SHORT) as engine:
        handle = await engine.attach(run, workflow)
        state = (await engine.show(run)).state
        assert (state.deadline, state.open["only/1"].attempt) == (before.deadline, 2)
        assert await asyncio.wait_for(handle.result(lambda request: 21), 60) == 42
        assert [shown.value async for shown in handle.stream()][:2] == ["begun", "begun"]


async def test_all_unfinished_runs_of_a_workflow_are_moved_after_a_deployment(tmp_path: Path) -> None:
    db = tmp_path / "refold.db"
    runs = [await left(db, crawl(waits)) for _ in range(2)]
    async with open_engine(db=db, settings=SHORT) as engine:
        other = Workflow("Other", [stops(lambda ev: None)])
        new = crawl(tens, timeout=300.0)
        planned = await engine.migrate_all(new, dry_run=True)
        assert [(each.run, each.refused) for each in planned] == [(run, "") for run in reversed(runs)]
        assert {(await engine.show(run)).state.plan for run in runs} == {planned[0].plan}
        assert await engine.migrate_all(other) == [], "these are runs of another workflow"
        moved = await engine.migrate_all(new, by="ann")
        assert [each.run for each in moved] == [each.run for each in planned]
        for run in runs:
            await engine.signal(run, "go")
            assert (await asyncio.wait_for(engine.wait(run), 60)).result == [10, 20]
        assert await engine.migrate_all(new) == []


async def test_a_run_that_cannot_be_moved_stays_and_the_others_are_moved(tmp_path: Path) -> None:
    db = tmp_path / "refold.db"

    async def first_only(ctx: Context, ev: Page) -> int:
        if ev.n == 2:
            await ctx.wait_for("go")
        return ev.n

    stays, moves = await left(db, crawl(first_only)), await left(db, crawl(waits))
    async with open_engine(db=db, settings=SHORT) as engine:
        found = {each.run: each for each in await engine.migrate_all(crawl(tens, collect=Collect(Done, n=2, by="x")))}
        assert "it would collect them in another way" in found[stays].refused
        assert not found[moves].refused
        assert (await engine.show(stays)).state.plan == found[stays].plan
        assert (await engine.show(moves)).state.plan == found[moves].to
