"""Schedules, their times and their backfills as JSON, and the next times with what is unusual about them."""

from datetime import timedelta
from itertools import islice
from typing import Any

from msgspec import structs

from refold.core import times
from refold.core.outcomes import Instant
from refold.ports import Views
from refold.queries.runs import is_over
from refold.schedules.documents import Backfill, Schedule, TimeRecord
from refold.schedules.times import Calendars, When, times_between

FAR = times.instant("2200-01-01T00:00:00Z")


def schedule_object(schedule: Schedule) -> dict[str, Any]:
    """Return a schedule for programs."""
    when, rules = schedule.when, schedule.rules
    return {
        "id": schedule.id,
        "workflow": schedule.target.workflow,
        "name": schedule.target.name,
        "plan": schedule.target.plan,
        "code": schedule.target.code,
        "input": schedule.target.input,
        "labels": schedule.target.labels,
        "cron": list(when.cron),
        "every": when.every or None,
        "at": [times.stamp(each) for each in when.at],
        "zone": when.zone,
        "from": times.stamp(when.anchor) if when.starts else None,
        "until": None if when.until is None else times.stamp(when.until),
        "except": list(when.leave_out),
        "only": list(when.only),
        "gap": when.gap,
        "repeat": when.repeat,
        "overlap": rules.overlap,
        "catch_up": {"policy": rules.catch_up, "within": rules.within, "most": rules.most},
        "jitter": rules.jitter,
        "start_within": rules.start_within,
        "pause_after": rules.pause_after,
        "state": schedule_state(schedule),
        "note": schedule.note,
        "by": schedule.by,
        "file": schedule.file,
        "planned": None if schedule.planned is None else times.stamp(schedule.planned),
        "next": None if schedule.begins is None else times.stamp(schedule.begins),
        "previous": None if schedule.previous is None else times.stamp(schedule.previous),
        "open_runs": [each.run for each in schedule.runs],
        "waiting": [times.stamp(each.planned) for each in schedule.waiting],
        "failures": schedule.failures,
    }


def with_open_runs(views: Views, schedule: Schedule) -> Schedule:
    """Return the schedule without the runs that are over: it learns of their end only when it looks at a time."""
    return structs.replace(schedule, runs=tuple(each for each in schedule.runs if not is_over(views, each.run)))


def time_object(record: TimeRecord) -> dict[str, Any]:
    return {
        "planned": times.stamp(record.planned),
        "until": None if record.until is None else times.stamp(record.until),
        "count": record.count or None,
        "state": record.state,
        "at": times.stamp(record.at),
        "why": record.why,
        "run": record.run,
        "how": record.how or "planned",
    }


def backfill_object(b: Backfill) -> dict[str, Any]:
    return {
        "id": b.id,
        "schedule": b.schedule,
        "from": times.stamp(b.since),
        "until": times.stamp(b.until),
        "only": b.only,
        "overlap": b.overlap,
        "at_once": b.at_once,
        "order": b.order,
        "by": b.by,
        "state": backfill_state(b),
        "total": b.total,
        "left": len(b.times),
        "started": b.started,
        "failed": b.failed,
        "left_out": b.skipped,
        "open_runs": [each.run for each in b.runs],
        "why": b.why,
    }


def backfill_state(b: Backfill) -> str:
    if b.stopped:
        return "stopped"
    return "done" if b.is_over() else "paused" if b.paused else "running"


def schedule_state(schedule: Schedule) -> str:
    return "paused" if schedule.paused else "over" if schedule.planned is None else "active"


def preview_rows(when: When, begin: Instant, limit: int, calendars: Calendars) -> list[dict[str, Any]]:
    """Return the next times, each with what the clock of the zone shows and what is unusual about it."""
    from refold.schedules.cron import wall_times
    from refold.schedules.zones import moment_of, offset_of, wall_of
    from refold.time_zones import zone_of

    zone = zone_of(when.zone)
    offset, rows = offset_of(begin, zone), list[dict[str, Any]]()
    for at in islice(times_between(when, begin, FAR, calendars), limit):
        local, now = moment_of(at).astimezone(zone), offset_of(at, zone)
        wall = wall_of(at, zone)
        notes = []
        if when.cron and not when.every and not when.at:
            named = (next(iter(wall_times(line, wall - timedelta(minutes=1))), None) == wall for line in when.cron)
            notes += [] if any(named) else ["the clock skips the time; this is the first moment after the gap"]
        if now != offset:
            word = "forward" if now > offset else "back"
            notes.append(f"the clock has gone {word}")
        if local.fold:
            notes.append("the second time that the clock shows this")
        offset = now
        rows.append({"local": local.isoformat(), "utc": times.stamp(at), "note": "; ".join(notes)})
    return rows
