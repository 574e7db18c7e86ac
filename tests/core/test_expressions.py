"""What the core expects of any expression language: whatever goes wrong in one is an error of the expression."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from refold.core.expressions import CannotEvaluate, Contained, Missing, Path, TemplateScope


class Raising:
    """A language of which every call does the same."""

    def __init__(self, do: Callable[[], Any]) -> None:
        self.do = do

    def names(self, view: TemplateScope) -> TemplateScope:
        found: TemplateScope = self.do()
        return found

    def value(self, template: Any, view: TemplateScope) -> Any:
        return self.do()

    def truth(self, template: Any, view: TemplateScope) -> bool:
        found: bool = self.do()
        return found

    def paths(self, template: Any) -> Sequence[Path]:
        found: Sequence[Path] = self.do()
        return found


def raising(error: BaseException) -> Contained:
    def do() -> Any:
        raise error

    return Contained(Raising(do))


CALLS: dict[str, Callable[[Contained], Any]] = {
    "names": lambda language: language.names({}),
    "value": lambda language: language.value("x", {}),
    "truth": lambda language: language.truth("x", {}),
    "paths": lambda language: language.paths("x"),
}


class Panic(BaseException):
    """As Rust raises it."""


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


ERRORS = [TypeError("odd"), StopIteration(), RecursionError("deep"), MemoryError(), SystemExit(3), Panic("odd")]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("error", [*ERRORS, GeneratorExit(), Speechless()], ids=lambda each: type(each).__name__)
def test_an_error_of_any_class_is_an_error_of_the_expression(call: str, error: BaseException) -> None:
    with pytest.raises(CannotEvaluate, match=type(error).__name__):
        CALLS[call](raising(error))


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("error", [CannotEvaluate("no"), Missing([1]), KeyboardInterrupt()], ids=repr)
def test_what_the_core_waits_for_and_ctrl_c_are_passed_on(call: str, error: BaseException) -> None:
    with pytest.raises(type(error)) as raised:
        CALLS[call](raising(error))
    assert raised.value is error


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"a": object()}, "the value.a: a object is not a JSON value"),
        (["\ud800"], "a lone surrogate is not text"),
        ([10**5000], "more than 4,300 digits"),
        (nested(201), "nested deeper than 200"),
        (nested(5000), "nested deeper than 200"),
    ],
    ids=["an object", "a surrogate", "digits", "nested", "nested for ever"],
)
def test_a_value_that_cannot_be_stored_is_an_error_of_the_expression(value: Any, why: str) -> None:
    with pytest.raises(CannotEvaluate, match=why):
        Contained(Raising(lambda: value)).value("x", {})


def test_a_value_that_can_be_stored_is_handed_on_as_it_is() -> None:
    value = {"a": [nested(198), *range(500), [{} for _ in range(300)]], "b": None, "c": "ä"}
    assert Contained(Raising(lambda: value)).value("x", {}) is value
