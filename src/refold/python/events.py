"""Events of Python workflows: plain classes whose annotated fields are what is sent."""

import dataclasses
import typing
from collections.abc import Iterator
from copy import copy
from functools import partial
from inspect import get_annotations
from typing import TYPE_CHECKING, Any, ClassVar, Generic, dataclass_transform, overload
from weakref import WeakValueDictionary

import msgspec

from refold.errors import InvalidPlan
from refold.python.field_types import LIMITS, unapplied
from refold.python.values import full_name

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    R = TypeVar("R", default=Any)
else:
    R = typing.TypeVar("R")


@dataclass_transform(kw_only_default=True)
class Event:
    """Its subclasses are dataclasses with keyword fields; one with an `__init__` of its own keeps it.

    An attribute that is set later is sent too, whether it is declared or not; names that begin with an underscore are
    the event's own business. Two events are equal if they are of the same class and hold the same.
    """

    __refold_event__ = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = "__init__" in cls.__dict__
        limits: dict[str, tuple[Any, ...]] = dict(getattr(cls, LIMITS, {}))
        for name, hint in _annotations(cls).items():
            default = cls.__dict__.get(name)
            if isinstance(default, list | dict | set):  # every event gets one of its own
                setattr(cls, name, dataclasses.field(default_factory=partial(copy, default)))
            elif _is_field(default):
                limits[name] = tuple(getattr(default, "metadata", ()))
                _use_field(cls, name, default)
            wanted = unapplied(hint) or unapplied(typing.Annotated[Any, None, *limits.get(name, ())])
            if wanted:
                raise InvalidPlan([f"event {cls.__name__}: {wanted} of {name!r} {_USE_A_MODEL}"])
        setattr(cls, LIMITS, limits)
        _DEFINED[full_name(cls)] = cls
        dataclasses.dataclass(kw_only=True, eq=False, repr=False, init=not own)(cls)

    def __eq__(self, other: object) -> bool:
        return _content(self) == _content(other) if type(other) is type(self) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in _content(self).items())})"


_DEFINED: WeakValueDictionary[str, type[Event]] = WeakValueDictionary()


def defined_event(name: str) -> type[Event] | None:
    """Return the event class of this full name if this process has defined one; nothing is imported."""
    return _DEFINED.get(name)


_USE_A_MODEL = "would not be applied; use a pydantic model as the event, which applies it when it is made"
_MEANINGLESS = ("alias", "validation_alias", "serialization_alias", "exclude", "discriminator")


def _annotations(cls: type) -> dict[str, Any]:
    try:
        return get_annotations(cls, eval_str=True)
    except Exception:
        return get_annotations(cls)  # a text may name what is defined later


def _is_field(default: Any) -> bool:
    """Whether it is `Field(...)` of pydantic or `field(...)` of msgspec."""
    is_of_pydantic = type(default).__module__ == "pydantic.fields" and type(default).__name__ == "FieldInfo"
    return is_of_pydantic or isinstance(default, type(msgspec.field()))


def _use_field(cls: type, name: str, field: Any) -> None:
    wanted = next((each for each in _MEANINGLESS if getattr(field, each, None) is not None), None)
    if wanted is not None or getattr(field, "name", None) is not None:
        raise InvalidPlan([f"event {cls.__name__}: {wanted or 'name'} of {name!r} {_USE_A_MODEL}"])
    missing = getattr(field, "default", None)
    if callable(getattr(field, "default_factory", None)):
        setattr(cls, name, dataclasses.field(default_factory=field.default_factory))
    elif missing is ... or missing is msgspec.NODEFAULT or type(missing).__name__ == "PydanticUndefinedType":
        delattr(cls, name)
    elif isinstance(missing, list | dict | set):
        setattr(cls, name, dataclasses.field(default_factory=partial(copy, missing)))
    else:
        setattr(cls, name, missing)


def _content(event: Any) -> dict[str, Any]:
    """Return the attributes of an event, without the parameters of a generic one."""
    return {name: value for name, value in vars(event).items() if not name.startswith("__")}


class StartEvent(Event):
    """What a run begins with: its inputs, as attributes. A subclass may declare them."""

    def __init__(self, **inputs: Any) -> None:
        vars(self).update(inputs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        has = ", ".join(vars(self)) or "no input at all"
        raise AttributeError(f"the run was started without {name!r}; it has {has}")

    def __iter__(self) -> Iterator[str]:
        return iter(vars(self))

    def __getitem__(self, name: str) -> Any:
        return vars(self)[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return an input, or the default if the run was started without it."""
        return vars(self).get(name, default)


class StopEvent(Event, Generic[R]):
    """Ends the run with a result: `StopEvent(result=3)`, or all of its keywords as a map, or a subclass as it is.

    A step that returns `StopEvent[Receipt]` says which class its result has, so that it can be stored.
    """

    result: R = None  # type: ignore[assignment]

    @overload
    def __init__(self, *, result: R) -> None: ...

    @overload
    def __init__(self: "StopEvent[None]") -> None: ...

    @overload
    def __init__(self, **fields: Any) -> None: ...

    def __init__(self, **fields: Any) -> None:
        result: Any = fields.get("result", fields or None)
        self.result = result


class InputResponseEvent(Event):
    """The answer to an InputRequestEvent, with the same id. A subclass may declare further fields."""

    request_id: str = ""
    response: Any = None


class InputRequestEvent(Event):
    """Asks a person; the answer comes as an InputResponseEvent with the same id.

    A subclass may have fields of its own, and names the class of its answer:
    `class Approve(InputRequestEvent, answer=Approved)`.
    """

    answered_by: ClassVar[type[InputResponseEvent]] = InputResponseEvent

    prompt: str = ""
    request_id: str = ""  # empty: one is made
    metadata: Any = None

    def __init_subclass__(cls, *, answer: type[InputResponseEvent] | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if answer is not None:
            if not (isinstance(answer, type) and issubclass(answer, InputResponseEvent)):
                raise InvalidPlan(
                    [f"{cls.__name__}: answer is {answer!r}, which is not a subclass of InputResponseEvent"]
                )
            cls.answered_by = answer


class ErrorEvent(Event):
    """What the failure of a step becomes, if the step says so with `on_error`."""

    step: str
    visit: int
    error: dict[str, Any]
    events: list[Any] = dataclasses.field(default_factory=list)  # for which it was run


def received_as(sent: type) -> type:
    """Return the class of event that steps receive when this one is sent: of a request, its answer."""
    return sent.answered_by if issubclass(sent, InputRequestEvent) else sent
