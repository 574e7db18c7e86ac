"""The Protocol `Evaluate`, by which the core uses an expression language. The language itself is an argument."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from refold.core.codec import check_made
from refold.core.faults import text_of
from refold.core.pipeline import Template
from refold.errors import InvalidPlan, InvalidValue

Path = tuple[str, ...]


class Missing(Exception):
    """A value is not loaded: load these facts and blobs, and decide again."""

    def __init__(self, facts: Iterable[int] = (), blobs: Iterable[str] = ()) -> None:
        self.facts, self.blobs = frozenset(facts), frozenset(blobs)
        super().__init__(f"facts {sorted(self.facts)}, blobs {sorted(self.blobs)}")


class CannotEvaluate(Exception):
    """An expression has no value; the visit that it belongs to fails with this message, and a fault of this kind."""

    def __init__(self, message: str = "", kind: str = "expression") -> None:
        self.kind = kind
        super().__init__(message)


def no_value(error: BaseException) -> CannotEvaluate:
    """Return an unexpected error of an expression language as an error of the expression."""
    message = text_of(error)
    return CannotEvaluate(f"{type(error).__name__}: {message}" if message else type(error).__name__)


class TemplateScope(Protocol):
    """The names that an expression may read; each is looked up only when it is read."""

    def __getitem__(self, name: str) -> Any: ...


class Aliased(Struct, frozen=True):
    """A value with further names to read parts of it by. Only `data` is shown and stored."""

    data: Any
    aliases: Mapping[str, Any]


_NAMED = (dict, Mapping)
_PLACED = (dict, list, tuple, str, Mapping)


def step_into(value: Any, key: Any) -> Any:
    """Return the value under a key, its own keys before its aliases; raises LookupError or TypeError."""
    if isinstance(value, _NAMED if isinstance(key, str) else _PLACED):
        return value[key]
    if not isinstance(value, Aliased):
        raise KeyError(key)
    try:
        return step_into(value.data, key)
    except (LookupError, TypeError):
        return value.aliases[key]


def unaliased(value: Any) -> Any:
    while isinstance(value, Aliased):
        value = value.data
    return value


class Evaluate(Protocol):
    def names(self, view: TemplateScope) -> TemplateScope:
        """Return the scope with the names that this language uses."""

    def value(self, template: Template, view: TemplateScope) -> Any:
        """Return the template with every expression replaced by its value; raises CannotEvaluate or Missing."""

    def truth(self, template: Template, view: TemplateScope) -> bool: ...

    def paths(self, template: Template) -> Sequence[Path]:
        """Return every path that the template reads, so that a fan-out can capture their values once."""


Languages = Callable[[str], Evaluate]
"""Returns a language by the name that plans give it; raises InvalidPlan."""


def unknown(language: str) -> Evaluate:
    raise InvalidPlan([f"expressions in {language!r} are not known here; a newer Refold may know them"])


_FORESEEN = (
    CannotEvaluate,
    Missing,
    KeyboardInterrupt,
)  # KeyboardInterrupt is Ctrl-C


class Contained:
    """A language that raises CannotEvaluate and Missing and nothing else, and whose values can be stored.

    Expressions belong to the user, and they are evaluated after a body has ended. Any error in one of them is an error
    of its step, and must never prevent that the outcome of the body is recorded.
    """

    def __init__(self, evaluate: Evaluate) -> None:
        self.evaluate = evaluate

    def names(self, view: TemplateScope) -> TemplateScope:
        try:
            return self.evaluate.names(view)
        except _FORESEEN:
            raise
        except BaseException as error:
            raise no_value(error) from error

    def value(self, template: Template, view: TemplateScope) -> Any:
        try:
            value = self.evaluate.value(template, view)
            if value is not template:  # which is stored already
                check_made(value)
        except _FORESEEN:
            raise
        except InvalidValue as error:
            raise CannotEvaluate(str(error)) from None
        except BaseException as error:
            raise no_value(error) from error
        return value

    def truth(self, template: Template, view: TemplateScope) -> bool:
        try:
            return bool(self.evaluate.truth(template, view))
        except _FORESEEN:
            raise
        except BaseException as error:
            raise no_value(error) from error

    def paths(self, template: Template) -> Sequence[Path]:
        try:
            return self.evaluate.paths(template)
        except _FORESEEN:
            raise
        except BaseException as error:
            raise no_value(error) from error


class Values:
    """The language without expressions: every template is its own value."""

    def names(self, view: TemplateScope) -> TemplateScope:
        return view

    def value(self, template: Template, view: TemplateScope) -> Any:
        return template

    def truth(self, template: Template, view: TemplateScope) -> bool:
        return bool(template)

    def paths(self, template: Template) -> Sequence[Path]:
        return ()
