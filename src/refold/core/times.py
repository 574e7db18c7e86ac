"""Instants and durations as people write them: ISO 8601 times, and durations such as `30s`, `1h30m` or `PT5M`."""

import math
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Any

from refold.core.outcomes import SECOND, Instant
from refold.core.plan import LONGEST
from refold.errors import InvalidValue

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST = -62_135_596_800 * SECOND  # the first and the last instant that a date can represent
LAST = 253_402_300_800 * SECOND - 1
END_OF_TIME = 1 << 62  # an instant must fit into 64 bits
SECONDS_BELOW = 10**11  # smaller numbers are seconds: as microseconds they would be within 2 January 1970


def stamp(at: Instant) -> str:
    """Return an instant as ISO 8601 in UTC; one beyond all dates as a number of microseconds since 1970."""
    if not FIRST <= at <= LAST:
        return str(at)
    return (EPOCH + timedelta(microseconds=at)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def instant(value: Any) -> Instant:
    """Read an instant from an ISO text with a zone, or from a number of seconds or microseconds since 1970.

    Numbers below 1e11 are seconds. Raises ValueError.
    """
    if isinstance(value, str):
        moment = datetime.fromisoformat(value.strip())
        if moment.tzinfo is None:
            raise ValueError("it has no zone")
        return (moment - EPOCH) // timedelta(microseconds=1)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("it is neither text nor a number")
    at = value * SECOND if abs(value) < SECONDS_BELOW else value
    if not abs(at) < END_OF_TIME:
        raise ValueError("it is too far away")
    return round(at)


UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
FORMS = "write it like 250ms, 30s, 5m, 1h30m, 2d or PT5M; 100 years at most"

_NUMBER = r"\d+(?:\.\d+)?"
_SHORT = re.compile(rf"(?:{_NUMBER}(?:ms|[wdhms]))+", re.ASCII)
_PART = re.compile(rf"({_NUMBER})(ms|[wdhms])", re.ASCII)
_PLAIN = re.compile(_NUMBER, re.ASCII)
_ISO = re.compile(
    rf"P(?:({_NUMBER})W)?(?:({_NUMBER})D)?(?:T(?:({_NUMBER})H)?(?:({_NUMBER})M)?(?:({_NUMBER})S)?)?", re.ASCII
)
_LETTERS = ("w", "d", "h", "m", "s")


def seconds(span: str | int | float) -> float:
    """Read a duration in seconds; raise InvalidValue if it is not a duration, or longer than 100 years."""
    if isinstance(span, bool) or not isinstance(span, str | int | float):
        raise InvalidValue(_quoted(span), f"no duration; {FORMS}")
    value = _read(span.strip()) if isinstance(span, str) else float(span)
    if not 0 <= value <= LONGEST:
        raise InvalidValue(_quoted(span), "no duration; it lies between 0 and 100 years")
    return value


@lru_cache(maxsize=256)
def _read(text: str) -> float:
    if len(text) <= 64:
        if _PLAIN.fullmatch(text):
            return float(text)
        if _SHORT.fullmatch(text) and _each_unit_once(text):
            return math.fsum(float(number) * UNITS[unit] for number, unit in _PART.findall(text))
        iso = _ISO.fullmatch(text)
        if iso and any(iso.groups()) and not text.endswith("T"):
            return math.fsum(float(n) * UNITS[unit] for n, unit in zip(iso.groups(), _LETTERS, strict=True) if n)
    raise InvalidValue(_quoted(text), f"no duration; {FORMS}")


def _each_unit_once(text: str) -> bool:
    """Whether units go from the longest to the shortest; `1m1h` and `1m1m` are typing errors."""
    units = [UNITS[unit] for _, unit in _PART.findall(text)]
    return all(longer > shorter for longer, shorter in pairwise(units))


def show(span: float) -> str:
    """Return a duration in fitting units, to the microsecond: `1h30m`, `2.5s`, `250ms`; `seconds` reads it."""
    span = round(span, 6)
    if span < 1:
        return f"{_decimal(span * 1000)}ms" if span else "0s"
    parts = []
    whole, fraction = divmod(span, 1)
    left = int(whole)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        count, left = divmod(left, size)
        parts += [f"{count}{unit}"] if count else []
    parts += [f"{_decimal(left + fraction)}s"] if left or fraction else []
    return "".join(parts)


def _decimal(number: float) -> str:
    return f"{number:.6f}".rstrip("0").rstrip(".")


def _quoted(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
