"""Routes for schedules and their backfills. What they change is written as the command line writes it."""

import os
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from msgspec import Struct, json, structs

from refold.core.facts import Planned
from refold.core.graph import prepare
from refold.core.times import stamp
from refold.errors import Conflict, InvalidValue, NotFound
from refold.playbooks.schedule_file import ScheduleFile, read_schedule_file
from refold.ports import Document, Store
from refold.queries.reading import graph_of
from refold.queries.runs import moment
from refold.queries.schedules import backfill_object, preview_rows, schedule_object, time_object, with_open_runs
from refold.runtime.children import check_inputs
from refold.runtime.mailroom import Intake
from refold.runtime.schedule_changes import (
    BackfillWanted,
    backfill_times,
    backfills_of,
    check_id,
    delete_schedule,
    find_schedule,
    last_times,
    list_schedules,
    pause_schedule,
    put_backfill,
    put_schedule,
    resume_schedule,
    steer_backfill,
    trigger_schedule,
)
from refold.runtime.schedules import calendars_of, rendered_input
from refold.schedules.documents import SCHEDULE, Overlap, Schedule, Target
from refold.schedules.times import Calendars
from refold.server.problems import HttpProblem, invalid
from refold.server.routes import Answer, Call
from refold.server.runs import ListQuery, link_header
from refold.wiring.world import language

T = TypeVar("T")
MOST_TIMES = 1000  # of one answer


class ScheduleBody(Struct, frozen=True, forbid_unknown_fields=True, rename={"since": "from", "leave_out": "except"}):
    """A schedule: field by field, or as the text of a file of `kind: Schedule`."""

    definition: str = ""  # the text of a file, instead of the fields
    workflow: str = ""  # of the catalogue
    plan: str = ""  # the hash of a stored plan, instead of a workflow of the catalogue
    code: str = ""  # Python workflows that a worker needs for the plan
    input: dict[str, Any] = {}
    labels: dict[str, str] = {}
    cron: tuple[str, ...] = ()
    every: str = ""
    at: tuple[str, ...] = ()
    zone: str = ""
    since: str = ""
    until: str = ""
    leave_out: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    gap: str = ""
    repeat: str = ""
    overlap: str = ""
    catch_up: Any = None
    jitter: str = ""
    start_within: str = ""
    pause_after: int | None = None
    paused: bool = False
    note: str = ""


class PauseBody(Struct, frozen=True, forbid_unknown_fields=True):
    note: str = ""


class TriggerBody(Struct, frozen=True, forbid_unknown_fields=True):
    overlap: Overlap | None = None  # instead of the policy of the schedule


class BackfillBody(Struct, frozen=True, forbid_unknown_fields=True, rename={"since": "from"}):
    since: str  # a moment, or a span such as 2d for so long ago
    until: str | None = None  # nothing: now
    only: Literal["missing", "all"] = "missing"
    overlap: Literal["allow", "buffer_all"] = "allow"
    at_once: int = 1
    order: Literal["oldest", "newest"] = "oldest"
    dry_run: bool = False
    id: str = ""


class PreviewBody(Struct, frozen=True, forbid_unknown_fields=True, rename={"since": "from"}):
    definition: str = ""  # the text of a file of `kind: Schedule`
    id: str = ""  # or a schedule that there is
    since: str | None = None  # the times after this moment; nothing: now
    limit: int = 10


class TimesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    times: int = 20  # how many of the last times are shown


def _tag(document: Document) -> str:
    return f'"{document.version}"'


def _found(call: Call, id: str) -> tuple[Schedule, Document]:
    """Call it on a thread for readers. Raises NotFound."""
    schedule, document = find_schedule(call.service.views, id), call.service.views.document(SCHEDULE, id)
    if document is None or not call.credential.sees(schedule.target.name):
        raise NotFound(f"there is no schedule {id!r}")
    return schedule, document


def shown_schedule(schedule: Schedule, call: Call) -> dict[str, Any]:
    found = schedule_object(schedule)
    return found if call.credential.may("values") else {name: found[name] for name in found if name != "input"}


async def list_all(call: Call) -> Answer:
    query: ListQuery = call.query
    limit, scope = query.checked_limit(), f"schedules:{call.path['ns']}"
    after = call.service.cursors.read(query.cursor, scope) if query.cursor else ""
    rows = await call.service.read(lambda: list_schedules(call.service.views, after, limit))
    cursor = call.service.cursors.written(rows[-1].id, scope) if len(rows) == limit else None
    shown = [shown_schedule(each, call) for each in rows if call.credential.sees(each.target.name)]
    return Answer(
        {"items": shown, "next_cursor": cursor, "more": cursor is not None}, headers=link_header(call, cursor)
    )


