"""What may be written of events and steps: orders of parameters, fields of pydantic, generics, tuples, empty lists."""

from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import msgspec
import pytest
from annotated_types import Interval, Len, Predicate
from pydantic import AfterValidator, Field, PositiveInt, StringConstraints

from refold import Collect, Context, Event, StartEvent, StopEvent, SyncContext, Workflow, open_engine, step
from refold.errors import InvalidPlan
from refold.python.definition import define
from refold.python.signatures import read_signature
from tests.python.house import SHORT, Done, Page, error, result

T = TypeVar("T")


async def test_the_context_may_come_after_the_event() -> None:
    class Swapped(Workflow):
        @step
        async def begin(self, ev: StartEvent, ctx: Context) -> Page:
            ctx.set("n", ev.n)
            return Page(n=ev.n)

        @step
        def last(self, ev: Page, ctx: SyncContext, times: int = 2, *, more: int = 1) -> StopEvent:
            return StopEvent(result=[ctx.get("n"), ev.n * times + more])

    assert await result(Swapped, n=4) == [4, 9]


async def test_static_and_class_methods_are_steps() -> None:
    class Plain(Workflow):
        @step
        @staticmethod
        async def begin(ev: StartEvent) -> Page:
            return Page(n=2)

        @staticmethod
        @step
        async def middle(ev: Page) -> Done:
            return Done(n=ev.n + 1)

        @step
        @classmethod
        async def last(cls, ctx: Context, ev: Done) -> StopEvent:
            return StopEvent(result=[cls.__name__, ev.n])

    assert await result(Plain) == ["Plain", 3]


def test_other_parameters_are_refused_in_a_sentence() -> None:
    async def too_many(ctx: Context, ev: Page, limit: int) -> StopEvent: ...  # type: ignore[empty-body]

    async def no_event(ctx: Context) -> StopEvent: ...  # type: ignore[empty-body]

    async def starred(ev: Page, *more: int) -> StopEvent: ...  # type: ignore[empty-body]

    for body in (too_many, no_event, starred):
        with pytest.raises(InvalidPlan, match="it must take `ev`, or `ctx` and `ev`, and anything else needs"):
            read_signature("s", body)


class Holds(Event, Generic[T]):
    value: T


async def test_a_generic_event_is_its_class() -> None:
    async def begin(ev: StartEvent) -> Holds[int]:
        return Holds[int](value=3)

    async def last(ev: Holds[int]) -> StopEvent:
        return StopEvent(result=[ev.value, ev == Holds(value=3), repr(ev)])

    assert await result(begin, last) == [3, True, "Holds(value=3)"]


def test_one_generic_event_with_two_parameters_is_refused() -> None:
    async def begin(ev: StartEvent) -> list[Holds[int] | Holds[str]]: ...  # type: ignore[empty-body]

    async def numbers(ev: Holds[int]) -> StopEvent: ...  # type: ignore[empty-body]

    async def texts(ev: Holds[str]) -> StopEvent: ...  # type: ignore[empty-body]

    why = r"step 'numbers' takes Holds\[int\] and step 'texts' takes Holds\[str\].*give each a subclass of Holds"
    with pytest.raises(InvalidPlan, match=why):
        define(Workflow("w", [begin, numbers, texts]))


async def test_an_input_that_is_not_there_has_a_default() -> None:
    async def only(ev: StartEvent) -> StopEvent:
        return StopEvent(result=[ev.get("a"), ev.get("b"), ev.get("c", 3)])

    assert await result(only, a=1) == [1, None, 3]


async def test_a_tuple_of_events_is_taken_like_a_list() -> None:
    async def begin(ev: StartEvent) -> tuple[Page, Page]:
        return Page(n=1), Page(n=2)

    async def each(ev: Page) -> tuple[Done, ...]:
        return (Done(n=ev.n),)

    @step(collect=Collect(Done, n=2))
    async def join(done: list[Done]) -> StopEvent:
        return StopEvent(result=sorted(each.n for each in done))

    assert await result(begin, each, join) == [1, 2]


class Made(Event):
    text: str = Field(default="x")
    parts: list[int] = Field(default_factory=list, max_length=2)
    size: int = Field(gt=0)
    part: int = msgspec.field(default=5)


def test_defaults_of_pydantic_and_msgspec_are_defaults_of_the_event() -> None:
    made = Made(size=1)
    made.parts.append(1)
    assert made == Made(text="x", parts=[1], size=1, part=5)
    assert Made(size=1).parts == []
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'size'"):
        Made()


