"""Types come from annotations: what a flow, a called function or a signal names is stored, and comes back equal."""

import enum
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from functools import cached_property
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, Protocol, TypedDict, TypeVar

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, field_validator

import refold
from refold import Context, Retry, StartEvent, StopEvent, Workflow, flow, open_engine, step
from refold.core.plain_values import to_plain_data
from refold.errors import ChildFailed, InvalidPlan, InvalidValue, StepFailed, Unstorable
from refold.python.annotations import classes_named, hints_of, why_not_stored
from refold.python.data_classes import MARK
from refold.python.definition import define
from refold.python.values import ValueCodec
from tests.python.house import SHORT, error, result

T = TypeVar("T")
BUILT: list[str] = []


class Access(enum.Flag):
    READ = 1
    WRITE = 2
    RUN = 4


class Colour(enum.Enum):
    RED = "r"
    CRIMSON = "r"


class Place(NamedTuple):
    x: int
    y: int = 2


class UserId(str):
    pass


class Cents(int):
    def __str__(self) -> str:
        return f"{int(self) / 100:.2f}"


class Row(TypedDict):
    id: int
    at: NotRequired[Place]


@dataclass
class Receipt:
    id: int
    total: Decimal = Decimal(0)
    _seal: str = "wax"

    def __post_init__(self) -> None:
        BUILT.append("Receipt")

    @cached_property
    def text(self) -> str:
        return f"receipt {self.id}"


@dataclass(frozen=True, slots=True)
class Pair(Generic[T]):
    first: T
    second: T


class Price(BaseModel):
    model_config = ConfigDict(validate_assignment=True)
    amount: float = Field(alias="the-amount")
    note: str = ""
    _seen: int = PrivateAttr(default=0)

    @field_validator("amount")
    @classmethod
    def add_tax(cls, amount: float) -> float:
        BUILT.append("Price")
        return amount * 1.5


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    n: int = 1


class Box(BaseModel, Generic[T]):
    inside: T


