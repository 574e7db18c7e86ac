"""Reads annotations: which classes they name, and whether a value of a type could be stored."""

import collections.abc
import inspect
import types
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from refold.errors import Unstorable
from refold.names import a
from refold.python.data_classes import defaults_of, is_data, is_model, is_named_tuple, is_storable
from refold.python.values import PLAIN_CLASSES, ValueCodec, why_unstorable

UNIONS = (Union, types.UnionType)


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a function. One that names something unknown here is left out."""
    bare = inspect.unwrap(function.func if isinstance(function, partial) else function)
    if isinstance(bare, type):
        return {"return": bare}
    if not hasattr(bare, "__annotations__"):
        bare = type(bare).__call__  # an object that can be called
    try:
        return get_type_hints(bare, include_extras=True)
    except Exception:
        return dict(_hints_one_by_one(bare))


def _hints_one_by_one(function: Any) -> Iterator[tuple[str, Any]]:
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None) or ()
    around = {name: cell.cell_contents for name, cell in zip(code.co_freevars, cells, strict=False)} if code else {}
    for name, hint in getattr(function, "__annotations__", {}).items():
        try:
            alone = types.SimpleNamespace(__annotations__={name: hint})
            yield from get_type_hints(alone, getattr(function, "__globals__", {}), around, include_extras=True).items()
        except Exception:
            continue


def field_hints(cls: type) -> dict[str, Any]:
    """Return the annotations of the public fields of a class."""
    hints = _all_hints(cls).items()
    return {
        name: hint
        for name, hint in hints
        if not name.startswith("_") and hint is not ClassVar and get_origin(hint) is not ClassVar
    }


def _all_hints(cls: type) -> dict[str, Any]:
    if is_model(cls):
        return {name: each.annotation for name, each in cls.model_fields.items()}  # type: ignore[attr-defined]
    try:
        return get_type_hints(cls, include_extras=True)
    except Exception:
        return {}  # what its fields are is found out when one is stored


def bare_hint(hint: Any) -> Any:
    """Return an annotation without what `Annotated` adds to it."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def hints_in_body(function: Callable[..., Any]) -> Iterator[Any]:
    """Yield the data classes that the code of a body names, and the annotations of the functions that it names."""
    bare = inspect.unwrap(getattr(function, "__func__", function))
    code = getattr(bare, "__code__", None)
    if code is None:
        return
    cells = dict(zip(code.co_freevars, getattr(bare, "__closure__", None) or (), strict=False))
    names = dict.fromkeys(_names_in(code))
    for name in names:
        value = getattr(bare, "__globals__", {}).get(name)
        if name in cells:
            with suppress(ValueError):  # it is defined later
                value = cells[name].cell_contents
        found = [value]
        if inspect.ismodule(value):
            found = [vars(value).get(each) for each in names]
        for each in found:
            if inspect.isfunction(each):
                yield from hints_of(each).values()
            elif is_storable(each):
                yield each


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from (*code.co_names, *code.co_freevars)
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _names_in(each)


def classes_named(hints: Iterable[Any]) -> Iterator[type]:
    """Yield the classes that annotations name and whose objects can be stored, at any depth."""
    seen: set[Any] = set()
    todo = list(hints)
    while todo:
        hint = todo.pop()
        if isinstance(hint, type):
            if hint in seen:
                continue
            seen.add(hint)
            if is_storable(hint):
                yield hint
            if is_data(hint) or is_named_tuple(hint) or is_typeddict(hint):
                todo += _all_hints(hint).values()
        todo += _parts_of(hint)


def _parts_of(hint: Any) -> list[Any]:
    origin = get_origin(hint)
    if origin is Annotated:
        return [get_args(hint)[0]]
    if origin is Literal:
        return [type(each) for each in get_args(hint) if isinstance(each, Enum)]
    if isinstance(hint, TypeVar):
        return [*hint.__constraints__, *([hint.__bound__] if hint.__bound__ is not None else [])]
    supertype = getattr(hint, "__supertype__", None) or getattr(hint, "__value__", None)  # NewType, `type X = ...`
    if supertype is not None and not isinstance(hint, type):
        return [supertype]
    return [*get_args(hint), *([origin] if isinstance(origin, type) else [])]


