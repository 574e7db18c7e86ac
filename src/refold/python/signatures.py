"""Reads from annotations which events a step takes and sends; a missing annotation is an error, never a guess."""

import inspect
import types
from collections.abc import Callable, Iterator
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

from refold.errors import InvalidPlan
from refold.python.events import Event
from refold.python.values import is_data

_UNIONS = (Union, types.UnionType)


class Signature(Struct, frozen=True):
    """What a body takes and returns."""

    takes: tuple[type, ...]
    sends: tuple[type, ...] | None  # None: it does not say
    as_list: bool
    wants_context: bool
    is_async: bool


def read_signature(name: str, body: Callable[..., Any]) -> Signature:
    """Return the signature of a function or a bound method. Raises InvalidPlan."""
    parameters = _parameters(name, body)
    hints = _hints(name, body)
    event = parameters[-1]
    if event.name not in hints:
        raise InvalidPlan([f"step {name!r}: no annotation of {event.name!r} says which events it takes"])
    hint = _bare(hints[event.name])
    as_list = get_origin(hint) is list
    takes = tuple(_classes(name, f"the annotation of {event.name!r}", get_args(hint)[0] if as_list else hint))
    if not takes:
        raise InvalidPlan([f"step {name!r}: the annotation of {event.name!r} names no event"])
    if isinstance(body, (staticmethod, classmethod)):
        raise InvalidPlan([f"step {name!r} must be a plain method or function"])
    sends = _sends(name, hints["return"]) if "return" in hints else None
    return Signature(takes, sends, as_list, len(parameters) == 2, inspect.iscoroutinefunction(body))


def _parameters(name: str, body: Callable[..., Any]) -> list[inspect.Parameter]:
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        raise InvalidPlan([f"step {name!r} is a generator; return a list of events instead"])
    found = list(inspect.signature(body).parameters.values())
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if len(found) not in (1, 2) or any(each.kind not in plain for each in found):
        raise InvalidPlan([f"step {name!r} takes {_said(found)}; it must take `ev`, or `ctx` and `ev`"])
    return found


def _said(parameters: list[inspect.Parameter]) -> str:
    return ", ".join(f"`{each}`" for each in parameters) or "nothing"


def _hints(name: str, body: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(body, include_extras=True)
    except NameError as error:
        why = f"step {name!r}: {error}; a class that an annotation names as text must stand at the top of its module"
        raise InvalidPlan([why]) from None


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _members(hint: Any) -> Iterator[Any]:
    hint = _bare(hint)
    if get_origin(hint) in _UNIONS:
        for each in get_args(hint):
            yield from _members(each)
    else:
        yield hint


def _classes(name: str, where: str, hint: Any) -> Iterator[type]:
    for each in _members(hint):
        if not is_event(each):
            told = getattr(each, "__name__", None) or repr(each)
            raise InvalidPlan([f"step {name!r}: {where} says {told}, which is no class of events"])
        yield each


def _sends(name: str, hint: Any) -> tuple[type, ...] | None:
    found: list[type] = []
    for each in _members(hint):
        if each is type(None):
            continue
        if each is Any:
            return None
        inner = get_args(each)[0] if get_origin(each) is list and get_args(each) else each
        found += _classes(name, "the return annotation", inner)
    return tuple(dict.fromkeys(found))


def is_event(cls: Any) -> bool:
    """Whether it is an event class: a subclass of Event, a dataclass, a msgspec struct or a pydantic model."""
    return isinstance(cls, type) and (issubclass(cls, Event) or is_data(cls))


def data_classes(cls: type) -> Iterator[type]:
    """Yield the data classes that the fields of a class name, at any depth."""
    seen: set[type] = set()
    todo: list[Any] = [cls]
    while todo:
        hint = todo.pop()
        if isinstance(hint, type) and (hint is cls or is_data(hint)) and hint not in seen:
            seen.add(hint)
            if hint is not cls:
                yield hint
            todo += _field_hints(hint).values()
        todo += get_args(hint)


def _field_hints(cls: type) -> dict[str, Any]:
    try:
        return get_type_hints(cls)
    except Exception:
        return {}  # what its fields are is found out when one is stored


def field_hints(cls: type) -> dict[str, Any]:
    """Return the annotations of the public fields of a class."""
    hints = _field_hints(cls).items()
    return {
        name: hint
        for name, hint in hints
        if not name.startswith("_") and hint is not ClassVar and get_origin(hint) is not ClassVar
    }
