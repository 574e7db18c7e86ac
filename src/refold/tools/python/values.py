"""Converts what code returns to JSON data: values with an obvious form take it, others are refused with their path."""

import dataclasses
import datetime
import decimal
import enum
import math
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from refold.core.codec import DEPTH_LIMIT, check_value
from refold.errors import InvalidValue

AS_TEXT = (uuid.UUID, decimal.Decimal, os.PathLike)
BYTES = (bytes, bytearray, memoryview)
TIMES = (datetime.datetime, datetime.date, datetime.time)


def plain(value: Any, path: str = "result") -> Any:
    """Return the value itself if it is JSON data already. Raises InvalidValue."""
    try:
        check_value(value, path)
    except InvalidValue:
        value = _plain(value, path, 0)
        check_value(value, path)
    return value


def as_json(value: Any) -> Any:
    """Return the value as `plain` does, and text for a value without an obvious form.

    Raises InvalidValue if it is nested without end.
    """
    try:
        check_value(value, "result")
    except InvalidValue:
        return _forced(value, 0)
    return value


def _forced(value: Any, depth: int) -> Any:
    if depth > DEPTH_LIMIT:
        raise InvalidValue("result", f"nested deeper than {DEPTH_LIMIT}, or in a circle")
    try:
        value = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else _simpler(value, "")
    except Exception:
        return _text(value)  # its own way to be simple has failed
    if isinstance(value, Mapping):
        return {_text(_key(key)): _forced(each, depth + 1) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_forced(each, depth + 1) for each in value]
    if value is None or isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return _text(value)


def _text(value: Any) -> str:
    text = bytes(value).decode(errors="backslashreplace") if isinstance(value, BYTES) else str(value)
    return text.encode(errors="backslashreplace").decode()


def _plain(value: Any, path: str, depth: int) -> Any:
    if depth > DEPTH_LIMIT:
        raise InvalidValue(path, f"nested deeper than {DEPTH_LIMIT}, or in a circle")
    value = _simpler(value, path)
    if isinstance(value, Mapping):
        return {_key(key): _plain(each, f"{path}.{key}", depth + 1) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each, f"{path}[{i}]", depth + 1) for i, each in enumerate(value)]
    return value


def _simpler(value: Any, path: str) -> Any:
    """Return the value one step closer to JSON; unknown values are left to the check that follows."""
    if isinstance(value, BYTES):
        raise InvalidValue(path, "bytes are no JSON value: decode them, or encode them as base64")
    if isinstance(value, (set, frozenset)):
        return _sorted(value, path)
    for fits, form in FORMS:
        if fits(value):
            return form(value)
    return value


def _sorted(value: set[Any] | frozenset[Any], path: str) -> list[Any]:
    """Return a set as a sorted list, so that its order is the same each time."""
    try:
        return sorted(value)
    except TypeError:
        raise InvalidValue(path, "a set of values that cannot be sorted has no order to keep") from None


def _key(key: Any) -> Any:
    return key.value if isinstance(key, enum.Enum) else key


FORMS: Sequence[tuple[Callable[[Any], bool], Callable[[Any], Any]]] = (
    (lambda value: isinstance(value, enum.Enum), lambda value: value.value),
    (lambda value: isinstance(value, TIMES), lambda value: value.isoformat()),
    (lambda value: isinstance(value, AS_TEXT), str),
    (lambda value: isinstance(value, msgspec.Struct), msgspec.structs.asdict),
    (lambda value: dataclasses.is_dataclass(value) and not isinstance(value, type), lambda value: _fields(value)),
    (lambda value: callable(getattr(value, "tolist", None)), lambda value: value.tolist()),  # numpy and its kin
)


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
