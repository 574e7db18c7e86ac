"""From wall-clock times to instants, where the clock of a zone is moved forward or back."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Literal
from zoneinfo import ZoneInfo

from refold.core.outcomes import Instant
from refold.core.times import EPOCH
from refold.schedules.cron import is_hourly, wall_times

Gap = Literal["shift", "skip"]
"""What becomes of a time that the clock skips: it comes at the first moment after the gap, or not at all."""

Repeat = Literal["first", "second", "both"]
"""When a time comes that the clock shows twice."""

MICROSECOND = timedelta(microseconds=1)
AROUND = timedelta(hours=25)  # no clock is moved by more


def instant_of(moment: datetime) -> Instant:
    return (moment - EPOCH) // MICROSECOND


def moment_of(at: Instant) -> datetime:
    return EPOCH + timedelta(microseconds=at)


def wall_of(at: Instant, zone: ZoneInfo) -> datetime:
    """Return what the clock of the zone shows, without a zone."""
    return moment_of(at).astimezone(zone).replace(tzinfo=None)


def offset_of(at: Instant, zone: ZoneInfo) -> timedelta:
    """Return how far the clock of the zone is ahead of UTC at an instant."""
    return moment_of(at).astimezone(zone).utcoffset() or timedelta()


def start_of_day(day: date, zone: ZoneInfo) -> Instant:
    """Return the first instant at which the clock of the zone shows this day, or a later one."""
    return instants_of(datetime.combine(day, time.min), zone, "shift", "first")[0]


def instants_of(wall: datetime, zone: ZoneInfo, gap: Gap, repeat: Repeat) -> list[Instant]:
    """Return the instants at which a time of the clock counts: none, one or two."""
    before = wall.replace(tzinfo=zone, fold=0).utcoffset() or timedelta()
    after = wall.replace(tzinfo=zone, fold=1).utcoffset() or timedelta()
    early, late = _at(wall, max(before, after)), _at(wall, min(before, after))
    if before == after:
        return [early]
    if before > after:  # the clock goes back and shows the time twice
        return {"first": [early], "second": [late], "both": [early, late]}[repeat]
    return [_end_of_gap(early, late, zone)] if gap == "shift" else []


def _at(wall: datetime, offset: timedelta) -> Instant:
    return instant_of((wall - offset).replace(tzinfo=UTC))


def _end_of_gap(low: Instant, high: Instant, zone: ZoneInfo) -> Instant:
    """Return the first instant with the new offset: it is after `low`, and `high` or before it."""
    old = offset_of(low, zone)
    while high - low > 1:
        middle = (low + high) // 2
        if offset_of(middle, zone) == old:
            low = middle
        else:
            high = middle
    return high


@lru_cache(maxsize=10_000)
def next_of_line(
    line: str, zone: ZoneInfo, after: Instant, gap: Gap = "shift", repeat: Repeat = "first"
) -> Instant | None:
    """Return the first instant after this one at which a line of cron fires; None: there is none in 50 years.

    Each wall-clock time comes once; a line that names every hour follows real time instead, so that what the clock
    repeats comes again, and what it skips did not exist.
    """
    if is_hourly(line):
        gap, repeat = "skip", "both"
    best: Instant | None = None
    for wall in _walls(line, zone, after):
        reached = instants_of(wall, zone, "shift", "first")[0]  # never decreases from one wall time to the next
        if best is not None and reached >= best:
            break
        later = [at for at in instants_of(wall, zone, gap, repeat) if at > after]
        best = min([*later, *([] if best is None else [best])], default=None)
    return best


def _walls(line: str, zone: ZoneInfo, after: Instant) -> Iterator[datetime]:
    """Yield wall times from the first one that may belong to an instant after the given one: one that the clock has
    shown already, if it will be set back soon."""
    offset = min(offset_of(after, zone), offset_of(after + AROUND // MICROSECOND, zone))
    return wall_times(line, (moment_of(after) + offset).replace(tzinfo=None))