class Cup(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    how_full: int
    lid: bool = True

    def __post_init__(self) -> None:
        BUILT.append("Cup")


class Keeper(BaseModel):
    key: SecretStr


Rows = NewType("Rows", list[Row])

CLASSES = [Access, Colour, Place, UserId, Cents, Receipt, Pair, Price, Open, Box[int], Cup]
EXACT = ValueCodec().with_classes(CLASSES)


def receipt() -> Receipt:
    made = Receipt(3, Decimal("1.50"), "red")
    assert made.text == "receipt 3"
    return made


def price() -> Price:
    made = Price.model_validate({"the-amount": 10.0})
    made._seen = 4
    return made


TYPED: list[Any] = [
    Access.READ, Access.READ | Access.WRITE, Access(0), Colour.CRIMSON, Place(1), [Place(3, 4)], UserId("ada"),
    Cents(250), receipt(), Pair(Place(1), None), price(), Open.model_validate({"n": 2, "more": [Place(5)]}),
    Open(), Box[int](inside=3), Cup(how_full=7),
    Path("/etc/hosts"), PurePosixPath("a/b"), PureWindowsPath("c:\\x"), OrderedDict(b=1, a=Place(2)),
    Counter("abca"), defaultdict(list, {"a": [Place(1)]}), defaultdict(None, {1: 2}), deque([1, Place(2)], maxlen=3),
]  # fmt: skip


@pytest.mark.parametrize("value", TYPED, ids=lambda value: type(value).__name__)
def test_an_object_comes_back_equal_and_no_code_of_its_class_runs_again(value: Any) -> None:
    raw = msgspec.json.decode(msgspec.json.encode(EXACT.put(value)))
    BUILT.clear()
    back = EXACT.get(raw)
    assert BUILT == []
    assert (back, type(back), repr(back)) == (value, type(value), repr(value))


def test_what_a_model_knows_of_itself_comes_back_too() -> None:
    back = EXACT.get(EXACT.put(price()))
    assert (back._seen, back.model_fields_set, back.model_dump(by_alias=True)) == (
        4,
        {"amount"},
        {"the-amount": 15.0, "note": ""},
    )
    assert EXACT.get(EXACT.put(Open.model_validate({"n": 2, "more": 1}))).model_extra == {"more": 1}
    assert EXACT.get(EXACT.put(Open())).model_fields_set == set()


def test_the_collections_keep_what_they_can_do() -> None:
    counted = EXACT.get(EXACT.put(defaultdict(int, a=1)))
    counted["b"] += 1
    assert counted == {"a": 1, "b": 1}
    assert EXACT.get(EXACT.put(deque([1, 2], maxlen=2))).maxlen == 2
    with pytest.raises(Unstorable, match="its default_factory"):
        EXACT.put(defaultdict(lambda: 3))


def test_a_text_with_attributes_of_its_own_is_refused() -> None:
    named = UserId("ada")
    named.mail = "ada@x"  # type: ignore[attr-defined]
    with pytest.raises(Unstorable, match="has attributes of its own, mail"):
        EXACT.put(named)


def test_a_secret_is_refused_wherever_it_is() -> None:
    for value in (SecretStr("abc"), [SecretStr("abc")], Keeper(key=SecretStr("abc"))):
        with pytest.raises(Unstorable, match=r"a SecretStr is never stored.*name of the secret") as caught:
            EXACT.with_classes([Keeper, SecretStr]).put(value)
        assert "abc" not in str(caught.value)


def test_values_that_were_stored_before_are_still_read() -> None:
    """As the releases before wrote them: models and structs with all their fields, by their short names."""
    codec = ValueCodec({"Price": Price, "Cup": Cup, "Receipt": Receipt, "Colour": Colour})
    raw = {MARK: ["object", "Price", {"amount": 15.0, "note": ""}]}
    BUILT.clear()
    assert codec.get(raw).amount == 15.0
    assert codec.get({MARK: ["object", "Cup", {"how_full": 7}]}) == Cup(how_full=7)
    assert codec.get({MARK: ["object", "Receipt", {"id": 3, "total": {MARK: ["decimal", "1.5"]}}]})._seal == "wax"
    assert codec.get({MARK: ["object", "Colour", "RED"]}) is Colour.RED
    with pytest.raises(InvalidValue, match=r"Price.amount: this field is missing|\$\.amount: this field is missing"):
        codec.get({MARK: ["object", "Price", {"note": ""}]})


def test_a_class_that_was_moved_to_another_module_is_still_known() -> None:
    raw = {MARK: ["object", "elsewhere.models.Place", {"x": 1}]}
    assert EXACT.get(raw) == Place(1, 2)
    with pytest.raises(InvalidValue, match=r"a os.system is stored here, and this workflow does not know that class"):
        EXACT.get({MARK: ["object", "os.system", {"x": 1}]})


def test_a_playbook_sees_plain_data() -> None:
    shown = to_plain_data(EXACT.put({"a": price(), "b": Counter("aa"), "c": Cents(5), "d": Place(1), "e": deque([1])}))
    plain = {"a": {"amount": 15.0, "note": "", "_seen": 4}, "b": {"a": 2}, "c": 5, "d": {"x": 1, "y": 2}, "e": [1]}
    assert shown == plain


def test_the_classes_of_an_annotation_are_found_at_any_depth() -> None:
    def found(*hints: Any) -> set[type]:
        return set(classes_named(hints))

    assert found(dict[str, list[Receipt | None]], Pair[Cup], Row) == {Receipt, Pair, Cup, Place}
    assert found(Annotated[Box[int], "x"], Literal[Colour.RED], type[Any], Rows) == {Box[int], Colour, Place}
    assert found(Any, None, T, int, "unresolved") == set()


class Client:
    pass


class Named(Protocol):
    name: str


@pytest.mark.parametrize(
    "hint",
    [Client, list[Client], Client | None, SecretStr, Keeper, type[int]],
    ids=str,
)
def test_a_type_that_cannot_be_stored_is_known_before(hint: Any) -> None:
    assert why_not_stored(hint)


@pytest.mark.parametrize(
    "hint",
    [Any, object, None, T, Client | int, Receipt, list[Receipt], Rows, Row, Named, Path, dict[str, Any], Price],
    ids=str,
)
def test_a_type_that_can_be_stored_is_not_refused(hint: Any) -> None:
    assert why_not_stored(hint) == why_not_stored(hint, [Place]) == ""


charged: list[int] = []


def charge(amount: int) -> Receipt:
    charged.append(amount)
    return Receipt(len(charged), Decimal(amount))


def total(receipts: list[Receipt], where: Place) -> Decimal:
    return sum((each.total for each in receipts), Decimal(0)) + where.x


async def test_a_flow_carries_classes_that_annotations_name(tmp_path: Path) -> None:
    @flow(types=[Cup])
    async def order(ctx: Context, place: Place, price: Price, tags: set[UserId]) -> dict[str, Any]:
        made = await ctx.call(charge, 25)
        cup = await ctx.wait_for("cup")
        paid = await ctx.wait_for("paid", type=Pair[int])
        more = await ctx.map(charge, [1, 2])
        ctx.set("made", made)
        return {
            "made": ctx.get("made"),
            "sum": await ctx.call(total, more, place),
            "given": [place, price, tags, cup, paid],
        }

    async with open_engine(db=tmp_path / "refold.db", settings=SHORT) as engine:
        handle = await engine.start(order, Place(1), price(), tags={UserId("ada")})
        await handle.signal("cup", Cup(how_full=1))
        await engine.signal(handle.id, "paid", Pair(1, 2))
    charged.clear()
    async with open_engine(db=tmp_path / "refold.db", settings=SHORT) as engine:
        handle = await engine.attach(handle.id, order)
        found = await handle.result()
    assert found["given"] == [Place(1), price(), {UserId("ada")}, Cup(how_full=1), Pair(1, 2)]
    assert isinstance(found["made"], Receipt) and found["sum"] == 4


@flow
async def stamped(ctx: Context, receipt: Receipt, at: tuple[int, int] = (0, 0)) -> list[Any]:
    return [Receipt(receipt.id + 1), at, {MARK: 1}]


async def test_items_and_results_of_a_mapped_workflow_come_as_what_they_are() -> None:
    @flow
    async def maps(ctx: Context) -> list[Any]:
        return list(await ctx.map(stamped, [{"receipt": Receipt(1), "at": (1, 2)}, {"receipt": Receipt(5)}]))

    assert await result(maps) == [[Receipt(2), (1, 2), {MARK: 1}], [Receipt(6), (0, 0), {MARK: 1}]]


async def test_a_result_that_cannot_be_stored_is_not_retried_and_the_call_is_not_made_again() -> None:
    calls: list[str] = []

    def client() -> Any:
        calls.append("called")
        return Client()

    @flow(retry=Retry(attempts=3))
    async def buys(ctx: Context) -> int:
        try:
            await ctx.options(retry=Retry(attempts=3)).call(client)
        except InvalidValue as refused:
            raise ConnectionError("a reason to try again") from refused
        return 1

    bodies: list[int] = []

    @flow(retry=Retry(attempts=3))
    async def gives(ctx: Context) -> Any:
        bodies.append(1)
        return Client()

    async with open_engine(settings=SHORT) as engine:
        with pytest.raises(StepFailed, match="a reason to try again"):
            await engine.run(buys)
        assert calls == ["called"]
        with pytest.raises(StepFailed, match="a Client cannot be stored exactly"):
            await engine.run(gives)
    assert bodies == [1]


async def test_a_call_whose_annotated_result_cannot_be_stored_is_not_made() -> None:
    calls: list[str] = []

    def client(url: str) -> Client:
        calls.append(url)
        return Client()

    @flow(retry=Retry(attempts=3))
    async def connects(ctx: Context) -> None:
        await ctx.call(client, "x")

    async with open_engine(settings=SHORT) as engine:
        with pytest.raises(StepFailed, match="it is not called, because its result could not be recorded: a Client"):
            await engine.run(connects)
    assert calls == []


def test_a_flow_whose_result_or_input_cannot_be_stored_is_refused_before_anything_runs() -> None:
    @flow
    async def gives(ctx: Context) -> list[Client]: ...  # type: ignore[empty-body]

    @flow
    async def takes(ctx: Context, key: SecretStr) -> None: ...

    with pytest.raises(InvalidPlan, match="flow 'gives': its result could not be stored: a Client"):
        define(gives)
    with pytest.raises(InvalidPlan, match="flow 'takes': its input 'key' could not be stored: a SecretStr is never"):
        define(takes)


async def test_inputs_of_a_flow_are_checked_against_its_annotations() -> None:
    seen: list[Any] = []

    async def bills(ctx: Context, amount: int, at: Place | None = None, day: date | None = None) -> None:
        seen.append((amount, at, day))

    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"amount": "3"}, "input `amount`: int is declared, and this is a str"),
        ({"amount": 3, "at": [1, "x"]}, "input `at`: Place or None is declared, and this is a list"),
        ({"amount": 3, "amuont": 4}, "input `amuont`: `bills` has no such input; did you mean `amount`?"),
    ]
    untyped: Any = flow(bills)
    async with open_engine(settings=SHORT) as engine:
        for inputs, why in mistakes:
            with pytest.raises(InvalidValue) as caught:
                await engine.start(untyped, **inputs)
            assert str(caught.value) == why
        assert seen == []
        await engine.run(untyped, 3, Place(1), date(2026, 1, 2))
        await engine.run(untyped, amount=3, at=[4, 5], day="2026-01-03")  # JSON, as from the command line
    assert seen == [(3, Place(1), date(2026, 1, 2)), (3, Place(4, 5), date(2026, 1, 3))]


