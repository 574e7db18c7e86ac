"""Times of schedules: what is wrong with a line of cron, intervals, single moments, calendars, zones."""

from datetime import date
from itertools import islice

import pytest

from refold.core.outcomes import SECOND
from refold.core.times import instant, stamp
from refold.errors import InvalidValue
from refold.schedules.cron import cron_flaw, cron_warning
from refold.schedules.times import When, next_time, times_between
from refold.schedules.zones import start_of_day
from refold.time_zones import zone_of, zone_rules

FAR = instant("2100-01-01T00:00Z")


def first(when: When, after: str, count: int = 3, **calendars: set[str]) -> list[str]:
    days = {name: frozenset(map(date.fromisoformat, listed)) for name, listed in calendars.items()}
    return [stamp(at)[:19] for at in islice(times_between(when, instant(after), FAR, days), count)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("* * * *", "5 fields, not 4"),
        ("*/20 * * * * *", "6 fields"),
        ("", "5 fields, not 0"),
        ("61 * * * *", "'61' does not name a minute"),
        ("0 24 * * *", "'24' does not name a hour"),
        ("0 0 0 * *", "'0' does not name a day of month"),
        ("0 0 * JANUARY *", "'JANUARY' does not name a month"),
        ("0 0 * * 8", "'8' does not name a day of week"),
        ("0 0 ? * *", "'?' does not name"),
        ("*/0 * * * *", "'*/0' does not name"),
        ("5-1 * * * *", "'5-1' does not name"),
        ("@fortnightly", "is not a line of cron"),
        ("@reboot", "is not a line of cron"),
        ("0 0 30 2 *", "names no time"),
        ("0 0 31 2,4,6 *", "names no time"),
        ("0 " * 101, "at most 200 characters"),
    ],
)
def test_a_line_that_is_no_cron_is_refused(line: str, expected: str) -> None:
    flaw = cron_flaw(line)
    assert flaw is not None and expected in flaw.message


def test_a_flaw_names_the_characters_that_are_wrong() -> None:
    line = "0  2 * FOO *"
    flaw = cron_flaw(line)
    assert flaw is not None and line[flaw.start : flaw.start + flaw.length] == "FOO"


def test_six_fields_lead_to_an_interval() -> None:
    flaw = cron_flaw("*/20 * * * * *")
    assert flaw is not None and "every: 20s" in flaw.hint


@pytest.mark.parametrize("line", ["@hourly", "@daily", "@weekly", "@monthly", "@yearly", "0 0 L * *", "0 9 * * MON#2"])
def test_lines_with_short_forms_are_cron(line: str) -> None:
    assert cron_flaw(line) is None
    assert len(first(When(cron=(line,)), "2026-01-01T00:00Z")) == 3


def test_two_restricted_days_are_warned_of() -> None:
    assert "one of them" in cron_warning("0 9 15 * MON")
    assert cron_warning("0 9 15 * *") == cron_warning("0 9 * * MON") == cron_warning("@weekly") == ""


def test_several_lines_are_a_union_without_doubles() -> None:
    when = When(cron=("0 9 * * *", "0 */3 * * *"))
    assert first(when, "2026-01-01T05:00Z", 3) == ["2026-01-01T06:00:00", "2026-01-01T09:00:00", "2026-01-01T12:00:00"]


def test_an_interval_counts_real_time_from_its_anchor() -> None:
    assert first(When(every=1000), "1970-01-01T00:00Z", 2) == ["1970-01-01T00:16:40", "1970-01-01T00:33:20"]
    when = When(every=90, anchor=instant("2026-10-25T00:00:10Z"), starts=True, zone="Europe/Berlin")
    assert first(when, "2026-10-25T00:59:00Z", 2) == ["2026-10-25T01:00:10", "2026-10-25T01:01:40"]


def test_no_time_is_before_the_anchor_that_was_given() -> None:
    anchor = instant("2026-05-01T00:00Z")
    assert first(When(every=86400, anchor=anchor, starts=True), "2020-01-01T00:00Z", 1) == ["2026-05-01T00:00:00"]
    assert first(When(cron=("0 0 * * *",), anchor=anchor, starts=True), "2020-01-01T00:00Z", 1) == [
        "2026-05-01T00:00:00"
    ]


def test_a_schedule_ends_with_until() -> None:
    when = When(cron=("0 0 * * *",), until=instant("2026-01-03T00:00Z"))
    assert first(when, "2026-01-01T00:00Z", 9) == ["2026-01-02T00:00:00", "2026-01-03T00:00:00"]


def test_single_moments_come_in_order_and_once() -> None:
    when = When(at=(instant("2026-03-01T10:00+01:00"), instant("2026-02-01T00:00Z")))
    assert first(when, "2026-01-01T00:00Z", 9) == ["2026-02-01T00:00:00", "2026-03-01T09:00:00"]
    assert next_time(when, instant("2026-03-01T09:00Z")) is None


def test_calendars_take_days_out_by_the_clock_of_the_zone() -> None:
    when = When(cron=("0 9,21 * * *",), zone="Asia/Kolkata", leave_out=("holidays",))
    assert first(when, "2026-01-01T00:00Z", 3, holidays={"2026-01-01", "2026-01-03"}) == [
        "2026-01-02T03:30:00",
        "2026-01-02T15:30:00",
        "2026-01-04T03:30:00",
    ]


def test_only_the_days_of_a_calendar_count() -> None:
    when = When(every=43200, only=("bank_days",), leave_out=("holidays",))
    days = {"2026-01-05", "2027-06-01", "2027-06-02"}
    assert first(when, "2026-01-01T00:00Z", 9, bank_days=days, holidays={"2027-06-01"}) == [
        "2026-01-05T00:00:00",
        "2026-01-05T12:00:00",
        "2027-06-02T00:00:00",
        "2027-06-02T12:00:00",
    ]
    assert first(When(every=60, only=("empty",)), "2026-01-01T00:00Z", 1, empty=set()) == []


@pytest.mark.parametrize(
    "name", ["local", "Local", "Europe/Berln", "../etc/passwd", "", "/etc/localtime", "Europe", "\0"]
)
def test_a_zone_is_an_iana_name(name: str) -> None:
    with pytest.raises(InvalidValue, match="IANA name"):
        zone_of(name)


def test_a_misspelt_zone_gets_a_hint() -> None:
    with pytest.raises(InvalidValue, match="Europe/Berlin"):
        zone_of("Europe/Berln")


def test_the_rules_of_zones_have_a_version() -> None:
    assert zone_rules() == "2026.6 (package tzdata)"


def test_a_day_that_does_not_exist_begins_with_the_day_after_it() -> None:
    assert stamp(start_of_day(date(2011, 12, 30), zone_of("Pacific/Apia")))[:16] == "2011-12-30T10:00"


def test_the_next_time_is_after_the_one_asked_from_in_the_repeated_hour_too() -> None:
    at = instant("2026-10-24T23:00Z")
    for line in ("*/7 * * * *", "*/7 2 * * *", "*/7 1-3 * * *"):
        when, now = When(cron=(line,), zone="Europe/Berlin", repeat="both"), at
        for _ in range(60):
            later = next_time(when, now)
            assert later is not None and later > now
            now = later


def test_a_thousand_times_around_a_change_are_cheap() -> None:
    when, at = When(cron=("* * * * *",), zone="Europe/Berlin"), instant("2026-10-24T12:00Z")
    for _ in range(1000):
        at = next_time(when, at) or 0
    assert at == instant("2026-10-24T12:00Z") + 1000 * 60 * SECOND
