"""The report of an imported NoETL run: its steps and visits, their results, and the end of the run."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from refold.core.facts import (
    Bypassed,
    Dropped,
    Entered,
    Fact,
    FanOutEntered,
    ItemsSettled,
    Move,
    Routed,
    RunEnded,
    StepIssued,
    StepSettled,
    Took,
)
from refold.core.outcomes import Failed, Instant, Report, Succeeded
from refold.playbooks.noetl_log.events import status_of
from refold.playbooks.noetl_log.log import PLAYBOOK, ImportedRun
from refold.playbooks.noetl_log.results import extract_user_data

RUNNING, COMPLETED, FAILED, SKIPPED, DROPPED = "running", "completed", "failed", "skipped", "dropped"


class VisitReport(Struct):
    """One visit of a step. `items` is the number of iterations, of which `failed_items` failed; None: no loop."""

    step: str
    visit: int
    status: str = RUNNING
    items: int | None = None
    failed_items: int = 0
    attempts: int = 0
    worker: str = ""
    began_at: Instant = 0
    ended_at: Instant = 0
    result: Any = None
    error: str = ""


class LogReport(Struct, frozen=True):
    """What the log of a NoETL run amounts to. `status` is NoETL's word; times are 0 where the log shows none."""

    execution: str
    playbook: str
    status: str
    began_at: Instant
    ended_at: Instant
    workload: dict[str, Any]
    context: dict[str, Any]
    visits: list[VisitReport]
    result: Any = None
    error: str = ""


def report_run(run: ImportedRun) -> LogReport:
    visits = _Visits()
    for _, at, fact in run.records:
        for part in fact.moves if isinstance(fact, Routed) else (fact,):
            visits.add(at, part)
    state = run.state()
    end = next(((at, fact) for _, at, fact in run.records if isinstance(fact, RunEnded)), None)
    error = end[1].error if end is not None else None
    return LogReport(
        execution=run.run,
        playbook=run.plan.name,
        status=status_of(state.life),
        began_at=run.records[0][1] if run.records else 0,
        ended_at=end[0] if end is not None else 0,
        workload=dict(state.input),
        context=dict(state.ctx),
        visits=list(visits.reports.values()),
        result=extract_user_data(end[1].result) if end is not None else None,
        error="" if error is None else error.fault.message if error.fault is not None else error.why,
    )


class _Visits:
    def __init__(self) -> None:
        self.reports: dict[tuple[str, int], VisitReport] = {}
        self._unsettled: dict[tuple[str, int], int] = {}  # how many items of a visit have not ended

    def add(self, at: Instant, fact: Fact | Move) -> None:
        match fact:
            case Bypassed(step=step) if step != PLAYBOOK:
                self._end(self._visit(fact.step, fact.visit, at), at, SKIPPED)
            case Entered():
                self._visit(fact.step, fact.visit, at)
            case FanOutEntered():
                visit = self._visit(fact.step, fact.visit, at)
                visit.items, visit.result = fact.count, [None] * fact.count
                self._unsettled[fact.step, fact.visit] = fact.count
                if fact.count == 0:
                    self._end(visit, at, COMPLETED)
            case StepIssued():
                visit = self._visit(fact.step, fact.visit, at)
                visit.attempts = max(visit.attempts, fact.attempt)
            case StepSettled():
                self._settle(self._visit(fact.step, fact.visit, at), fact.report, at)
            case ItemsSettled():
                self._settle_items(self._visit(fact.step, fact.visit, at), fact.reports, at)
            case Took():
                visit = self._visit(fact.step, fact.visit, at)
                if visit.status == RUNNING:
                    self._end(visit, at, COMPLETED)
                if fact.fault is not None:
                    why = fact.fault.message
                    visit.status, visit.error = FAILED, f"{why}: {visit.error}" if visit.error else why
            case Dropped():
                for visit in self._running(fact.steps):
                    self._end(visit, at, DROPPED)
            case _:
                pass  # other facts change neither the steps nor their results

    def _visit(self, step: str, number: int, at: Instant) -> VisitReport:
        return self.reports.setdefault((step, number), VisitReport(step, number, began_at=at))

    def _running(self, steps: tuple[str, ...]) -> Iterator[VisitReport]:
        return (visit for visit in self.reports.values() if visit.step in steps and visit.status == RUNNING)

    def _settle(self, visit: VisitReport, report: Report, at: Instant) -> None:
        visit.attempts, visit.worker = max(visit.attempts, report.attempt), report.worker
        match report.outcome:
            case Succeeded(value):
                visit.result = extract_user_data(value)
                self._end(visit, at, COMPLETED)
            case Failed(fault):
                visit.error = fault.message
                self._end(visit, at, FAILED)
            case _:
                self._end(visit, at, DROPPED)

    def _settle_items(self, visit: VisitReport, reports: tuple[Report, ...], at: Instant) -> None:
        for report in reports:
            visit.attempts, visit.worker = max(visit.attempts, report.attempt), report.worker or visit.worker
            if isinstance(report.outcome, Succeeded):
                visit.result[report.item] = extract_user_data(report.outcome.result)
            else:
                visit.failed_items += 1
                if isinstance(report.outcome, Failed) and not visit.error:
                    visit.error = report.outcome.fault.message
        self._unsettled[visit.step, visit.visit] -= len(reports)
        if not self._unsettled[visit.step, visit.visit]:
            self._end(visit, at, FAILED if visit.failed_items else COMPLETED)

    def _end(self, visit: VisitReport, at: Instant, status: str) -> None:
        visit.status, visit.ended_at = status, at
