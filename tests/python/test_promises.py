"""Promises of Python workflows that are easily lost from sight, one by one, as a user sees them."""

import asyncio
import copy
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import refold
from refold import (
    Collect,
    Context,
    Event,
    Handle,
    Retry,
    RunCancelled,
    RunFailed,
    StartEvent,
    StopEvent,
    Workflow,
    flow,
    open_engine,
    step,
)
from refold.core import facts
from refold.errors import Conflict, InvalidValue, Unavailable
from refold.python.data_classes import MARK
from refold.stages import Pipeline, Stage
from refold.stores.memory import MemoryStore
from refold.wiring import WallClock
from tests.python import other
from tests.python.house import SHORT, Done, Page, error, result, started, until
from tests.python.test_values import VALUES, Colour, Level, Point, Shape, looks


async def waiting(handle: Handle) -> None:
    engine: Any = handle.engine
    async with asyncio.timeout(60):
        while (await engine.show(handle.id)).status != "waiting":
            await asyncio.sleep(0.005)


class Image(Page):
    width: int = 0


class Failing(MemoryStore):
    """Takes nothing more once it is told to."""

    full = False

    def turn(self, runs: Any) -> Any:
        if self.full:
            raise Unavailable("no room")
        return super().turn(runs)


KEPT = ("found", "clock", "now", "views")  # what a process that comes after a crash has of its own


class Watched(MemoryStore):
    """Keeps what a process would find that came after a crash here: before each of its turns."""

    found: list[MemoryStore]

    def turn(self, runs: Any) -> Any:
        left = MemoryStore(WallClock().now)
        vars(left).update(copy.deepcopy({name: each for name, each in vars(self).items() if name not in KEPT}))
        self.found.append(left)
        return super().turn(runs)


async def test_a_crash_between_any_two_commits_loses_and_doubles_no_step() -> None:
    async def begin(ctx: Context, ev: StartEvent) -> list[Page]:
        ctx.set("begun", True)
        return [Page(n=n) for n in range(3)]

    @step(workers=2)
    async def fetch(ctx: Context, ev: Page) -> Done:
        ctx.update("sum", lambda held: held + ev.n, 0)
        return Done(n=ev.n)

    @step(collect=Collect(Done, n=3))
    async def join(ctx: Context, done: list[Done]) -> StopEvent:
        return StopEvent(result=[sorted(each.n for each in done), ctx.get("sum"), ctx.get("begun")])

    async def goes_on(store: MemoryStore) -> None:
        async with open_engine(store=store, settings=SHORT) as engine:
            handle = await engine.attach("r", workflow)
            assert await asyncio.wait_for(handle.result(), 60) == [[0, 1, 2], 3, True]
            settled = [f"{fact.step}/{fact.visit}" for fact in (await history(handle))["StepSettled"]]
            assert sorted(settled) == ["begin/1", "fetch/1", "fetch/2", "fetch/3", "join/1"]

    workflow, store = Workflow("w", [begin, fetch, join]), Watched(WallClock().now)
    store.found = []
    async with open_engine(store=store, settings=SHORT) as engine:
        await (await engine.options(run="r").start(workflow)).result()
    left = [each for each in store.found if each.summary("r") is not None]
    assert len(left) > 5
    await asyncio.gather(*map(goes_on, left))


async def test_every_finished_step_is_in_the_store_at_once(tmp_path: Path) -> None:
    seen: list[int] = []

    async def begin(ev: StartEvent) -> Page:
        return Page(n=1)

    async def fetch(ev: Page) -> Done:
        return Done(n=ev.n)

    async def last(ctx: Context, ev: Done) -> StopEvent:
        async with open_engine(db=tmp_path / "refold.db", settings=SHORT) as reader:
            kept = [fact for _, _, fact in await reader.history(ctx.run_id)]
        seen.extend(fact.visit for fact in kept if isinstance(fact, facts.StepSettled))
        return StopEvent()

    async with open_engine(db=tmp_path / "refold.db", settings=SHORT) as engine:
        await engine.run(Workflow("w", [begin, fetch, last]))
    assert seen == [1, 1]


