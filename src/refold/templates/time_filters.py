"""Filters for times: moments are ISO texts with a zone, such as `run.started_at`, or dates such as `2026-03-01`.

Nothing here asks the clock or the language of the machine, so that the same values give the same text everywhere.
"""

import calendar
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from refold.core.expressions import CannotEvaluate
from refold.core.times import EPOCH, instant
from refold.errors import InvalidValue
from refold.templates.data import kind
from refold.templates.evaluation import Evaluation
from refold.time_zones import zone_of

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
UNITS = ("year", "month", "week", "day", "hour", "minute")
SPANS = ("weeks", "days", "hours", "minutes", "seconds")
LONGEST = 200  # characters of a format


def add_time(
    evaluation: Evaluation, value: Any, zone: Any = None, months: int = 0, years: int = 0, **spans: Any
) -> str:
    """Move a time. With a zone, days and longer spans follow the clock of the zone; without one, all of them have
    24 hours. A month that is too short gives its last day."""
    for name, number in {"months": months, "years": years, **spans}.items():
        if name not in (*SPANS, "months", "years"):
            raise CannotEvaluate(f"add_time has no `{name}`; it has years, months, {', '.join(SPANS)}")
        if (
            isinstance(number, bool)
            or not isinstance(number, (int, float))
            or (name in ("months", "years") and number % 1)
        ):
            raise CannotEvaluate(f"`{name}` of add_time is a number, not {kind(number)}")
    try:
        return _text(_moved(_time(value, zone), int(months + 12 * years), spans))
    except (OverflowError, ValueError):
        raise CannotEvaluate("the time is too far away") from None


def _moved(moment: date, months: int, spans: dict[str, Any]) -> date:
    if months:
        year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
        day = min(moment.day, calendar.monthrange(year, month + 1)[1])
        moment = moment.replace(year=year, month=month + 1, day=day)
    days = timedelta(weeks=spans.get("weeks", 0), days=spans.get("days", 0))
    rest = timedelta(**{name: spans[name] for name in spans if name not in ("weeks", "days")})
    if not isinstance(moment, datetime):
        if rest or days % timedelta(days=1):
            raise CannotEvaluate("a date has no hours; give a time with a zone")
        return moment + days
    moved = _settled(moment + days)  # by the clock of its zone
    return moved if not rest else (moved.astimezone(EPOCH.tzinfo) + rest).astimezone(moved.tzinfo)


def _settled(moment: datetime) -> datetime:
    """Return a time that the clock of its zone shows: one that it skips is moved behind the gap."""
    return moment.astimezone(EPOCH.tzinfo).astimezone(moment.tzinfo)


def in_zone(evaluation: Evaluation, value: Any, zone: Any) -> str:
    return _text(_moment(value, "in_zone").astimezone(_zone(zone)))


def start_of(evaluation: Evaluation, value: Any, unit: Any, zone: Any = None) -> str:
    """Return the beginning of the year, month, week (its Monday), day, hour or minute of a time."""
    moment = _time(value, zone)
    if unit not in UNITS:
        raise CannotEvaluate(f"start_of takes one of {', '.join(UNITS)}, not {unit!r:.40}")
    if unit in ("hour", "minute") and not isinstance(moment, datetime):
        raise CannotEvaluate(f"a date has no {unit}")
    if unit == "week":
        moment -= timedelta(days=moment.weekday())
    parts: dict[str, Any] = {"year": {"month": 1, "day": 1}, "month": {"day": 1}}.get(unit, {})
    if isinstance(moment, datetime):
        clock: dict[str, Any] = (
            {"hour": 0, "minute": 0} if unit not in ("hour", "minute") else {"minute": 0} if unit == "hour" else {}
        )
        return _text(_settled(moment.replace(**parts, **clock, second=0, microsecond=0)))
    return _text(moment.replace(**parts))


