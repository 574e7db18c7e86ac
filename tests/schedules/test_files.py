"""Files of kind: Schedule and kind: Calendar: what they say, and every mistake with its place and a hint."""

from datetime import date

import pytest

from refold.core.times import instant
from refold.playbooks.problems import InvalidPlaybook
from refold.playbooks.schedule_file import CalendarFile, ScheduleFile, read_schedule_file
from refold.schedules.documents import Rules
from refold.schedules.times import When

HEAD = "apiVersion: refold/v1\nkind: Schedule\nmetadata: {name: nightly}\nworkflow: report.yaml\n"


def read(rest: str, head: str = HEAD) -> ScheduleFile:
    found = read_schedule_file((head + rest).encode(), "nightly.yaml")
    assert isinstance(found, ScheduleFile)
    return found


def test_a_file_says_when_what_and_how() -> None:
    found = read("""\
input: {day: "{{ schedule.planned }}", n: 3}
labels: {team: data, urgent: true}
cron: ["30 2 * * *", "@weekly"]
every: 1h30m
at: ["2026-12-24T18:00:00+01:00"]
zone: Europe/Berlin
from: "2026-01-01T00:00:00Z"
until: "2027-01-01T00:00:00Z"
except: holidays
only: [bank_days, half_days]
gap: skip
repeat: both
overlap: buffer_one
catch_up: {policy: all, within: 2d, most: 5}
jitter: 10m
start_within: 1h
pause_after: 3
paused: true
note: until the move is done
""")
    assert found.when == When(
        cron=("30 2 * * *", "@weekly"),
        every=5400,
        at=(instant("2026-12-24T17:00:00Z"),),
        zone="Europe/Berlin",
        anchor=instant("2026-01-01T00:00:00Z"),
        starts=True,
        until=instant("2027-01-01T00:00:00Z"),
        leave_out=("holidays",),
        only=("bank_days", "half_days"),
        gap="skip",
        repeat="both",
    )
    assert found.rules == Rules(
        overlap="buffer_one",
        catch_up="all",
        within=172_800,
        most=5,
        jitter=600,
        start_within=3600,
        pause_after=3,
    )
    assert (found.name, found.workflow, found.paused, found.note) == (
        *("nightly", "report.yaml", True),
        "until the move is done",
    )
    assert found.labels == {"team": "data", "urgent": "true"}
    assert found.input == {"day": "{{ schedule.planned }}", "n": 3}


def test_a_short_file_has_the_defaults() -> None:
    found = read("cron: '0 3 * * *'\n")
    assert found.when == When(cron=("0 3 * * *",))
    assert found.rules == Rules()
    assert not found.paused and not found.warnings


def test_two_restricted_days_are_a_warning() -> None:
    (warning,) = read("cron: '0 9 15 * MON'\n").warnings
    assert (warning.code, warning.place.line) == ("either-day", 5)


@pytest.mark.parametrize(
    ("rest", "code", "place", "hint"),
    [
        ("", "missing-key", (1, 1), "add `cron"),
        ("cron: '30 2 * * * *'", "bad-cron", (5, 8), "every: 20s"),
        ("cron: 30 25 * * *", "bad-cron", (5, 10), "0 to 23"),
        ("cron: ['0 0 * * *', '0 0 * FOO *']", "bad-cron", (5, 28), "JAN to DEC"),
        ("cron: 7", "bad-cron", (5, 7), "30 2"),
        ("cron: []", "wrong-type", (5, 7), ""),
        ("cron: {minute: 3}", "wrong-type", (5, 7), ""),
        ("every: 500ms", "out-of-range", (5, 8), "every: 20s"),
        ("every: often", "bad-duration", (5, 8), "1h30m"),
        ("at: ['2026-01-01T10:00']", "bad-moment", (5, 6), "+01:00"),
        ("at: [tomorrow]", "bad-moment", (5, 6), "+01:00"),
        ("every: 1h\nzone: local", "unknown-zone", (6, 7), "Europe/Berlin"),
        ("every: 1h\nzone: Europe/Berln", "unknown-zone", (6, 7), "did you mean Europe/Berlin"),
        ("every: 1h\nfrom: soon", "bad-moment", (6, 7), "+01:00"),
        ("every: 1h\nfrom: '2026-02-01T00:00Z'\nuntil: '2026-01-01T00:00Z'", "out-of-range", (7, 1), "exchange"),
        ("every: 1h\noverlap: stack", "bad-choice", (6, 10), ""),
        ("every: 1h\ncatch_up: some", "bad-choice", (6, 11), "policy: all"),
        ("every: 1h\ncatch_up: {policy: all, within: 40d}", "out-of-range", (6, 33), "31d"),
        ("every: 1h\ncatch_up: {within: 1d}", "missing-key", (6, 11), "policy"),
        ("every: 1h\npause_after: 0", "out-of-range", (6, 14), "3"),
        ("every: 1h\noverlapp: skip", "unknown-key", (6, 1), "did you mean `overlap`"),
        ("every: 1h\ntimezone: UTC", "unknown-key", (6, 1), "zone"),
        ("every: 1h\ninput: {a: '{{ now }}'}", "unknown-name", (6, 16), "`schedule` alone"),
        ("every: 1h\ninput: {a: '{{ schedule.planed }}'}", "unknown-name", (6, 16), "did you mean `planned`"),
        ("every: 1h\ninput: {a: '{{ schedule.planned | }}'}", "bad-template", (6, 35), ""),
        ("every: 1h\nexcept: [1, days]", "bad-name", (6, 10), "holidays"),
        ("every: 1h\nlabels: {a b: c}", "wrong-type", (6, 9), ""),
    ],
)
def test_a_mistake_has_its_place_and_a_hint(rest: str, code: str, place: tuple[int, int], hint: str) -> None:
    with pytest.raises(InvalidPlaybook) as refused:
        read(f"{rest}\n")
    (problem,) = [each for each in refused.value.problems if each.severity == "error"]
    assert (problem.code, tuple(problem.place)) == (code, place), problem
    assert hint in problem.hint


def test_more_labels_than_a_run_can_have_are_refused() -> None:
    listed = ", ".join(f"l{n}: x" for n in range(15))
    with pytest.raises(InvalidPlaybook, match="at most 14 labels"):
        read(f"every: 1h\nlabels: {{{listed}}}\n")


def test_a_calendar_is_a_list_of_days() -> None:
    head = "apiVersion: refold/v1\nkind: Calendar\nmetadata: {name: holidays}\n"
    found = read_schedule_file(f"{head}days: [2026-12-25, 2026-12-26]\n".encode(), "holidays.yaml")
    assert isinstance(found, CalendarFile)
    assert (found.name, found.days) == ("holidays", (date(2026, 12, 25), date(2026, 12, 26)))
    with pytest.raises(InvalidPlaybook, match="is not a day"):
        read_schedule_file(f"{head}days: [2026-12-32]\n".encode(), "holidays.yaml")


@pytest.mark.parametrize("text", ["word", "[1]", "5", "null"])
def test_a_file_that_is_no_map_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(InvalidPlaybook, match="must be a map"):
        read_schedule_file(text.encode(), "odd.yaml")
