"""Converts values of databases to JSON data without loss: what has no JSON form becomes text, and only NULL is null."""

import base64
import datetime
import json
import math
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

DIGITS = 15  # a number of so many digits comes back from a float as it went in


def json_value(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _odd(value)
        case Decimal():
            return number(value)
        case _:
            return _other(value)


def _odd(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def number(value: Decimal) -> int | float | str:
    """Return a number if that loses nothing, else text."""
    if not value.is_finite():
        return "NaN" if value.is_nan() else _odd(float(value))
    if value.adjusted() < DIGITS and value == value.to_integral_value():
        return int(value)
    digits = "".join(map(str, value.as_tuple().digits)).strip("0")
    return float(value) if len(digits) <= DIGITS and abs(value.adjusted()) < 300 else format(value, "f")


def _other(value: Any) -> Any:
    match value:
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case datetime.timedelta():
            return span(value)
        case uuid.UUID():
            return str(value)
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode()
        case Mapping():
            return {key if isinstance(key, str) else _key(key): json_value(each) for key, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [json_value(each) for each in value]
        case _:
            return str(value)


def _key(key: Any) -> str:
    told = json_value(key)
    return told if isinstance(told, str) else json.dumps(told)


def span(value: datetime.timedelta) -> str:
    """Return a span of time in ISO 8601, with one sign for all parts."""
    if value < datetime.timedelta():
        return f"-{span(-value)}"
    minutes, seconds = divmod(value.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{value.microseconds:06}".rstrip("0") if value.microseconds else ""
    days = f"{value.days}D" if value.days else ""
    time = (
        f"{hours}H" * bool(hours) + f"{minutes}M" * bool(minutes) + f"{seconds}{fraction}S" * bool(seconds or fraction)
    )
    return f"P{days}{'T' if time else ''}{time}" if days or time else "PT0S"


def json_text(value: Any) -> str:
    return json.dumps(json_value(value), ensure_ascii=False, separators=(",", ":"))


def parsed(text: str | bytes) -> Any:
    """Return decoded JSON, with numbers as exact as those of columns."""
    return json.loads(text, parse_float=lambda digits: number(Decimal(digits)))
