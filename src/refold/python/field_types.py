"""Checks values against annotations: the fields of events, the inputs of flows, the values of signals."""

import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AnySet
from functools import cache, partial
from pathlib import PurePath
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin, is_typeddict

import msgspec

from refold.core.faults import short
from refold.errors import InvalidValue
from refold.names import a
from refold.python.annotations import field_hints
from refold.python.data_classes import SCALARS, defaults_of, is_model

_WIDER: dict[Any, tuple[type, ...]] = {float: (float, int), complex: (complex, float, int)}


LIMITS = "__refold_limits__"
"""The attribute of an event class with the limits that pydantic's `Field` gives to its fields."""


@cache
def declared(cls: type) -> dict[str, Any]:
    """The fields of a class with their annotations, looked up once."""
    limits: Mapping[str, tuple[Any, ...]] = getattr(cls, LIMITS, {})
    return {
        name: Annotated[hint, *limits[name]] if limits.get(name) else hint for name, hint in field_hints(cls).items()
    }


PLAIN_KINDS: dict[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}


def plain_kind(hint: Any) -> str:
    """Return the kind of plain value that an annotation allows; empty if it allows anything else."""
    return PLAIN_KINDS.get(hint, "") if isinstance(hint, type) else ""


def check_fields(cls: type, fields: Mapping[str, Any], path: str) -> None:
    """Raises InvalidValue for the first field that is missing or is not what it should be."""
    for name, hint in declared(cls).items():
        if name not in fields:
            raise InvalidValue(f"{path}.{name}", "this field is missing")
        if hint is not Any and type(fields[name]) is not hint:
            check(fields[name], hint, f"{path}.{name}")


def with_defaults(cls: type, fields: dict[str, Any]) -> dict[str, Any]:
    """Add the defaults of fields that did not exist when the event was stored."""
    for name, default in defaults_of(cls).items():
        if name not in fields:
            fields[name] = default()
    return fields


def needed(cls: type) -> frozenset[str]:
    """Return the fields that have no default."""
    return frozenset(declared(cls)) - defaults_of(cls).keys()


def check(value: Any, hint: Any, path: str) -> None:
    why = next(_misfits(value, hint, path), None)
    if why is not None:
        raise InvalidValue(*why)


def fitted(value: Any, hint: Any, path: str) -> Any:
    """Return a value that fits an annotation: the value itself, or what it stands for in JSON, as in the text of a date
    or the map of a dataclass. Raises InvalidValue.
    """
    if hint is Any or type(value) is hint:
        return value
    why = next(_misfits(value, hint, path), None)
    if why is None:
        return value
    if type(value) in _JSON:
        try:
            converted = msgspec.convert(value, hint, builtin_types=(bytes, bytearray), dec_hook=_from_json)
        except Exception:
            raise InvalidValue(*why) from None  # it is not JSON for this type either
        check(converted, hint, path)
        return converted
    raise InvalidValue(*why)


_JSON = frozenset({str, int, float, dict, list})


def _from_json(cls: Any, value: Any) -> Any:
    if is_model(cls):
        return cls.model_validate(value)
    if issubclass(cls, (PurePath, *SCALARS)) and type(value) in (str, int, float):
        return cls(value)
    raise TypeError(f"{cls.__name__} is not made from {type(value).__name__}")


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
    elif hasattr(hint, "__supertype__"):
        yield from _misfits(value, hint.__supertype__, path)
    elif is_typeddict(hint):
        yield from _typed_dict(value, hint, path)
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


def _typed_dict(value: Any, hint: Any, path: str) -> Misfits:
    if not isinstance(value, dict):
        yield path, _not(value, hint.__name__)
        return
    declared_keys = field_hints(hint)
    for key in sorted(hint.__required_keys__):
        if key not in value:
            yield f"{path}.{key}", "this key is missing"
    for key, each in value.items():
        if key in declared_keys:
            yield from _misfits(each, declared_keys[key], f"{path}.{key}")
        else:
            yield f"{path}.{key}", f"{hint.__name__} has no such key"


def _annotated(value: Any, of: tuple[Any, ...], path: str) -> Misfits:
    misfits = list(_misfits(value, of[0], path))
    yield from misfits
    if not misfits:
        for limit in limits_of(of[1:]):
            why = limit(value)
            if why:
                yield path, why


_FORMS: dict[Any, Callable[[Any, tuple[Any, ...], str], Misfits]] = {
    Annotated: _annotated,
    Required: lambda value, of, path: _misfits(value, of[0], path),
    NotRequired: lambda value, of, path: _misfits(value, of[0], path),
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


Limit = Callable[[Any], str]
"""Says what is wrong with a value; empty if nothing is."""

_COMPARED: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "gt": ("greater than", lambda value, bound: value > bound),
    "ge": ("at least", lambda value, bound: value >= bound),
    "lt": ("less than", lambda value, bound: value < bound),
    "le": ("at most", lambda value, bound: value <= bound),
    "multiple_of": ("a multiple of", lambda value, bound: value % bound == 0),
    "min_length": ("of a length of at least", lambda value, bound: len(value) >= bound),
    "max_length": ("of a length of at most", lambda value, bound: len(value) <= bound),
    "pattern": ("a text that matches", lambda value, bound: re.search(bound, value) is not None),
}
_VALIDATORS = ("BeforeValidator", "AfterValidator", "WrapValidator", "PlainValidator")
_CHANGES = ("strip_whitespace", "to_upper", "to_lower")


def limits_of(metadata: Iterable[Any]) -> Iterator[Limit]:
    """Return the limits that `Annotated` names: those of annotated_types, pydantic and msgspec. Others are ignored."""
    for each in metadata:
        for name, (words, holds) in _COMPARED.items():
            bound = getattr(each, name, None)
            if bound is not None and not isinstance(each, type):
                yield partial(_beyond, words, holds, bound)
        if type(each).__name__ == "FieldInfo":
            yield from limits_of(each.metadata)
        elif type(each).__name__ in ("Interval", "Len") and not hasattr(each, "min_length"):
            yield from limits_of(each)
        predicate = getattr(each, "func", None)
        if type(each).__name__ in ("Predicate", "Not") and predicate is not None:
            yield partial(_unlike, predicate, type(each).__name__ == "Predicate")


def _beyond(words: str, holds: Callable[[Any, Any], bool], bound: Any, value: Any) -> str:
    try:
        return "" if holds(value, bound) else f"it must be {words} {bound!r}, and it is {short(repr(value), 60)}"
    except TypeError:
        return ""  # None of `PositiveInt | None`, for example, is not compared


def _unlike(predicate: Callable[[Any], bool], wanted: bool, value: Any) -> str:
    name = getattr(predicate, "__name__", repr(predicate))
    return "" if bool(predicate(value)) is wanted else f"it must {'' if wanted else 'not '}satisfy {name}"


def unapplied(hint: Any) -> str:
    """Return what an annotation asks for and an event does not do: validators, and changes of a text."""
    if get_origin(hint) is Annotated:
        for each in get_args(hint)[1:]:
            if type(each).__name__ in _VALIDATORS:
                return type(each).__name__
            change = next((name for name in _CHANGES if getattr(each, name, None)), "")
            if change:
                return change
    return next(filter(None, map(unapplied, get_args(hint))), "") if get_origin(hint) is not Literal else ""