async def test_a_store_that_takes_nothing_is_an_error_for_the_caller_that_starts_a_run() -> None:
    async def only(ev: StartEvent) -> StopEvent:
        return StopEvent()

    store = Failing(WallClock().now)
    async with open_engine(store=store, settings=SHORT) as engine:
        store.full = True
        with pytest.raises(Unavailable, match="no room"):
            await asyncio.wait_for(engine.start(Workflow("w", [only])), 60)


async def test_an_object_that_is_not_a_store_is_refused_immediately() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"store": object()}, "store: an object is not a store"),
        ({"db": 3}, "db: it is the path of a file, and this is an int"),
        ({"store": MemoryStore(WallClock().now), "db": "refold.db"}, "store: there is `db` too"),
    ]
    for given, why in wrong:
        with pytest.raises(InvalidValue, match=why):
            async with open_engine(**given):
                pass


async def test_a_changed_workflow_of_the_same_name_is_refused_with_both_hashes() -> None:
    async def only(ev: StartEvent) -> StopEvent:
        return StopEvent()

    before, after = Workflow("w", [only]), Workflow("w", [only], timeout=60)
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(before)
        with pytest.raises(Conflict, match=r"is one of w \(\w{12}\), and this is w \(\w{12}\); `migrate"):
            await engine.attach(handle.id, after)


async def test_after_a_restart_an_event_is_of_its_own_class(tmp_path: Path) -> None:
    async def begin(ev: StartEvent) -> Image:
        return Image(n=1, width=7)

    async def last(ctx: Context, ev: Page) -> StopEvent:
        await ctx.wait_for("go")
        return StopEvent(result=[type(ev) is Image, ev == Image(n=1, width=7)])

    workflow = Workflow("w", [begin, last])
    async with open_engine(db=tmp_path / "refold.db", settings=SHORT) as engine:
        handle = await engine.start(workflow)
        await waiting(handle)
    async with open_engine(db=tmp_path / "refold.db", settings=SHORT) as engine:
        handle = await engine.attach(handle.id, workflow)
        await handle.signal("go")
        assert await asyncio.wait_for(handle.result(), 60) == [True, True]


@flow
async def waits(ctx: Context) -> Any:
    await ctx.sleep(0.001)
    return await ctx.wait_for("go")


ODD: list[Any] = [None, True, -1, 1.5, "", "x", [], [1], {}, {"a": 1}, [[1, {}]], [[0, {"type": "run_started"}]], 2**70]


def broken(data: Any) -> list[Any]:
    """Everything that may be wrong with one place of it: it is gone, or it is something else."""
    found: list[Any] = []
    for key in data:
        found.append({name: each for name, each in data.items() if name != key})
        found += [{**data, key: odd} for odd in ODD]
    for number, (at, fact) in enumerate(data["facts"]):
        for key in fact:
            changed = [{name: each for name, each in fact.items() if name != key}]
            changed += [{**fact, key: odd} for odd in ODD]
            for each in changed:
                found.append({**data, "facts": [*data["facts"][:number], [at, each], *data["facts"][number + 1 :]]})
        found.append({**data, "facts": data["facts"][:number] + data["facts"][number + 1 :]})
    return found


async def test_whatever_is_wrong_with_an_export_it_is_refused_as_one_or_taken() -> None:
    async with started(waits) as handle:
        await waiting(handle)
        data = json.loads(await handle.export())
    refused = 0
    for text in map(json.dumps, broken(data)):
        async with open_engine(settings=SHORT) as engine:
            try:
                await engine.restore(text)
            except InvalidValue:
                refused += 1
    assert refused > 100


async def test_a_signal_outlives_the_process_that_took_it(tmp_path: Path) -> None:
    async with open_engine(db=tmp_path / "refold.db", settings=SHORT) as engine:
        handle = await engine.start(waits)
        await handle.pause()
        await handle.signal("go", (1, 2))
    async with open_engine(db=tmp_path / "refold.db", settings=SHORT) as engine:
        handle = await engine.attach(handle.id, waits)
        await handle.resume()
        assert await asyncio.wait_for(handle.result(), 60) == (1, 2)


