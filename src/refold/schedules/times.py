"""Which times a schedule names: lines of cron, intervals, single moments; without what calendars take out."""

from collections.abc import Iterator, Mapping
from datetime import date, timedelta

from msgspec import Struct

from refold.core.outcomes import SECOND, Instant
from refold.schedules.zones import Gap, Repeat, next_of_line, start_of_day, wall_of
from refold.time_zones import zone_of

Calendars = Mapping[str, frozenset[date]]
"""Lists of days, by their names."""

MOST_LEFT_OUT = 20_000  # times in a row that calendars take out; then the schedule has no next time


class When(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a schedule fires. A time counts if one of its lines, its interval or its list names it."""

    cron: tuple[str, ...] = ()
    every: float = 0  # seconds; 0: no interval
    at: tuple[Instant, ...] = ()
    zone: str = "UTC"
    anchor: Instant = 0  # from which intervals are counted; no time of the schedule is before it, if it was given
    starts: bool = False  # whether an anchor was given
    until: Instant | None = None
    leave_out: tuple[str, ...] = ()  # calendars whose days do not count
    only: tuple[str, ...] = ()  # calendars of which one must have the day
    gap: Gap = "shift"
    repeat: Repeat = "first"


def next_time(when: When, after: Instant, calendars: Calendars | None = None) -> Instant | None:
    """Return the first time of the schedule after an instant; None: there is none."""
    if when.starts and after < when.anchor:
        after = when.anchor - 1
    zone, calendars = zone_of(when.zone), calendars or {}
    for _ in range(MOST_LEFT_OUT):
        found = _next_named(when, after)
        if found is None or (when.until is not None and found > when.until):
            return None
        if not when.leave_out and not when.only:
            return found
        day = wall_of(found, zone).date()
        if _counts(when, day, calendars):
            return found
        resume = _next_day(when, day, calendars)
        if resume is None:
            return None
        after = max(found, start_of_day(resume, zone) - 1)
    return None


def times_between(when: When, after: Instant, last: Instant, calendars: Calendars | None = None) -> Iterator[Instant]:
    """Yield the times after one instant and not after another."""
    at = next_time(when, after, calendars)
    while at is not None and at <= last:
        yield at
        at = next_time(when, at, calendars)


def _next_named(when: When, after: Instant) -> Instant | None:
    zone = zone_of(when.zone)
    found = [at for at in when.at if at > after]
    found += [at for line in when.cron if (at := next_of_line(line, zone, after, when.gap, when.repeat)) is not None]
    if when.every:
        step = round(when.every * SECOND)
        found.append(when.anchor + ((after - when.anchor) // step + 1) * step)
    return min(found, default=None)


def _counts(when: When, day: date, calendars: Calendars) -> bool:
    if any(day in calendars.get(name, ()) for name in when.leave_out):
        return False
    return not when.only or any(day in calendars.get(name, ()) for name in when.only)


def _next_day(when: When, day: date, calendars: Calendars) -> date | None:
    """Return the next day that may count."""
    if when.only:
        later = [each for name in when.only for each in calendars.get(name, ()) if each > day]
        return min(later, default=None)
    return day + timedelta(days=1)
