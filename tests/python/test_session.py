"""Live objects: shared by the steps of a run and its children, let go in time, and exported only if they can be."""

import asyncio
import gc
import weakref
from typing import Any

import pytest

from refold import Collect, Context, Event, Live, StartEvent, StopEvent, Workflow, flow, open_engine, step
from refold.errors import Conflict, LiveObjectLost, StepFailed
from refold.python import session
from refold.python.session import Until
from tests.python.house import SHORT, Done, Page, result


class Thing:
    """Something that cannot be stored."""


class Carries(Event):
    thing: Live
    n: int = 0


async def test_an_event_carries_a_live_object_to_another_step_as_it_is() -> None:
    thing = Thing()

    async def begin(ctx: Context, ev: StartEvent) -> Carries:
        return Carries(thing=ctx.session.refer(thing))

    async def last(ctx: Context, ev: Carries) -> StopEvent:
        return StopEvent(result=ctx.session[ev.thing] is thing)

    assert await result(begin, last) is True


async def test_a_run_may_use_many_live_objects_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "MOST_OBJECTS", 10)

    async def begin(ctx: Context, ev: StartEvent) -> Page:
        return Page(n=0)

    async def make(ctx: Context, ev: Page) -> Carries | StopEvent:
        if ev.n > 100 or len(ctx.session) > 2:
            return StopEvent(result=[ev.n, len(ctx.session)])
        return Carries(n=ev.n, thing=ctx.session.refer(Thing()))

    async def use(ctx: Context, ev: Carries) -> Page:
        assert isinstance(ctx.session[ev.thing], Thing)
        return Page(n=ev.n + 1)

    assert await result(begin, make, use) == [101, 0]


async def test_an_object_stays_until_the_last_step_that_gets_it_has_ended() -> None:
    seen: list[Any] = []

    async def begin(ctx: Context, ev: StartEvent) -> Carries:
        return Carries(thing=ctx.session.refer(Thing()))

    async def fast(ctx: Context, ev: Carries) -> Done:
        return Done(n=len(ctx.session))

    async def slow(ctx: Context, ev: Carries) -> Done:
        await asyncio.sleep(0.05)
        seen.append(ctx.session[ev.thing])
        return Done(n=len(ctx.session))

    @step(collect=Collect(Done, n=2))
    async def join(ctx: Context, done: list[Done]) -> StopEvent:
        return StopEvent(result=[sorted(each.n for each in done), len(ctx.session)])

    assert await result(begin, fast, slow, join) == [[1, 1], 0]
    assert isinstance(seen[0], Thing)


@flow
async def child(ctx: Context, called: str, until: Until) -> bool:
    before = "of the parent" in ctx.session
    ctx.session.put(called, Thing(), until)
    return before


@pytest.mark.parametrize(
    ("until", "after_child", "after_run"),
    [("run", True, False), ("parent", True, False), ("never", True, True), ("export", True, False)],
)
async def test_a_child_shares_the_objects_of_its_parent_and_they_end_when_they_should(
    until: Until, after_child: bool, after_run: bool
) -> None:
    @flow
    async def parent(ctx: Context) -> list[bool]:
        if "of the parent" not in ctx.session:
            ctx.session["of the parent"] = Thing()
        shared = await ctx.run_child(child, called="of the child", until=until)
        return [shared, "of the child" in ctx.session]

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(parent)
        assert await asyncio.wait_for(handle.result(), 60) == [True, after_child]
        assert (handle.id in engine.code.sessions) == after_run  # type: ignore[attr-defined]


async def test_an_object_whose_run_is_over_is_let_go() -> None:
    things: list[weakref.ref[Thing]] = []

    async def only(ctx: Context, ev: StartEvent) -> StopEvent:
        thing = Thing()
        things.append(weakref.ref(thing))
        ctx.session["t"] = thing
        return StopEvent()

    async with open_engine(settings=SHORT) as engine:
        await engine.run(Workflow("w", [only]))
        gc.collect()
        assert things[0]() is None


class Counter:
    """Says itself how it is stored."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __refold_serialize__(self) -> bytes:
        return str(self.n).encode()

    @classmethod
    def __refold_deserialize__(cls, data: bytes) -> "Counter":
        return cls(int(data))


def holding(policy: Any, *objects: Any, until: Until = "run") -> Workflow:
    class Holds(Workflow):
        live = policy
        types = (Counter,)

        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> Page:
            for n, each in enumerate(objects):
                ctx.session.put(f"o{n}", each, until)
            return Page()

        @step
        async def last(self, ctx: Context, ev: Page) -> StopEvent:
            await ctx.wait_for("go")
            return StopEvent(result=ctx.session["o0"].n)

    return Holds()


async def exported(workflow: Workflow) -> bytes:
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(workflow)
        while (await engine.show(handle.id)).status != "waiting":
            await asyncio.sleep(0.005)
        await handle.pause()
        return await handle.export()


async def restored(data: bytes, workflow: Workflow) -> Any:
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.attach(await engine.restore(data), workflow)
        await handle.signal("go")
        await handle.resume()
        return await asyncio.wait_for(handle.result(), 60)


async def test_objects_that_say_how_are_exported_and_come_back() -> None:
    workflow = holding("keep", Counter(5))
    assert await restored(await exported(workflow), workflow) == 5


async def test_an_object_that_does_not_say_how_refuses_the_export() -> None:
    with pytest.raises(Conflict, match="the live object 'o1', a Thing, lacks __refold_serialize__"):
        await exported(holding("keep", Counter(5), Thing()))


async def test_an_export_is_refused_while_there_are_live_objects() -> None:
    with pytest.raises(Conflict, match="live objects that cannot be exported: o0"):
        await exported(holding("refuse", Counter(5)))
    assert await exported(holding("refuse"))


async def test_an_object_that_was_left_out_is_reported_by_name() -> None:
    workflow = holding("drop", Counter(5))
    with pytest.raises(StepFailed, match="no live object 'o0'") as caught:
        await restored(await exported(workflow), workflow)
    assert isinstance(caught.value.__cause__, LiveObjectLost)


async def test_an_object_that_is_held_until_the_export_does_not_stand_in_its_way() -> None:
    assert await exported(holding("refuse", Thing(), until="export"))