def why_not_stored(hint: Any, known: Collection[type] = ()) -> str:
    """Say why no value of an annotated type could be stored; empty if one could be, or if nobody can know."""
    return _why_not_stored(hint, known, frozenset())


def _why_not_stored(hint: Any, known: Collection[type], above: frozenset[Any]) -> str:
    origin = get_origin(hint)
    if origin is Annotated:
        return _why_not_stored(get_args(hint)[0], known, above)
    if origin in UNIONS:
        reasons = [_why_not_stored(each, known, above) for each in get_args(hint) if each is not type(None)]
        return reasons[0] if reasons and all(reasons) else ""
    if hasattr(hint, "__supertype__"):
        return _why_not_stored(hint.__supertype__, known, above)
    if origin in _AWAITED:
        return _why_not_stored(get_args(hint)[-1], known, above)
    cls = origin if isinstance(origin, type) else hint
    if not isinstance(cls, type) or cls in above:
        return ""
    why = _why_no_object(cls, known) or ""
    if not why and origin in _CONTAINERS:
        why = next(filter(None, (_why_not_stored(each, known, above) for each in get_args(hint))), "")
    if not why and is_storable(cls):
        required = (each for name, each in field_hints(cls).items() if name not in defaults_of(cls))
        why = next(filter(None, (_why_not_stored(each, known, above | {cls}) for each in required)), "")
    return why


_AWAITED = (collections.abc.Awaitable, collections.abc.Coroutine)
_CONTAINERS = (list, tuple, set, frozenset, dict, collections.abc.Sequence, collections.abc.Mapping)
_NEVER = (collections.abc.Iterator, collections.abc.AsyncIterator, collections.abc.Callable, type)


def _why_no_object(cls: type, known: Collection[type]) -> str:
    if is_typeddict(cls) or getattr(cls, "_is_protocol", False):
        return ""  # `issubclass` refuses them
    if any(issubclass(each, cls) for each in known):
        return ""
    if cls in _NEVER or cls in (collections.abc.Generator, collections.abc.AsyncGenerator):
        return f"{a(cls.__name__)} cannot be stored"
    if hasattr(cls, "get_secret_value"):
        return why_unstorable(cls)
    if is_storable(cls) or _is_abstract(cls):
        return ""
    return "" if any(issubclass(each, cls) for each in PLAIN_CLASSES) else why_unstorable(cls)


def _is_abstract(cls: type) -> bool:
    is_general = cls.__module__ in ("collections.abc", "typing", "numbers", "os")
    return is_general or inspect.isabstract(cls)


def codec_for_call(codec: ValueCodec, function: Callable[..., Any]) -> ValueCodec:
    """Return a codec that also knows the classes which the annotations of a function name.

    Raises Unstorable if no result of the annotated type could be stored: the function must not be called then.
    """
    owner = getattr(function, "__func__", function)
    if isinstance(owner, partial):
        owner = owner.func
    with suppress(KeyError, TypeError):
        return codec.extended[owner]
    hints = hints_of(owner)
    extended = codec.with_classes(classes_named(hints.values()))
    why = why_not_stored(hints.get("return"), extended.names)
    if why:
        name = getattr(owner, "__qualname__", type(owner).__name__)
        raise Unstorable(f"the result of {name}", f"it is not called, because its result could not be recorded: {why}")
    with suppress(TypeError):  # an object that cannot be referred to weakly
        codec.extended[owner] = extended
    return extended


def codec_for_class(codec: ValueCodec, cls: type) -> ValueCodec:
    """Return a codec that also knows a class and the classes that its fields name."""
    if cls not in codec.extended:
        codec.extended[cls] = codec.with_classes([cls, *classes_named([cls])])
    return codec.extended[cls]