class Wanted(StartEvent):
    a: int
    b: int = 2


async def test_a_misspelt_input_of_a_start_event_is_refused_and_named() -> None:
    async def only(ev: Wanted) -> StopEvent:
        return StopEvent(result=ev.a + ev.b)

    assert await result(only, a=1) == 3
    assert "input `c`: `w` has no such input; known: `a`, `b`" in str(await error(only, a=1, c=3))
    assert "input `bb`: `w` has no such input; known: `a`, `b`" in str(await error(only, bb=3))
    assert "input `b`: int is declared, and this is a str" in str(await error(only, a=1, b="x"))


async def test_an_input_may_be_called_input() -> None:
    class Talk(StartEvent):
        input: str

    async def only(ev: StartEvent) -> StopEvent:
        return StopEvent(result=ev.input)

    async def typed(ev: Talk) -> StopEvent:
        return StopEvent(result=ev.input)

    @flow
    async def agent(ctx: Context, input: str) -> str:
        return input

    assert await result(only, input="Hello!") == "Hello!"
    assert await result(typed, input="Hello!") == "Hello!"
    assert await result(agent, input="Hello!") == "Hello!"


async def test_a_start_event_and_the_fault_of_a_child_can_be_stored() -> None:
    @flow
    async def breaks(ctx: Context) -> None:
        raise KeyError("gone")

    class Keeps(Workflow):
        @step
        async def begin(self, ctx: Context, ev: Wanted) -> StopEvent:
            try:
                await ctx.run_child(breaks)
            except ChildFailed as failed:
                ctx.set("fault", failed.fault)
                assert ctx.get("fault") == failed.fault
            ctx.set("event", ev)
            return StopEvent(result=[ctx.get("event"), ctx.get("fault").message])

    assert await result(Keeps, a=5) == [Wanted(a=5, b=2), "breaks: KeyError: 'gone'"]


