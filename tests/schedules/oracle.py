"""An oracle for lines of cron: it walks real minutes, reads the clock of the zone at each, without any library of cron.

What the clock showed at each minute before is remembered, so that it sees by itself what was skipped and repeated.
"""

import calendar
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")


class Line:
    def __init__(self, text: str) -> None:
        minute, hour, self.day, month, self.weekday = text.upper().split()
        self.minutes, self.hours = _set(minute, 0, 59), _set(hour, 0, 23)
        self.months = _set(month, 1, 12, dict(zip(MONTHS, range(1, 13), strict=True)))
        self.either = not self.day.startswith("*") and not self.weekday.startswith("*")
        self.every_hour = self.hours == set(range(24))

    def names(self, wall: datetime) -> bool:
        if wall.minute not in self.minutes or wall.hour not in self.hours or wall.month not in self.months:
            return False
        day, weekday = self._day(wall), self._weekday(wall)
        return (day or weekday) if self.either else (day and weekday)

    def _day(self, wall: datetime) -> bool:
        last = calendar.monthrange(wall.year, wall.month)[1]
        if self.day == "L":
            return wall.day == last
        if self.day == "LW":
            workdays = [n for n in range(1, last + 1) if calendar.weekday(wall.year, wall.month, n) < 5]
            return wall.day == workdays[-1]
        return wall.day in _set(self.day, 1, 31)

    def _weekday(self, wall: datetime) -> bool:
        today = wall.isoweekday() % 7
        for part in self.weekday.split(","):
            name, hash, number = part.partition("#")
            if hash:
                if today == _number(name, _DAYS) % 7 and (wall.day - 1) // 7 + 1 == int(number):
                    return True
            elif part.endswith("L"):
                last = calendar.monthrange(wall.year, wall.month)[1]
                if today == int(part[:-1]) % 7 and wall.day > last - 7:
                    return True
            elif today in {n % 7 for n in _set(part, 0, 7 if part[0] != "*" else 6, _DAYS)}:
                return True
        return False


_DAYS = dict(zip(DAYS, range(7), strict=True))


def _number(text: str, names: dict[str, int]) -> int:
    return names[text] if text in names else int(text)


def _set(text: str, low: int, high: int, names: dict[str, int] | None = None) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, slash, step = part.partition("/")
        first, dash, last = span.partition("-")
        if span == "*":
            begin, end = low, high
        else:
            begin = _number(first, names or {})
            end = _number(last, names or {}) if dash else high if slash else begin
        found.update(range(begin, end + 1, int(step) if slash else 1))
    return found


def times(text: str, zone: str, first: datetime, last: datetime, gap: str, repeat: str) -> list[datetime]:
    """All times from one moment to another, both in UTC and on a minute; begins a day earlier to know the clock."""
    line, rules = Line(text), ZoneInfo(zone)
    now, shown = first - timedelta(days=1), dict[datetime, int]()  # how often the clock has shown this
    walls = _clock(rules, now, last + timedelta(days=1))
    counts: dict[datetime, int] = {}
    for wall in walls:
        counts[wall] = counts.get(wall, 0) + 1
    highest = None
    result: list[datetime] = []
    for wall in walls:
        if now > last:
            break
        shown[wall] = shown.get(wall, 0) + 1
        fires = False
        if line.every_hour:
            fires = line.names(wall)
        else:
            wanted = {"first": shown[wall] == 1, "second": shown[wall] == counts[wall], "both": True}[repeat]
            fires = line.names(wall) and wanted
            if highest is not None and wall > highest + MINUTE and gap == "shift":
                fires = fires or _any_named(line, highest + MINUTE, wall)
        highest = wall if highest is None or wall > highest else highest
        if fires and now >= first:
            result.append(now)
        now += MINUTE
    return result


def _any_named(line: Line, wall: datetime, end: datetime) -> bool:
    while wall < end:
        if line.names(wall):
            return True
        wall += MINUTE
    return False


def _clock(rules: ZoneInfo, first: datetime, last: datetime) -> list[datetime]:
    walls: list[datetime] = []
    while first <= last:
        walls.append(first.replace(tzinfo=UTC).astimezone(rules).replace(tzinfo=None))
        first += MINUTE
    return walls