async def test_a_long_sleep_ends_when_it_was_to_end_whatever_happens_meanwhile(tmp_path: Path) -> None:
    @flow
    async def naps(ctx: Context) -> None:
        await asyncio.gather(ctx.sleep("1h"), ctx.wait_for("a"), ctx.wait_for("b"))

    async def ends(handle: Handle) -> list[int | None]:
        await waiting(handle)
        calls = (await handle.engine.show(handle.id)).state.open["naps/1"].calls
        return [call.until for key, call in calls.items() if key.startswith("sleep")]

    async with open_engine(db=tmp_path / "refold.db", settings=SHORT) as engine:
        handle = await engine.start(naps)
        first = await ends(handle)
        await handle.signal("a")  # the body starts over, and sleeps
        assert first[0] is not None and await ends(handle) == first
    async with open_engine(db=tmp_path / "refold.db", settings=SHORT) as engine:
        handle = await engine.attach(handle.id, naps)
        assert await ends(handle) == first
        await handle.signal("b")
        assert await ends(handle) == first
        await handle.cancel()


async def test_events_of_one_name_and_two_modules_reach_their_own_steps() -> None:
    async def begin(ev: StartEvent) -> list[Page | other.Page]:
        return [Page(n=1), other.Page(n=1)]

    async def ours(ev: Page) -> Done:
        return Done(n=1 if type(ev) is Page else -1)

    async def theirs(ev: other.Page) -> Done:
        return Done(n=2 if type(ev) is other.Page else -1)

    @step(collect=Collect(Done, n=2))
    async def join(done: list[Done]) -> StopEvent:
        return StopEvent(result=sorted(each.n for each in done))

    assert await result(begin, ours, theirs, join) == [1, 2]


async def test_two_collectors_of_one_event_each_get_all_of_it() -> None:
    async def begin(ev: StartEvent) -> list[Page]:
        return [Page(n=n) for n in range(4)]

    @step(collect=Collect(Page, n=2))
    async def pairs(found: list[Page]) -> Done:
        return Done(n=sum(each.n for each in found))

    @step(collect=Collect(Page, n=4))
    async def all_of_them(found: list[Page]) -> Done:
        return Done(n=100 + sum(each.n for each in found))

    @step(collect=Collect(Done, n=3))
    async def join(done: list[Done]) -> StopEvent:
        return StopEvent(result=sorted(each.n for each in done))

    assert await result(begin, pairs, all_of_them, join) == [1, 5, 106]


async def test_a_chain_of_two_thousand_events_leaves_as_little_as_a_short_one() -> None:
    async def begin(ev: StartEvent) -> Page:
        return Page(n=ev.n)

    async def go_on(ctx: Context, ev: Page) -> Page | StopEvent:
        if ev.n:
            return Page(n=ev.n - 1)
        await ctx.wait_for("go")
        return StopEvent()

    async def left(n: int) -> int:
        async with started(begin, go_on, n=n) as handle:
            await waiting(handle)
            return len(repr((await handle.engine.show(handle.id)).state))

    assert await left(2000) < await left(20) + 200


async def test_what_a_step_does_with_its_context_after_its_end_is_refused_and_not_lost() -> None:
    kept: list[Context] = []

    async def begin(ctx: Context, ev: StartEvent) -> Page:
        kept.append(ctx)
        return Page()

    async def last(ctx: Context, ev: Page) -> StopEvent:
        await ctx.wait_for("go")
        return StopEvent(result=ctx.get("late"))

    async with started(begin, last) as handle:
        await waiting(handle)
        [ctx] = kept[:1]
        late: list[Callable[[], Any]] = [
            lambda: ctx.send(Page(n=2)),
            lambda: ctx.set("late", 1),
            lambda: ctx.update("late", lambda n: 1),
            lambda: ctx.state.delete("late"),
            lambda: ctx.usage(tokens=1),
            lambda: ctx.collect(Page(), 2),
        ]
        for each in late:
            with pytest.raises(Conflict, match="step 'begin' has ended"):
                each()
        awaited: list[Callable[[], Any]] = [
            lambda: ctx.publish("late"),
            lambda: ctx.sleep(1),
            lambda: ctx.wait_for("go"),
            lambda: ctx.ask("well?"),
            lambda: ctx.call(abs, -1),
            lambda: ctx.run_child(waits),
        ]
        for each in awaited:
            with pytest.raises(Conflict, match="step 'begin' has ended"):
                await each()
        await handle.signal("go")
        assert await handle.result() is None


