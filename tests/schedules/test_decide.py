"""What follows when a time comes: overlaps, catching up, jitter, failures, pauses. Pure: the time is an argument."""

from typing import Any

import pytest
from msgspec import structs

from refold.core.outcomes import SECOND
from refold.core.state import CANCELLED, COMPLETED, ENDING, FAILED, RUNNING
from refold.core.times import instant, stamp
from refold.schedules.decide import (
    GONE,
    ScheduleDecision,
    jittered,
    look,
    resumed,
    to_cancel,
    triggered,
    with_start,
    without_start,
)
from refold.schedules.documents import MOST_OPEN, MOST_WAITING, OpenRun, Rules, Schedule, Target, WaitingTime
from refold.schedules.times import When

MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
NOON = instant("2026-05-04T12:00Z")


def made(cron: str = "0 * * * *", cursor: int = NOON - HOUR, **rules: Any) -> Schedule:
    target = Target(workflow="report.yaml", plan="p", name="report")
    return Schedule(id="hourly", target=target, when=When(cron=(cron,)), rules=Rules(**rules), cursor=cursor)


class House:
    """A schedule that is looked at, with runs that stand as the test says."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.statuses = schedule, dict[str, str]()
        self.states: dict[int, str] = {}
        self.whys: dict[int, str] = {}
        self.counts: dict[int, int] = {}
        self.starts: list[str] = []
        self.due: int | None = None

    def take(self, found: ScheduleDecision, now: int) -> ScheduleDecision:
        if found.start is not None:
            run = f"run {stamp(found.start.planned)[11:16]}"
            self.starts.append(run)
            self.statuses[run] = RUNNING
            found = with_start(found, run, now)
        self.schedule, self.due = found.schedule, found.due
        for number, record in found.records.items():
            self.states[number], self.whys[number] = record.state, record.why
            self.counts[number] = record.count
        return found

    def at(self, now: int) -> list[str]:
        """Look until nothing more is due; return the runs that have started."""
        self.starts = []
        for _ in range(2000):
            self.take(look(self.schedule, now, self.statuses, {}), now)
            if self.due is None or self.due > now or to_cancel(self.schedule):
                return self.starts
        raise AssertionError("it is due for ever")

    def end(self, run: str, status: str = COMPLETED) -> None:
        self.statuses[run] = status


def test_a_time_that_has_come_starts_one_run_and_the_next_time_is_due() -> None:
    house = House(made())
    assert house.at(NOON) == ["run 12:00"]
    assert house.due == NOON + HOUR
    assert house.at(NOON + MINUTE) == []
    assert house.schedule.previous == NOON


def test_nothing_starts_before_its_time() -> None:
    house = House(made())
    assert house.at(NOON - 1) == []
    assert house.due == NOON


def test_skip_leaves_a_time_out_while_a_run_is_not_over() -> None:
    house = House(made())
    house.at(NOON)
    assert house.at(NOON + HOUR) == []
    assert list(house.states.values()) == ["started", "skipped"]
    assert "run 12:00" in house.whys[2] and "2026-05-04T12:00" in house.whys[2]
    house.end("run 12:00")
    assert house.at(NOON + 2 * HOUR) == ["run 14:00"]


def test_buffer_one_keeps_the_latest_time_and_starts_it_when_the_run_ends() -> None:
    house = House(made(overlap="buffer_one"))
    house.at(NOON)
    assert house.at(NOON + HOUR) == house.at(NOON + 2 * HOUR) == []
    assert list(house.states.values()) == ["started", "skipped", "waiting"]
    assert "waits in its place" in house.whys[2]
    house.end("run 12:00")
    assert house.at(NOON + 2 * HOUR + MINUTE) == ["run 14:00"]
    assert house.states[3] == "started"


def test_buffer_all_keeps_every_time_in_order() -> None:
    house = House(made(overlap="buffer_all"))
    house.at(NOON)
    house.at(NOON + HOUR)
    house.at(NOON + 2 * HOUR)
    house.end("run 12:00", FAILED)
    assert house.at(NOON + 2 * HOUR + MINUTE) == ["run 13:00"]
    assert house.at(NOON + 2 * HOUR + 2 * MINUTE) == []
    house.end("run 13:00")
    assert house.at(NOON + 2 * HOUR + 3 * MINUTE) == ["run 14:00"]


def test_buffer_all_keeps_a_bounded_number_of_times() -> None:
    house = House(made(overlap="buffer_all"))
    house.at(NOON)
    waiting = tuple(WaitingTime(NOON, n) for n in range(MOST_WAITING))
    house.schedule = structs.replace(house.schedule, waiting=waiting)
    house.at(NOON + HOUR)
    assert house.states[2] == "skipped" and str(MOST_WAITING) in house.whys[2]


def test_allow_starts_beside_the_run() -> None:
    house = House(made(overlap="allow"))
    assert house.at(NOON) + house.at(NOON + HOUR) == ["run 12:00", "run 13:00"]
    assert len(house.schedule.runs) == 2


def test_a_schedule_has_a_bounded_number_of_runs_that_are_not_over() -> None:
    house = House(made(overlap="allow"))
    runs = tuple(OpenRun(f"run {n}", NOON - n * DAY) for n in range(MOST_OPEN))
    house.statuses = dict.fromkeys((each.run for each in runs), RUNNING)
    house.schedule = structs.replace(house.schedule, runs=runs)
    assert house.at(NOON) == []
    assert house.states[1] == "skipped" and str(MOST_OPEN) in house.whys[1]
    house.end("run 7")
    assert house.at(NOON + HOUR) == ["run 13:00"]


def test_cancel_other_cancels_the_run_and_starts_when_it_has_ended() -> None:
    house = House(made(overlap="cancel_other"))
    house.at(NOON)
    assert house.at(NOON + HOUR) == []
    assert to_cancel(house.schedule) == ["run 12:00"]
    asked = tuple(structs.replace(each, asked=True) for each in house.schedule.runs)
    house.schedule = structs.replace(house.schedule, runs=asked)
    assert to_cancel(house.schedule) == [], "it is sent once"
    house.end("run 12:00", ENDING)  # its finalizers run
    assert house.at(NOON + HOUR + MINUTE) == []
    house.end("run 12:00", CANCELLED)
    assert house.at(NOON + HOUR + MINUTE) == ["run 13:00"]


def test_terminate_other_cancels_the_run_and_starts_at_once() -> None:
    house = House(made(overlap="terminate_other"))
    house.at(NOON)
    found = house.take(look(house.schedule, NOON + HOUR, house.statuses, {}), NOON + HOUR)
    assert house.starts[-1] == "run 13:00"
    assert to_cancel(found.schedule) == ["run 12:00"]


@pytest.mark.parametrize(
    ("policy", "started"), [("none", []), ("last", ["run 12:00"]), ("all", ["run 10:00", "run 11:00", "run 12:00"])]
)
def test_times_that_nobody_served_are_caught_up(policy: str, started: list[str]) -> None:
    house = House(made(cursor=NOON - 3 * HOUR, catch_up=policy, overlap="allow"))
    assert house.at(NOON + 10 * MINUTE) == started
    assert sum(house.counts.values()) == 3, "no time is without a record"
    assert house.due == NOON + HOUR


def test_catching_up_all_is_bounded_and_keeps_the_latest() -> None:
    house = House(made(cursor=NOON - 10 * HOUR, catch_up="all", most=2, overlap="allow"))
    assert house.at(NOON + 10 * MINUTE) == ["run 11:00", "run 12:00"]
    assert (house.states[1], house.counts[1]) == ("missed", 8)


def test_times_that_are_too_old_are_missed_together() -> None:
    house = House(made(cursor=NOON - 90 * DAY, catch_up="all", most=3, overlap="allow"))
    house.at(NOON + 10 * MINUTE)
    assert house.states[1] == "missed" and "older than 86400 s" in house.whys[1]
    assert list(house.states.values()).count("started") == 3


def test_a_time_in_time_replaces_what_would_be_caught_up_last() -> None:
    house = House(made(cursor=NOON - 3 * HOUR))
    assert house.at(NOON + SECOND) == ["run 12:00"]
    assert house.states[1] == "missed"


def test_a_start_that_is_too_late_is_missed() -> None:
    house = House(made(start_within=10))
    assert house.at(NOON + 20 * SECOND) == []
    assert house.states == {1: "missed"} and "within 10 s" in house.whys[1]


def test_a_time_that_waited_too_long_is_missed() -> None:
    house = House(made(overlap="buffer_one", start_within=1800))
    house.at(NOON)
    house.at(NOON + HOUR)
    house.end("run 12:00")
    assert house.at(NOON + HOUR + 31 * MINUTE) == []
    assert house.states[2] == "missed"


def test_jitter_is_the_same_for_a_time_and_stays_before_the_next_one() -> None:
    schedule = made(jitter=7200)
    begins = [jittered(schedule, NOON + n * HOUR, {}) for n in range(50)]
    assert begins == [jittered(schedule, NOON + n * HOUR, {}) for n in range(50)]
    assert all(0 <= at - NOON - n * HOUR < HOUR for n, at in enumerate(begins))
    assert len({at - NOON - n * HOUR for n, at in enumerate(begins)}) > 40
    assert jittered(made(), NOON, {}) == NOON


def test_with_jitter_the_run_starts_late_for_the_planned_time() -> None:
    house = House(made(jitter=1800))
    assert house.at(NOON - MINUTE) == []
    assert house.due is not None and NOON < house.due <= NOON + HOUR // 2
    assert house.at(house.due - 1) == []
    assert house.at(house.due) == ["run 12:00"]


def test_after_failed_runs_in_a_row_the_schedule_pauses_itself() -> None:
    house = House(made(pause_after=2, overlap="allow"))
    house.at(NOON)
    house.end("run 12:00", FAILED)
    house.at(NOON + HOUR)
    house.end("run 13:00", COMPLETED)
    house.at(NOON + 2 * HOUR)
    house.end("run 14:00", FAILED)
    house.at(NOON + 3 * HOUR)
    assert not house.schedule.paused
    house.end("run 15:00", FAILED)
    assert house.at(NOON + 4 * HOUR) == []
    assert house.schedule.paused and "2 runs in a row failed" in house.schedule.note
    assert house.due is None


def test_what_passed_while_paused_is_not_caught_up_by_resuming() -> None:
    house = House(structs.replace(made(), paused=True))
    assert house.at(NOON + 5 * HOUR) == [] and house.due is None and house.states == {}
    house.schedule = resumed(house.schedule, NOON + 5 * HOUR + MINUTE)
    assert house.at(NOON + 5 * HOUR + MINUTE) == []
    assert house.due == NOON + 6 * HOUR


def test_a_clock_that_is_set_back_starts_nothing_twice() -> None:
    house = House(made(overlap="allow"))
    assert house.at(NOON) == ["run 12:00"]
    assert house.at(NOON - HOUR) == [] and house.due == NOON + HOUR
    assert house.at(NOON) == []
    assert house.at(NOON + HOUR) == ["run 13:00"]


def test_a_run_that_was_deleted_is_over() -> None:
    house = House(made())
    house.at(NOON)
    house.statuses.clear()
    assert house.at(NOON + HOUR) == ["run 13:00"]
    assert GONE not in house.statuses.values()


def test_a_trigger_follows_the_policy_unless_it_brings_one() -> None:
    house = House(made())
    house.at(NOON)
    found = triggered(house.schedule, NOON + MINUTE, house.statuses, {})
    assert found.start is None and found.records[2].state == "skipped"
    found = triggered(house.schedule, NOON + MINUTE, house.statuses, {}, "allow")
    assert found.start is not None and found.start.planned == NOON + MINUTE
    assert found.schedule.cursor == house.schedule.cursor and found.due == NOON + HOUR


def test_a_run_that_cannot_start_is_a_missed_time() -> None:
    found = look(made(), NOON, {}, {})
    done = without_start(found, NOON, "it could not be started: no plan")
    assert done.records[1].state == "missed" and done.schedule.runs == ()
    assert done.schedule.cursor == NOON


def test_a_schedule_that_is_over_is_not_due() -> None:
    schedule = structs.replace(made(), when=When(at=(NOON,)))
    house = House(schedule)
    assert house.at(NOON) == ["run 12:00"]
    assert house.due is None and house.schedule.planned is None
