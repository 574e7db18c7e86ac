"""What people do with schedules: make, change, pause, resume, trigger, backfill and delete them, each in one commit. No
engine is needed; the processes that serve the store find what has changed."""

from collections.abc import Callable, Collection, Sequence
from datetime import date
from typing import Literal

from msgspec import Struct, json, structs

from refold.core.outcomes import Instant
from refold.errors import Conflict, InvalidValue, NotFound
from refold.ports import Document, Store, StoreTurn, Views
from refold.runtime.mailroom import Intake
from refold.runtime.schedule_writes import put_look
from refold.runtime.schedules import ScheduleReader, calendars_of, has_run
from refold.schedules.decide import ScheduleDecision, due_of, jittered, resumed, triggered, with_start, without_start
from refold.schedules.documents import (
    BACKFILL,
    CALENDAR,
    MOST_BACKFILLED,
    SCHEDULE,
    SCHEDULE_ID,
    TIME,
    Backfill,
    Overlap,
    Schedule,
    TimeRecord,
    backfill_id,
    encoded,
    read_backfill,
    read_schedule,
    read_time,
)
from refold.schedules.times import Calendars, next_time, times_between

TRIES = 20  # when others change the same document
PAGE = 200

Order = Literal["oldest", "newest"]
Only = Literal["missing", "all"]


class BackfillWanted(Struct, frozen=True, kw_only=True):
    """What a person asks of a backfill."""

    since: Instant
    until: Instant
    only: Only = "missing"
    overlap: Literal["allow", "buffer_all"] = "allow"
    at_once: int = 1
    order: Order = "oldest"
    by: str = ""


def check_id(id: str) -> None:
    """Raises InvalidValue."""
    if not SCHEDULE_ID.fullmatch(id):
        raise InvalidValue("schedule", f"{id!r} is not a name: letters, digits, `_`, `.` and `-`, at most 64")


def taken(id: str) -> Conflict:
    return Conflict(f"there is a schedule {id}: `--replace` changes it, and `refold schedules delete {id}` removes it")


def put_schedule(store: Store, schedule: Schedule, *, replace: bool = False) -> bool:
    """Make a schedule, or with `replace` change the one of its name; return whether it is new.

    One that is made or changed now never fires for the past. A changed one keeps its runs and its history. Raises
    Conflict if there is one already.
    """
    check_id(schedule.id)
    with store.turn([]) as turn:
        before = turn.document(SCHEDULE, schedule.id)
        if before is not None and not replace:
            raise taken(schedule.id)
        if before is not None:
            schedule = _continued(schedule, read_schedule(before))
        schedule = planned_from(schedule, turn.now, calendars_of(store.views, schedule.when))
        version = 0 if before is None else before.version
        turn.put_document(SCHEDULE, schedule.id, encoded(schedule), version, due_of(schedule, turn.now))
        return before is None


def _continued(schedule: Schedule, before: Schedule) -> Schedule:
    return structs.replace(
        schedule,
        runs=before.runs,
        waiting=before.waiting,
        records=before.records,
        previous=before.previous,
        failures=before.failures,
    )


def planned_from(schedule: Schedule, now: Instant, calendars: Calendars) -> Schedule:
    """Return the schedule with its next time after now."""
    planned = None if schedule.paused else next_time(schedule.when, now, calendars)
    begins = None
    if planned is not None:
        begins = jittered(schedule, planned, calendars)
    paused_at = (schedule.paused_at or now) if schedule.paused else None
    return structs.replace(schedule, cursor=now, planned=planned, begins=begins, paused_at=paused_at)


def put_calendar(store: Store, name: str, days: Sequence[date]) -> None:
    """Make a calendar, or replace the one of its name. Schedules use it for the times that are planned from now on."""
    check_id(name)
    with store.turn([]) as turn:
        before = turn.document(CALENDAR, name)
        turn.put_document(CALENDAR, name, json.encode(sorted(set(days))), 0 if before is None else before.version)


def find_schedule(views: Views, id: str) -> Schedule:
    """Raises NotFound."""
    document = views.document(SCHEDULE, id)
    if document is None:
        from refold.names import did_you_mean

        known = [each.id for each in views.documents(SCHEDULE, limit=PAGE)]
        raise NotFound(f"there is no schedule {id!r}; {did_you_mean(id, known)}")
    return read_schedule(document)


def list_schedules(views: Views, after: str = "", limit: int = 100) -> list[Schedule]:
    return [read_schedule(each) for each in views.documents(SCHEDULE, after, limit)]


def last_times(views: Views, schedule: Schedule, limit: int = 20) -> list[TimeRecord]:
    """Return what happened to the last times of a schedule, the newest first."""
    from refold.schedules.documents import time_id

    after = time_id(schedule.id, max(schedule.records - limit, 0))
    found = views.documents(TIME, after, limit)
    return [read_time(each) for each in reversed(found) if each.id.startswith(f"{schedule.id}/")]


