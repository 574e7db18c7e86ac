"""Data of expressions: read-only views of existing data, plain copies of results, and the text of a value."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from msgspec import json

from refold.core.codec import DEPTH_LIMIT
from refold.core.expressions import Aliased, CannotEvaluate, unaliased

LARGEST = 1 << 20  # limit of what an expression creates: a character counts 1, a value ITEM
ITEM = 8
TOO_LARGE = f"this makes more than {LARGEST >> 20} MiB, and that is work for a step"


class _Undefined:
    """The type of `UNDEFINED`, which is false like an empty value."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "undefined"


UNDEFINED = _Undefined()
"""What a path that may lead nowhere, or the first element of an empty list, evaluates to."""


class ListView:
    """A list that can only be read. It has no method that a template could call."""

    __slots__ = ("_data", "_weight", "_whole")

    def __init__(self, data: Sequence[Any], weight: int = 0, whole: Aliased | None = None) -> None:
        self._data = data
        self._weight = weight  # of a list that the expression created; 0: it existed before
        self._whole = whole or data  # with its aliases, for lookups by name

    def __len__(self) -> int:
        return len(self._data)

    def __eq__(self, other: object) -> bool:
        return bool(bare(self) == bare(other))

    __hash__ = None  # type: ignore[assignment]


class MapView:
    """A map that can only be read, key by key: a key that no expression names is not looked up."""

    __slots__ = ("_data", "_weight", "_whole")

    def __init__(self, data: Mapping[str, Any], weight: int = 0, whole: Aliased | None = None) -> None:
        self._data, self._weight, self._whole = data, weight, whole or data

    def __len__(self) -> int:
        return len(self._data)

    def __eq__(self, other: object) -> bool:
        return bool(bare(self) == bare(other))

    __hash__ = None  # type: ignore[assignment]


Sequence.register(ListView)
Mapping.register(MapView)
VIEWS = (ListView, MapView)
LISTS = (list, tuple, ListView)
_WHOLE = float(1 << 63)  # whole numbers below this are integers
SCALARS = frozenset({str, int, float, bool, type(None)})  # looking a type up is faster than isinstance


def in_plain_words(message: str) -> str:
    """Replace the names of the classes above in a message of Python."""
    return message.replace("ListView", "list").replace("MapView", "map")


def plain(value: Any) -> Any:
    """Return a value as operators and filters get it: null for undefined, and 2 for 2.0, also in new lists and maps."""
    if type(value) is float:
        return int(value) if value.is_integer() and -_WHOLE <= value < _WHOLE else value
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {plain(key): plain(each) for key, each in value.items()}
    return None if value is UNDEFINED else value


def bare(value: Any) -> Any:
    """Return the data of a view; any other value is returned unchanged."""
    return value._data if isinstance(value, VIEWS) else value


def whole(value: Any) -> Any:
    """Return the data of a view, with its aliases."""
    return value._whole if isinstance(value, VIEWS) else value


def kind(value: Any) -> str:
    """Return the word for a value in a message."""
    if value is None or value is UNDEFINED:
        return "null" if value is None else "an undefined value"
    if isinstance(value, (bool, int, float)):
        return "a boolean" if isinstance(value, bool) else "a number"
    return "a text" if isinstance(value, str) else "a map" if isinstance(value, Mapping) else "a list"


def weight_of(value: Any) -> int:
    """Return the size of a new value as if written out: a part that occurs twice counts twice."""
    if type(value) in SCALARS:
        return ITEM + len(value) if type(value) is str else ITEM
    if isinstance(value, VIEWS):
        return max(value._weight, ITEM)
    if isinstance(value, (list, tuple)):
        return ITEM + sum(map(weight_of, value))
    return ITEM + (sum(map(weight_of, value.values())) + weight_of(list(value)) if isinstance(value, dict) else 0)


def named(value: Any) -> Any:
    """Return a plain copy of a value that a template only names; it may have any size."""
    return Copies(limit=None).of(value)


def made(value: Any) -> Any:
    """Return a plain copy of a value that an expression created; older data counts only from its second copy on."""
    return Copies().of(value)


def text_of(value: Any, python: bool = False) -> str:
    """Return a value as part of a text: null is empty, maps and lists are JSON; with `python`, true is True."""
    if isinstance(value, str):
        return str.__str__(value)
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(_finite(value))
    if isinstance(value, int):
        return str(value) if python else str(value).lower()  # true, false
    return json_of(value)


def json_of(value: Any) -> str:
    return json.encode(Copies(free=False).of(value)).decode()


class Copies:
    """Copies values to plain JSON data, and refuses what JSON cannot hold; all copies together have one limit."""

    def __init__(self, limit: int | None = LARGEST, free: bool = True) -> None:
        self.limit, self.free, self.spent = limit, free, 0
        self.seen: dict[int, Any] = {}  # keeps the values alive, so that no id is used again

    def of(self, value: Any, counts: bool = True, depth: int = 0) -> Any:
        if isinstance(value, str):
            return self._text(value, counts)
        if isinstance(value, float):
            return _finite(value)
        if type(value) in SCALARS:
            return value
        if depth > DEPTH_LIMIT:
            raise CannotEvaluate(f"a value is nested deeper than {DEPTH_LIMIT}")
        if isinstance(value, VIEWS):
            value, counts = value._data, counts and (value._weight > 0 or not self.free)
        if isinstance(value, (dict, list, tuple, Mapping)):
            return self._container(value, counts, depth + 1)
        if isinstance(value, Aliased):
            return self.of(unaliased(value), counts, depth)
        raise CannotEvaluate(f"a {type(value).__name__} is not a value")

    def _container(self, value: Any, counts: bool, depth: int) -> Any:
        if self.limit is not None:
            counts = counts or id(value) in self.seen
            self.seen[id(value)] = value
            self._spend(ITEM * len(value), counts)
        if isinstance(value, (list, tuple)):
            return [self.of(each, counts, depth) for each in value]
        return {self._key(key, counts): self.of(each, counts, depth) for key, each in value.items()}

    def _key(self, key: Any, counts: bool) -> str:
        if not isinstance(key, str):
            raise CannotEvaluate(f"the key {key!r} of a map is not a text")
        return self._text(key, counts)

    def _text(self, text: str, counts: bool) -> str:
        self._spend(len(text), counts)
        return str.__str__(text)  # a subclass becomes a plain str

    def _spend(self, weight: int, counts: bool) -> None:
        if counts and self.limit is not None:
            self.spent += weight
            if self.spent > self.limit:
                raise CannotEvaluate(TOO_LARGE)


def _finite(value: float) -> float:
    if not isfinite(value):
        raise CannotEvaluate(f"{value} is not a number that JSON can hold")
    return float(value)