class Limited(Event):
    count: PositiveInt = 1
    name: Annotated[str, StringConstraints(min_length=2, pattern="^[a-z]+$")] = "ab"
    share: Annotated[float, Interval(ge=0, le=1)] = 0.5
    few: Annotated[list[int], Len(0, 2)] = []  # noqa: RUF012
    even: Annotated[int, Predicate(lambda n: n % 2 == 0)] = 2
    often: Annotated[int, msgspec.Meta(multiple_of=5)] | None = None


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (Limited(count=0), r"Limited\.count: it must be greater than 0, and it is 0"),
        (Limited(name="a"), r"Limited\.name: it must be of a length of at least 2"),
        (Limited(name="AB"), r"Limited\.name: it must be a text that matches"),
        (Limited(share=1.5), r"Limited\.share: it must be at most 1, and it is 1\.5"),
        (Limited(few=[1, 2, 3]), r"Limited\.few: it must be of a length of at most 2"),
        (Limited(even=3), r"Limited\.even: it must satisfy <lambda>"),
        (Limited(often=7), r"Limited\.often"),
        (Made(size=0), r"Made\.size: it must be greater than 0, and it is 0"),
        (Made(size=1, parts=[1, 2, 3]), r"Made\.parts: it must be of a length of at most 2"),
    ],
    ids=str,
)
async def test_limits_of_fields_are_applied_when_an_event_is_sent(event: Any, why: str) -> None:
    async def begin(ev: StartEvent) -> Limited | Made:
        return event  # type: ignore[no-any-return]

    async def last(ev: Limited | Made) -> StopEvent:
        return StopEvent(result=True)

    with pytest.raises(Exception, match=why):
        raise await error(begin, last)


async def test_an_event_within_its_limits_is_sent() -> None:
    async def begin(ev: StartEvent) -> Limited:
        return Limited(often=10)

    async def last(ev: Limited) -> StopEvent:
        return StopEvent(result=ev.often)

    assert await result(begin, last) == 10


@pytest.mark.parametrize(
    ("hint", "default", "what"),
    [
        (Annotated[int, AfterValidator(abs)], 1, "AfterValidator"),
        (Annotated[str, StringConstraints(to_upper=True)], "x", "to_upper"),
        (str, Field(default="", alias="theText"), "alias"),
        (str, msgspec.field(default="", name="theText"), "name"),
    ],
)
def test_what_an_event_would_not_apply_is_refused_when_the_class_is_defined(hint: Any, default: Any, what: str) -> None:
    with pytest.raises(InvalidPlan, match=f"event Wrong: {what} of 'field' would not be applied; use a pydantic model"):
        type("Wrong", (Event,), {"__annotations__": {"field": hint}, "field": default})


class Progress(Event):
    done: int
    page: Page | None = None


async def test_an_event_that_no_step_takes_may_be_published(tmp_path: Path) -> None:
    async def report(ctx: Context, done: int) -> None:
        await ctx.publish(Progress(done=done, page=Page(n=done)))

    class Tells(Workflow):
        @step
        async def only(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await report(ctx, 1)
            await report(ctx, 2)
            return StopEvent(result=3)

    async with open_engine(db=tmp_path / "refold.db", settings=SHORT) as engine:
        handle = await engine.start(Tells)
        assert await handle.result() == 3
    async with open_engine(db=tmp_path / "refold.db", settings=SHORT) as engine:
        handle = await engine.attach(handle.id, Tells)
        shown = [each.value async for each in handle.stream()]
    assert shown == [Progress(done=1, page=Page(n=1)), Progress(done=2, page=Page(n=2))]


async def test_a_published_event_is_plain_data_where_its_class_is_not_defined() -> None:
    definition = define(Workflow("w", [only_stops]))
    name, data = definition.shown(Progress(done=1), "only")
    assert definition.seen(name, data) == Progress(done=1)
    moved = {key: [each[0], "elsewhere.Progress", each[2]] for key, each in data.items()}
    assert definition.seen("", moved) == {"done": 1, "page": None}


async def only_stops(ev: StartEvent) -> StopEvent:
    return StopEvent()


async def test_a_collecting_step_that_expects_nothing_gets_an_empty_list() -> None:
    async def begin(ctx: Context, ev: StartEvent) -> list[Page]:
        ctx.set("pages", ev.n)
        return [Page(n=n) for n in range(ev.n)]

    async def each(ev: Page) -> Done:
        return Done(n=ev.n)

    @step(collect=Collect(Done, n="pages"))
    async def join(ctx: Context, done: list[Done]) -> StopEvent:
        return StopEvent(result=sorted(each.n for each in done))

    assert await result(begin, each, join, n=0) == []
    assert await result(begin, each, join, n=3) == [0, 1, 2]


async def test_a_number_that_is_not_final_yet_does_not_start_a_collecting_step() -> None:
    joined: list[int] = []

    async def begin(ctx: Context, ev: StartEvent) -> Page:
        ctx.set("pages", 0)
        return Page()

    async def plan(ctx: Context, ev: Page) -> list[Done]:
        ctx.set("pages", 2)
        return [Done(n=1), Done(n=2)]

    @step(collect=Collect(Done, n="pages"))
    async def join(done: list[Done]) -> StopEvent:
        joined.append(len(done))
        return StopEvent(result=len(done))

    assert await result(begin, plan, join) == 2
    assert joined == [2]


async def test_a_collecting_step_gets_one_empty_list_for_each_time_that_nothing_is_expected() -> None:
    visits: list[int] = []

    @step(sends=[Done])
    async def begin(ctx: Context, ev: StartEvent) -> None:
        ctx.set("pages", 0)

    @step(collect=Collect(Done, n="pages"))
    async def join(ctx: Context, done: list[Done]) -> StopEvent | None:
        visits.append(len(done))
        if len(visits) < 3:
            ctx.set("pages", 0)
            return None
        return StopEvent(result=len(visits))

    assert await result(begin, join) == 3