def backfills_of(views: Views, id: str) -> list[Backfill]:
    return [read_backfill(each) for each in _documents_of(views, BACKFILL, id)]


def _documents_of(views: Views, kind: str, schedule: str) -> list[Document]:
    found: list[Document] = []
    after = f"{schedule}/"
    while True:
        page = views.documents(kind, after, PAGE)
        own = [each for each in page if each.id.startswith(f"{schedule}/")]
        found += own
        if len(own) < PAGE:
            return found
        after = own[-1].id


def change_schedule(store: Store, id: str, change: Callable[[Schedule, Instant], Schedule]) -> Schedule:
    """Raises NotFound."""
    find_schedule(store.views, id)
    with store.turn([]) as turn:
        document = turn.document(SCHEDULE, id)
        if document is None:
            raise NotFound(f"there is no schedule {id!r}")
        changed = change(read_schedule(document), turn.now)
        turn.put_document(SCHEDULE, id, encoded(changed), document.version, due_of(changed, turn.now))
        return changed


def pause_schedule(store: Store, id: str, note: str = "", by: str = "") -> Schedule:
    """Pause a schedule: the times that pass meanwhile are not caught up. Runs that have started continue."""

    def change(schedule: Schedule, now: Instant) -> Schedule:
        at = schedule.paused_at if schedule.paused else now
        return structs.replace(schedule, paused=True, note=note, by=by, paused_at=at, planned=None, begins=None)

    return change_schedule(store, id, change)


def resume_schedule(store: Store, id: str) -> tuple[Schedule, Instant | None, int]:
    """Resume a schedule. Return it, when it was paused, and how many times passed since, at most MOST_BACKFILLED."""
    before = find_schedule(store.views, id)
    calendars = calendars_of(store.views, before.when)
    at = before.paused_at if before.paused else None

    def change(schedule: Schedule, now: Instant) -> Schedule:
        if not schedule.paused:
            return schedule
        changed = planned_from(resumed(schedule, now), now, calendars)
        return structs.replace(changed, begins=now) if changed.waiting else changed

    changed = change_schedule(store, id, change)
    passed = 0
    if at is not None:
        for passed, _ in enumerate(times_between(before.when, at, changed.cursor, calendars), 1):
            if passed == MOST_BACKFILLED:
                break
    return changed, at, passed


def delete_schedule(store: Store, id: str) -> None:
    """Delete a schedule with its history and its backfills; its runs stay. Raises NotFound."""
    find_schedule(store.views, id)
    with store.turn([]) as turn:
        for kind in (TIME, BACKFILL):
            for each in _documents_of(store.views, kind, id):
                _delete(turn, kind, each.id)
        _delete(turn, SCHEDULE, id)


def _delete(turn: StoreTurn, kind: str, id: str) -> None:
    document = turn.document(kind, id)
    if document is not None:
        turn.delete_document(kind, id, document.version)


def trigger_schedule(intake: Intake, store: Store, id: str, overlap: Overlap | None = None) -> TimeRecord:
    """Start a run now, for the planned time of now; `overlap` replaces the policy of the schedule. Return what happened
    to this time. Raises NotFound."""
    reader = ScheduleReader(store, intake.turns)
    find_schedule(store.views, id)
    for tries in range(TRIES):
        document = store.views.document(SCHEDULE, id)
        if document is None:
            raise NotFound(f"there is no schedule {id!r}")
        schedule: Schedule = read_schedule(document)
        now = store.now()
        found = triggered(schedule, now, reader.statuses(schedule.runs), reader.calendars(schedule), overlap or "")
        try:
            return _triggered(intake, reader, document, found, now)
        except Conflict:
            if tries == TRIES - 1:
                raise
    raise AssertionError("the last try has returned or raised")


def _triggered(
    intake: Intake, reader: ScheduleReader, document: Document, found: ScheduleDecision, now: Instant
) -> TimeRecord:
    if found.start is None:
        with reader.store.turn([]) as turn:
            put_look(turn, document, found)
        return found.records[max(found.records)]
    start = found.start
    try:
        firing = reader.firing(document, found)
    except (InvalidValue, NotFound) as error:
        failed = without_start(found, now, f"it could not be started: {error}")
        with reader.store.turn([]) as turn:
            put_look(turn, document, failed)
        raise
    intake.send(firing.run, firing.start, firing.rider)
    return with_start(found, firing.run, now).records[start.number]


