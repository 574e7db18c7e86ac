"""Values come back exactly as they went in, or are refused where they are written, with their path."""

import asyncio
import math
import threading
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest

from refold import Collect, Context, Event, StartEvent, StopEvent, Workflow, open_engine, step
from refold.errors import InvalidValue
from refold.python.data_classes import MARK
from refold.python.definition import define
from refold.python.values import ValueCodec
from tests.python.house import SHORT, Done, Page, error, result


class Colour(Enum):
    RED = "r"


class Level(IntEnum):
    HIGH = 3


@dataclass(frozen=True)
class Point:
    x: int
    y: Decimal = Decimal("0.0")


class Shape(msgspec.Struct):
    points: tuple[Point, ...]
    name: str = "shape"


EXACT = ValueCodec({"Colour": Colour, "Level": Level, "Point": Point, "Shape": Shape})

VALUES: list[Any] = [
    None, True, 0, -1, 2**63 - 1, 2**63, -(2**63) - 1, 2**80, -(2**4000), 1.5, -0.0, 1e308, 5e-324, math.inf, -math.inf,
    "", "é\u0000\U0001f600", b"", b"\xff\x00", bytearray(b"ab"), (), (1, (2, [3])), [], [[]], set(), {1, "a"},
    frozenset({2}), {"b": 1, "a": 2}, {}, {1: "one", "1": "text", (1, 2): None}, Decimal("1.50"), Decimal("-Infinity"),
    Fraction(1, 3), 1 + 2j, date(2026, 2, 28), time(1, 2, 3, 4), timedelta(-1, 3, 7), UUID(int=5),
    datetime(2026, 1, 1), datetime(2026, 1, 1, fold=1),  # noqa: DTZ001
    datetime(2026, 1, 1, tzinfo=UTC),
    datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=2))), datetime(2026, 7, 1, 3, tzinfo=ZoneInfo("Europe/Paris")),
    Colour.RED, Level.HIGH, Point(1, Decimal("2.0")), Shape((Point(1),)), {"deep": [({"er": Point(2)},)]},
]  # fmt: skip


def looks(value: Any) -> Any:
    """By which two values that are equal may still differ; a set has no order of its own."""
    each = frozenset(map(repr, value)) if isinstance(value, set | frozenset) else repr(value)
    return type(value), each


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_comes_back_exactly(value: Any) -> None:
    text = msgspec.json.encode(EXACT.put(value))
    back = EXACT.get(msgspec.json.decode(text))
    assert (back, looks(back)) == (value, looks(value))


def test_nan_comes_back_as_nan() -> None:
    assert math.isnan(EXACT.get(msgspec.json.decode(msgspec.json.encode(EXACT.put(math.nan)))))


class Text(str):
    pass


class Strange:
    pass


@dataclass
class Unknown:
    n: int = 0


REFUSED: list[Any] = ["\ud800", Text("x"), Strange(), lambda: 1, Unknown(), threading.Lock(), range(3)]


@pytest.mark.parametrize("value", REFUSED, ids=lambda value: type(value).__name__)
def test_what_cannot_come_back_is_refused_with_its_path(value: Any) -> None:
    with pytest.raises(InvalidValue) as caught:
        EXACT.put({"a": [1, value]}, "context.k")
    assert caught.value.path == "context.k.a[1]"


MARKS: list[Any] = [
    {MARK: ["bytes", "aGk="]},
    {MARK: ["object", "Point", {"x": 1}]},
    {MARK: 1, "more": 2},
    {"__blazen_pickled__": "gASV"},
    {"py/object": "os.system"},
    {"a": [{MARK: ["map", []]}]},
]


@pytest.mark.parametrize("value", MARKS, ids=repr)
def test_data_that_looks_like_a_mark_is_data(value: Any) -> None:
    assert EXACT.get(msgspec.json.decode(msgspec.json.encode(EXACT.put(value)))) == value


@pytest.mark.parametrize(
    "raw", [{MARK: 1}, {MARK: []}, {MARK: ["object", "Unknown", {}]}, {MARK: ["nope", 1]}, {MARK: ["bytes", "%"]}]
)
def test_a_mark_that_means_nothing_is_refused(raw: Any) -> None:
    with pytest.raises(InvalidValue):
        EXACT.get(raw)


class Everything(Event):
    value: Any
    point: Point | None = None
    shape: Shape | None = None


