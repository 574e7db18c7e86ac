"""Follows a NoETL log event by event: which visit of a step each event concerns, and the facts that result from it."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from refold.core.facts import (
    Bypassed,
    Dropped,
    Entered,
    Fact,
    FanOutEntered,
    ItemsGivenUp,
    ItemsIssued,
    ItemsRetried,
    ItemsSettled,
    Move,
    PassBegan,
    RunEnded,
    RunEnding,
    StepFault,
    StepIssued,
    StepSettled,
    Took,
)
from refold.core.outcomes import Cancelled, Failed, Fault, Instant, Outcome, Report, Succeeded
from refold.core.state import CANCELLED, COMPLETED, ENTERED, FAILED, ISSUED, PENDING
from refold.errors import InvalidValue
from refold.playbooks.noetl_log.events import LogEvent

CONTEXT = "(context)"
MOST_ITEMS = 1_000_000  # of a loop: each takes memory, whether or not the log has events of it
ENDS = {
    "playbook_completed": COMPLETED,
    "playbook.completed": COMPLETED,
    "playbook_failed": FAILED,
    "playbook.failed": FAILED,
    "playbook_cancelled": CANCELLED,
    "playbook.cancelled": CANCELLED,
}


class CommandTry(Struct):
    """What is known about a command before it ends."""

    item: int | None
    attempt: int
    worker: str = ""
    claimed_at: Instant = 0
    started_at: Instant = 0
    result: Any = None
    settled: bool = False


class StepVisit(Struct):
    step: str
    number: int
    count: int | None  # of items; None: a plain step
    life: str = PENDING
    next: int = 0  # the first item not issued
    through: int = 0
    failed: list[int] = []
    commands: dict[str, int | None] = {}  # NoETL's ids -> item
    tries: dict[int | None, CommandTry] = {}
    unnamed: int = 0  # no item before this one lacks a command

    @property
    def over(self) -> bool:
        return self.life == COMPLETED

    def item_of(self, event: LogEvent) -> int | None:
        """The item of its command, or the one that it names, or the first item that has no command yet."""
        assert self.count is not None
        if event.command in self.commands:
            return self.commands[event.command]
        if event.item is not None and event.item < self.count:
            return event.item
        while self.unnamed in self.tries:
            self.unnamed += 1
        return self.unnamed if event.command and self.unnamed < self.count else None


class LogReader:
    """Collects the facts in order; `log.py` adds what only the whole log shows about the end of a visit."""

    def __init__(self) -> None:
        self.facts: list[tuple[Instant, Fact | Move]] = []
        self.at: Instant = 0
        self.visits: dict[str, StepVisit] = {}  # the newest of each step; steps in the order of their first one
        self.owners: dict[tuple[str, str], int] = {}  # (step, NoETL command) -> visit
        self.completions: dict[tuple[str, str], tuple[str, int]] = {}  # (step, event id) -> step, visit
        self.sets: dict[tuple[str, int], dict[str, Any]] = {}
        self.faults: dict[tuple[str, int], Fault] = {}
        self.loops: dict[str, LogEvent] = {}  # the event that has the size of a fan-out
        self.latest: Any = None

    def read(self, events: list[LogEvent]) -> None:
        for event in events:
            if event.expected is not None and STEP_EVENTS.get(event.type) is LogReader.entered:
                if event.expected > MOST_ITEMS:
                    why = f"has {event.expected:,} iterations; a log is read with at most {MOST_ITEMS:,}"
                    raise InvalidValue(f"step {event.step!r}", why)
                self.loops.setdefault(event.step, event)
        for event in events:
            self.at = event.at
            if event.type in ENDS:
                self._end_run(ENDS[event.type], event)
                return
            if event.type == "ctx.updated":
                self._updated(event)
            elif event.step and event.type in STEP_EVENTS:
                STEP_EVENTS[event.type](self, event)

    def _add(self, fact: Fact | Move) -> None:
        self.facts.append((self.at, fact))

    def entered(self, event: LogEvent) -> None:
        if event.expected is not None:
            self.loops[event.step] = event
        visit = self._visit_of(event)
        if visit is not None and visit.life == PENDING:
            self._enter(visit)

    def skipped(self, event: LogEvent) -> None:
        visit = self.visits.get(event.step)
        if visit is not None and not visit.over:
            visit.life = COMPLETED
            self._add(Dropped((event.step,)))
            return
        visit = self._begin(event.step)
        self._add(Bypassed(visit.step, visit.number))
        self._end(visit)

    def issued(self, event: LogEvent) -> None:
        self._try_of(event)

    def claimed(self, event: LogEvent) -> None:
        it = self._try_of(event)
        if it is not None:
            it.worker, it.claimed_at = event.worker, event.at

    def started(self, event: LogEvent) -> None:
        it = self._try_of(event)
        if it is not None:
            it.started_at = event.at

    def called(self, event: LogEvent) -> None:
        """This event has the result; the completion that follows often has none."""
        it = self._try_of(event, echo=True)
        if it is not None and event.result is not None:
            it.result = event.result

    def completed(self, event: LogEvent) -> None:
        if event.failed:
            self.failed(event)
            return
        it = self._try_of(event, echo=True)
        number = self.owners.get((event.step, event.command), self.visits[event.step].number)
        self.completions[event.step, event.id] = event.step, number
        if it is not None and not it.settled:
            it.result = event.result if it.result is None else it.result
            self._settle(self.visits[event.step], it, Succeeded(it.result))

    def failed(self, event: LogEvent) -> None:
        it = self._try_of(event, echo=True)
        visit = self.visits[event.step]
        fault = Fault("error", event.error)
        if it is not None and not it.settled:
            self._settle(visit, it, Failed(fault))
        elif it is None and not visit.over and not event.command:
            self._give_up(visit, fault)

    def _visit_of(self, event: LogEvent, echo: bool = False) -> StepVisit | None:
        """The visit that an event concerns, which may begin with it; None: it repeats what has ended already."""
        visit = self.visits.get(event.step)
        owner = self.owners.get((event.step, event.command))
        if visit is None:
            return self._begin(event.step)
        if owner is not None and (visit.over or owner < visit.number):
            return None
        if not visit.over:
            return visit
        if echo and not (event.command and visit.commands):
            return None
        return self._begin(event.step)

    def _begin(self, step: str) -> StepVisit:
        before = self.visits.get(step)
        if before is not None:
            self._add(PassBegan(step))
        count = self.loops[step].expected if step in self.loops else None
        visit = self.visits[step] = StepVisit(step, before.number + 1 if before is not None else 1, count)
        return visit

    def _enter(self, visit: StepVisit) -> None:
        if visit.count is None:
            visit.life = ENTERED
            self._add(Entered(visit.step, visit.number))
            return
        visit.life = ISSUED
        self._add(FanOutEntered(visit.step, visit.number, visit.count, [None] * visit.count))
        if visit.count == 0:
            self._end(visit)

    def _try_of(self, event: LogEvent, echo: bool = False) -> CommandTry | None:
        """The try that an event concerns, now issued; None: a repetition, or an event of a loop that names no item."""
        visit = self._visit_of(event, echo)
        if visit is None:
            return None
        if visit.count is None:
            item = None
            self._issue(visit, event.attempt)
        else:
            if visit.life == PENDING:
                self._enter(visit)
            item = visit.item_of(event)
            if item is None:
                return None
            self._issue_items(visit, item)
        if event.command:
            visit.commands[event.command] = item
            self.owners[event.step, event.command] = visit.number
        it = visit.tries.setdefault(item, CommandTry(item, event.attempt))
        self._try_again(visit, it, event.attempt)
        return it

    def _issue(self, visit: StepVisit, attempt: int) -> None:
        if visit.life != ISSUED:
            visit.life = ISSUED
            self._add(StepIssued(visit.step, visit.number, attempt))

    def _issue_items(self, visit: StepVisit, last: int) -> None:
        """Items are issued in order, so if one was issued, all before it were."""
        if last >= visit.next:
            self._add(ItemsIssued(visit.step, visit.number, visit.next, last - visit.next + 1))
            visit.next = last + 1

    def _try_again(self, visit: StepVisit, it: CommandTry, attempt: int) -> None:
        if attempt <= it.attempt or it.settled:
            return
        it.attempt = attempt
        if it.item is None:
            self._add(StepIssued(visit.step, visit.number, attempt))
        else:
            self._add(ItemsRetried(visit.step, visit.number, ((it.item, attempt, 0),)))

    def _settle(self, visit: StepVisit, it: CommandTry, outcome: Outcome) -> None:
        it.settled = True
        report = Report(it.attempt, outcome, it.item, it.worker, claimed_at=it.claimed_at, started_at=it.started_at)
        fault = outcome.fault if isinstance(outcome, Failed) else None
        if it.item is None:
            self._add(StepSettled(visit.step, visit.number, report))
            self._end(visit, fault)
            self.latest = self.latest if fault is not None else it.result
            return
        self._add(ItemsSettled(visit.step, visit.number, (report,)))
        visit.through += 1
        if fault is not None:
            visit.failed.append(it.item)
            self._add(ItemsGivenUp(visit.step, visit.number, (it.item,)))
        if visit.through == visit.count:
            self._end_items(visit)

    def _end_items(self, visit: StepVisit) -> None:
        if visit.failed:
            why = f"{len(visit.failed)} of {visit.count} items failed"
            self._end(visit, Fault("items_failed", why, data=sorted(visit.failed)))
        else:
            self._end(visit)
            self.latest = [visit.tries[item].result for item in range(visit.count or 0)]

    def _give_up(self, visit: StepVisit, fault: Fault) -> None:
        """A fan-out failed as a whole: items that had not ended failed with it."""
        assert visit.count is not None
        self._issue_items(visit, visit.count - 1)
        unsettled = [item for item in range(visit.count) if item not in visit.tries or not visit.tries[item].settled]
        reports = tuple(Report(1, Cancelled("the step failed"), item) for item in unsettled)
        self._add(ItemsSettled(visit.step, visit.number, reports))
        self._add(ItemsGivenUp(visit.step, visit.number, tuple(unsettled)))
        self._end(visit, fault)

    def _end(self, visit: StepVisit, fault: Fault | None = None) -> None:
        """Which arc was taken and what was set is not known yet; `log.py` adds it."""
        visit.life = COMPLETED
        if fault is not None:
            self.faults[visit.step, visit.number] = fault
        self._add(Took(visit.step, visit.number, fault=None if visit.count is None else fault))

    def _updated(self, event: LogEvent) -> None:
        """The values belong to the end of a visit; if the log lacks its completion, a visit is added for them."""
        values, step, completion = (event.payload.get(name) for name in ("values", "step", "gen"))
        if not isinstance(values, dict) or not values:
            return
        named = isinstance(step, str) and completion is not None
        where = self.completions.get((str(step), str(completion))) if named else None
        if where is None:
            latest = self.visits.get(str(step))
            visit = self._begin(str(step) if named and (latest is None or latest.over) else CONTEXT)
            where = visit.step, visit.number
            self._add(Entered(*where))
            self._end(visit)
        if named:
            self.completions[str(step), str(completion)] = where
        self.sets.setdefault(where, values)

    def _end_run(self, status: str, event: LogEvent) -> None:
        stopped = tuple(visit.step for visit in self.visits.values() if not visit.over)
        failures = [StepFault(*where, "unhandled failure", fault) for where, fault in self.faults.items()]
        error = None
        if status == FAILED:
            error = failures.pop(0) if failures else StepFault("", 0, event.error or "failed")
        if stopped:
            self._add(Dropped(stopped))
        if stopped or status != COMPLETED:
            self._add(RunEnding(status, error))
        result = self.latest if status == COMPLETED else None
        self._add(RunEnded(status, result, None, error, tuple(failures)))


STEP_EVENTS: dict[str, Callable[[LogReader, LogEvent], None]] = {
    "step.enter": LogReader.entered,
    "step_enter": LogReader.entered,
    "step_started": LogReader.entered,
    "step.skipped": LogReader.skipped,
    "step_skipped": LogReader.skipped,
    "command.issued": LogReader.issued,
    "command.claimed": LogReader.claimed,
    "command.started": LogReader.started,
    "action_started": LogReader.started,
    "call.done": LogReader.called,
    "action_done": LogReader.called,
    "command.completed": LogReader.completed,
    "action_completed": LogReader.completed,
    "step.exit": LogReader.completed,
    "step_completed": LogReader.completed,
    "command.failed": LogReader.failed,
    "action_failed": LogReader.failed,
    "step_failed": LogReader.failed,
}
