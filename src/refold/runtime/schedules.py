"""Serves schedules: starts the runs of times that have come, once each, however many processes serve the store.

Nothing is kept in memory: the documents say what is due, so a process that ends loses nothing, and one wake-up for the
next moment is enough for any number of schedules.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date
from functools import partial
from typing import Any

from msgspec import Struct, structs

from refold.core.expressions import CannotEvaluate, Contained, Languages
from refold.core.facts import Planned
from refold.core.faults import text_of
from refold.core.graph import PreparedPlan
from refold.core.outcomes import SECOND, Instant
from refold.core.read.template_scope import schedule_value
from refold.core.state import FAILED, TERMINAL
from refold.core.times import stamp
from refold.errors import Conflict, InvalidValue, NotFound, RefoldError, Unavailable
from refold.logs import INFO, WARNING, event, logger
from refold.ports import Advance, Clock, Document, Store, StoreTurn, Views
from refold.runtime.background import PERIODS
from refold.runtime.keys import run_of_key
from refold.runtime.mail import Cancel, Mail, Start
from refold.runtime.schedule_writes import (
    BackfillRider,
    CancelRider,
    FiringRider,
    check_unchanged,
    put_look,
)
from refold.runtime.turn import Rider, Turns
from refold.schedules.decide import GONE, ScheduleDecision, is_over, look, to_cancel, without_start
from refold.schedules.documents import (
    BACKFILL,
    CALENDAR,
    SCHEDULE,
    Backfill,
    OpenRun,
    Schedule,
    encoded,
    key_of_time,
    labels_of_run,
    read_backfill,
    read_calendar,
    read_schedule,
)
from refold.schedules.times import When

log = logger("schedules")

BATCH = 500  # schedules that are looked at together
LONGEST_WAIT = 60.0  # seconds between two looks: the machine's clock may be set
REST = 5.0  # seconds until a document is looked at again that could not be served, or whose runs are not over

Send = Callable[[str, Mail, Rider], Awaitable[Any]]
"""Delivers mail to a run, with what changes documents in the same commit."""


class Firing(Struct):
    """A run that starts for a planned time."""

    run: str
    start: Start
    rider: FiringRider


class Decided(Struct, frozen=True):
    """What was decided about a schedule: to start a run, to cancel runs, or only to write what has changed."""

    document: Document
    found: ScheduleDecision | None = None
    firing: Firing | None = None
    cancels: Sequence[str] = ()
    changes: bool = False


class ScheduleReader:
    """Reads what a decision about a schedule needs. Used on the thread of the turns."""

    def __init__(self, store: Store, turns: Turns) -> None:
        self.store, self.turns, self.views = store, turns, store.views
        self._plans: dict[str, PreparedPlan] = {}

    def status(self, run: str) -> str:
        """Return how a run stands; inside a turn, also if it has ended in the same turn."""
        known = self.turns.known.get(run)
        if known is not None and known.state.life in TERMINAL:
            return known.state.life
        row = self.store.summary(run)
        return GONE if row is None else row.status

    def statuses(self, runs: Iterable[OpenRun]) -> dict[str, str]:
        return {each.run: self.status(each.run) for each in runs}

    def calendars(self, schedule: Schedule) -> Mapping[str, frozenset[date]]:
        return calendars_of(self.views, schedule.when)

    def plan(self, hash: str) -> PreparedPlan:
        """Raises NotFound."""
        if hash not in self._plans:
            graph, data = self.turns.graph(hash), self.store.plan(hash)
            if data is None:
                raise NotFound(f"there is no workflow {hash}")
            self._plans[hash] = PreparedPlan(data, hash, graph)
        return self._plans[hash]

    def firing(self, document: Document, found: ScheduleDecision) -> Firing:
        """Return what starts the run of a look. Raises InvalidValue or NotFound."""
        assert found.start is not None
        schedule, at = found.schedule, found.start.planned
        key = key_of_time(schedule.id, stamp(at))
        planned = Planned(schedule.id, at, schedule.previous)
        start = self.start_of(schedule, planned, key)
        run = run_of_key(key)
        return Firing(run, start, FiringRider(document, found, run, self.status))

    def start_of(self, schedule: Schedule, planned: Planned, key: str) -> Start:
        target = schedule.target
        return Start(
            self.plan(target.plan),
            rendered_input(self.turns.languages, target.language, target.input, planned),
            f"{schedule.id}-{stamp(planned.planned)[:19]}Z",
            key,
            code=target.code,
            labels=dict(labels_of_run(schedule, planned.backfill)),
            schedule=planned,
            folder=target.folder,
        )


def calendars_of(views: Views, when: When) -> dict[str, frozenset[date]]:
    """Return the days of the calendars that a schedule names; one that is not there has none."""
    found: dict[str, frozenset[date]] = {}
    for name in (*when.leave_out, *when.only):
        document = views.document(CALENDAR, name)
        found[name] = frozenset() if document is None else read_calendar(document)
    return found


class _ScheduleScope:
    """The names that the input of a schedule can read."""

    def __init__(self, planned: Planned) -> None:
        self.planned = planned

    def __getitem__(self, name: str) -> Any:
        if name == "schedule":
            return schedule_value(self.planned)
        raise CannotEvaluate(f"{name!r} is not defined; the input of a schedule can read `schedule` alone")


def rendered_input(languages: Languages, language: str, input: dict[str, Any], planned: Planned) -> dict[str, Any]:
    """Return the inputs of a run, with the values of their templates. Raises InvalidValue."""
    evaluate, scope = Contained(languages(language)), _ScheduleScope(planned)
    try:
        return {name: evaluate.value(value, scope) for name, value in input.items()}
    except CannotEvaluate as error:
        raise InvalidValue("input", str(error)) from None


class Schedules:
    """The part of a process that serves schedules and backfills."""

    def __init__(
        self, reader: ScheduleReader, advance: Advance, send: Send, clock: Clock, *, shared: bool = True
    ) -> None:
        """`shared`: other processes may change schedules, so they are looked at from time to time."""
        self.reader, self.advance, self.send, self.clock, self.shared = reader, advance, send, clock, shared
        self._changed = asyncio.Event()
        self._resting: dict[tuple[str, str], Instant] = {}  # documents that are not looked at before a moment
        self.turned_at: Instant | None = clock.now()  # when it last looked; None: it waits until something changes

    def wake(self) -> None:
        """A document may have changed: look at once."""
        self._changed.set()

    def is_late(self) -> bool:
        """Whether it has not turned for three of its periods."""
        return self.turned_at is not None and self.clock.now() - self.turned_at > PERIODS * LONGEST_WAIT * SECOND

    async def run(self) -> None:
        while True:
            next_due = await self.once()
            self.turned_at = None if next_due is None and not self.shared else self.clock.now()
            wait = LONGEST_WAIT if next_due is None else (next_due - self.clock.now()) / SECOND
            if next_due is None and not self.shared:
                await self._changed.wait()
            elif wait > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(wait, LONGEST_WAIT)):
                        await self._changed.wait()
            self._changed.clear()
            self.turned_at = self.clock.now() if self.turned_at is None else self.turned_at

    async def has_work(self) -> bool:
        """Whether a schedule or a backfill has something to do now that was not tried in vain."""
        for kind in (SCHEDULE, BACKFILL):
            documents, _ = await self.advance(partial(self.reader.views.due_documents, kind, BATCH))
            if any((each.kind, each.id) not in self._resting for each in documents):
                return True
        return False

    async def once(self) -> Instant | None:
        """Serve what is due; return when something is due next."""
        moments: list[Instant] = []
        for kind, serve in ((SCHEDULE, self._serve_all), (BACKFILL, self._fill_all)):
            try:
                moments += await self._serve_due(kind, serve)
            except Unavailable as error:
                event(log, WARNING, "look for schedules failed", why=text_of(error))
                moments.append(self._later())
        return min(moments, default=None)

    async def _serve_due(self, kind: str, serve: Callable[[list[Document]], Awaitable[None]]) -> list[Instant]:
        documents, next_due = await self.advance(lambda: self.reader.views.due_documents(kind, BATCH))
        now = self.clock.now()
        self._resting = {place: until for place, until in self._resting.items() if until > now}
        ready = [each for each in documents if (each.kind, each.id) not in self._resting]
        moments = [*self._resting.values(), *([next_due] if next_due is not None else [])]
        if ready:
            await serve(ready)
            moments.append(now)  # there may be more
        return moments

    def _later(self) -> Instant:
        return self.clock.now() + round(REST * SECOND)

    def _rest(self, document: Document, error: Exception | None = None) -> None:
        """Look at a document later again. One that cannot be served does not keep the others from it."""
        self._resting[document.kind, document.id] = self._later()
        if error is not None:
            event(log, WARNING, f"{document.kind} cannot be served", schedule=document.id, why=text_of(error))

    async def _serve_all(self, documents: list[Document]) -> None:
        """Decide about all of them together, then deliver what starts and what is cancelled."""
        decided: list[Decided] = await self.advance(lambda: self._decided(documents))
        await asyncio.gather(*(self._deliver(each) for each in decided))

    def _decided(self, documents: list[Document]) -> "list[Decided]":
        """Return what is to be sent. What needs no mail is written here, in one commit."""
        found = [self._looked_at(each) for each in documents]
        quiet = [each for each in found if each.changes and each.firing is None]
        if quiet:
            with self.reader.store.turn([]) as turn:
                for each in quiet:
                    self._put(turn, each)
        return [each for each in found if each.firing is not None or each.cancels]

    def _looked_at(self, document: Document) -> "Decided":
        try:
            schedule: Schedule = read_schedule(document)
            cancels = to_cancel(schedule)
            if cancels:
                return Decided(document, cancels=cancels)
            reader = self.reader
            statuses, calendars = reader.statuses(schedule.runs), reader.calendars(schedule)
            found = look(schedule, self.clock.now(), statuses, calendars)
            if found.start is not None:
                return self._started(document, found)
            if (found.schedule, found.due) == (schedule, document.due):
                self._rest(document)
                return Decided(document)
            return Decided(document, found, changes=True)
        except (RefoldError, CannotEvaluate) as error:
            self._rest(document, error)
            return Decided(document)

    def _started(self, document: Document, found: ScheduleDecision) -> "Decided":
        try:
            return Decided(document, found, self.reader.firing(document, found), changes=True)
        except (InvalidValue, NotFound) as error:
            event(log, WARNING, "run of a schedule was not started", schedule=document.id, why=str(error))
            failed = without_start(found, self.clock.now(), f"it could not be started: {error}")
            return Decided(document, failed, changes=True)

    def _put(self, turn: StoreTurn, decided: "Decided") -> None:
        found = decided.found
        assert found is not None
        try:
            check_unchanged(turn, decided.document, found.schedule.runs, self.reader.status)
            put_look(turn, decided.document, found)
        except Conflict:
            return  # another process was first, or a run has ended: the next look sees it
        self._tell(found)

    async def _deliver(self, decided: "Decided") -> None:
        """Start a run and move its schedule in one commit; or cancel the runs that are in the way."""
        document, firing = decided.document, decided.firing
        for run in decided.cancels:
            why = f"the next time of the schedule {document.id} has come"
            with suppress(RefoldError):  # it has ended, or another process was first; the next look sees it
                await self.send(run, Cancel(why, f"schedule {document.id}"), CancelRider(document.id, run))
        if firing is None:
            return
        try:
            await self.send(firing.run, firing.start, firing.rider)
        except RefoldError as error:
            if firing.rider.why:
                event(log, WARNING, "run of a schedule was not started", schedule=document.id, why=text_of(error))
            elif not firing.rider.exists and not isinstance(error, Conflict):
                self._rest(document, error)
            return
        assert decided.found is not None
        self._tell(decided.found)

    async def _fill_all(self, documents: list[Document]) -> None:
        await asyncio.gather(*map(self._fill_safely, documents))

    async def _fill_safely(self, document: Document) -> None:
        try:
            if not await self._fill(document):
                self._rest(document)
        except Conflict:
            return  # another process was first: the next look sees it
        except (RefoldError, CannotEvaluate) as error:
            self._rest(document, error)

    def _tell(self, found: ScheduleDecision) -> None:
        for record in found.records.values():
            if record.state in ("skipped", "missed"):
                at = {"schedule": found.schedule.id, "planned": stamp(record.planned)}
                event(log, INFO, f"time of a schedule was {record.state}", at, why=record.why)

    async def _fill(self, document: Document) -> bool:
        """Continue a backfill; return False if nothing has changed."""
        before = read_backfill(document)
        b: Backfill = await self.advance(lambda: self._without_ended(before))
        parent = await self.advance(lambda: self.reader.views.document(SCHEDULE, b.schedule))
        if parent is None and not b.stopped:
            b = structs.replace(b, stopped=True, why="the schedule was deleted")
        schedule = None if parent is None else read_schedule(parent)
        room = b.times and not b.paused and not b.stopped and len(b.runs) < b.at_once
        if room and b.overlap == "buffer_all" and schedule is not None and await self._is_busy(schedule):
            room = False
        if not room or schedule is None:
            if b == before and document.due is None:
                return False
            waits = bool(b.times) and not b.paused and not b.stopped and b.overlap == "buffer_all" and not b.runs
            due = self._later() if waits else None
            await self.advance(lambda: self._put_backfill(document, b, due))
            return True
        await self._start_backfilled(document, b, schedule)
        return True

    async def _is_busy(self, schedule: Schedule) -> bool:
        statuses: dict[str, str] = await self.advance(lambda: self.reader.statuses(schedule.runs))
        return not all(map(is_over, statuses.values()))

    def _without_ended(self, b: Backfill) -> Backfill:
        statuses = self.reader.statuses(b.runs)
        failed = sum(status == FAILED for status in statuses.values())
        runs = tuple(each for each in b.runs if not is_over(statuses[each.run]))
        return structs.replace(b, runs=runs, failed=b.failed + failed)

    async def _start_backfilled(self, document: Document, b: Backfill, schedule: Schedule) -> None:
        at, *rest = b.times
        mark = b.id if b.only == "all" else "missing"
        key = key_of_time(schedule.id, stamp(at), f"backfill-{mark}")
        run, left = run_of_key(key), structs.replace(b, times=tuple(rest))
        if b.only == "missing" and await self.advance(lambda: self.has_run(schedule.id, at)):
            left = structs.replace(left, skipped=left.skipped + 1, why="there was a run of this time")
            await self.advance(lambda: self._put_backfill(document, left, self.clock.now()))
            return
        try:
            start = await self.advance(
                lambda: self.reader.start_of(schedule, Planned(schedule.id, at, None, b.id), key)
            )
        except (InvalidValue, NotFound) as error:
            left = structs.replace(left, skipped=left.skipped + 1, why=str(error))
            await self.advance(lambda: self._put_backfill(document, left, self.clock.now()))
            return
        rider = BackfillRider(document, left, OpenRun(run, at), self.reader.status)
        try:
            await self.send(run, start, rider)
        except RefoldError:
            if not rider.wrote:
                raise

    def has_run(self, schedule: str, at: Instant) -> bool:
        """Whether a planned time has its run: from the schedule itself, or from a backfill of what was missing."""
        return has_run(self.reader.views, schedule, at)

    def _put_backfill(self, document: Document, b: Backfill, due: Instant | None) -> None:
        with self.reader.store.turn([]) as turn:
            turn.put_document(BACKFILL, document.id, encoded(b), document.version, due)


def has_run(views: Views, schedule: str, at: Instant) -> bool:
    """Whether a planned time has its run: from the schedule itself, or from a backfill of what was missing."""
    keys = (key_of_time(schedule, stamp(at)), key_of_time(schedule, stamp(at), "backfill-missing"))
    return any(views.summary(run_of_key(key)) is not None for key in keys)
