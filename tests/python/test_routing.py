"""Events between steps: fan-out, fan-in, order, and what is an error at once."""

import asyncio
from typing import Any

import pytest

from refold import Collect, Context, ErrorEvent, Event, Retry, StartEvent, StopEvent, Workflow, open_engine, step
from refold.errors import Conflict, RunFailed
from tests.python.house import SHORT, Done, Page, error, result, started


class Image(Page):
    width: int = 0


async def pages(ctx: Context, ev: StartEvent) -> list[Page]:
    return [Page(n=n) for n in range(ev.count)]


async def test_a_collector_gets_all_events_of_a_fan_out() -> None:
    async def fetch(ev: Page) -> Done:
        return Done(n=ev.n * ev.n)

    @step(collect=Collect(Done, n=3))
    async def join(done: list[Done]) -> StopEvent:
        return StopEvent(result=sorted(each.n for each in done))

    assert await result(pages, fetch, join, count=3) == [0, 1, 4]


async def test_a_collector_takes_several_types_and_its_number_from_the_context() -> None:
    class Bad(Event):
        n: int

    async def begin(ctx: Context, ev: StartEvent) -> list[Page]:
        ctx.set("expected", 4)
        return [Page(n=n) for n in range(4)]

    async def fetch(ev: Page) -> Done | Bad:
        return Done(n=ev.n) if ev.n % 2 else Bad(n=ev.n)

    @step(collect=Collect(Done, Bad, n="expected"))
    async def join(ended: list[Done | Bad]) -> StopEvent:
        return StopEvent(result=sorted((type(each).__name__, each.n) for each in ended))

    assert await result(begin, fetch, join) == [("Bad", 0), ("Bad", 2), ("Done", 1), ("Done", 3)]


async def test_a_step_that_returns_nothing_ends_the_run_at_once_with_an_error() -> None:
    async def begin(ev: StartEvent) -> Page | None:
        return None

    async def last(ev: Page) -> StopEvent:
        return StopEvent()

    found = await error(begin, last)
    assert "nothing is left to do, and no step has sent a StopEvent; the last one was begin" in str(found)


async def test_an_empty_list_ends_the_run_too() -> None:
    async def last(ev: Page) -> StopEvent:
        return StopEvent()

    assert "nothing is left to do" in str(await error(pages, last, count=0))


async def test_an_event_no_step_knows_is_an_error_that_names_the_steps() -> None:
    async def begin(ctx: Context, ev: StartEvent) -> StopEvent | None:
        ctx.send(Done())
        return None

    async def other(ev: Page) -> StopEvent:
        return StopEvent()

    class Loose(Workflow):
        @step(sends=[Page])
        async def begin(self, ctx: Context, ev: StartEvent) -> None:
            ctx.send(Done())

        @step
        async def fetch(self, ev: Page) -> StopEvent:
            return StopEvent()

    found = str(await error(Loose))
    assert "no step takes the event 'Done'" in found
    assert "fetch takes Page" in found


async def test_an_event_reaches_the_step_that_takes_its_parent_class_and_keeps_its_own_class() -> None:
    async def begin(ev: StartEvent) -> Image:
        return Image(n=1, width=7)

    async def last(ev: Page) -> StopEvent:
        return StopEvent(result=[type(ev).__name__, getattr(ev, "width", None)])

    assert await result(begin, last) == ["Image", 7]


@pytest.mark.parametrize("value", [{"a": 1}, (Page(), 2), "text", 3, [Page(), 3], [Page(), None]])
async def test_a_wrong_return_value_is_an_error_that_names_the_step_and_the_type(value: Any) -> None:
    async def begin(ev: StartEvent) -> Page:
        return value  # type: ignore[no-any-return]

    async def last(ev: Page) -> StopEvent:
        return StopEvent()

    wrong = value[1] if isinstance(value, list | tuple) else value
    found = str(await error(begin, last))
    assert "step 'begin'" in found and f" {type(wrong).__name__}" in found