def backfill_times(views: Views, schedule: Schedule, wanted: BackfillWanted, now: Instant) -> tuple[list[Instant], int]:
    """Return the times of a backfill in their order, and how many of all were left out because they have a run.

    Raises InvalidValue if there are more than MOST_BACKFILLED, or none.
    """
    if wanted.since > wanted.until:
        raise InvalidValue("backfill", "it ends before it begins")
    if wanted.at_once < 1:
        raise InvalidValue("at_once", "at least one run at a time")
    found: list[Instant] = []
    left_out = 0
    last = min(wanted.until, now)
    for at in times_between(schedule.when, wanted.since - 1, last, calendars_of(views, schedule.when)):
        if wanted.only == "missing" and has_run(views, schedule.id, at):
            left_out += 1
        else:
            found.append(at)
        if len(found) > MOST_BACKFILLED:
            why = f"it has more than {MOST_BACKFILLED} times; backfill a shorter span after the other"
            raise InvalidValue("backfill", why)
    return (found if wanted.order == "oldest" else found[::-1]), left_out


def put_backfill(store: Store, schedule: str, id: str, wanted: BackfillWanted) -> Backfill:
    """Make a backfill; the processes that serve the store start its runs. Raises NotFound or InvalidValue."""
    parent = find_schedule(store.views, schedule)
    times, left_out = backfill_times(store.views, parent, wanted, store.now())
    if not times:
        why = f"all {left_out} times have a run" if left_out else "the schedule names no time in this span"
        raise InvalidValue("backfill", f"there is nothing to do: {why}")
    made = Backfill(
        id=id,
        schedule=schedule,
        since=wanted.since,
        until=wanted.until,
        only=wanted.only,
        overlap=wanted.overlap,
        at_once=wanted.at_once,
        order=wanted.order,
        by=wanted.by,
        times=tuple(times),
        total=len(times),
    )
    with store.turn([]) as turn:
        turn.put_document(BACKFILL, backfill_id(schedule, id), encoded(made), 0, turn.now)
    return made


def steer_backfill(store: Store, schedule: str, id: str, action: Literal["pause", "resume", "stop"]) -> Backfill:
    """Pause, resume or stop a backfill: its runs that have started continue. Raises NotFound."""
    with store.turn([]) as turn:
        document = turn.document(BACKFILL, backfill_id(schedule, id))
        if document is None:
            raise NotFound(f"schedule {schedule} has no backfill {id!r}")
        b: Backfill = read_backfill(document)
        if action != "stop" and (b.stopped or b.is_over()):
            state = "stopped" if b.stopped else "done"
            raise Conflict(f"backfill {id} is {state}; a new one continues: `refold schedules backfill {schedule}`")
        if action == "stop":
            b = structs.replace(b, stopped=True, why="stopped by a person")
        else:
            b = structs.replace(b, paused=action == "pause")
        turn.put_document(BACKFILL, document.id, encoded(b), document.version, turn.now)
        return b


def sync_schedule(store: Store, wanted: Schedule) -> str:
    """Make the schedule of the database that of its file; return what has changed, or an empty text.

    A schedule that says the same as before is not touched, so that times that nobody served are caught up. One that was
    paused by a person stays paused; one that was paused because its file was gone is resumed.
    """
    document = store.views.document(SCHEDULE, wanted.id)
    if document is None:
        put_schedule(store, wanted)
        return "made"
    before: Schedule = read_schedule(document)
    if not wanted.paused and before.paused and before.note != _gone(before.file) and before.by:
        wanted = structs.replace(wanted, paused=True, note=before.note, by=before.by, paused_at=before.paused_at)
    same_times = (before.when, before.rules, before.paused) == (wanted.when, wanted.rules, wanted.paused)
    if same_times and (before.target, before.file, before.note) == (wanted.target, wanted.file, wanted.note):
        return ""
    if same_times:
        changed = structs.replace(before, target=wanted.target, file=wanted.file, note=wanted.note)
        with store.turn([]) as turn:
            turn.put_document(SCHEDULE, wanted.id, encoded(changed), document.version, due_of(changed, turn.now))
        return "changed what it starts"
    put_schedule(store, wanted, replace=True)
    return "resumed" if before.paused and not wanted.paused else "changed"


def _gone(file: str) -> str:
    return f"its file {file} is not there any more"


def pause_missing(store: Store, there: Collection[str], folder: str, broken: Collection[str]) -> list[str]:
    """Pause the schedules whose file in this folder is not there any more; return their names. `there` are the
    schedules of the folder, `broken` the files that cannot be read now: their schedules stay as they are."""
    paused: list[str] = []
    after = ""
    while True:
        page = list_schedules(store.views, after, PAGE)
        for each in page:
            is_ours = each.file.startswith(folder.rstrip("/") + "/") and each.file not in broken
            if is_ours and each.id not in there and not each.paused:
                pause_schedule(store, each.id, _gone(each.file))
                paused.append(each.id)
        if len(page) < PAGE:
            return paused
        after = page[-1].id