def format_time(evaluation: Evaluation, value: Any, pattern: Any = "%Y-%m-%d", zone: Any = None) -> str:
    """Write a time by the directives of strftime, with English names."""
    moment = _time(value, zone)
    if not isinstance(pattern, str) or len(pattern) > LONGEST:
        raise CannotEvaluate(f"the format of a time is a text of at most {LONGEST} characters")
    parts: list[str] = []
    letters = iter(pattern)
    for letter in letters:
        if letter != "%":
            parts.append(letter)
            continue
        directive = next(letters, "")
        write = _DIRECTIVES.get(directive)
        if write is None:
            known = ", ".join(f"%{each}" for each in _DIRECTIVES)
            raise CannotEvaluate(f"%{directive} is not a part of a format of times; there are {known}")
        if directive in _OF_CLOCK and not isinstance(moment, datetime):
            raise CannotEvaluate(f"a date has no %{directive}")
        parts.append(write(moment))
    return "".join(parts)


def unix_time(evaluation: Evaluation, value: Any) -> int:
    """Return the seconds since 1970."""
    return (_moment(value, "unix_time") - EPOCH) // timedelta(seconds=1)


def _offset(moment: Any) -> str:
    seconds = round((moment.utcoffset() or timedelta()).total_seconds())
    sign, minutes = "-" if seconds < 0 else "+", abs(seconds) // 60
    return f"{sign}{minutes // 60:02}{minutes % 60:02}"


_DIRECTIVES: dict[str, Callable[[Any], str]] = {
    "Y": lambda t: f"{t.year:04}",
    "m": lambda t: f"{t.month:02}",
    "d": lambda t: f"{t.day:02}",
    "H": lambda t: f"{t.hour:02}",
    "M": lambda t: f"{t.minute:02}",
    "S": lambda t: f"{t.second:02}",
    "f": lambda t: f"{t.microsecond:06}",
    "y": lambda t: f"{t.year % 100:02}",
    "j": lambda t: f"{t.timetuple().tm_yday:03}",
    "B": lambda t: MONTHS[t.month - 1],
    "b": lambda t: MONTHS[t.month - 1][:3],
    "A": lambda t: DAYS[t.weekday()],
    "a": lambda t: DAYS[t.weekday()][:3],
    "u": lambda t: str(t.isoweekday()),
    "G": lambda t: f"{t.isocalendar().year:04}",
    "V": lambda t: f"{t.isocalendar().week:02}",
    "I": lambda t: f"{(t.hour - 1) % 12 + 1:02}",
    "p": lambda t: "AM" if t.hour < 12 else "PM",
    "z": _offset,
    "%": lambda t: "%",
}
_OF_CLOCK = frozenset("HMSfIpz")


def _time(value: Any, zone: Any = None) -> date:
    """Return a date, or a time with its zone."""
    if isinstance(value, str) and len(value.strip()) == 10:
        try:
            return date.fromisoformat(value.strip())
        except ValueError:
            pass  # it is refused below
    moment = _moment(value, "a filter of times")
    return moment if zone is None else moment.astimezone(_zone(zone))


def _moment(value: Any, what: str) -> datetime:
    try:
        if isinstance(value, str):
            return datetime.fromisoformat(value.strip()) if _has_zone(value) else _refuse(value, what)
        return EPOCH + timedelta(microseconds=instant(value))
    except (ValueError, OverflowError):
        return _refuse(value, what)


def _has_zone(value: str) -> bool:
    return datetime.fromisoformat(value.strip()).tzinfo is not None


def _refuse(value: Any, what: str) -> datetime:
    shown = f"{value!r:.40}" if isinstance(value, str) else kind(value)
    raise CannotEvaluate(f"{what} takes a time with a zone, such as 2026-03-01T09:00:00Z, not {shown}")


def _zone(name: Any) -> ZoneInfo:
    try:
        return zone_of(name if isinstance(name, str) else "")
    except InvalidValue as error:
        raise CannotEvaluate(str(error)) from None


def _text(moment: date) -> str:
    if not isinstance(moment, datetime):
        return moment.isoformat()
    text = moment.isoformat(timespec="microseconds" if moment.microsecond else "seconds")
    return f"{text[:-6]}Z" if text.endswith("+00:00") else text


TIME_FILTERS: dict[str, Callable[..., Any]] = {
    "add_time": add_time,
    "format_time": format_time,
    "in_zone": in_zone,
    "start_of": start_of,
    "unix_time": unix_time,
}
