"""What follows when somebody looks at a schedule: which time starts now, and what becomes of the others. Pure: the time
and how runs stand are arguments."""

import hashlib
from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from refold.core.outcomes import SECOND, Instant
from refold.core.state import COMPLETED, FAILED, TERMINAL
from refold.core.times import stamp
from refold.schedules.documents import MOST_OPEN, MOST_WAITING, OpenRun, Schedule, TimeRecord, WaitingTime
from refold.schedules.times import Calendars, next_time, times_between

LATE = 60  # seconds: a time that nobody took for so long was missed because nobody served
GONE = "gone"
"""The status of a run that was deleted."""

CROWDED = f"{MOST_OPEN} runs of the schedule are not over"


class StartAt(Struct, frozen=True):
    """A time whose run starts now; `number` is that of its record."""

    planned: Instant
    number: int
    how: str = ""


class ScheduleDecision(Struct):
    """What was decided: the schedule as it is now, what is recorded, the time that starts, and runs to cancel."""

    schedule: Schedule
    records: dict[int, TimeRecord]
    start: StartAt | None = None
    due: Instant | None = None  # when somebody has to look again


def jittered(schedule: Schedule, planned: Instant, calendars: Calendars) -> Instant:
    """Return when a time starts: the same for the same time, and before the time that follows."""
    most = round(schedule.rules.jitter * SECOND)
    if not most:
        return planned
    following = next_time(schedule.when, planned, calendars)
    if following is not None:
        most = min(most, following - planned - 1)
    digest = hashlib.sha256(f"{schedule.id}/{planned}".encode()).digest()
    return planned + int.from_bytes(digest[:8], "big") % (most + 1)


def to_cancel(schedule: Schedule) -> Sequence[str]:
    """Return the runs that must be cancelled to make room."""
    return [each.run for each in schedule.runs if each.stops and not each.asked]


def due_of(schedule: Schedule, now: Instant) -> Instant | None:
    """Return when somebody has to look at a schedule."""
    return now if to_cancel(schedule) else schedule.begins


def look(schedule: Schedule, now: Instant, statuses: Mapping[str, str], calendars: Calendars) -> ScheduleDecision:
    """Decide what follows now. At most one run starts; if more is to do, the schedule is due again at once.

    `statuses` has how each run of `schedule.runs` stands.
    """
    d = _Decision(schedule, now, calendars)
    d.note_ends(statuses)
    if not d.schedule.paused:
        d.take_times()
        d.start_waiting()
    return d.ended()


def triggered(
    schedule: Schedule, now: Instant, statuses: Mapping[str, str], calendars: Calendars, overlap: str = ""
) -> ScheduleDecision:
    """Decide what follows if a person wants a run now; `overlap` replaces the policy of the schedule."""
    d = _Decision(schedule, now, calendars)
    d.note_ends(statuses)
    d.admit(now, "triggered", overlap)
    if d.start is None:
        d.start_waiting()
    return d.ended()


