"""Python values as JSON and back, exactly: what cannot come back as it went in is refused, with its path.

JSON values stand for themselves. Anything else is a map with the one key `$refold` and what it holds; a map of the
user that has this key is spelt out, so that no data can pass for such a mark. Objects come back only as classes that
are known here by name: nothing is imported, and nothing is called, because data says so.
"""

import dataclasses
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from math import isfinite
from typing import Any, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from refold.core.codec import DEPTH_LIMIT
from refold.errors import InvalidValue
from refold.names import a

R = TypeVar("R")


class Mapped(list[R]):
    """Results in the order of the items; `items` says how each ended. Stored, it is a plain list."""

    def __init__(self, results: Iterable[R], items: Sequence[dict[str, Any]]) -> None:
        super().__init__(results)
        self.items = list(items)

    @property
    def failed(self) -> list[int]:
        """The numbers of the items that failed, and were tolerated."""
        return [item for item, each in enumerate(self.items) if each["status"] == "failed"]


MARK = "$refold"
WORD = 2**63  # below, every JSON reader agrees about an integer


class ValueCodec:
    """Encodes values as JSON and decodes them.

    `classes` are those whose objects may be stored, by their stored names.
    """

    def __init__(self, classes: Mapping[str, type] | None = None) -> None:
        self.classes = dict(classes or {})
        self.names = {cls: name for name, cls in self.classes.items()}

    def put(self, value: Any, path: str = "$") -> Any:
        """Return a value as JSON. Raises InvalidValue."""
        return self._put(value, path, 0)

    def get(self, raw: Any, path: str = "$") -> Any:
        """Return the value that `put` was given. Raises InvalidValue for what `put` cannot have written."""
        kind = type(raw)
        if kind is list:
            return [self.get(each, f"{path}[{i}]") for i, each in enumerate(raw)]
        if kind is not dict:
            return raw
        if MARK in raw:
            return self._get_marked(raw, path)
        return {key: self.get(each, f"{path}.{key}") for key, each in raw.items()}

    def put_fields(self, fields: Mapping[str, Any], path: str) -> dict[str, Any]:
        """What an object consists of."""
        return {name: self._put(each, f"{path}.{name}", 1) for name, each in fields.items()}

    def get_fields(self, raw: Mapping[str, Any], path: str) -> dict[str, Any]:
        fields = dict(raw)
        for name, each in raw.items():
            if type(each) in _NESTED:
                fields[name] = self.get(each, f"{path}.{name}")
        return fields

    def _put(self, value: Any, path: str, depth: int) -> Any:
        if depth > DEPTH_LIMIT:
            raise InvalidValue(path, f"nested deeper than {DEPTH_LIMIT}")
        kind = type(value)
        if value is None or kind is bool:
            return value
        plain = _PLAIN.get(kind)
        if plain is not None:
            return plain(value, path)
        if kind is dict:
            return self._put_map(value, path, depth)
        if kind is list or kind is Mapped:
            return [self._put(each, f"{path}[{i}]", depth + 1) for i, each in enumerate(value)]
        if kind in _GROUPS:
            name, listed = _GROUPS[kind]
            return {MARK: [name, [self._put(each, f"{path}[{i}]", depth + 1) for i, each in enumerate(listed(value))]]}
        if kind in self.names:
            return {MARK: ["object", self.names[kind], self._put_object(value, path, depth)]}
        raise InvalidValue(path, _why_not(kind))

    def _put_map(self, value: dict[Any, Any], path: str, depth: int) -> Any:
        if MARK not in value and all(type(key) is str for key in value):
            return {_text(key, path): self._put(each, f"{path}.{key}", depth + 1) for key, each in value.items()}
        pairs = [
            [self._put(key, f"{path} (a key)", depth + 1), self._put(each, f"{path}[{key!r}]", depth + 1)]
            for key, each in value.items()
        ]
        return {MARK: ["map", pairs]}

    def _put_object(self, value: Any, path: str, depth: int) -> Any:
        if isinstance(value, Enum):
            return value.name
        return {name: self._put(each, f"{path}.{name}", depth + 1) for name, each in fields_of(value, path).items()}

    def _get_marked(self, raw: dict[str, Any], path: str) -> Any:
        try:
            name, *rest = raw[MARK]
            if name == "object":
                return self._get_object(rest[0], rest[1], path)
            if name == "map":
                return {self.get(key, path): self.get(each, path) for key, each in rest[0]}
            if name in _GROUPED:
                return _GROUPED[name](self.get(each, path) for each in rest[0])
            return _READ[name](*rest)
        except InvalidValue:
            raise
        except Exception as error:
            raise InvalidValue(path, f"this is no stored value: {error!r}") from None

    def _get_object(self, name: str, raw: Any, path: str) -> Any:
        if name not in self.classes:
            raise InvalidValue(path, f"a {name} is stored here, and this workflow does not know that class")
        cls = self.classes[name]
        if issubclass(cls, Enum):
            return cls[raw]
        return make_object(cls, self.get_fields(raw, path), path)


def fields_of(value: Any, path: str) -> dict[str, Any]:
    """The fields of a dataclass, a struct, a model, or any object that keeps them in its `__dict__`."""
    if hasattr(value, "__dict__"):
        never = hidden_defaults(type(value))
        return {name: each for name, each in vars(value).items() if name[0] != "_" and name not in never}
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    if dataclasses.is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    raise InvalidValue(path, _why_not(type(value)))


