"""Events of Python workflows: plain classes whose annotated fields are what is sent."""

import dataclasses
from collections.abc import Iterator
from copy import copy
from functools import partial
from inspect import get_annotations
from typing import Any, ClassVar, dataclass_transform

from refold.errors import InvalidPlan


@dataclass_transform(kw_only_default=True)
class Event:
    """Its subclasses are dataclasses with keyword fields; one with an `__init__` of its own keeps it.

    An attribute that is set later is sent too, whether it is declared or not; names that begin with an underscore are
    the event's own business. Two events are equal if they are of the same class and hold the same.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = "__init__" in cls.__dict__
        for name in get_annotations(cls):
            default = cls.__dict__.get(name)
            if isinstance(default, list | dict | set):  # every event gets one of its own
                setattr(cls, name, dataclasses.field(default_factory=partial(copy, default)))
        dataclasses.dataclass(kw_only=True, eq=False, repr=False, init=not own)(cls)

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


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


class StopEvent(Event):
    """Ends the run with a result: `StopEvent(result=3)`, or all of its keywords as a map, or a subclass as it is."""

    result: Any = None

    def __init__(self, **fields: Any) -> None:
        self.result = fields.get("result", fields or None)


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
                raise InvalidPlan([f"{cls.__name__}: answer is {answer!r}, which is no subclass of InputResponseEvent"])
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