async def test_values_are_exact_in_inputs_events_context_and_results_and_after_a_restart(tmp_path: Path) -> None:
    class Carry(Workflow):
        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> Everything:
            ctx.set("kept", ev.value)
            return Everything(value=ev.value, point=Point(1), shape=Shape((Point(2),)))

        @step
        async def wait(self, ctx: Context, ev: Everything) -> StopEvent:
            told = await ctx.wait_for("go")
            return StopEvent(result=[ev.value, ctx.get("kept"), ev.point, ev.shape, told])

    given = [2**80, Decimal("1.0"), (1, {2}), b"\0", {1: 2}, datetime(2026, 1, 1, tzinfo=UTC)]
    async with open_engine(db=tmp_path / "refold.db", settings=SHORT) as engine:
        handle = await engine.start(Carry, value=given)
        while (await engine.show(handle.id)).status != "waiting":
            await asyncio.sleep(0.01)
    async with open_engine(db=tmp_path / "refold.db", settings=SHORT) as engine:
        handle = await engine.attach(handle.id, Carry)
        await handle.signal("go", (Decimal("2.50"),))
        expected = [given, given, Point(1), Shape((Point(2),)), (Decimal("2.50"),)]
        assert await handle.result() == expected


async def test_a_value_that_cannot_be_stored_is_refused_where_it_is_written() -> None:
    async def writes(ctx: Context, ev: StartEvent) -> StopEvent:
        ctx.set("k", {"a": threading.Lock()})
        return StopEvent()

    async def sends(ev: StartEvent) -> StopEvent:
        return StopEvent(result=[object()])

    assert "context.k.a: a lock cannot be stored exactly" in str(await error(writes))
    assert "StopEvent.result[0]: an object cannot be stored exactly" in str(await error(sends))


async def test_four_hundred_updates_at_once_give_four_hundred() -> None:
    async def begin(ev: StartEvent) -> list[Page]:
        return [Page(n=n) for n in range(400)]

    async def add(ctx: Context, ev: Page) -> Done:
        ctx.update("count", lambda n: n + 1, 0)
        return Done()

    @step(collect=Collect(Done, n=400))
    async def join(ctx: Context, done: list[Done]) -> StopEvent:
        return StopEvent(result=ctx.get("count"))

    assert await result(begin, add, join) == 400


async def test_updates_from_threads_are_all_counted_and_see_the_values_of_their_own_step() -> None:
    async def begin(ev: StartEvent) -> list[Page]:
        return [Page(n=n) for n in range(40)]

    def add(ctx: Context, ev: Page) -> Done:
        ctx.update("count", lambda n: n + 1, 0)
        ctx.update("count", lambda n: n + 1, 0)
        ctx.set("own", 5)
        ctx.update("own", lambda n: n + 1)
        return Done()

    @step(collect=Collect(Done, n=40))
    async def join(ctx: Context, done: list[Done]) -> StopEvent:
        return StopEvent(result=[ctx.get("count"), ctx.get("own")])

    assert await result(begin, add, join) == [80, 6]


async def test_the_state_can_be_deleted_from_iterated_and_counted() -> None:
    async def begin(ctx: Context, ev: StartEvent) -> Page:
        ctx.set("a", 1)
        ctx.set("b", 2)
        return Page()

    async def last(ctx: Context, ev: Page) -> StopEvent:
        before = sorted(ctx.state)
        ctx.state.delete("a")
        ctx.state["c"] = 3
        return StopEvent(result=[before, ctx.state.keys(), len(ctx.state), "a" in ctx.state])

    assert await result(begin, last) == [["a", "b"], ["b", "c"], 2, False]


async def test_a_key_of_the_engine_is_not_for_users() -> None:
    async def only(ctx: Context, ev: StartEvent) -> StopEvent:
        ctx.set("refold:x", 1)
        return StopEvent()

    assert "'refold:x' is not a key" in str(await error(only))


async def test_a_live_object_is_not_a_value_and_a_value_no_live_object() -> None:
    lock = threading.Lock()

    async def only(ctx: Context, ev: StartEvent) -> StopEvent:
        ctx.session["k"] = 1
        ctx.session["k"] = lock
        return StopEvent(result=ctx.session["k"] is lock)

    assert await result(only) is True


@dataclass
class Counting:
    n: int
    cache: Any = field(default=None, metadata={"transient": True})