_LEFT_OUT: dict[type, dict[str, Any]] = {}


def hidden_defaults(cls: type) -> dict[str, Any]:
    """Fields of a dataclass that are never stored, as in `field(default=None, metadata={"transient": True})`."""
    if cls not in _LEFT_OUT:
        fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
        _LEFT_OUT[cls] = {each.name: each.default for each in fields if each.metadata.get("transient")}
    return _LEFT_OUT[cls]


def make_object(cls: type, fields: dict[str, Any], path: str) -> Any:
    """Return an object with these fields; `__init__` of a dataclass is not called again."""
    if issubclass(cls, msgspec.Struct):
        known = cls.__struct_fields__
        return cls(**{name: each for name, each in fields.items() if name in known})
    if hasattr(cls, "model_validate"):
        try:
            return cls.model_validate(fields)
        except ValueError as error:
            raise InvalidValue(path, " ".join(str(error).split())) from None
    value = object.__new__(cls)
    for name, default in hidden_defaults(cls).items():
        object.__setattr__(value, name, default)
    for name, each in fields.items():
        object.__setattr__(value, name, each)
    return value


def is_data(cls: Any) -> bool:
    """Whether objects of this class are fully described by their fields."""
    if not isinstance(cls, type):
        return False
    known = issubclass(cls, msgspec.Struct | Enum) or dataclasses.is_dataclass(cls)
    return known or hasattr(cls, "model_validate")


def _why_not(kind: type) -> str:
    if is_data(kind):
        return f"{a(kind.__name__)} is stored only where an event of the workflow, or its `types`, names that class"
    return (
        f"{a(kind.__name__)} cannot be stored exactly; what it says can, in a dataclass that `types` of the workflow "
        "names, and one that lives only here is kept in `ctx.session`, made by a method marked @resource"
    )


def _text(value: str, path: str) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidValue(path, "a lone surrogate is not text") from None
    return value


def _integer(value: int, path: str) -> Any:
    return value if -WORD <= value < WORD else {MARK: ["int", hex(value)]}


def _number(value: float, path: str) -> Any:
    if isfinite(value):
        return value
    return {MARK: ["float", repr(value)]}  # NaN comes back as NaN, though not with its bits


def _moment(value: datetime, path: str) -> Any:
    zone = value.tzinfo
    if zone is not None and type(zone) is not timezone:
        if type(zone) is not ZoneInfo or zone.key is None:
            raise InvalidValue(path, f"the zone of this moment, {a(type(zone).__name__)}, cannot be stored exactly")
        return {MARK: ["datetime", value.replace(tzinfo=None).isoformat(), value.fold, zone.key]}
    if zone is not None and zone != timezone(value.utcoffset() or timedelta()):
        raise InvalidValue(path, "the zone of this moment cannot be stored exactly")
    return {MARK: ["datetime", value.isoformat(), value.fold]}


def _read_moment(text: str, fold: int, zone: str = "") -> datetime:
    moment = datetime.fromisoformat(text).replace(fold=fold)
    return moment.replace(tzinfo=ZoneInfo(zone)) if zone else moment


def _clock(value: time, path: str) -> Any:
    if value.tzinfo is not None:
        raise InvalidValue(path, "a time of day with a zone cannot be stored exactly")
    return {MARK: ["time", value.isoformat(), value.fold]}


def _marked(name: str, told: Callable[[Any], Any]) -> Callable[[Any, str], Any]:
    return lambda value, path: {MARK: [name, told(value)]}


def _told_bytes(value: Iterable[int]) -> str:
    return b64encode(bytes(value)).decode()


def _bytes(text: str) -> bytes:
    return b64decode(text, validate=True)


_PLAIN: dict[type, Callable[[Any, str], Any]] = {
    str: _text,
    int: _integer,
    float: _number,
    bytes: _marked("bytes", _told_bytes),
    bytearray: _marked("bytearray", _told_bytes),
    Decimal: _marked("decimal", str),
    Fraction: _marked("fraction", str),
    complex: _marked("complex", lambda value: [value.real.hex(), value.imag.hex()]),
    datetime: _moment,
    date: _marked("date", date.isoformat),
    time: _clock,
    timedelta: _marked("timedelta", lambda value: [value.days, value.seconds, value.microseconds]),
    UUID: _marked("uuid", lambda value: value.hex),
}

_GROUPS: dict[type, tuple[str, Callable[[Any], Iterable[Any]]]] = {
    tuple: ("tuple", list),
    set: ("set", lambda value: sorted(value, key=repr)),  # the same set is the same text
    frozenset: ("frozenset", lambda value: sorted(value, key=repr)),
}

_NESTED = frozenset({list, dict})  # all else is stored as it is

_GROUPED: dict[str, Callable[[Iterable[Any]], Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset}

_READ: dict[str, Callable[..., Any]] = {
    "int": lambda text: int(text, 16),
    "float": float,
    "bytes": _bytes,
    "bytearray": lambda text: bytearray(_bytes(text)),
    "decimal": Decimal,
    "fraction": Fraction,
    "complex": lambda parts: complex(*map(float.fromhex, parts)),
    "datetime": _read_moment,
    "date": date.fromisoformat,
    "time": lambda text, fold: time.fromisoformat(text).replace(fold=fold),
    "timedelta": lambda parts: timedelta(*parts),
    "uuid": UUID,
}