async def test_one_worker_stays_one_worker_after_a_restart(tmp_path: Path) -> None:
    at_work: list[int] = []
    seen: list[tuple[int, int]] = []
    hold = asyncio.Event()

    async def begin(ev: StartEvent) -> list[Page]:
        return [Page(n=n) for n in range(8)]

    @step(workers=1)
    async def fetch(ev: Page) -> Done:
        at_work.append(ev.n)
        seen.append((ev.n, len(at_work)))
        try:
            if ev.n == 2:
                await hold.wait()
            await asyncio.sleep(0.002)
        finally:
            at_work.remove(ev.n)
        return Done(n=ev.n)

    @step(collect=Collect(Done, n=8))
    async def join(done: list[Done]) -> StopEvent:
        return StopEvent(result=[each.n for each in done])

    workflow = Workflow("w", [begin, fetch, join])
    async with open_engine(db=tmp_path / "refold.db", settings=SHORT) as engine:
        handle = await engine.start(workflow)
        await until(lambda: len(seen) == 3)
    hold.set()
    async with open_engine(db=tmp_path / "refold.db", settings=SHORT) as engine:
        handle = await engine.attach(handle.id, workflow)
        assert await asyncio.wait_for(handle.result(), 60) == list(range(8))
    assert seen == [(n, 1) for n in (0, 1, 2, 2, 3, 4, 5, 6, 7)]


async def test_a_large_fan_out_is_few_tasks_at_a_time() -> None:
    most = [0]

    async def begin(ev: StartEvent) -> list[Page]:
        return [Page(n=n) for n in range(3000)]

    async def fetch(ev: Page) -> Done:
        most[0] = max(most[0], len(asyncio.all_tasks()))
        return Done(n=1)

    @step(collect=Collect(Done, n=3000))
    async def join(done: list[Done]) -> StopEvent:
        return StopEvent(result=len(done))

    assert await result(begin, fetch, join) == 3000
    assert most[0] < 300


async def test_a_child_run_without_a_retry_policy_is_tried_once() -> None:
    tries: list[int] = []

    @flow
    async def child(ctx: Context) -> None:
        tries.append(1)
        raise ConnectionError("away")

    @flow(retry=Retry(attempts=1))
    async def parent(ctx: Context) -> None:
        await ctx.run_child(child)

    await error(parent)
    assert len(tries) == 1


async def test_named_exceptions_hold_for_a_durable_call_too() -> None:
    tries: list[str] = []

    def work(kind: type[Exception]) -> None:
        tries.append(kind.__name__)
        raise kind("away")

    @flow
    async def calling(ctx: Context) -> None:
        for kind in (ConnectionError, KeyError):
            try:
                await ctx.options(key=kind.__name__, retry=Retry(attempts=3, on=("OSError",))).call(work, kind)
            except Exception as failed:
                assert type(failed) is kind

    await result(calling)
    assert tries == ["ConnectionError"] * 3 + ["KeyError"]


async def test_the_time_of_a_run_ends_all_its_tries() -> None:
    tries: list[int] = []

    @step(retry=Retry(attempts=1_000_000, delay=0.02))
    async def only(ev: StartEvent) -> StopEvent:
        tries.append(1)
        raise ConnectionError("away")

    assert "no end after 0.4 s" in str(await error(Workflow("w", [only], timeout="400ms")))
    assert tries


