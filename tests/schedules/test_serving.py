"""Schedules that are served by engines with real parts: one run for each planned time, whoever looks."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from refold import open_engine
from refold.core.outcomes import SECOND
from refold.core.times import instant, stamp
from refold.errors import Conflict, NotFound
from refold.ports import ToolCall
from refold.runtime.keys import run_of_key
from refold.runtime.mail import Cancel
from refold.runtime.schedule_changes import (
    BackfillWanted,
    backfills_of,
    change_schedule,
    delete_schedule,
    find_schedule,
    pause_schedule,
    put_backfill,
    put_schedule,
    resume_schedule,
    steer_backfill,
    trigger_schedule,
)
from refold.runtime.schedule_writes import check_unchanged
from refold.runtime.schedules import ScheduleReader
from refold.schedules.decide import look, triggered
from refold.schedules.documents import (
    KEPT_TIMES,
    SCHEDULE,
    TIME,
    TimeRecord,
    encoded,
    key_of_time,
    read_schedule,
    time_id,
)
from refold.schedules.times import When
from refold.wiring import open_intake
from tests.schedules.house import add, history, runs, until

HOURLY = When(cron=("0 * * * *",))
NEVER = When(at=(instant("2200-01-01T00:00Z"),))


class Notes:
    """A tool that notes its inputs, and waits while it is told to."""

    def __init__(self) -> None:
        self.inputs: list[Any] = []
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self, call: ToolCall) -> Any:
        self.inputs.append(call.input)
        await self.go.wait()
        return call.input


async def test_each_planned_time_is_one_run_although_three_engines_serve(tmp_path: Path) -> None:
    db, tools = tmp_path / "refold.db", {"note": Notes()}
    async with open_engine(db=db, tools=tools) as one, open_engine(db=db, tools=tools), open_engine(db=db, tools=tools):
        await one.change_schedules(lambda store: add(store, overlap="allow"))
        views = one.store.views
        await until(lambda: len(runs(views)) >= 4)
        await one.change_schedules(lambda store: pause_schedule(store, "often"))
        found, times = runs(views), history(views)
    planned = sorted(each.planned for each in times)
    assert planned == [planned[0] + n * SECOND for n in range(len(planned))], "no time is missing and none comes twice"
    assert {each.state for each in times} == {"started"}
    assert sorted(each.run for each in found) == sorted(each.run for each in times)
    assert {each.key for each in found} == {key_of_time("often", stamp(at)) for at in planned}
    assert {each.run for each in times} == {run_of_key(key_of_time("often", stamp(at))) for at in planned}


async def test_the_input_and_the_templates_of_a_run_know_the_planned_time(tmp_path: Path) -> None:
    notes = Notes()
    async with open_engine(db=tmp_path / "refold.db", tools={"note": notes}) as engine:
        store = engine.store
        wanted = {"day": "{{ schedule.planned | format_time('%Y') }}", "before": "{{ schedule.previous }}", "n": 7}
        await engine.change_schedules(lambda store: add(store, input=wanted, overlap="allow"))
        await until(lambda: len(notes.inputs) >= 2)
        first, second = sorted(history(store.views), key=lambda each: each.planned)[:2]
        await engine.wait(second.run)
        state = (await engine.show(second.run)).state
    assert notes.inputs[0] == {"day": stamp(first.planned)[:4], "before": None, "n": 7}
    assert notes.inputs[1] == {"day": stamp(second.planned)[:4], "before": stamp(first.planned), "n": 7}
    assert state.schedule is not None and state.schedule.planned == second.planned
    assert state.labels == {"schedule": "often"}


async def test_a_time_that_waits_starts_when_the_run_ends(tmp_path: Path) -> None:
    notes = Notes()
    async with open_engine(db=tmp_path / "refold.db", tools={"note": notes}) as engine:
        store = engine.store
        notes.go.clear()
        await engine.change_schedules(lambda store: add(store, when=NEVER, overlap="buffer_one"))
        with open_intake(tmp_path / "refold.db") as (intake, other):
            trigger_schedule(intake, other, "often")
            await until(lambda: notes.inputs)
            assert trigger_schedule(intake, other, "often").state == "waiting"
        notes.go.set()
        await until(lambda: len(notes.inputs) == 2)
        assert [each.state for each in history(store.views)] == ["started", "started"]


async def test_cancel_other_cancels_once_and_starts_after_the_finalizers(tmp_path: Path) -> None:
    notes = Notes()
    async with open_engine(db=tmp_path / "refold.db", tools={"note": notes}) as engine:
        store = engine.store
        notes.go.clear()
        await engine.change_schedules(lambda store: add(store, when=NEVER, overlap="cancel_other"))
        with open_intake(tmp_path / "refold.db") as (intake, other):
            first = trigger_schedule(intake, other, "often")
            await until(lambda: notes.inputs)
            trigger_schedule(intake, other, "often")
        await until(lambda: len(notes.inputs) == 2)
        notes.go.set()
        report = await engine.wait(first.run)
        await until(lambda: [each.status for each in runs(store.views)].count("completed") == 1)
    assert report.status == "cancelled" and report.state.cancels == 1
    assert "the next time of the schedule" in report.state.cancel_reason


async def test_a_run_that_cannot_start_is_recorded_and_the_schedule_goes_on(tmp_path: Path) -> None:
    async with open_engine(db=tmp_path / "refold.db", tools={"note": Notes()}) as engine:
        store = engine.store
        await engine.change_schedules(lambda store: add(store, input={"x": "{{ schedule.nothing }}"}))
        await until(lambda: len(history(store.views)) >= 2)
        times = history(store.views)
    assert {each.state for each in times} == {"missed"}
    assert "could not be started" in times[0].why and "nothing" in times[0].why


async def test_a_schedule_that_is_damaged_does_not_keep_the_others_from_their_times(tmp_path: Path) -> None:
    async with open_engine(db=tmp_path / "refold.db", tools={"note": Notes()}) as engine:
        store = engine.store

        def damage() -> None:
            with store.turn([]) as turn:
                turn.put_document("schedule", "broken", b'{"id": 7}', 0, store.now())

        await engine.advance(damage)
        await engine.change_schedules(lambda store: add(store))
        await until(lambda: len(runs(store.views)) >= 2)


async def test_a_backfill_starts_what_is_missing_one_after_the_other(tmp_path: Path) -> None:
    notes = Notes()
    async with open_engine(db=tmp_path / "refold.db", tools={"note": notes}) as engine:
        store = engine.store
        await engine.change_schedules(lambda store: add(store, when=HOURLY, input={"at": "{{ schedule.planned }}"}))
        since, last = instant("2026-03-01T00:00Z"), instant("2026-03-01T05:00Z")
        wanted = BackfillWanted(since=since, until=last)
        await engine.change_schedules(lambda store: put_backfill(store, "often", "march", wanted))
        await until(lambda: backfills_of(store.views, "often")[0].is_over())
        (done,) = backfills_of(store.views, "often")
        found = runs(store.views)
        with pytest.raises(Exception, match="all 6 times have a run"):
            await engine.change_schedules(lambda store: put_backfill(store, "often", "again", wanted))
        every = BackfillWanted(since=since, until=last, only="all", order="newest", at_once=3)
        await engine.change_schedules(lambda store: put_backfill(store, "often", "all", every))
        await until(lambda: backfills_of(store.views, "often")[0].is_over())
        assert len(runs(store.views)) == 12
    assert [each["at"][11:13] for each in notes.inputs[:6]] == ["00", "01", "02", "03", "04", "05"]
    assert [each["at"][11:13] for each in notes.inputs[6:7]] == ["05"]
    assert (done.total, done.started, done.failed, done.times) == (6, 6, 0, ())
    assert {each.labels["backfill"] for each in found} == {"march"}
    assert all("/backfill-missing" in each.key for each in found)


async def test_a_backfill_that_is_paused_waits_and_one_that_is_stopped_ends(tmp_path: Path) -> None:
    notes = Notes()
    notes.go.clear()
    async with open_engine(db=tmp_path / "refold.db", tools={"note": notes}) as engine:
        store = engine.store
        await engine.change_schedules(lambda store: add(store, when=HOURLY))
        wanted = BackfillWanted(since=instant("2026-03-01T00:00Z"), until=instant("2026-03-01T05:00Z"))
        await engine.change_schedules(lambda store: put_backfill(store, "often", "b", wanted))
        await until(lambda: notes.inputs)
        await engine.change_schedules(lambda store: steer_backfill(store, "often", "b", "pause"))
        notes.go.set()
        await until(lambda: not backfills_of(store.views, "often")[0].runs)
        assert len(backfills_of(store.views, "often")[0].times) == 5
        notes.go.clear()  # the next run is held, so that the backfill cannot end before it is stopped
        await engine.change_schedules(lambda store: steer_backfill(store, "often", "b", "resume"))
        await until(lambda: len(backfills_of(store.views, "often")[0].times) <= 4)
        await engine.change_schedules(lambda store: steer_backfill(store, "often", "b", "stop"))
        notes.go.set()
        await until(lambda: backfills_of(store.views, "often")[0].is_over())
        assert backfills_of(store.views, "often")[0].times


async def test_resuming_says_how_many_times_passed_and_catches_none_up(tmp_path: Path) -> None:
    async with open_engine(db=tmp_path / "refold.db", tools={"note": Notes()}) as engine:
        store = engine.store
        await engine.change_schedules(lambda store: add(store))
        await until(lambda: runs(store.views))
        await engine.change_schedules(lambda store: pause_schedule(store, "often", "holiday", "ann"))
        paused = find_schedule(store.views, "often")
        assert (paused.note, paused.by, paused.paused) == ("holiday", "ann", True)
        at = paused.paused_at or 0
        await until(lambda: store.now() > at + 3 * SECOND)
        _, since, passed = await engine.change_schedules(lambda store: resume_schedule(store, "often"))
        resumed_at = store.now()
        assert since == at and passed >= 2
        await until(lambda: max(each.planned for each in history(store.views)) > resumed_at)
        assert not [each for each in history(store.views) if at + SECOND < each.planned < resumed_at - SECOND]


async def test_the_history_keeps_the_last_thousand_times(tmp_path: Path) -> None:
    with open_intake(tmp_path / "refold.db") as (intake, store):
        add(store, when=NEVER, overlap="skip")
        trigger_schedule(intake, store, "often")
        record = encoded(TimeRecord(planned=1, state="skipped", at=1))
        with store.turn([]) as turn:
            for number in range(2, KEPT_TIMES + 1):
                turn.put_document(TIME, time_id("often", number), record)
        change_schedule(store, "often", lambda schedule, now: structs.replace(schedule, records=KEPT_TIMES))
        for _ in range(3):
            trigger_schedule(intake, store, "often")
        assert len(store.views.documents(TIME, limit=5000)) == KEPT_TIMES
        assert {each.state for each in history(store.views)} == {"skipped"}
        delete_schedule(store, "often")
        assert store.views.documents(TIME) == []
        with pytest.raises(NotFound, match="no schedule 'often'"):
            find_schedule(store.views, "often")


def test_a_schedule_is_made_once(tmp_path: Path) -> None:
    with open_intake(tmp_path / "refold.db") as (_, store):
        schedule = add(store)
        with pytest.raises(Conflict, match="there is a schedule often"):
            put_schedule(store, schedule)
        assert put_schedule(store, schedule, replace=True) is False
        assert store.plan(find_schedule(store.views, "often").target.plan) is not None


def test_a_process_that_comes_second_starts_nothing(tmp_path: Path) -> None:
    with open_intake(tmp_path / "refold.db") as (intake, store):
        add(store, when=When(at=(store.now() + SECOND,)), overlap="allow", start_within=3600)
        reader = ScheduleReader(store, intake.turns)
        document = store.views.document(SCHEDULE, "often")
        assert document is not None
        schedule = read_schedule(document)
        now = (schedule.planned or 0) + 1
        first = reader.firing(document, look(schedule, now, {}, {}))
        second = reader.firing(document, look(schedule, now, {}, {}))
        intake.send(first.run, first.start, first.rider)
        with pytest.raises(Conflict, match="changed meanwhile"), store.turn([]) as turn:
            second.rider.admit(turn)
        with pytest.raises(Conflict, match="changed meanwhile"):
            intake.send(second.run, second.start, second.rider)
        assert find_schedule(store.views, "often").records == 1
        assert len(runs(store.views)) == 1


def test_a_decision_is_not_written_if_a_run_has_ended_meanwhile(tmp_path: Path) -> None:
    with open_intake(tmp_path / "refold.db") as (intake, store):
        add(store, when=NEVER, overlap="buffer_one")
        run = trigger_schedule(intake, store, "often").run
        document = store.views.document(SCHEDULE, "often")
        assert document is not None
        found = triggered(read_schedule(document), store.now(), {run: "running"}, {})
        assert found.schedule.waiting
        intake.send(run, Cancel("meanwhile"))
        reader = ScheduleReader(store, intake.turns)
        with pytest.raises(Conflict, match="has ended meanwhile"), store.turn([]) as turn:
            check_unchanged(turn, document, found.schedule.runs, reader.status)
        assert trigger_schedule(intake, store, "often").state == "started"


async def test_ten_thousand_schedules_cost_one_wake_up_for_the_next_one_that_is_due(tmp_path: Path) -> None:
    db = tmp_path / "refold.db"
    with open_intake(db) as (_, store):
        add(store, "often")
        sleeping = find_schedule(store.views, "often")
        tomorrow = store.now() + 86_400 * SECOND
        with store.turn([]) as turn:
            for n in range(10_000):
                each = structs.replace(sleeping, id=f"s{n}", planned=tomorrow, begins=tomorrow)
                turn.put_document(SCHEDULE, each.id, encoded(each), 0, tomorrow)
    async with open_engine(db=db, tools={"note": Notes()}) as engine:
        views, looks = engine.store.views, list[int]()
        ask = views.due_documents

        def counted(kind: str, limit: int = 100) -> Any:
            found = ask(kind, limit)
            looks.extend([len(found[0])] if kind == SCHEDULE else [])
            return found

        views.due_documents = counted  # type: ignore[method-assign]
        before = len(runs(views))
        await until(lambda: len(runs(views)) >= before + 4)
    assert max(looks) == 1, "only what is due is read"
    assert len(looks) <= 40, "a firing wakes it a few times, the other schedules never"
