"""Objects as their fields and back: dataclasses, msgspec structs, pydantic models, named tuples, and other classes.

An object is built again without its constructor: no `__init__`, `__post_init__` or validator runs a second time, and
the aliases of a model play no part.
"""

import dataclasses
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache, cached_property, partial
from typing import Any

import msgspec

from refold.errors import InvalidValue, Unstorable
from refold.names import a

MARK = "$refold"
"""The key of a map that is not a map of the user. Among the fields of a model it names the fields that were set."""

SCALARS = (str, int, float, bytes)
"""Classes whose subclasses can be stored, as the plain value."""


def is_data(cls: Any) -> bool:
    """Whether objects of this class are fully described by their fields."""
    if not isinstance(cls, type) or issubclass(cls, BaseException):
        return False
    known = issubclass(cls, msgspec.Struct | Enum) or dataclasses.is_dataclass(cls)
    return known or is_model(cls)


def is_model(cls: type) -> bool:
    """Whether it is a class of pydantic's models."""
    return hasattr(cls, "model_validate") and hasattr(cls, "model_fields")


def is_named_tuple(cls: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields")


def is_storable(cls: Any) -> bool:
    """Whether objects of this class can be stored once the class is known."""
    if is_data(cls) or is_named_tuple(cls):
        return not hasattr(cls, "get_secret_value")
    return isinstance(cls, type) and issubclass(cls, SCALARS) and cls not in SCALARS and cls is not bool


def fields_of(value: Any, path: str) -> dict[str, Any]:
    """Return the fields of an object, as they are stored. Raises Unstorable."""
    cls: Any = type(value)
    if is_model(cls):
        return _fields_of_model(value)
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    if is_named_tuple(cls):
        return dict(zip(value._fields, value, strict=True))
    hidden = _hidden_names(cls)
    if not hasattr(value, "__dict__"):
        if not dataclasses.is_dataclass(value):
            raise Unstorable(path, f"{a(cls.__name__)} has no fields that could be stored")
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value) if each.name not in hidden}
    own = _declared_names(cls)
    fields = {
        name: each for name, each in vars(value).items() if (name[0] != "_" or name in own) and name not in hidden
    }
    for name in own.keys() - fields.keys() - hidden:  # in slots
        if hasattr(value, name):
            fields[name] = getattr(value, name)
    return fields


def take_scalar(value: Any, path: str) -> Any:
    """Return an object of a subclass of str, int, float or bytes as the plain value."""
    if getattr(value, "__dict__", None):
        names = ", ".join(vars(value))
        raise Unstorable(path, f"{a(type(value).__name__)} has attributes of its own, {names}, which would be lost")
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    return float.__float__(value) if isinstance(value, float) else bytes(memoryview(value))


def make_object(cls: Any, fields: Any, path: str) -> Any:
    """Return an object with these fields, without calling its constructor.

    A field that did not exist when the object was stored has its default. Raises InvalidValue if there is none.
    """
    if issubclass(cls, SCALARS):
        base = next(each for each in SCALARS if issubclass(cls, each))
        return base.__new__(cls, fields)
    if is_model(cls):
        return _make_model(cls, fields, path)
    defaults = defaults_of(cls)
    for name in required_of(cls):
        if name not in fields:
            raise InvalidValue(f"{path}.{name}", "this field is missing")
    for name, default in defaults.items():
        if name not in fields:
            fields[name] = default()
    if issubclass(cls, msgspec.Struct):
        return _make_struct(cls, fields)
    if is_named_tuple(cls):
        return tuple.__new__(cls, [fields[name] for name in cls._fields])
    value = object.__new__(cls)
    for name, each in fields.items():
        object.__setattr__(value, name, each)
    return value


@cache
def defaults_of(cls: Any) -> dict[str, Callable[[], Any]]:
    """Return the functions that make the defaults of the fields of a class."""
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
    elif is_named_tuple(cls):
        found = {name: partial(_same, default) for name, default in getattr(cls, "_field_defaults", {}).items()}
    elif is_model(cls):
        fields: Mapping[str, Any] = cls.model_fields
        found = {name: partial(_default_of, each) for name, each in fields.items() if not each.is_required()}
    return found


