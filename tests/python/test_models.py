"""Events that are models of pydantic, structs of msgspec or plain dataclasses: as they are used everywhere else."""

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from refold import Context, StartEvent, StopEvent, Workflow, step
from refold.errors import InvalidValue
from refold.python.definition import define
from tests.python.house import error, result


class Address(BaseModel):
    street: str
    number: int = 1


class Order(BaseModel):
    price: Decimal
    to: Address
    tags: set[str] = set()


class Small(msgspec.Struct, frozen=True):
    n: int
    more: list[int] = []


@dataclass(slots=True)
class Slotted:
    n: int
    names: tuple[str, ...] = ()


@dataclass
class Made:
    n: int
    double: int = field(init=False)

    def __post_init__(self) -> None:
        self.double = 2 * self.n


ORDER = Order(price=Decimal("1.50"), to=Address(street="x"), tags={"a"})


@pytest.mark.parametrize(
    "event", [ORDER, Small(1, [2]), Slotted(1, ("a",)), Made(4)], ids=lambda each: type(each).__name__
)
async def test_an_event_of_any_such_class_comes_as_what_it_was(event: Any) -> None:
    kind = type(event)
    seen: list[Any] = []

    async def begin(ev: StartEvent) -> kind:  # type: ignore[valid-type]
        return event  # type: ignore[no-any-return]

    async def last(ev: kind) -> StopEvent:  # type: ignore[valid-type]
        seen.append(ev)
        return StopEvent(result=True)

    assert await result(begin, last)
    assert (seen[0], type(seen[0])) == (event, kind)
    assert seen[0] is not event


async def test_a_model_is_kept_in_the_context_and_is_a_result() -> None:
    class Keeps(Workflow):
        types = (Order, Address)

        @step
        async def only(self, ctx: Context, ev: StartEvent) -> StopEvent:
            ctx.set("order", ORDER)
            return StopEvent(result=[ctx.get("order"), ev.order])

    assert await result(Keeps, order=ORDER) == [ORDER, ORDER]


async def test_a_model_that_was_made_wrong_is_refused_when_it_is_sent() -> None:
    async def begin(ev: StartEvent) -> Address:
        address = Address(street="x")
        address.number = "one"  # type: ignore[assignment]
        return address

    async def last(ev: Address) -> StopEvent:
        return StopEvent()

    assert "Address.number: int is declared, and this is a str" in str(await error(begin, last))


def test_a_model_is_validated_when_it_is_read() -> None:
    async def begin(ev: StartEvent) -> Address: ...  # type: ignore[empty-body]

    async def last(ev: Address) -> StopEvent: ...  # type: ignore[empty-body]

    definition = define(Workflow("w", [begin, last]))
    assert definition.received("Address", {"street": "x"}) == Address(street="x")
    with pytest.raises(InvalidValue, match=r"Address\.number"):
        definition.received("Address", {"street": "x", "number": "one"})