async def test_named_exceptions_hold_for_a_mapped_step_and_a_pipeline_too() -> None:
    tries: list[str] = []
    on = Retry(attempts=3, on=("OSError",))

    @step(mapped=True)
    async def fetch(ev: Page) -> Done:
        tries.append("ConnectionError" if ev.n else "KeyError")
        raise ConnectionError("away") if ev.n else KeyError("a slip")

    async def only(ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.options(retry=on).map(fetch, [Page(n=0), Page(n=1)])
        return StopEvent()

    assert "2 of 2 items failed" in str(await error(only, fetch))
    assert sorted(tries) == ["ConnectionError"] * 3 + ["KeyError"]

    tried: list[int] = []

    @flow
    async def fails(ctx: Context) -> None:
        tried.append(1)
        raise ConnectionError("away")

    await error(Pipeline("p", [Stage("s", fails)], retry=on))
    assert len(tried) == 3


@flow
async def asks(ctx: Context) -> Any:
    both = await asyncio.gather(ctx.ask("first", id="a"), ctx.ask("second", id="b"))
    ctx.usage(answers=2)
    await ctx.publish(tuple(both))
    return [*both, await ctx.wait_for("go")]


async def asked(handle: Handle, *ids: str) -> None:
    async with asyncio.timeout(60):
        while sorted(each.id for each in await handle.requests()) != sorted(ids):
            await asyncio.sleep(0.005)


async def test_every_verb_works_while_results_are_awaited() -> None:
    async with started(asks) as handle:
        results = [asyncio.create_task(handle.result()) for _ in range(3)]
        reader = handle.stream()
        await asked(handle, "a", "b")
        assert await handle.pause() == []  # nobody is at work
        assert await handle.export()
        await handle.resume()
        await handle.answer("b", "B")
        await handle.answer("a", "A")
        assert (await anext(reader)).value.request_id in "ab"
        assert (await handle.usage(), await handle.progress()) == ({}, None)
        assert await handle.why()
        await handle.signal("go", "!")
        assert await asyncio.wait_for(asyncio.gather(*results), 60) == [["A", "B", "!"]] * 3


@asynccontextmanager
async def ended(how: str) -> AsyncIterator[Handle]:
    """A run that has completed, or was cancelled."""
    async with started(waits) as handle:
        if how == "completed":
            await handle.signal("go")
            await handle.result()
        else:
            await handle.cancel()
            with pytest.raises(RunCancelled):
                await handle.result()
        yield handle


@pytest.mark.parametrize("how", ["completed", "cancelled"])
async def test_after_the_end_every_verb_reports_that_the_run_has_ended(how: str) -> None:
    async with ended(how) as handle:
        verbs: list[Callable[[], Any]] = [
            handle.pause,
            handle.resume,
            handle.cancel,
            lambda: handle.signal("go"),
            lambda: handle.answer("a"),
        ]
        for verb in verbs:
            with pytest.raises(Conflict, match=f"{handle.id} is {how}"):
                await verb()
        assert [each async for each in handle.stream()] == []
        assert await handle.requests() == []
        assert await handle.usage() == {}
        assert await handle.export()


async def test_an_export_has_exactly_the_questions_that_are_open() -> None:
    async with started(asks) as handle:
        await asked(handle, "a", "b")
        await handle.answer("a", "A")
        await asked(handle, "b")
        data = await handle.export()
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.attach(await engine.restore(data), asks)
        assert [(each.id, each.prompt) for each in await handle.requests()] == [("b", "second")]
        await handle.answer("b", "B")
        await handle.signal("go")
        assert await asyncio.wait_for(handle.result(), 60) == ["A", "B", None]


class Holds(Event):
    value: Any


class Carries(Workflow):
    """Brings a value by every way that there is."""

    types = (Colour, Level, Point, Shape)

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Holds:
        ctx.set("kept", ev.value)
        return Holds(value=ev.value)

    @step
    async def last(self, ctx: Context, ev: Holds) -> StopEvent:
        sent = await ctx.wait_for("go")
        said = await ctx.ask("well?", id="r", metadata=ev.value)
        called = await ctx.options(key="call").call(lambda: ev.value)
        ctx.update("updated", lambda held: ev.value)
        await ctx.publish(ev.value)
        await ctx.publish(ev)
        return StopEvent(result=[ev.value, ctx.get("kept"), sent, said, called, ctx.get("updated")])


async def brought(value: Any, db: Path) -> list[Any]:
    """The value as it came by every way, by way of another process, an export, and the result read once more."""
    async with open_engine(db=db, settings=SHORT) as engine:
        handle = await engine.start(Carries, value=value)
        await waiting(handle)
        data = await handle.export()
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.attach(await engine.restore(data), Carries)
        await handle.signal("go", value)
        await asked(handle, "r")
        [request] = await handle.requests()
        await handle.answer("r", value)
        found = [request.metadata, *await asyncio.wait_for(handle.result(), 60), *await handle.result()]
        shown = [each.value async for each in handle.stream()]
        assert isinstance(shown[-1], Holds)
        return [*found, shown[0].metadata, shown[-2], shown[-1].value]


async def test_every_kind_of_value_comes_back_by_every_way(tmp_path: Path) -> None:
    for found in await brought(VALUES, tmp_path / "refold.db"):
        for back, value in zip(found, VALUES, strict=True):
            assert (back, looks(back)) == (value, looks(value))


async def test_a_stored_none_counts_as_present() -> None:
    async def begin(ctx: Context, ev: StartEvent) -> Page:
        ctx.set("k", None)
        return Page()

    async def last(ctx: Context, ev: Page) -> StopEvent:
        found = ["k" in ctx.state, ctx.state["k"], ctx.get("k", 1), ctx.state.keys(), "l" in ctx.state, ctx.get("l", 1)]
        return StopEvent(result=found)

    assert await result(begin, last) == [True, None, None, ["k"], False, 1]


async def test_an_update_gets_a_stored_none_whichever_write_came_first() -> None:
    got: list[Any] = []
    first, second = asyncio.Event(), asyncio.Event()

    async def begin(ctx: Context, ev: StartEvent) -> list[Page]:
        ctx.set("k", 1)
        return [Page(n=0), Page(n=1)]

    def change(held: Any) -> str:
        got.append(held)
        return "changed"

    async def work(ctx: Context, ev: Page) -> Done:
        if ev.n:
            await first.wait()
            ctx.set("k", None)
            return Done()
        ctx.update("k", change, "default")
        first.set()
        await asyncio.wait_for(second.wait(), 60)
        return Done()

    async def then(ctx: Context, ev: Done) -> StopEvent | None:
        second.set()
        return StopEvent(result=ctx.get("k")) if ctx.get("k") == "changed" else None

    assert await result(begin, work, then) == "changed"
    assert got == [1, None]


MARKS: list[Any] = [
    {"__blazen_pickled__": "gASV"},
    {"__blazen_session_ref__": "00000000-0000-0000-0000-000000000000"},
    {MARK: ["object", "Point", {"x": 1}]},
    {MARK: ["live", "k"]},
    {"py/object": "os.system"},
]


def test_nothing_that_makes_objects_of_data_is_imported_anywhere() -> None:
    files = Path(refold.__file__).parent.rglob("*.py")
    found = {name for path in files for name in re.findall(r"^\s*(?:import|from) (\w+)", path.read_text("utf-8"), re.M)}
    assert "msgspec" in found
    assert not found & {"pickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle", "multiprocessing"}


async def test_data_that_looks_like_a_mark_is_data_by_every_way(tmp_path: Path) -> None:
    assert await brought(MARKS, tmp_path / "refold.db") == [MARKS] * 16


class Counter:
    def __init__(self, n: int) -> None:
        self.n = n

    def __refold_serialize__(self) -> bytes:
        return str(self.n).encode()

    @classmethod
    def __refold_deserialize__(cls, data: bytes) -> "Counter":
        return cls(int(data))


def holding(policy: Any) -> Workflow:
    class Live(Workflow):
        live = policy
        types = (Counter,)

        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> Page:
            ctx.session["o"] = Counter(5)
            return Page()

        @step
        async def last(self, ctx: Context, ev: Page) -> StopEvent:
            await ctx.wait_for("idle")
            await ctx.wait_for("look")
            seen = ctx.session.get("o").n
            return StopEvent(result=[seen, await ctx.wait_for("go")])

    return Live()


async def told(handle: Handle, *signals: str) -> None:
    for signal in signals:
        await waiting(handle)
        await handle.signal(signal)


SIGNALS = ("idle", "look", "go")


@pytest.mark.parametrize("before", [0, 1, 2])
async def test_a_live_object_survives_two_exports_whichever_steps_have_read_it(before: int) -> None:
    workflow = holding("keep")
    async with started(workflow) as handle:
        await waiting(handle)
        data = await handle.export()
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.attach(await engine.restore(data), workflow)
        await told(handle, *SIGNALS[:before])
        await waiting(handle)
        data = await handle.export()
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.attach(await engine.restore(data), workflow)
        await told(handle, *SIGNALS[before:])
        assert await asyncio.wait_for(handle.result(), 60) == [5, None]


async def test_an_export_names_what_it_left_out_and_reading_it_is_an_error() -> None:
    workflow = holding("drop")
    async with started(workflow) as handle:
        await waiting(handle)
        data = await handle.export()
    assert json.loads(data)["live"] == {"o": ["", ""]}
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.attach(await engine.restore(data), workflow)
        assert json.loads(await handle.export())["live"] == {"o": ["", ""]}
        await told(handle, "idle", "look")
        with pytest.raises(RunFailed, match="no live object 'o'"):
            await asyncio.wait_for(handle.result(), 60)


@pytest.mark.usefixtures("parked")
async def test_what_is_shown_after_a_question_is_not_lost() -> None:
    @flow
    async def shows(ctx: Context) -> None:
        await ctx.publish(1)
        await ctx.ask("first", id="a")
        await ctx.publish(2)
        await ctx.ask("second", id="b")
        await ctx.publish(3)

    async with started(shows) as handle:
        await asyncio.wait_for(handle.result(lambda request: 0), 60)
        shown = [each.value async for each in handle.stream()]
        assert [each if isinstance(each, int) else each.request_id for each in shown] == [1, "a", 2, "b", 3]


async def test_readers_of_a_run_that_was_resumed_and_of_a_pipeline_get_all_and_end(tmp_path: Path) -> None:
    @flow
    async def shows(ctx: Context) -> None:
        await ctx.publish(1)
        await ctx.wait_for("go")
        await ctx.publish(2)

    async def read(handle: Handle) -> list[Any]:
        return [each.value async for each in handle.stream() if each.step == "shows"]

    async with open_engine(db=tmp_path / "refold.db", settings=SHORT) as engine:
        handle = await engine.start(shows)
        await waiting(handle)
    async with open_engine(db=tmp_path / "refold.db", settings=SHORT) as engine:
        handle = await engine.attach(handle.id, shows)
        readers = [asyncio.create_task(read(handle)) for _ in range(2)]
        await handle.signal("go")
        assert await asyncio.wait_for(asyncio.gather(*readers), 60) == [[1, 2], [1, 2]]

    @flow
    async def shows_two(ctx: Context) -> None:
        await ctx.publish(1)
        await ctx.publish(2)

    async def read_two(handle: Handle) -> list[Any]:
        return [each.value async for each in handle.stream() if each.step == "shows_two"]

    async with started(Pipeline("p", [Stage("s", shows_two)])) as handle:
        assert list(await asyncio.gather(read_two(handle), read_two(handle))) == [[1, 2], [1, 2]]


async def test_ten_thousand_usages_are_exact_however_slow_a_reader_is() -> None:
    @flow
    async def child(ctx: Context) -> None:
        for _ in range(1000):
            ctx.usage(tokens=1)

    async def begin(ev: StartEvent) -> list[Page]:
        return [Page(n=n) for n in range(90)]

    async def spend(ctx: Context, ev: Page) -> Done:
        for _ in range(100):
            ctx.usage(tokens=1, large=2**60)
            await ctx.publish("spent")
        return Done()

    @step(collect=Collect(Done, n=90))
    async def join(ctx: Context, done: list[Done]) -> StopEvent:
        await ctx.run_child(child)
        return StopEvent()

    async with started(begin, spend, join) as handle:
        reader = handle.stream()
        await anext(reader)  # and then it reads no more
        await asyncio.wait_for(handle.result(), 60)
        assert await handle.usage() == {"tokens": 10_000, "large": 9000 * 2**60}
        assert sum([1 async for _ in reader]) == 8999


async def test_what_a_step_used_up_is_counted_once_though_it_was_run_again(tmp_path: Path) -> None:
    began: list[int] = []
    go = asyncio.Event()

    async def only(ctx: Context, ev: StartEvent) -> StopEvent:
        ctx.usage(tokens=7)
        began.append(1)
        await go.wait()
        return StopEvent()

    workflow = Workflow("w", [only])
    async with open_engine(db=tmp_path / "refold.db", settings=SHORT) as engine:
        handle = await engine.start(workflow)
        await until(lambda: began)
    go.set()
    async with open_engine(db=tmp_path / "refold.db", settings=SHORT) as engine:
        handle = await engine.attach(handle.id, workflow)
        await asyncio.wait_for(handle.result(), 60)
        assert (len(began), await handle.usage()) == (2, {"tokens": 7})


async def history(handle: Handle) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for _, _, fact in await handle.engine.history(handle.id):
        found.setdefault(type(fact).__name__, []).append(fact)
    return found


async def test_the_log_shows_everything_that_happened_with_the_real_input() -> None:
    tries: list[int] = []

    async def begin(ev: StartEvent) -> Page:
        return Page(n=ev.n)

    @step(retry=Retry(attempts=2))
    async def flaky(ctx: Context, ev: Page) -> Done:
        tries.append(ev.n)
        if len(tries) == 1:
            raise ConnectionError("away")
        return Done(n=await ctx.call(abs, -5))

    async def last(ctx: Context, ev: Done) -> StopEvent:
        return StopEvent(result=[ev.n, await ctx.ask("well?", id="r")])

    async with started(begin, flaky, last, n=3) as handle:
        await asked(handle, "r")
        await handle.pause()
        await handle.resume()
        await handle.answer("r", "yes")
        assert await handle.result() == [5, "yes"]
        told = await history(handle)
    assert told["RunStarted"][0].input == {"n": 3}  # the run has started
    sent = [(each.type, each.data) for fact in told["StepSettled"] for each in fact.report.events]
    assert sent == [("Page", {"n": 3}), ("Done", {"n": 5}), ("StopEvent", {"result": [5, "yes"]})]
    taken = [(fact.step, fact.first, len(fact.batches)) for fact in told["EventsTaken"]]
    assert taken == [("begin", 1, 1), ("flaky", 1, 1), ("last", 1, 1)]  # handed out, with the events it is run for
    ends = [(fact.step, type(fact.report.outcome).__name__) for fact in told["StepSettled"]]
    assert ends == [
        ("begin", "Succeeded"),
        ("flaky", "Failed"),
        ("flaky", "Succeeded"),
        ("last", "Suspended"),
        ("last", "Succeeded"),
    ]
    asked_for = told["StepSettled"][3].report.outcome.calls[0]
    assert asked_for.input == {"id": "r", "prompt": "well?", "metadata": None}
    assert [fact.outcome.result for fact in told["CallSettled"]] == [5]
    assert [fact.value for fact in told["SignalReceived"]] == ["yes"]
    assert len(told["RunPaused"]) == len(told["RunResumed"]) == 1
    assert told["RunEnded"][0].status == "completed" and told["RunEnded"][0].result == [5, "yes"]


async def test_the_log_shows_a_run_that_failed_and_a_run_that_timed_out() -> None:
    async def fails(ev: StartEvent) -> StopEvent:
        raise KeyError(ev.n)

    async def hangs(ev: StartEvent) -> StopEvent:
        await asyncio.sleep(30)
        return StopEvent()

    async with open_engine(settings=SHORT) as engine:
        told = {}
        for name, workflow in {"failed": Workflow("f", [fails]), "late": Workflow("h", [hangs], timeout=0.2)}.items():
            handle = await engine.start(workflow, n=1)
            with pytest.raises(RunFailed):
                await asyncio.wait_for(handle.result(), 60)
            told[name] = await history(handle)
    assert told["failed"]["VisitFailed"][0].fault.type == "KeyError"
    assert told["late"]["RunTimedOut"][0].after == 0.2
    assert [each["RunEnded"][0].status for each in told.values()] == ["failed", "failed"]


async def test_a_step_that_ends_its_process_each_time_fails_its_run(tmp_path: Path) -> None:
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(Deadly, folder=str(tmp_path))
        with pytest.raises(RunFailed, match="die"):
            await asyncio.wait_for(handle.result(), 60)
        assert len(list(tmp_path.iterdir())) == 3


class Deadly(Workflow):
    @step(isolation="process", retry=Retry(attempts=3))
    def die(self, ctx: Context, ev: StartEvent) -> StopEvent:
        import os

        Path(ev.folder, str(os.getpid())).touch()
        os.kill(os.getpid(), 9)
        return StopEvent()