async def test_two_steps_that_take_one_event_do_not_share_it() -> None:
    class Bag(Event):
        things: list[int]

    async def begin(ev: StartEvent) -> Bag:
        return Bag(things=[1])

    async def first(ev: Bag) -> Done:
        ev.things.append(2)
        return Done(n=len(ev.things))

    async def second(ev: Bag) -> Done:
        await asyncio.sleep(0.02)
        return Done(n=len(ev.things))

    @step(collect=Collect(Done, n=2))
    async def join(done: list[Done]) -> StopEvent:
        return StopEvent(result=sorted(each.n for each in done))

    assert await result(begin, first, second, join) == [1, 2]


async def test_one_worker_takes_events_in_the_order_of_their_coming() -> None:
    seen: list[int] = []

    @step(workers=1)
    async def fetch(ev: Page) -> Done:
        seen.append(ev.n)
        await asyncio.sleep(0.001 * (20 - ev.n) / 20)
        return Done(n=ev.n)

    @step(collect=Collect(Done, n=20))
    async def join(done: list[Done]) -> StopEvent:
        return StopEvent()

    await result(pages, fetch, join, count=20)
    assert seen == list(range(20))


async def test_a_collector_runs_once_for_each_full_batch() -> None:
    @step(collect=Collect(Page, n=2))
    async def pair(ctx: Context, found: list[Page]) -> Done:
        return Done(n=sum(each.n for each in found))

    @step(collect=Collect(Done, n=2))
    async def join(done: list[Done]) -> StopEvent:
        return StopEvent(result=[each.n for each in done])

    assert await result(pages, pair, join, count=4) == [1, 5]


async def test_a_collector_keeps_events_of_different_groups_apart() -> None:
    class Part(Event):
        of: str
        n: int

    async def begin(ev: StartEvent) -> list[Part]:
        return [Part(of=of, n=n) for n, of in enumerate("abba")]

    @step(collect=Collect(Part, n=2, by="of"))
    async def pair(found: list[Part]) -> Done:
        assert found[0].of == found[1].of
        return Done(n=10 * found[0].n + found[1].n)

    @step(collect=Collect(Done, n=2))
    async def join(done: list[Done]) -> StopEvent:
        return StopEvent(result=sorted(each.n for each in done))

    assert await result(begin, pair, join) == [3, 12]


async def test_a_collector_whose_time_is_up_fails() -> None:
    async def fetch(ev: Page) -> Done | None:
        if ev.n:
            await asyncio.sleep(5)
        return Done(n=ev.n)

    @step(collect=Collect(Done, n=2, timeout="100ms"))
    async def join(done: list[Done]) -> StopEvent:
        return StopEvent()

    assert "1 of 2 events came within 0.1 s" in str(await error(pages, fetch, join, count=2))


async def test_collect_in_a_body_gives_the_batch_to_one_of_them() -> None:
    batches: list[list[int]] = []

    async def gather(ctx: Context, ev: Page) -> StopEvent | None:
        found = ctx.collect(ev, 3)
        if found is None:
            return None
        batches.append([each.n for each in found])
        return StopEvent(result=[each.n for each in found])

    assert len(await result(pages, gather, count=3)) == 3
    assert batches[-1] == [0, 1, 2]


async def test_the_first_stop_is_the_one_that_counts() -> None:
    @step(workers=1)
    async def last(ev: Page) -> StopEvent:
        return StopEvent(result=ev.n)

    assert await result(pages, last, count=5) == 0


async def test_stop_without_result_gives_all_its_keywords() -> None:
    async def only(ev: StartEvent) -> StopEvent:
        return StopEvent(a=1, b=2)

    assert await result(only) == {"a": 1, "b": 2}


