"""Reads from annotations which events a step takes and sends; a missing annotation is an error, never a guess."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, get_args, get_origin, get_type_hints

from msgspec import Struct

from refold.errors import InvalidPlan
from refold.python.annotations import UNIONS, bare_hint
from refold.python.data_classes import is_data
from refold.python.events import Event


class Signature(Struct, frozen=True):
    """What a body takes and returns."""

    takes: tuple[type, ...]
    sends: tuple[type, ...] | None  # None: it does not say
    as_list: bool
    wants_context: bool
    is_async: bool
    event_first: bool = False  # whether the context comes after the event
    hints: tuple[Any, ...] = ()  # the annotations of the event and of what is returned

    def arguments(self, context: Any, event: Any) -> tuple[Any, ...]:
        """Return the arguments of a body in its own order."""
        if not self.wants_context:
            return (event,)
        return (event, context) if self.event_first else (context, event)


def read_signature(name: str, body: Callable[..., Any]) -> Signature:
    """Return the signature of a function or a bound method. Raises InvalidPlan."""
    hints = _hints(name, body)
    event, context_at = _parameters(name, body, hints)
    if event.name not in hints:
        raise InvalidPlan([f"step {name!r}: no annotation of {event.name!r} says which events it takes"])
    hint = bare_hint(hints[event.name])
    as_list = get_origin(hint) is list
    takes = tuple(_classes(name, f"the annotation of {event.name!r}", get_args(hint)[0] if as_list else hint))
    if not takes:
        raise InvalidPlan([f"step {name!r}: the annotation of {event.name!r} names no event"])
    sends = _sends(name, hints["return"]) if "return" in hints else None
    return Signature(
        takes,
        sends,
        as_list,
        context_at is not None,
        inspect.iscoroutinefunction(body),
        context_at == 1,
        (hint, hints.get("return")),
    )


def _parameters(name: str, body: Callable[..., Any], hints: dict[str, Any]) -> tuple[inspect.Parameter, int | None]:
    """Return the parameter of the event, and the place of the context if there is one."""
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        raise InvalidPlan([f"step {name!r} is a generator; return a list of events instead"])
    found = list(inspect.signature(body).parameters.values())
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    placed = [each for each in found if each.kind in plain]
    first, second = (*placed, None, None)[:2]
    event: inspect.Parameter | None = first
    context_at: int | None = None
    if second is not None and _is_context(second, hints) and not _is_context(first, hints):
        context_at = 1
    elif second is not None and (_is_context(first, hints) or second.default is inspect.Parameter.empty):
        event, context_at = second, 0
    rest = [each for each in found if each not in placed[: 1 if context_at is None else 2]]
    if event is None or _is_context(event, hints) or any(each.default is inspect.Parameter.empty for each in rest):
        must = "it must take `ev`, or `ctx` and `ev`, and anything else needs a default"
        raise InvalidPlan([f"step {name!r} takes {_said(found)}; {must}"])
    return event, context_at


def _is_context(parameter: inspect.Parameter | None, hints: dict[str, Any]) -> bool:
    if parameter is None:
        return False
    hint = bare_hint(hints.get(parameter.name))
    if hint is None or hint is Any:
        return parameter.name in ("ctx", "context")
    return any(
        getattr(each, "__module__", "").startswith("refold.") and each.__name__ in ("Context", "SyncContext")
        for each in _members(hint)
        if isinstance(each, type)
    )


def _said(parameters: list[inspect.Parameter]) -> str:
    return ", ".join(f"`{each}`" for each in parameters) or "nothing"


def _hints(name: str, body: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(body, include_extras=True)
    except NameError as error:
        why = f"step {name!r}: {error}; a class that an annotation names as text must stand at the top of its module"
        raise InvalidPlan([why]) from None


def _members(hint: Any) -> Iterator[Any]:
    hint = bare_hint(hint)
    if get_origin(hint) in UNIONS:
        for each in get_args(hint):
            yield from _members(each)
    else:
        yield hint


def _classes(name: str, where: str, hint: Any) -> Iterator[type]:
    for each in _members(hint):
        cls = get_origin(each) or each  # a generic event is its class, whatever its parameters are
        if not is_event(cls):
            shown = getattr(each, "__name__", None) or repr(each)
            raise InvalidPlan([f"step {name!r}: {where} says {shown}, which is not a class of events"])
        yield cls


def _sends(name: str, hint: Any) -> tuple[type, ...] | None:
    found: list[type] = []
    for each in _members(hint):
        if each is type(None):
            continue
        if each is Any:
            return None
        inner = [each]
        if get_origin(each) in (list, tuple):
            inner = [arg for arg in get_args(each) if arg is not ...] or inner
        for one in inner:
            found += _classes(name, "the return annotation", one)
    return tuple(dict.fromkeys(found))


def generic_conflicts(signatures: Iterable[tuple[str, Signature]]) -> Iterator[str]:
    """Yield a problem for each generic event that steps take with different parameters: they are one class."""
    taken: dict[Any, tuple[str, Any]] = {}
    for name, signature in signatures:
        hint = signature.hints[0] if signature.hints else None
        for each in _members(get_args(hint)[0] if signature.as_list else hint):
            origin = get_origin(each)
            if origin is None:
                continue
            other, first = taken.setdefault(origin, (name, each))
            if first != each:
                both = f"step {other!r} takes {_spelt(first)} and step {name!r} takes {_spelt(each)}"
                yield f"{both}, but events do not know their parameters; give each a subclass of {origin.__name__}"


def _spelt(alias: Any) -> str:
    return f"{get_origin(alias).__name__}[{', '.join(getattr(arg, '__name__', str(arg)) for arg in get_args(alias))}]"


def is_event(cls: Any) -> bool:
    """Whether it is an event class: a subclass of Event, a dataclass, a msgspec struct or a pydantic model."""
    return isinstance(cls, type) and (issubclass(cls, Event) or is_data(cls))


def field_classes(cls: type) -> Iterator[type]:
    """Yield the data classes that the fields of an event name, at any depth. They are stored by their short names."""
    seen: set[type] = set()
    todo: list[Any] = [cls]
    while todo:
        hint = todo.pop()
        if isinstance(hint, type) and (hint is cls or is_data(hint)) and hint not in seen:
            seen.add(hint)
            if hint is not cls:
                yield hint
            todo += _plain_hints(hint).values()
        todo += get_args(hint)


def _plain_hints(cls: type) -> dict[str, Any]:
    try:
        return get_type_hints(cls)
    except Exception:
        return {}  # what its fields are is found out when one is stored