async def show(call: Call) -> Answer:
    """A schedule, what happened to its last times, and its backfills."""
    query: TimesQuery = call.query
    if not 0 <= query.times <= MOST_TIMES:
        raise invalid("?times", f"{query.times} is not between 0 and {MOST_TIMES}")
    return await _answer(call, call.path["id"], query.times)


async def _answer(call: Call, id: str, limit: int = 20, status: int = 200, **more: Any) -> Answer:
    def look() -> tuple[dict[str, Any], str]:
        schedule, document = _found(call, id)
        views = call.service.views
        shown = shown_schedule(with_open_runs(views, schedule), call)
        shown["times"] = [time_object(each) for each in last_times(views, schedule, limit)] if limit else []
        shown["backfills"] = [backfill_object(each) for each in backfills_of(views, id)]
        return shown, _tag(document)

    shown, tag = await call.service.read(look)
    return Answer(shown | more, status, {"etag": tag})


def _check_version(call: Call, document: Document | None) -> None:
    """A change names the version that it replaces. Raises HttpProblem."""
    wanted = call.headers.get("if-match", "")
    if document is None:
        if wanted and wanted != "*":
            raise HttpProblem(412, "changed_meanwhile", "The schedule has changed", "it does not exist any more")
        return
    if not wanted:
        why = "send If-Match with the ETag of the schedule that you change"
        raise HttpProblem(428, "precondition_required", "The version is missing", why)
    if wanted not in ("*", _tag(document)):
        raise HttpProblem(412, "changed_meanwhile", "The schedule has changed", "read it again before you change it")


async def put(call: Call) -> Answer:
    """Make a schedule, or change the one of this name. It never starts runs for times before now."""
    id, body = call.path["id"], call.body
    check_id(id)
    document = await call.service.read(lambda: call.service.views.document(SCHEDULE, id))
    if document is not None:
        await call.service.read(lambda: _found(call, id))
    _check_version(call, document)
    read = await call.service.read(lambda: _read(id, body))
    target = await _target(call, read, body)
    schedule = Schedule(
        id=id,
        target=target,
        when=read.when,
        rules=read.rules,
        paused=read.paused,
        note=read.note,
        by=call.credential.name,
    )

    def write(store: Store) -> bool:
        _check_version(call, store.views.document(SCHEDULE, id))
        return put_schedule(store, schedule, replace=document is not None)

    is_new = await call.service.engine.change_schedules(write)
    return await _answer(call, id, status=201 if is_new else 200)


def _read(id: str, body: ScheduleBody) -> ScheduleFile:
    """Read a schedule as the file of it would be read. Raises InvalidPlaybook."""
    text = body.definition
    if not text:
        fields = {
            name: value
            for name, value in _fields(body).items()
            if name not in ("definition", "plan", "code") and value not in ("", (), {}, None, False)
        }
        entries = {"apiVersion": "refold/v1", "kind": "Schedule", "metadata": {"name": id}, **fields}
        entries.setdefault("workflow", body.plan)
        text = "".join(f"{name}: {json.encode(value).decode()}\n" for name, value in entries.items())
    found = read_schedule_file(text.encode(), f"{id}.yaml")
    if not isinstance(found, ScheduleFile):
        raise InvalidValue("definition", "it is a calendar; a schedule is of `kind: Schedule`")
    if found.name != id:
        raise InvalidValue("definition", f"the schedule is called {found.name!r}, and its address {id!r}")
    return found


def _fields(body: ScheduleBody) -> dict[str, Any]:
    return {each.encode_name: getattr(body, each.name) for each in structs.fields(body)}


async def _target(call: Call, read: ScheduleFile, body: ScheduleBody) -> Target:
    """Return what a schedule starts, with its inputs checked as they would be for some time."""
    if body.plan:
        if not call.credential.may("write"):
            raise InvalidValue("plan", "name a workflow of the catalogue")
        graph = await call.service.read(lambda: graph_of(call.service.views, body.plan))
        plan, labels = graph.plan, dict[str, str]()
    else:
        entry = await call.service.catalogue.find(read.workflow)
        if entry.plan is None:
            raise NotFound(f"there is no workflow {read.workflow!r}")
        await call.service.engine.register(entry.workflow)
        plan, labels = entry.plan, entry.workflow.labels() if hasattr(entry.workflow, "labels") else {}
    if not call.credential.sees(plan.name):
        raise NotFound(f"there is no workflow {read.workflow!r}")
    is_python = bool(plan.events)
    if not is_python:
        sample = rendered_input(language, "refold", read.input, Planned(read.name, 0, 0))
        await call.service.read(lambda: check_inputs(plan, sample))
    return Target(
        workflow=read.workflow,
        plan=prepare(plan).hash,
        name=plan.name,
        code=body.code or (call.service.engine.homes.get(prepare(plan).hash, "") if not is_python else read.workflow),
        is_python=is_python,
        input=read.input,
        labels={**labels, **read.labels},
        folder=call.service.engine.folder,
    )


