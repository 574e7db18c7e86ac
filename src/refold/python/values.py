"""Python values as JSON and back, exactly: what cannot come back as it went in is refused, with its path.

JSON values stand for themselves. Anything else is a map with the one key `$refold` and what it holds; a map of the
user that has this key is spelt out, so that no data can pass for such a mark. Objects come back only as classes that
are known here by name: nothing is imported, and no constructor, validator or `__post_init__` is called, because data
says so.
"""

import os.path
import sys
from base64 import b64decode, b64encode
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from math import isfinite
from pathlib import Path, PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any, TypeVar
from uuid import UUID
from weakref import WeakKeyDictionary
from zoneinfo import ZoneInfo

from refold.core.codec import DEPTH_LIMIT
from refold.errors import InvalidValue, Unstorable
from refold.names import a
from refold.python.data_classes import MARK, SCALARS, fields_of, is_data, is_storable, make_object, take_scalar

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


WORD = 2**63  # below, every JSON reader agrees about an integer


class ValueCodec:
    """Encodes values as JSON and decodes them.

    `classes` are those whose objects may be stored, by their stored names. An open codec also writes objects of other
    data classes, by their full names: only a reader that knows the class can read them.
    """

    def __init__(self, classes: Mapping[str, type] | None = None, *, is_open: bool = False) -> None:
        self.classes = dict(classes or {})
        self.names = {cls: name for name, cls in self.classes.items()}
        self.is_open = is_open
        self.extended: WeakKeyDictionary[Any, ValueCodec] = WeakKeyDictionary()  # by function or class
        self._opened: ValueCodec | None = None
        self._by_short_name: dict[str, type | None] | None = None

    def with_classes(self, classes: Iterable[type]) -> "ValueCodec":
        """Return a codec that knows these classes too, by their full names."""
        unknown = [cls for cls in dict.fromkeys(classes) if cls not in self.names]
        if not unknown:
            return self
        return ValueCodec({**self.classes, **{full_name(cls): cls for cls in unknown}}, is_open=self.is_open)

    def opened(self) -> "ValueCodec":
        """Return an open codec that knows the same classes."""
        if self._opened is None:
            self._opened = self if self.is_open else ValueCodec(self.classes, is_open=True)
        return self._opened

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
            raise Unstorable(path, f"nested deeper than {DEPTH_LIMIT}")
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
        if kind in _MAPS:
            return self._put_special_map(kind, value, path, depth)
        if kind is deque:
            return {
                MARK: [
                    "deque",
                    [self._put(each, f"{path}[{i}]", depth + 1) for i, each in enumerate(value)],
                    value.maxlen,
                ]
            }
        if self.is_open and is_storable(kind):
            return {MARK: ["object", full_name(kind), self._put_object(value, path, depth)]}
        raise Unstorable(path, why_unstorable(kind))

    def _put_map(self, value: dict[Any, Any], path: str, depth: int) -> Any:
        if MARK not in value and all(type(key) is str for key in value):
            return {_text(key, path): self._put(each, f"{path}.{key}", depth + 1) for key, each in value.items()}
        return {MARK: ["map", self._put_pairs(value, path, depth)]}

    def _put_pairs(self, value: Mapping[Any, Any], path: str, depth: int) -> list[Any]:
        return [
            [self._put(key, f"{path} (a key)", depth + 1), self._put(each, f"{path}[{key!r}]", depth + 1)]
            for key, each in value.items()
        ]

    def _put_special_map(self, kind: type, value: Any, path: str, depth: int) -> Any:
        pairs = self._put_pairs(value, path, depth)
        if kind is not defaultdict:
            return {MARK: [_MAPS[kind], pairs]}
        factory = next((name for name, each in _FACTORIES.items() if each is value.default_factory), None)
        if factory is None:
            known = ", ".join(_FACTORIES)
            why = f"its default_factory, {value.default_factory!r}, cannot be stored; these can: {known}"
            raise Unstorable(path, why)
        return {MARK: [_MAPS[kind], factory, pairs]}

    def _put_object(self, value: Any, path: str, depth: int) -> Any:
        if hasattr(value, "get_secret_value"):
            raise Unstorable(path, why_unstorable(type(value)))
        if isinstance(value, Enum):
            is_member = value.name in type(value).__members__  # else it is a flag of several members, or of none
            return value.name if is_member else self._put(value.value, path, depth)
        if isinstance(value, SCALARS):
            return self._put(take_scalar(value, path), path, depth)
        return {name: self._put(each, f"{path}.{name}", depth + 1) for name, each in fields_of(value, path).items()}

    def _get_marked(self, raw: dict[str, Any], path: str) -> Any:
        try:
            name, *rest = raw[MARK]
            if name == "object":
                return self._get_object(rest[0], rest[1], path)
            if name == "map":
                return self._get_pairs(rest[0], path)
            if name in _GROUPED:
                return _GROUPED[name](self.get(each, path) for each in rest[0])
            if name == "deque":
                return deque((self.get(each, path) for each in rest[0]), rest[1])
            if name == _MAPS[defaultdict]:
                return defaultdict(_FACTORIES[rest[0]], self._get_pairs(rest[1], path))
            if name in _MAPPED:
                return _MAPPED[name](self._get_pairs(rest[0], path))
            return _READ[name](*rest)
        except InvalidValue:
            raise
        except Exception as error:
            raise InvalidValue(path, f"this is not a stored value: {error!r}") from None

    def _get_pairs(self, pairs: Any, path: str) -> dict[Any, Any]:
        return {self.get(key, path): self.get(each, path) for key, each in pairs}

    def _get_object(self, name: str, raw: Any, path: str) -> Any:
        cls = self.classes.get(name) or self._moved(name)
        if cls is None:
            raise InvalidValue(path, f"a {name} is stored here, and this workflow does not know that class; {NAME_IT}")
        if issubclass(cls, Enum):
            member = cls.__members__.get(raw) if type(raw) is str else None
            return cls(self.get(raw, path)) if member is None else member
        return make_object(cls, self.get(raw, path) if issubclass(cls, SCALARS) else self.get_fields(raw, path), path)

    def _moved(self, name: str) -> type | None:
        """Return the one class of this short name: a class may be moved to another module, or a script imported."""
        if self._by_short_name is None:
            self._by_short_name = {}
            for cls in self.names:
                known = self._by_short_name.setdefault(cls.__name__, cls)
                self._by_short_name[cls.__name__] = cls if known is cls else None
        return self._by_short_name.get(name.rpartition(".")[2])