async def test_a_run_that_has_ended_takes_no_more() -> None:
    async def only(ev: StartEvent) -> StopEvent:
        return StopEvent()

    async with started(only) as handle:
        await handle.result()
        with pytest.raises(Conflict, match="is completed"):
            await handle.signal("go")
        with pytest.raises(Conflict, match="is completed"):
            await handle.pause()


async def test_a_failure_becomes_an_event_while_its_siblings_continue() -> None:
    class Broken(ErrorEvent):
        pass

    @step(on_error=Broken)
    async def fetch(ev: Page) -> Done:
        if ev.n == 1:
            raise ValueError("no such page")
        return Done(n=ev.n)

    async def mend(ev: Broken) -> Done:
        assert (ev.step, ev.error["message"]) == ("fetch", "no such page")
        return Done(n=100 + ev.events[0].n)

    @step(collect=Collect(Done, n=3))
    async def join(done: list[Done]) -> StopEvent:
        return StopEvent(result=sorted(each.n for each in done))

    assert await result(pages, fetch, mend, join, count=3) == [0, 2, 101]


async def test_a_long_chain_keeps_no_old_events() -> None:
    async def begin(ev: StartEvent) -> Page:
        return Page(n=0)

    async def go_on(ev: Page) -> Page | StopEvent:
        return Page(n=ev.n + 1) if ev.n < 300 else StopEvent(result=ev.n)

    async with started(begin, go_on) as handle:
        assert await handle.result() == 300
        state = (await handle.engine.show(handle.id)).state
        assert all(not inbox.waiting and not inbox.groups for inbox in state.inboxes.values())


async def test_a_failed_run_goes_on_after_a_retry() -> None:
    broken = [True]

    async def fetch(ev: Page) -> Done:
        if ev.n == 2 and broken:
            raise ValueError("down")
        return Done(n=ev.n)

    @step(collect=Collect(Done, n=4))
    async def join(done: list[Done]) -> StopEvent:
        return StopEvent(result=sorted(each.n for each in done))

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(Workflow("w", [pages, fetch, join]), count=4)
        with pytest.raises(RunFailed, match="ValueError: down"):
            await handle.result()
        broken.clear()
        await engine.retry(handle.id)
        assert await handle.result() == [0, 1, 2, 3]


async def test_steps_are_tried_again_as_often_as_they_say() -> None:
    tries: list[str] = []

    def failing(name: str, times: int, retry: Retry | None) -> Any:
        async def body(ev: StartEvent) -> StopEvent:
            tries.append(name)
            if tries.count(name) <= times:
                raise ConnectionError("away")
            return StopEvent(result=tries.count(name))

        body.__name__ = name
        return step(retry=retry)(body)

    assert await result(failing("three", 2, Retry(attempts=6))) == 3
    assert "away" in str(await error(failing("once", 1, None)))
    assert tries.count("once") == 1


async def test_a_batch_that_was_collected_is_gone() -> None:
    batches: list[list[int]] = []

    @step(workers=1)
    async def gather(ctx: Context, ev: Page) -> Done | None:
        found = ctx.collect(ev, 2)
        if found is None:
            return None
        batches.append([each.n for each in found])
        return Done(n=len(found))

    @step(collect=Collect(Done, n=2))
    async def join(done: list[Done]) -> StopEvent:
        return StopEvent(result=[each.n for each in done])

    assert await result(pages, gather, join, count=4) == [2, 2]
    assert batches == [[0, 1], [2, 3]]


async def test_only_named_exceptions_are_worth_another_try() -> None:
    tries: list[str] = []

    def raising(error: Exception) -> Any:
        @step(retry=Retry(attempts=3, on=("OSError",)))
        async def only(ev: StartEvent) -> StopEvent:
            tries.append(type(error).__name__)
            raise error

        return only

    await error(raising(ConnectionError("away")))
    await error(raising(KeyError("a slip")))
    assert tries == ["ConnectionError"] * 3 + ["KeyError"]