async def _change(call: Call, change: Callable[[Store], T]) -> T:
    """Change a schedule that this credential may see."""
    await call.service.read(lambda: _found(call, call.path["id"]))
    return await call.service.engine.change_schedules(change)


async def delete(call: Call) -> Answer:
    """Delete a schedule, with its history and its backfills; its runs stay."""
    id = call.path["id"]

    def write(store: Store) -> None:
        _check_version(call, store.views.document(SCHEDULE, id))
        delete_schedule(store, id)

    await _change(call, write)
    return Answer(status=204)


async def pause(call: Call) -> Answer:
    await _change(call, lambda store: pause_schedule(store, call.path["id"], call.body.note, call.credential.name))
    return await _answer(call, call.path["id"])


async def resume(call: Call) -> Answer:
    """Resume a schedule. `passed` times of the pause were not started; a backfill from `paused_at` starts them."""
    _, since, passed = await _change(call, lambda store: resume_schedule(store, call.path["id"]))
    paused_at = None if since is None else stamp(since)
    return await _answer(call, call.path["id"], passed=passed, paused_at=paused_at)


async def trigger(call: Call) -> Answer:
    """Start a run now, for the planned time of now."""
    engine, overlap = call.service.engine, call.body.overlap
    record = await _change(
        call, lambda store: trigger_schedule(Intake(engine.mailroom.turns), store, call.path["id"], overlap)
    )
    if record.state == "skipped":
        raise Conflict(f"{call.path['id']} was not started: {record.why}; `overlap: allow` starts it beside the other")
    if record.run:
        engine.mailroom.wake(record.run)
    return Answer(time_object(record))


async def backfill(call: Call) -> Answer:
    """Start runs for times of the past, or say which with `dry_run`."""
    id, body = call.path["id"], call.body
    now = call.service.now()
    wanted = BackfillWanted(
        since=moment(body.since, now) or 0,
        until=now if body.until is None else moment(body.until, now) or 0,
        only=body.only,
        overlap=body.overlap,
        at_once=body.at_once,
        order=body.order,
        by=call.credential.name,
    )
    if body.dry_run:

        def look() -> dict[str, Any]:
            schedule, _ = _found(call, id)
            found, left_out = backfill_times(call.service.views, schedule, wanted, now)
            return {"times": [stamp(at) for at in found[:MOST_TIMES]], "count": len(found), "have_runs": left_out}

        return Answer(await call.service.read(look))
    named = body.id or os.urandom(4).hex()
    if body.id:
        check_id(body.id)
    made = await _change(call, lambda store: put_backfill(store, id, named, wanted))
    return Answer(backfill_object(made), 201)


async def _steer(call: Call, action: Literal["pause", "resume", "stop"]) -> Answer:
    changed = await _change(call, lambda store: steer_backfill(store, call.path["id"], call.path["backfill"], action))
    return Answer(backfill_object(changed))


async def pause_backfill(call: Call) -> Answer:
    return await _steer(call, "pause")


async def resume_backfill(call: Call) -> Answer:
    return await _steer(call, "resume")


async def stop_backfill(call: Call) -> Answer:
    return await _steer(call, "stop")


async def preview(call: Call) -> Answer:
    """The next times of a schedule, or of the text of one, with a word where the clock changes."""
    body: PreviewBody = call.body
    if bool(body.id) == bool(body.definition):
        raise InvalidValue("id", "name a schedule with `id`, or send the text of one as `definition`")
    if not 1 <= body.limit <= MOST_TIMES:
        raise InvalidValue("limit", f"{body.limit} is not between 1 and {MOST_TIMES}")

    def look() -> dict[str, Any]:
        from refold.time_zones import zone_rules

        views, now = call.service.views, call.service.now()
        if body.id:
            when = _found(call, body.id)[0].when
        else:
            read = read_schedule_file(body.definition.encode(), "definition")
            if not isinstance(read, ScheduleFile):
                raise InvalidValue("definition", "it is a calendar, and has no times")
            when = read.when
        begin = now if body.since is None else moment(body.since, now) or 0
        calendars: Calendars = calendars_of(views, when)
        return {"items": preview_rows(when, begin, body.limit, calendars), "zone": when.zone, "rules": zone_rules()}

    return Answer(await call.service.read(look))
