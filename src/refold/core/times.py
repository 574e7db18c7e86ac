"""Spans of time as people write them: `30s`, `1h30m`, `PT5M`, or a number of seconds."""

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
FIRST = -62_135_596_800 * SECOND  # the first and the last moment that a date can say
LAST = 253_402_300_800 * SECOND - 1
END_OF_TIME = 1 << 62  # an instant must fit into 64 bits
SECONDS_BELOW = 10**11  # so many microseconds were over on the second day of 1970, so many seconds take 3,000 years


def stamp(at: Instant) -> str:
    """ISO 8601 in UTC, with microseconds; a moment that no calendar has is a number of microseconds since 1970."""
    if not FIRST <= at <= LAST:
        return str(at)
    return (EPOCH + timedelta(microseconds=at)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def instant(value: Any) -> Instant:
    """Of an ISO text with its zone, or of a number since 1970: seconds, or microseconds if there are many of them.

    Raises ValueError.
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
    """How long it lasts; raises InvalidValue for what is no span of time or above 100 years."""
    if isinstance(span, bool) or not isinstance(span, str | int | float):
        raise InvalidValue(_quoted(span), f"no duration; {FORMS}")
    found = _read(span.strip()) if isinstance(span, str) else float(span)
    if not 0 <= found <= LONGEST:
        raise InvalidValue(_quoted(span), "no duration; it lies between 0 and 100 years")
    return found


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
    """From the longest unit to the shortest: `1m1h` and `1m1m` are slips."""
    units = [UNITS[unit] for _, unit in _PART.findall(text)]
    return all(longer > shorter for longer, shorter in pairwise(units))


def show(span: float) -> str:
    """A span in the units that fit it, to the microsecond; `seconds` reads it back: `1h30m`, `2.5s`, `250ms`."""
    span = round(span, 6)
    if span < 1:
        return f"{_decimal(span * 1000)}ms" if span else "0s"
    parts = []
    whole, rest = divmod(span, 1)
    left = int(whole)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        count, left = divmod(left, size)
        parts += [f"{count}{unit}"] if count else []
    parts += [f"{_decimal(left + rest)}s"] if left or rest else []
    return "".join(parts)


def _decimal(number: float) -> str:
    return f"{number:.6f}".rstrip("0").rstrip(".")


def _quoted(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
