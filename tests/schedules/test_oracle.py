"""Random lines of cron around changes of clocks, compared with an oracle that walks real minutes."""

import random
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest

from refold.schedules.times import When, times_between
from refold.schedules.zones import instant_of, moment_of
from tests.schedules.oracle import times

# fmt: off
ZONES = (
    "Africa/Cairo", "Africa/Casablanca", "America/Asuncion", "America/Caracas",
    "America/Godthab", "America/Havana", "America/Los_Angeles", "America/Mexico_City",
    "America/New_York", "America/Santiago", "America/Sao_Paulo", "America/St_Johns",
    "Antarctica/Troll", "Asia/Amman", "Asia/Beirut", "Asia/Gaza",
    "Asia/Jerusalem", "Asia/Kolkata", "Asia/Tehran", "Atlantic/Azores",
    "Australia/Adelaide", "Australia/Lord_Howe", "Australia/Sydney", "Europe/Berlin",
    "Europe/Chisinau", "Europe/London", "Europe/Volgograd", "Pacific/Auckland",
    "Pacific/Chatham", "Pacific/Norfolk",
)
# fmt: on
LINES, PARTS = 2000, 8


@cache
def changes(zone: str) -> list[datetime]:
    """The hours in which the clock of a zone changes from 2020 to 2030; if it never does, some hour."""
    rules, at, found = ZoneInfo(zone), datetime(2020, 1, 1, tzinfo=UTC), list[datetime]()
    while at.year < 2030:
        later = at + timedelta(hours=6)
        if at.astimezone(rules).utcoffset() != later.astimezone(rules).utcoffset():
            found.append(at)
        at = later
    return found or [datetime(2024, 6, 1, tzinfo=UTC)]


def random_line(chance: random.Random, wall: datetime) -> str:
    """A line that likes the hours around a change of the clock."""
    near = [(wall.hour + n) % 24 for n in range(-2, 3)]
    low, high = sorted(chance.sample(range(60), 2))
    minute = chance.choice(
        [str(chance.randrange(60)), "*/15", "*/30", "0", "0,30", f"{low}-{high}/7", "15,45", "*", "59", "5/20"]
    )
    hours = sorted(chance.sample(near, 2))
    hour = chance.choice(
        [
            *(str(chance.choice(near)) for _ in range(4)),
            ",".join(map(str, hours)),
            f"{hours[0]}-{hours[1]}",
            "*",
            "*/2",
            "0-23",
            "1-23/3",
            "0-22",
        ]
    )
    day = chance.choice(["*", "*", "*", "*/2", str(wall.day), f"{max(1, wall.day - 1)}-{wall.day}", "L", "LW", "1,15"])
    month = chance.choice(["*", "*", "*", str(wall.month), wall.strftime("%b"), "*/2"])
    weekday = chance.choice(["*", "*", "*", "SUN", "MON-FRI", "0,6", "7", wall.strftime("%a"), "SUN#1", "5L", "*/2"])
    return f"{minute} {hour} {day} {month} {weekday}"


@pytest.mark.parametrize(
    "part", [part if part < 2 else pytest.param(part, marks=pytest.mark.proof) for part in range(PARTS)]
)
def test_random_lines_agree_with_an_oracle_that_walks_real_minutes(part: int) -> None:
    chance = random.Random(f"cron {part}")
    fired = 0
    for _ in range(LINES // PARTS):
        zone = chance.choice(ZONES)
        change = chance.choice(changes(zone))
        line = random_line(chance, change.astimezone(ZoneInfo(zone)))
        gap, repeat = chance.choice(["shift", "shift", "skip"]), chance.choice(["first", "first", "second", "both"])
        first = change - timedelta(minutes=chance.randrange(0, 700))
        last = change + timedelta(minutes=chance.randrange(200, 1300))
        when = When(cron=(line,), zone=zone, gap=gap, repeat=repeat)  # type: ignore[arg-type]
        found = [moment_of(at) for at in times_between(when, instant_of(first) - 1, instant_of(last))]
        expected = [each.replace(tzinfo=UTC) for each in times(line, zone, first, last, gap, repeat)]
        assert found == expected, (line, zone, first, last, gap, repeat)
        fired += len(expected)
    assert fired > 10 * LINES // PARTS
