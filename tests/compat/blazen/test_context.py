"""The context of a run, as event-driven engines know it: each behaviour, driven through the public API.

What was looked at there from inside (locks, registries, snapshots) is looked at here as a user sees it: a step writes,
a later step reads, a run is exported and restored.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from refold import Collect, Context, Event, Retry, StartEvent, StopEvent, Workflow, open_engine, step
from refold.errors import LiveObjectLost, StepFailed
from refold.python.definition import define
from refold.runtime.archive import read_archive


class Next(Event):
    pass


class Item(Event):
    data: Any


Body = Callable[[Context], Any]


def chain(*bodies: Body) -> Workflow:
    """Two steps: what the first writes, the second reads; its result is that of the run."""
    first, second = bodies if len(bodies) == 2 else (lambda ctx: None, bodies[0])

    async def write(ctx: Context, ev: StartEvent) -> Next:
        first(ctx)
        return Next()

    async def read(ctx: Context, ev: Next) -> StopEvent:
        return StopEvent(result=second(ctx))

    return Workflow("chain", [write, read])


async def result(workflow: Any, **inputs: Any) -> Any:
    async with open_engine() as engine:
        return await asyncio.wait_for(engine.run(workflow, **inputs), 60)


async def test_a_value_can_be_set_and_read() -> None:
    assert await result(chain(lambda ctx: ctx.set("counter", 42), lambda ctx: ctx.get("counter"))) == 42


async def test_a_value_of_another_type_is_not_taken_for_the_wanted_one() -> None:
    read = chain(lambda ctx: ctx.set("counter", 42), lambda ctx: ctx.state.get_or("counter", "none"))
    assert await result(read) == "none"


async def test_a_missing_key_is_none() -> None:
    assert await result(chain(lambda ctx: ctx.get("nope"))) is None


async def test_get_or_gives_the_value_when_present() -> None:
    assert await result(chain(lambda ctx: ctx.set("k", 42), lambda ctx: ctx.state.get_or("k", 0))) == 42


async def test_get_or_gives_the_default_when_missing() -> None:
    assert await result(chain(lambda ctx: ctx.state.get_or("nope", 7))) == 7


async def test_get_or_gives_the_default_for_another_type() -> None:
    assert await result(chain(lambda ctx: ctx.set("k", "text"), lambda ctx: ctx.state.get_or("k", 99))) == 99


async def test_get_or_gives_the_default_for_bytes() -> None:
    assert await result(chain(lambda ctx: ctx.set("k", b"\x80"), lambda ctx: ctx.state.get_or("k", 5))) == 5


async def test_get_or_gives_the_default_for_a_stored_none_which_is_not_missing_all_the_same() -> None:
    read = chain(
        lambda ctx: ctx.set("k", None), lambda ctx: [ctx.state.get_or("k", 17), "k" in ctx.state, ctx.state["k"]]
    )
    assert await result(read) == [17, True, None]


async def test_bytes_are_given_when_present() -> None:
    assert await result(chain(lambda ctx: ctx.set("k", b"\x01\x02"), lambda ctx: ctx.state.bytes("k"))) == b"\x01\x02"


async def test_bytes_give_the_default_when_missing() -> None:
    assert await result(chain(lambda ctx: ctx.state.bytes("nope", b"\x09"))) == b"\x09"


async def test_bytes_give_the_default_for_text() -> None:
    assert await result(chain(lambda ctx: ctx.set("k", "text"), lambda ctx: ctx.state.bytes("k", b"\xff"))) == b"\xff"


async def test_bytes_of_a_missing_key_are_none() -> None:
    assert await result(chain(lambda ctx: ctx.state.bytes("nope"))) is None


async def test_bytes_are_not_text() -> None:
    data = bytes([0xDE, 0xAD, 0xBE, 0xEF])
    read = chain(lambda ctx: ctx.set("b", data), lambda ctx: [ctx.state.bytes("b"), ctx.state.get_or("b", "")])
    assert await result(read) == [data, ""]


async def test_every_step_knows_the_id_of_its_run() -> None:
    async with open_engine() as engine:
        handle = await engine.start(chain(lambda ctx: ctx.run_id))
        assert await handle.result() == handle.id


async def test_events_are_gathered_until_there_are_enough() -> None:
    async def begin(ev: StartEvent) -> list[Item]:
        return [Item(data=1), Item(data=2)]

    seen: list[int | None] = []

    @step(workers=1)
    async def gather(ctx: Context, ev: Item) -> StopEvent | None:
        found = ctx.collect(ev, 2)
        seen.append(None if found is None else len(found))
        return None if found is None else StopEvent(result=[each.data for each in found])

    assert await result(Workflow("w", [begin, gather])) == [1, 2]
    assert seen == [None, 2]


class Paused(Workflow):
    """Writes, and waits for a word."""

    name = "paused"

    @step
    async def write(self, ctx: Context, ev: StartEvent) -> Next:
        ctx.set("name", "alice")
        ctx.set("count", 10)
        ctx.set("bytes", b"\xde\xad")
        ctx.session["connection"] = object()
        return Next()

    @step
    async def read(self, ctx: Context, ev: Next) -> StopEvent:
        await ctx.wait_for("go")
        return StopEvent(result=[ctx.get("name"), ctx.get("count"), ctx.get("bytes"), "connection" in ctx.session])


async def exported() -> bytes:
    async with open_engine() as engine:
        handle = await engine.start(Paused)
        while (await engine.show(handle.id)).status != "waiting":
            await asyncio.sleep(0.005)
        await handle.pause()
        return await handle.export()


async def test_the_state_comes_back_when_a_run_is_exported_and_restored() -> None:
    data = await exported()
    async with open_engine() as engine:
        run = await engine.restore(data)
        handle = await engine.attach(run, Paused)
        await handle.signal("go")
        await handle.resume()
        assert await handle.result() == ["alice", 10, b"\xde\xad", False]


async def test_live_objects_are_not_exported() -> None:
    data = await exported()
    assert json.loads(data)["live"] == {"connection": ["", ""]}  # that it was left out, and nothing of it


async def test_what_waits_to_be_gathered_is_exported() -> None:
    class Waiting(Workflow):
        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> list[Item | Next]:
            return [Item(data="a"), Next()]

        @step(collect=Collect(Item, n=2))
        async def join(self, found: list[Item]) -> StopEvent:
            return StopEvent(result=[each.data for each in found])

        @step
        async def late(self, ctx: Context, ev: Next) -> Item:
            return Item(data=await ctx.wait_for("more"))

    async with open_engine() as engine:
        handle = await engine.start(Waiting)
        while (await engine.show(handle.id)).status != "waiting":
            await asyncio.sleep(0.005)
        data = await handle.export()
    assert read_archive(data).run == handle.id
    async with open_engine() as engine:
        handle = await engine.attach(await engine.restore(data), Waiting)
        await handle.signal("more", "b")
        assert await handle.result() == ["a", "b"]


async def test_every_kind_of_value_comes_back_as_what_it_was() -> None:
    def write(ctx: Context) -> None:
        ctx.set("json", "hello")
        ctx.set("bytes", b"\x01")
        ctx.set("tuple", (4, 5))

    read = chain(write, lambda ctx: [ctx.get(key) for key in ("json", "bytes", "tuple", "missing")])
    assert await result(read) == ["hello", b"\x01", (4, 5), None]


async def test_a_value_replaces_the_one_before_whatever_it_was() -> None:
    def write(ctx: Context) -> None:
        ctx.set("k", 1)
        ctx.set("k", 2)
        ctx.set("k", b"\x01\x02\x03")

    assert await result(chain(write, lambda ctx: [ctx.get("k"), ctx.state.get_or("k", 0)])) == [b"\x01\x02\x03", 0]


async def test_a_live_object_can_be_set_and_read() -> None:
    thing = object()
    read = chain(lambda ctx: ctx.session.__setitem__("t", thing), lambda ctx: ctx.session["t"] is thing)
    assert await result(read) is True


async def test_a_missing_live_object_is_reported_by_name() -> None:
    with pytest.raises(StepFailed, match="no live object 'nope'") as caught:
        await result(chain(lambda ctx: ctx.session["nope"]))
    assert isinstance(caught.value.__cause__, LiveObjectLost)
    assert await result(chain(lambda ctx: ctx.session.get("nope"))) is None


async def test_a_live_object_can_be_removed() -> None:
    def use(ctx: Context) -> Any:
        ctx.session["k"] = "value"
        before = "k" in ctx.session
        ctx.session.remove("k")
        return [before, "k" in ctx.session]

    assert await result(chain(use)) == [True, False]


async def test_live_objects_are_not_part_of_the_state() -> None:
    def write(ctx: Context) -> None:
        ctx.session["live"] = object()
        ctx.set("json", "hello")

    assert await result(chain(write, lambda ctx: ctx.state.keys())) == ["json"]


async def test_the_live_objects_of_a_run_end_with_it_and_those_of_another_do_not() -> None:
    workflow = chain(lambda ctx: ctx.session.__setitem__("a", object()), lambda ctx: len(ctx.session))

    async def wait(ctx: Context, ev: StartEvent) -> StopEvent:
        ctx.session["b"] = object()
        await asyncio.sleep(0.2)
        return StopEvent(result=list(ctx.session))

    async with open_engine() as engine:
        longer = await engine.start(Workflow("longer", [wait]))
        assert await engine.run(workflow) == 1
        assert await longer.result() == ["b"]
        assert engine.code.sessions == {}  # type: ignore[attr-defined]


def attempts(workflow: Workflow) -> int:
    return define(workflow).plan.steps[0].retry.attempts


async def only(ev: StartEvent) -> StopEvent:
    return StopEvent()


def test_a_step_without_a_retry_policy_is_tried_once() -> None:
    assert attempts(Workflow("w", [step(only)])) == 1


def test_the_retry_of_a_step_goes_before_that_of_its_workflow() -> None:
    async def own(ev: StartEvent) -> StopEvent:
        return StopEvent()

    made = Workflow("w", [step(retry=Retry(attempts=4))(own)], retry=Retry(attempts=8))
    assert (attempts(made), attempts(Workflow("w", [step(only)], retry=Retry(attempts=8)))) == (4, 8)


async def test_the_retry_of_a_call_goes_before_everything() -> None:
    tries: list[int] = []

    def flaky() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("away")
        return len(tries)

    @step(retry=Retry(attempts=1))
    async def calls(ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=await ctx.options(retry=Retry(attempts=3)).call(flaky))

    assert await result(Workflow("w", [calls])) == 3
