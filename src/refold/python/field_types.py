"""Checks values against the annotations of event classes."""

import dataclasses
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AnySet
from functools import cache, partial
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from refold.errors import InvalidValue
from refold.names import a
from refold.python.signatures import field_hints

_WIDER: dict[Any, tuple[type, ...]] = {float: (float, int), complex: (complex, float, int)}


@cache
def declared(cls: type) -> dict[str, Any]:
    """The fields of a class with their annotations, looked up once."""
    return field_hints(cls)


def check_fields(cls: type, fields: Mapping[str, Any], path: str) -> None:
    """Raises InvalidValue for the first field that is missing or is not what it should be."""
    for name, hint in declared(cls).items():
        if name not in fields:
            if hasattr(cls, "model_validate"):
                continue  # it says itself what is missing, and has its own defaults
            raise InvalidValue(f"{path}.{name}", "this field is missing")
        if hint is not Any and type(fields[name]) is not hint:
            check(fields[name], hint, f"{path}.{name}")


def with_defaults(cls: type, fields: dict[str, Any]) -> dict[str, Any]:
    """Add the defaults of fields that did not exist when the event was stored."""
    for name, default in _defaults(cls).items():
        if name not in fields:
            fields[name] = default()
    return fields


def needed(cls: type) -> frozenset[str]:
    """Return the fields that have no default."""
    return frozenset(declared(cls)) - _defaults(cls).keys()


@cache
def _defaults(cls: type) -> dict[str, Callable[[], Any]]:
    """Return the functions that make the defaults of a class; a pydantic model makes its own."""
    found: dict[str, Callable[[], Any]] = {}
    if dataclasses.is_dataclass(cls):
        for each in dataclasses.fields(cls):
            if each.default is not dataclasses.MISSING:
                found[each.name] = partial(_same, each.default)
            elif each.default_factory is not dataclasses.MISSING:
                found[each.name] = each.default_factory
    elif issubclass(cls, msgspec.Struct):
        optional = cls.__struct_fields__[len(cls.__struct_fields__) - len(cls.__struct_defaults__) :]
        for name, default in zip(optional, cls.__struct_defaults__, strict=True):
            if not isinstance(default, type(msgspec.NODEFAULT)):
                found[name] = getattr(default, "factory", partial(_same, default))
    return found


def _same(value: Any) -> Any:
    return value


def check(value: Any, hint: Any, path: str) -> None:
    why = next(_misfits(value, hint, path), None)
    if why is not None:
        raise InvalidValue(*why)


Misfits = Iterator[tuple[str, str]]
"""Path, and what is wrong there."""


def _misfits(value: Any, hint: Any, path: str) -> Misfits:
    origin = get_origin(hint)
    if origin in _FORMS:
        yield from _FORMS[origin](value, get_args(hint), path)
    elif isinstance(origin, type):
        yield from _parts(value, origin, get_args(hint), path)
    elif hint is None:
        yield from _misfits(value, type(None), path)
    elif isinstance(hint, type) and not _is(value, _WIDER.get(hint, hint)):
        yield path, _not(value, _name(hint))


def _is(value: Any, hint: Any) -> bool:
    try:
        return hint is Any or isinstance(value, hint)
    except TypeError:
        return True  # a Protocol, for example, cannot tell


def _union(value: Any, of: tuple[Any, ...], path: str) -> Misfits:
    if all(next(_misfits(value, each, path), None) for each in of):
        yield path, _not(value, " or ".join(map(_name, of)))


def _literal(value: Any, of: tuple[Any, ...], path: str) -> Misfits:
    if not any(type(value) is type(each) and value == each for each in of):
        yield path, _not(value, " or ".join(map(repr, of)))


_FORMS: dict[Any, Callable[[Any, tuple[Any, ...], str], Misfits]] = {
    Annotated: lambda value, of, path: _misfits(value, of[0], path),
    Union: _union,
    types.UnionType: _union,
    Literal: _literal,
}


def _parts(value: Any, origin: type, of: tuple[Any, ...], path: str) -> Misfits:
    if not _is(value, origin):
        yield path, _not(value, origin.__name__)
    elif issubclass(origin, tuple) and not (len(of) == 2 and of[1] is ...):
        yield from _tuple(value, of, path)
    elif issubclass(origin, Mapping) and len(of) == 2:
        for key, each in value.items():
            yield from _misfits(key, of[0], f"{path} (a key)")
            yield from _misfits(each, of[1], f"{path}.{key}")
    elif issubclass(origin, Sequence | AnySet) and of:
        for i, each in enumerate(value):
            yield from _misfits(each, of[0], f"{path}[{i}]")


def _tuple(value: Any, of: tuple[Any, ...], path: str) -> Misfits:
    if len(value) != len(of):
        yield path, f"a tuple of {len(of)} is declared, and this one has {len(value)}"
    for i, (each, hint) in enumerate(zip(value, of, strict=False)):
        yield from _misfits(each, hint, f"{path}[{i}]")


def _name(hint: Any) -> str:
    return "None" if hint is type(None) else getattr(hint, "__name__", str(hint))


def _not(value: Any, wanted: str) -> str:
    return f"{wanted} is declared, and this is {a(type(value).__name__)}"
