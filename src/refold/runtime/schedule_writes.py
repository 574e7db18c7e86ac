"""What is written of schedules inside of turns: a planned time and its run are one commit, and a run that ends lets its
schedule look at the times that wait."""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, structs

from refold.core.facts import Planned
from refold.core.state import TERMINAL
from refold.errors import Conflict, Corrupt
from refold.logs import WARNING, event, logger
from refold.ports import Document, StoreTurn
from refold.schedules.decide import GONE, ScheduleDecision, to_cancel, with_start, without_start
from refold.schedules.documents import (
    BACKFILL,
    KEPT_TIMES,
    SCHEDULE,
    TIME,
    Backfill,
    OpenRun,
    Schedule,
    TimeRecord,
    backfill_id,
    encoded,
    read_backfill,
    read_schedule,
    time_id,
)

log = logger("schedules")

Status = Callable[[str], str]
"""Returns how a run stands now."""


def put_look(turn: StoreTurn, document: Document, look: ScheduleDecision) -> None:
    """Write a schedule and what happened to its times. Raises Conflict if somebody else has changed it."""
    turn.put_document(SCHEDULE, document.id, encoded(look.schedule), document.version, look.due)
    put_records(turn, document.id, look.records)


def put_records(turn: StoreTurn, schedule: str, records: Mapping[int, TimeRecord]) -> None:
    """Write what happened to times, and forget the oldest ones."""
    for number, record in records.items():
        id = time_id(schedule, number)
        before = turn.document(TIME, id)
        turn.put_document(TIME, id, encoded(record), 0 if before is None else before.version)
        old = turn.document(TIME, time_id(schedule, number - KEPT_TIMES)) if number > KEPT_TIMES else None
        if old is not None:
            turn.delete_document(TIME, old.id, old.version)


def check_unchanged(turn: StoreTurn, document: Document, runs: Sequence[OpenRun], status: Status) -> None:
    """Raises Conflict if a document has changed, or if one of its runs has ended meanwhile: then its end is waited for
    by nobody."""
    stored = turn.document(document.kind, document.id)
    if stored is None or stored.version != document.version:
        raise Conflict(f"{document.kind} {document.id} was changed meanwhile")
    for each in runs:
        if status(each.run) in (*TERMINAL, GONE):
            raise Conflict(f"run {each.run} of {document.kind} {document.id} has ended meanwhile")


class FiringRider(Struct):
    """Moves a schedule in the commit that starts its run."""

    document: Document
    look: ScheduleDecision
    run: str
    status: Status
    exists: bool = False  # whether another start was first
    why: str = ""  # the run could not be started

    def admit(self, turn: StoreTurn) -> None:
        self.exists, self.why = False, ""
        check_unchanged(turn, self.document, self.look.schedule.runs, self.status)

    def write(self, turn: StoreTurn, error: Exception | None) -> None:
        if isinstance(error, Conflict):  # there is a run of this time
            self.exists = True
            done = with_start(self.look, self.run, turn.now, "there was a run of this time")
        elif error is not None:
            self.why = f"it could not be started: {error}"
            done = without_start(self.look, turn.now, self.why)
        else:
            done = with_start(self.look, self.run, turn.now)
        put_look(turn, self.document, done)


class CancelRider(Struct):
    """Notes in the schedule that a run is cancelled to make room, in the commit that cancels it: a second cancellation
    would take its finalizers from it."""

    schedule: str
    run: str

    def admit(self, turn: StoreTurn) -> None:
        self._document(turn)

    def write(self, turn: StoreTurn, error: Exception | None) -> None:
        document, schedule = self._document(turn)
        runs = tuple(structs.replace(each, asked=each.asked or each.run == self.run) for each in schedule.runs)
        schedule = structs.replace(schedule, runs=runs)
        turn.put_document(SCHEDULE, document.id, encoded(schedule), document.version, turn.now)  # it may be over now

    def _document(self, turn: StoreTurn) -> tuple[Document, Schedule]:
        """Raises Conflict if the run is not to be cancelled any more."""
        document = turn.document(SCHEDULE, self.schedule)
        schedule = None if document is None else read_schedule(document)
        if document is None or schedule is None or self.run not in to_cancel(schedule):
            raise Conflict(f"run {self.run} of schedule {self.schedule} is cancelled already")
        return document, schedule


class BackfillRider(Struct):
    """Moves a backfill in the commit that starts one of its runs."""

    document: Document
    backfill: Backfill  # without the time that starts
    run: OpenRun
    status: Status
    wrote: bool = False

    def admit(self, turn: StoreTurn) -> None:
        self.wrote = False
        check_unchanged(turn, self.document, (), self.status)

    def write(self, turn: StoreTurn, error: Exception | None) -> None:
        b = self.backfill
        if error is None:
            b = structs.replace(b, started=b.started + 1, runs=(*b.runs, self.run))
        else:
            why = "there was a run of this time" if isinstance(error, Conflict) else str(error)
            b = structs.replace(b, skipped=b.skipped + 1, why=why)
        due = turn.now if b.times and len(b.runs) < b.at_once and not b.paused else None
        self.wrote = True
        turn.put_document(BACKFILL, self.document.id, encoded(b), self.document.version, due)


def wake_schedule(turn: StoreTurn, planned: Planned) -> None:
    """A run of a schedule ends: the schedule is due if a time waits for that or if failures are counted, and so is the
    backfill that has started the run."""
    try:
        _wake(turn, planned)
    except Corrupt as error:  # the run ends in any case
        event(log, WARNING, "schedule cannot be read", schedule=planned.id, why=str(error))


def _wake(turn: StoreTurn, planned: Planned) -> None:
    if planned.backfill:
        document = turn.document(BACKFILL, backfill_id(planned.id, planned.backfill))
        if document is not None and not read_backfill(document).is_over():
            turn.put_document(BACKFILL, document.id, document.data, document.version, turn.now)
    document = turn.document(SCHEDULE, planned.id)
    if document is None or (document.due is not None and document.due <= turn.now):
        return
    schedule = read_schedule(document)
    if schedule.waiting or schedule.rules.pause_after is not None:
        turn.put_document(SCHEDULE, document.id, document.data, document.version, turn.now)