NAME_IT = "name it in an annotation of the flow, in the annotations of the function that is called, or in `types`"


def full_name(cls: type) -> str:
    """Return the module and the name of a class; a script has the name under which it would be imported."""
    module = cls.__module__
    if module == "__main__":
        main = sys.modules.get(module)
        file = getattr(main, "__file__", None) or ""
        module = os.path.splitext(os.path.basename(file))[0] or module
    return f"{module}.{cls.__qualname__}"


def why_unstorable(kind: type) -> str:
    """Say why objects of a class cannot be stored, and what to do instead."""
    if hasattr(kind, "get_secret_value"):
        return (
            f"{a(kind.__name__)} is never stored, because everybody who can read the log could read it; hand on the "
            "name of the secret, and read the secret where it is used"
        )
    if is_data(kind) or is_storable(kind):
        return f"{a(kind.__name__)} is stored only where the workflow knows that class; {NAME_IT}"
    return (
        f"{a(kind.__name__)} cannot be stored exactly; what it says can, in a dataclass that `types` of the workflow "
        "names, and one that lives only here is kept in `ctx.session`, made by a method marked @resource"
    )


def _text(value: str, path: str) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Unstorable(path, "a lone surrogate is not text") from None
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
            raise Unstorable(path, f"the zone of this moment, {a(type(zone).__name__)}, cannot be stored exactly")
        return {MARK: ["datetime", value.replace(tzinfo=None).isoformat(), value.fold, zone.key]}
    if zone is not None and zone != timezone(value.utcoffset() or timedelta()):
        raise Unstorable(path, "the zone of this moment cannot be stored exactly")
    return {MARK: ["datetime", value.isoformat(), value.fold]}


def _read_moment(text: str, fold: int, zone: str = "") -> datetime:
    moment = datetime.fromisoformat(text).replace(fold=fold)
    return moment.replace(tzinfo=ZoneInfo(zone)) if zone else moment


def _clock(value: time, path: str) -> Any:
    if value.tzinfo is not None:
        raise Unstorable(path, "a time of day with a zone cannot be stored exactly")
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
    PosixPath: _marked("path", str),
    WindowsPath: _marked("path", str),
    PurePosixPath: _marked("pure_posix_path", str),
    PureWindowsPath: _marked("pure_windows_path", str),
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
    "path": Path,
    "pure_posix_path": PurePosixPath,
    "pure_windows_path": PureWindowsPath,
}

_MAPS: dict[type, str] = {OrderedDict: "ordered_dict", defaultdict: "default_dict", Counter: "counter"}

_MAPPED: dict[str, Callable[[dict[Any, Any]], Any]] = {"ordered_dict": OrderedDict, "counter": Counter}

_FACTORIES: dict[str, Callable[[], Any] | None] = {
    "none": None,
    "list": list,
    "dict": dict,
    "set": set,
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "tuple": tuple,
}

PLAIN_CLASSES: tuple[type, ...] = (*_PLAIN, *_GROUPS, *_MAPS, bool, type(None), dict, list, Mapped, deque)
"""Classes whose objects can be stored everywhere."""