@cache
def required_of(cls: Any) -> frozenset[str]:
    """Return the fields of a data class that an object cannot be without."""
    optional = defaults_of(cls).keys()
    if issubclass(cls, msgspec.Struct):
        return frozenset(set(cls.__struct_fields__) - optional)
    if is_named_tuple(cls):
        return frozenset(set(cls._fields) - optional)
    if dataclasses.is_dataclass(cls):
        needed = {each.name for each in dataclasses.fields(cls) if each.init and not each.metadata.get("transient")}
        return frozenset(needed - optional)
    return frozenset()


def _same(value: Any) -> Any:
    return value


def _default_of(field: Any) -> Any:
    return field.get_default(call_default_factory=True, validated_data={})


@cache
def _hidden_names(cls: Any) -> frozenset[str]:
    """Return the names that are never stored: transient fields, as in `field(default=None, metadata={"transient":
    True})`, and what cached properties remember."""
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    transient = {each.name for each in fields if each.metadata.get("transient")}
    cached = {
        name for each in cls.__mro__ for name, member in vars(each).items() if isinstance(member, cached_property)
    }
    return frozenset(transient | cached)


@cache
def _declared_names(cls: Any) -> dict[str, None]:
    """Return the fields of a dataclass. An event decides itself about names that begin with an underscore."""
    if not dataclasses.is_dataclass(cls) or hasattr(cls, "__refold_event__"):
        return {}
    return dict.fromkeys(each.name for each in dataclasses.fields(cls))


def _fields_of_model(value: Any) -> dict[str, Any]:
    known = type(value).model_fields
    own = vars(value)
    fields = {name: own[name] for name in known if name in own}
    fields |= value.__pydantic_extra__ or {}
    private = type(value).__private_attributes__
    for name, each in (value.__pydantic_private__ or {}).items():
        if name not in private or each != private[name].get_default():
            fields[name] = each
    if value.model_fields_set != fields.keys():
        fields[MARK] = sorted(value.model_fields_set)
    return fields


def _make_model(cls: Any, fields: dict[str, Any], path: str) -> Any:
    fields_set = fields.pop(MARK, None)
    own: dict[str, Any] = {}
    for name, info in cls.model_fields.items():
        if name in fields:
            own[name] = fields.pop(name)
        elif info.is_required():
            raise InvalidValue(f"{path}.{name}", "this field is missing")
        else:
            own[name] = info.get_default(call_default_factory=True, validated_data=own)
    private = {name: each.get_default() for name, each in cls.__private_attributes__.items()}
    private |= {name: fields.pop(name) for name in private if name in fields}
    keeps_others = cls.model_config.get("extra") == "allow"
    value = cls.__new__(cls)
    object.__setattr__(value, "__dict__", own)
    names = own.keys() | (fields.keys() if keeps_others else set()) if fields_set is None else fields_set
    object.__setattr__(value, "__pydantic_fields_set__", set(names))
    object.__setattr__(value, "__pydantic_extra__", fields if keeps_others else None)
    object.__setattr__(value, "__pydantic_private__", private or None)
    return value


def _make_struct(cls: Any, fields: dict[str, Any]) -> Any:
    known = {name: fields[name] for name in cls.__struct_fields__}
    if not hasattr(cls, "__post_init__"):
        return cls(**known)
    value = _without_post_init(cls)(**known)
    object.__dict__["__class__"].__set__(value, cls)
    return value


@cache
def _without_post_init(cls: Any) -> Any:
    """Return a struct of the same layout whose constructor calls nothing of the user."""
    nothing = {"__post_init__": lambda self: None}
    return msgspec.defstruct(cls.__name__, [], bases=(cls,), namespace=nothing, frozen=cls.__struct_config__.frozen)
