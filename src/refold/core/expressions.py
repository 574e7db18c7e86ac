"""What the core asks of an expression language: the Protocol `Evaluate`, given from outside."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from refold.core.codec import check_made
from refold.core.faults import text_of
from refold.core.pipeline import Template
from refold.errors import InvalidPlan, InvalidValue

Path = tuple[str, ...]


class Missing(Exception):
    """A value is not in memory: load these and decide again."""

    def __init__(self, facts: Iterable[int] = (), blobs: Iterable[str] = ()) -> None:
        self.facts, self.blobs = frozenset(facts), frozenset(blobs)
        super().__init__(f"facts {sorted(self.facts)}, blobs {sorted(self.blobs)}")


class CannotEvaluate(Exception):
    """An expression that has no value here; the visit it belongs to fails with this message."""


def no_value(error: BaseException) -> CannotEvaluate:
    """What an expression language did not foresee, as an error of the expression that it was given."""
    said = text_of(error)
    return CannotEvaluate(f"{type(error).__name__}: {said}" if said else type(error).__name__)


class TemplateScope(Protocol):
    """The names an expression may read, looked up one by one and only when named."""

    def __getitem__(self, name: str) -> Any: ...


class Aliased(Struct, frozen=True):
    """A value with further names to read it by; to all but those who read a name it is `data`, and so it is stored."""

    data: Any
    aliases: Mapping[str, Any]


_NAMED = (dict, Mapping)
_PLACED = (dict, list, tuple, str, Mapping)


def step_into(value: Any, key: Any) -> Any:
    """What a value has under a key, its own before its aliases; raises LookupError or TypeError."""
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
        """The view as this language names what is in it."""

    def value(self, template: Template, view: TemplateScope) -> Any:
        """The template with every expression in it replaced; raises CannotEvaluate or Missing."""

    def truth(self, template: Template, view: TemplateScope) -> bool: ...

    def paths(self, template: Template) -> Sequence[Path]:
        """Every path the template names, so that a fan-out can capture them once."""


Languages = Callable[[str], Evaluate]
"""A language by the name that plans give it; raises InvalidPlan."""


def unknown(language: str) -> Evaluate:
    raise InvalidPlan([f"expressions in {language!r} are not known here; a newer Refold may know them"])


_FORESEEN = (CannotEvaluate, Missing, KeyboardInterrupt)  # the last one is Ctrl-C, and nobody else's


class Contained:
    """A language that raises CannotEvaluate and Missing and nothing else, and whose values can be stored.

    Expressions are the user's, and they are evaluated when a body has ended. Whatever goes wrong in one of them is an
    error of the step that has it, and never a reason not to record what the body came to.
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
    """The language without expressions: every template is the value it stands for."""

    def names(self, view: TemplateScope) -> TemplateScope:
        return view

    def value(self, template: Template, view: TemplateScope) -> Any:
        return template

    def truth(self, template: Template, view: TemplateScope) -> bool:
        return bool(template)

    def paths(self, template: Template) -> Sequence[Path]:
        return ()