class _Decision:
    def __init__(self, schedule: Schedule, now: Instant, calendars: Calendars) -> None:
        self.schedule, self.now, self.calendars = schedule, now, calendars
        self.records: dict[int, TimeRecord] = {}
        self.start: StartAt | None = None
        self.again = False  # whether there is more to do now

    def note_ends(self, statuses: Mapping[str, str]) -> None:
        """Forget the runs that are over; after too many failures in a row the schedule pauses itself."""
        s, failures, last = self.schedule, self.schedule.failures, ""
        for each in s.runs:
            status = statuses.get(each.run, GONE)
            if status == FAILED:
                failures, last = failures + 1, each.run
            elif status == COMPLETED:
                failures = 0
        runs = tuple(each for each in s.runs if not is_over(statuses.get(each.run, GONE)))
        self._change(runs=runs, failures=failures)
        most = s.rules.pause_after
        if most is not None and failures >= most and last and not s.paused:
            why = f"paused by itself: {failures} runs in a row failed, the last one is {last}"
            self._change(paused=True, note=why, by="", paused_at=self.now)

    def take_times(self) -> None:
        """Decide every time that has come, until one starts."""
        s, now = self.schedule, self.now
        oldest = now - round(s.rules.within * SECOND)
        if s.cursor < oldest:
            self._miss_before(oldest)
        due = self._due()
        late = [at for at, begins in due if now - begins > LATE * SECOND]
        kept = set(self._caught_up(late, bool(len(due) - len(late))))
        missed: list[Instant] = []
        for at, begins in due:
            if at in late and at not in kept:
                missed.append(at)
                continue
            self._miss(missed, self._why_missed())
            missed = []
            if s.rules.start_within is not None and now - begins > s.rules.start_within * SECOND:
                self._miss([at], f"it could not start within {s.rules.start_within:g} s")
            else:
                self.admit(at)
            self._change(cursor=at)
            if self.start is not None:
                self.again = True
                return
        self._miss(missed, self._why_missed())
        if due:
            self._change(cursor=max(due[-1][0], self.schedule.cursor))

    def _due(self) -> list[tuple[Instant, Instant]]:
        """Return the times that have come, each with the moment at which it begins."""
        s, due = self.schedule, list[tuple[Instant, Instant]]()
        for at in times_between(s.when, s.cursor, self.now, self.calendars):
            begins = jittered(s, at, self.calendars)
            if begins <= self.now:
                due.append((at, begins))
        return due

    def _caught_up(self, late: list[Instant], others: bool) -> list[Instant]:
        match self.schedule.rules.catch_up:
            case "none":
                return []
            case "last":
                return [] if others else late[-1:]
            case "all":
                return late[-self.schedule.rules.most :]

    def _why_missed(self) -> str:
        return f"nobody served the schedule, and `catch_up` is {self.schedule.rules.catch_up}"

    def _miss_before(self, moment: Instant) -> None:
        first = next_time(self.schedule.when, self.schedule.cursor, self.calendars)
        if first is not None and first <= moment:
            why = f"nobody served the schedule, and the times are older than {self.schedule.rules.within:g} s"
            self._record(TimeRecord(planned=first, state="missed", at=self.now, why=why, until=moment, count=0))
        self._change(cursor=moment)

    def _miss(self, times: list[Instant], why: str) -> None:
        if times:
            until = times[-1] if len(times) > 1 else None
            record = TimeRecord(planned=times[0], state="missed", at=self.now, why=why, until=until, count=len(times))
            self._record(record)

    def admit(self, at: Instant, how: str = "", overlap: str = "") -> None:
        """Decide by the policy for overlaps what becomes of a time."""
        s, policy = self.schedule, overlap or self.schedule.rules.overlap
        if len(s.runs) >= MOST_OPEN:
            self._record(TimeRecord(planned=at, state="skipped", at=self.now, why=CROWDED, how=how))
        elif policy == "allow" or (not s.runs and not s.waiting):
            self._begin(at, how)
        elif policy == "skip":
            why = f"run {s.runs[-1].run if s.runs else '(waiting)'} of {stamp(_last(s))} is not over"
            self._record(TimeRecord(planned=at, state="skipped", at=self.now, why=why, how=how))
        elif policy == "terminate_other":
            self._stop_runs()
            self._begin(at, how)
        elif policy == "buffer_all" and len(s.waiting) >= MOST_WAITING:
            why = f"{MOST_WAITING} times wait already"
            self._record(TimeRecord(planned=at, state="skipped", at=self.now, why=why, how=how))
        else:
            self._wait(at, how, alone=policy != "buffer_all")
            if policy == "cancel_other":
                self._stop_runs()

    def _wait(self, at: Instant, how: str, alone: bool) -> None:
        if alone:
            for each in self.schedule.waiting:
                why = f"a later time, {stamp(at)}, waits in its place"
                record = TimeRecord(planned=each.planned, state="skipped", at=self.now, why=why)
                self.records[each.number] = record
            self._change(waiting=())
        why = "a run of the schedule is not over"
        number = self._record(TimeRecord(planned=at, state="waiting", at=self.now, why=why, how=how))
        self._change(waiting=(*self.schedule.waiting, WaitingTime(at, number)))

    def _begin(self, at: Instant, how: str) -> None:
        self._change(records=self.schedule.records + 1)
        self.start = StartAt(at, self.schedule.records, how)

    def start_waiting(self) -> None:
        """Start the first time that waits, if no run is in its way."""
        while self.start is None and self.schedule.waiting and not self.schedule.runs:
            first, *rest = self.schedule.waiting
            self._change(waiting=tuple(rest))
            most = self.schedule.rules.start_within
            if most is not None and self.now - first.planned > most * SECOND:
                why = f"it could not start within {most:g} s, because a run was not over"
                record = TimeRecord(planned=first.planned, state="missed", at=self.now, why=why)
                self.records[first.number] = record
            else:
                self.start = StartAt(first.planned, first.number)

    def ended(self) -> ScheduleDecision:
        s = self.schedule
        planned = None if s.paused else next_time(s.when, s.cursor, self.calendars)
        begins = None
        if planned is not None:
            begins = jittered(s, planned, self.calendars)
        self._change(planned=planned, begins=begins)
        due = self.now if self.again else due_of(self.schedule, self.now)
        return ScheduleDecision(self.schedule, self.records, self.start, due)

    def _stop_runs(self) -> None:
        """Cancel the runs that are not over. Only the commit that notes a cancellation sends it, so it is sent once."""
        self._change(runs=tuple(structs.replace(each, stops=True) for each in self.schedule.runs))

    def _record(self, record: TimeRecord) -> int:
        self._change(records=self.schedule.records + 1)
        self.records[self.schedule.records] = record
        return self.schedule.records

    def _change(self, **values: object) -> None:
        self.schedule = structs.replace(self.schedule, **values)


def _last(schedule: Schedule) -> Instant:
    return schedule.runs[-1].planned if schedule.runs else schedule.waiting[-1].planned


def is_over(status: str) -> bool:
    return status in TERMINAL or status == GONE


def with_start(look: ScheduleDecision, run: str, at: Instant, why: str = "") -> ScheduleDecision:
    """Return what was decided, with the run that has started."""
    start = look.start
    assert start is not None
    record = TimeRecord(planned=start.planned, state="started", at=at, run=run, why=why, how=start.how)
    schedule = structs.replace(
        look.schedule,
        runs=(*look.schedule.runs, OpenRun(run, start.planned)),
        previous=max(start.planned, look.schedule.previous or start.planned),
    )
    return ScheduleDecision(schedule, {**look.records, start.number: record}, None, look.due)


def without_start(look: ScheduleDecision, at: Instant, why: str) -> ScheduleDecision:
    """Return what was decided, where the run could not be started."""
    start = look.start
    assert start is not None
    record = TimeRecord(planned=start.planned, state="missed", at=at, why=why, how=start.how)
    due = at if look.schedule.waiting and not look.schedule.paused else look.due
    return ScheduleDecision(look.schedule, {**look.records, start.number: record}, None, due)


def resumed(schedule: Schedule, now: Instant) -> Schedule:
    """Return the schedule without its pause: times that passed meanwhile are not caught up."""
    return structs.replace(
        schedule, paused=False, note="", by="", paused_at=None, failures=0, cursor=max(now, schedule.cursor)
    )