async def test_a_workflow_names_the_class_of_its_result_in_an_annotation() -> None:
    class ByClass(Workflow[Receipt]):
        @step
        async def only(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=Receipt(1))

    class ByStep(Workflow):
        @step
        async def only(self, ev: StartEvent) -> StopEvent[Receipt]:
            return StopEvent(result=Receipt(2))

    assert [await result(ByClass), await result(ByStep)] == [Receipt(1), Receipt(2)]


async def test_a_signal_is_of_the_type_that_is_waited_for() -> None:
    @flow
    async def waits(ctx: Context) -> list[Any]:
        return [
            await ctx.wait_for("at", type=Place),
            await ctx.wait_for("price", type=Price),
            await ctx.ask("n?", type=int),
        ]

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(waits)
        await engine.signal(handle.id, "at", Place(1))
        await engine.signal(handle.id, "price", {"the-amount": 2.0})  # JSON, as from the command line
        answered = await handle.result(answer=lambda request: 7)
    assert (answered[0], answered[1].amount, answered[2]) == (Place(1), 3.0, 7)


async def test_a_signal_of_another_type_is_refused_where_it_is_waited_for() -> None:
    @flow
    async def waits(ctx: Context) -> str:
        try:
            await ctx.wait_for("at", type=Place)
        except InvalidValue as wrong:
            return str(wrong)
        return ""

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(waits)
        await handle.signal("at", "here")
        assert await handle.result() == "signal 'at': Place is declared, and this is a str"


async def test_a_value_of_the_context_is_checked_if_a_type_is_given() -> None:
    @flow
    async def counts(ctx: Context) -> int:
        ctx.set("n", "three")
        return ctx.get("m", 4, type=int) + ctx.get("n", type=int)

    async with open_engine(settings=SHORT) as engine:
        with pytest.raises(StepFailed, match=r"context\.n: int is declared, and this is a str"):
            await engine.run(counts)


async def test_the_engine_takes_the_same_signals_as_a_handle(tmp_path: Path) -> None:
    values: list[Any] = [Decimal("1.50"), (1, {2}), {MARK: ["bytes", "aGk="]}, 2**80, Place(1), None]

    @flow(types=[Place])
    async def waits(ctx: Context) -> list[Any]:
        return [await ctx.wait_for("v") for _ in range(2 * len(values))]

    async with open_engine(db=tmp_path / "refold.db", settings=SHORT) as engine:
        handle = await engine.start(waits)
    async with open_engine(db=tmp_path / "refold.db", settings=SHORT) as engine:
        for value in values:
            await engine.signal(handle.id, "v", value)  # without the code of the workflow
        handle = await engine.attach(handle.id, waits)
        for value in values:
            await handle.signal("v", value)
        assert await handle.result() == [*values, *values]


def later(at: "Nowhere", other: "Place") -> "list[Receipt]": ...  # type: ignore[empty-body, name-defined]  # noqa: F821


def test_an_annotation_that_names_nothing_does_not_hide_the_others() -> None:
    assert hints_of(later) == {"other": Place, "return": list[Receipt]}


def test_values_are_part_of_the_public_interface() -> None:
    assert refold.errors.Unstorable.retryable is False


@dataclass
class Cached:
    n: int
    held: Any = field(default=None, metadata={"transient": True})


def test_a_transient_field_has_its_default_again() -> None:
    codec = EXACT.with_classes([Cached])
    assert codec.get(codec.put(Cached(1, Client()))) == Cached(1)