async def test_transient_fields_are_never_stored() -> None:
    class Keeps(Workflow):
        types = (Counting,)

        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> Page:
            ctx.set("c", Counting(3, cache={"json": "able"}))
            return Page()

        @step
        async def last(self, ctx: Context, ev: Page) -> StopEvent:
            return StopEvent(result=ctx.get("c"))

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(Keeps)
        assert await handle.result() == Counting(3, None)
        assert b"able" not in await handle.export()


class Own(Event):
    total: int

    def __init__(self, *parts: int) -> None:
        self.total = sum(parts)


async def test_events_keep_their_own_init_defaults_and_attributes() -> None:
    class Late(Event):
        a: int
        b: str = "default"

    async def begin(ev: StartEvent) -> list[Own | Late]:
        late = Late(a=1)
        late.a = 5
        return [Own(1, 2, 3), late]

    async def own(ev: Own) -> Done:
        return Done(n=ev.total)

    async def late(ev: Late) -> Done:
        return Done(n=ev.a * 100 + len(ev.b))

    @step(collect=Collect(Done, n=2))
    async def join(done: list[Done]) -> StopEvent:
        return StopEvent(result=sorted(each.n for each in done))

    assert await result(begin, own, late, join) == [6, 507]


def test_events_are_equal_by_class_and_content_and_say_what_they_are() -> None:
    assert Page(n=1) == Page(n=1) != Page(n=2)
    assert Page(n=1) != Done(n=1)
    assert repr(Page(n=1)) == "Page(n=1)"
    with pytest.raises(TypeError, match="unexpected keyword argument 'm'"):
        Page(m=1)  # type: ignore[call-arg]


class Typed(Event):
    a: int
    b: list[str] = []  # noqa: RUF012
    c: Literal["x", "y"] = "x"
    d: tuple[int, ...] = ()
    e: dict[str, float] = {}  # noqa: RUF012
    f: tuple[int, str] = (1, "")


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"a": "1"}, "Typed.a"),
        ({"a": 1, "b": ["x", 2]}, "Typed.b[1]"),
        ({"a": 1, "c": "z"}, "Typed.c"),
        ({"a": 1, "d": (1, "2")}, "Typed.d[1]"),
        ({"a": 1, "e": {"k": "v"}}, "Typed.e.k"),
        ({"a": 1, "f": (1,)}, "Typed.f"),
    ],
)
def test_what_an_event_declares_is_checked_when_it_is_sent_and_when_it_is_read(
    fields: dict[str, Any], path: str
) -> None:
    async def begin(ev: StartEvent) -> Typed: ...  # type: ignore[empty-body]

    async def last(ev: Typed) -> StopEvent: ...  # type: ignore[empty-body]

    definition = define(Workflow("w", [begin, last]))
    with pytest.raises(InvalidValue) as caught:
        definition.sent(Typed(**fields), "begin")
    assert caught.value.path == path
    raw = {name: definition.codec.put(value) for name, value in fields.items()}
    with pytest.raises(InvalidValue) as caught:
        definition.received("Typed", raw)
    assert caught.value.path == path


def test_a_default_that_can_be_changed_is_each_events_own() -> None:
    first = Typed(a=1)
    first.b.append("x")
    assert (first.b, Typed(a=1).b) == (["x"], [])


def test_a_field_that_was_added_later_has_its_default() -> None:
    async def begin(ev: StartEvent) -> Page: ...  # type: ignore[empty-body]

    async def last(ev: Page) -> StopEvent: ...  # type: ignore[empty-body]

    assert define(Workflow("w", [begin, last])).received("Page", {}) == Page(n=0)


async def test_an_event_that_cannot_be_read_fails_the_step_by_its_field(tmp_path: Path) -> None:
    def version(kind: Any) -> Workflow:
        class Word(Event):
            text: kind

        class Reads(Workflow):
            @step
            async def begin(self, ev: StartEvent) -> Word:
                return Word(text="x")

            @step(workers=1)
            async def last(self, ctx: Context, ev: Word) -> StopEvent:
                await ctx.wait_for("go")
                return StopEvent()

        return Reads()

    async with open_engine(db=tmp_path / "refold.db", settings=SHORT) as engine:
        handle = await engine.start(version(str))
        while (await engine.show(handle.id)).status != "waiting":
            await asyncio.sleep(0.01)
    async with open_engine(db=tmp_path / "refold.db", settings=SHORT) as engine:
        handle = await engine.attach(handle.id, version(int))
        await handle.signal("go")
        with pytest.raises(Exception, match=r"Word\.text: int is declared, and this is a str"):
            await handle.result()
