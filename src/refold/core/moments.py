"""Instants as people and other programs write them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from refold.core.outcomes import SECOND, Instant

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
