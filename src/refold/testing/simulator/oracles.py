"""Checks a simulated store: what must hold after every step, from the log and the tables only."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence

from refold.core import codec
from refold.core.commands import LetterReport
from refold.core.facts import (
    CancelAsked,
    ChildEnded,
    Fact,
    FanOutEntered,
    ItemsIssued,
    ItemsRetried,
    ItemsSettled,
    PageTaken,
    RunEnded,
    RunEnding,
    RunPaused,
    RunReopened,
    RunResumed,
    RunStarted,
    StepIssued,
    StepSettled,
)
from refold.core.outcomes import SECOND, Cancelled, Failed, Parked, Report, Succeeded, Suspended
from refold.core.plan import Plan, Step, read_plan
from refold.errors import Diverged
from refold.ports import Lease, StoreTurn, Writes
from refold.stores.memory import MemoryStore


class Violation(AssertionError):
    """A guarantee does not hold; the message names it."""


class RunOracle:
    """Reads the log of one run fact by fact as it grows, and keeps its own small state."""

    def __init__(self, run: str, plan: Plan, speaking: bool = True) -> None:
        self.speaking = speaking  # results of items name their items
        self.run, self.steps = run, {step.name: step for step in plan.steps}
        self.finalizers = {*plan.always, *plan.on_fail, plan.final_step}
        self.settled: set[tuple[str, int]] = set()  # command, attempt
        self.over: set[str] = set()  # commands that succeeded
        self.failed_at: dict[str, tuple[int, int]] = {}  # command -> attempt, time
        self.counts: dict[str, int] = {}  # visit -> items
        self.done: Counter[str] = Counter()  # visit -> items that succeeded
        self.not_before: dict[str, int] = {}
        self.tries: dict[str, int] = {}  # the last one that was issued
        self.paused = self.cancelled = self.ending = self.stopped = self.ended = False
        self.cleaning: frozenset[str] = frozenset()  # commands of a cancelled run whose bodies clean up
        self.aside: Counter[tuple[str, int]] = Counter()  # command, attempt -> how often it was put aside
        self.waits: list[float] = []  # seconds between a command's readiness and its claim

    def read(self, at: int, fact: Fact) -> None:
        self.check(not self.ended or isinstance(fact, RunReopened), "S12", f"{type(fact).__name__} after the end")
        match fact:
            case StepIssued() | ItemsIssued() | ItemsRetried():
                self.issued(at, fact)
            case StepSettled(step=step, visit=visit, report=report):
                self.report(at, f"{step}/{visit}", self.steps[step], report)
            case ItemsSettled(step=step, visit=visit, reports=reports):
                for each in reports:
                    self.report(at, f"{step}/{visit}/{each.item}", self.steps[step], each)
                    self.item(f"{step}/{visit}", each)
            case ChildEnded(command=command) if not fact.call:
                self.failed_at[command] = (self.tries.get(command, 1), at)
            case FanOutEntered(step=step, visit=visit, count=count):
                self.check(f"{step}/{visit}" not in self.counts, "S9", f"{step}/{visit} was entered twice")
                self.counts[f"{step}/{visit}"] = count
            case PageTaken(step=step, visit=visit, count=count):
                self.counts[f"{step}/{visit}"] += count
            case _:
                self.read_life(fact)

    def read_life(self, fact: Fact) -> None:
        match fact:
            case RunPaused():
                self.paused = True
            case RunResumed():
                self.paused = False
            case CancelAsked():
                self.cancelled = True
            case RunEnding(outcome=outcome, cleaning=cleaning):
                self.ending, self.paused = True, False
                self.stopped, self.cleaning = outcome == "cancelled", frozenset(cleaning)
            case RunEnded():
                self.ended = self.stopped = True
            case RunReopened():
                self.cancelled = self.ending = self.stopped = self.ended = False
            case _:
                pass

    def issued(self, at: int, fact: StepIssued | ItemsIssued | ItemsRetried) -> None:
        allowed = fact.step in self.finalizers
        self.check(not self.paused, "S13", f"{fact.step} was issued while the run was paused")
        self.check(allowed or not self.ending, "S12", f"{fact.step} was issued after the run began to end")
        self.check(allowed or not self.cancelled, "S12", f"{fact.step} was issued after the run was cancelled")
        for command, attempt, not_before in _issues(fact):
            self.check(command not in self.over, "S11", f"{command} was issued after it had succeeded")
            self.not_before[command] = max(not_before, at)
            self.tries[command] = attempt
            if attempt > 1:
                self.again(command, attempt, not_before or at, self.steps[fact.step])

    def again(self, command: str, attempt: int, not_before: int, step: Step) -> None:
        before, failed_at = self.failed_at[command]
        self.check(attempt == before + 1, "S14", f"{command} went from try {before} to {attempt}")
        self.check(attempt <= step.retry.attempts, "S14", f"{command} has {attempt} of {step.retry.attempts} tries")
        factor = {"fixed": 1, "linear": before, "exponential": 2 ** (before - 1)}[step.retry.backoff]
        least = min(step.retry.delay * factor, step.retry.max_delay or float("inf")) * (1 - step.retry.jitter)
        self.check(not_before - failed_at >= least * SECOND - 1, "S14", f"{command} is tried again too soon")

    def report(self, at: int, command: str, step: Step, report: Report) -> None:
        if isinstance(report.outcome, (Parked, Suspended)) or (step.poll and isinstance(report.outcome, Succeeded)):
            self.aside[command, report.attempt] += 1
            return  # it goes on: a step that looks again and again does so in one try
        why = "did not ask for calls that it has recorded"
        self.check(not report.unasked, "S15", f"{command} {why}: {', '.join(report.unasked)}")
        if isinstance(report.outcome, Failed) and report.outcome.fault.kind == Diverged.kind:
            self.check(False, "S15", f"{command} diverged: {report.outcome.fault.message}")
        key = (command, report.attempt)
        self.check(key not in self.settled, "S2", f"{command}, try {report.attempt}, was settled twice")
        self.check(command not in self.over, "S2", f"{command} was settled after it had succeeded")
        self.settled.add(key)
        if report.claimed_at:
            ready = self.not_before.get(command, report.claimed_at)
            self.check(report.claimed_at >= ready - 1, "S14", f"{command} was claimed before its time")
            if not report.losses and report.generation == 1:
                self.waits.append((report.claimed_at - ready) / SECOND)
        if isinstance(report.outcome, Succeeded):
            self.over.add(command)
        elif not isinstance(report.outcome, Cancelled):
            self.failed_at[command] = (report.attempt, at)

    def item(self, visit: str, report: Report) -> None:
        if isinstance(report.outcome, Succeeded):
            self.done[visit] += 1
            self.check(self.done[visit] <= self.counts[visit], "S9", f"{visit} moved more often than it has items")
            value = report.outcome.result
            if self.speaking and isinstance(value, str) and value.count(".") == 2:
                self.check(value.endswith(f".{report.item}"), "S10", f"item {report.item} of {visit} holds {value}")

    def check(self, holds: bool, name: str, why: str) -> None:
        if not holds:
            raise Violation(f"{name}: run {self.run}: {why}")


def _issues(fact: StepIssued | ItemsIssued | ItemsRetried) -> list[tuple[str, int, int]]:
    match fact:
        case StepIssued():
            return [(f"{fact.step}/{fact.visit}", fact.attempt, fact.not_before)]
        case ItemsIssued():
            items = fact.items or range(fact.first, fact.first + fact.count)
            return [(f"{fact.step}/{fact.visit}/{i}", 1, 0) for i in items]
        case ItemsRetried():
            return [(f"{fact.step}/{fact.visit}/{item}", attempt, at) for item, attempt, at in fact.items]


class Oracles:
    """Checks all runs of a store. `poisoned` runs are damaged on purpose and not checked."""

    speaking = True  # results of items name their items, as those of generated programs do

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.runs: dict[str, RunOracle] = {}
        self.read: defaultdict[str, int] = defaultdict(int)
        self.digests: dict[str, bytes] = {}
        self.poisoned: set[str] = set()
        self.found: list[Violation] = []  # inside a turn; the engine would take it for an error of its own
        self.exactly_once = False  # nothing is lost on the way, so no try of a command may begin twice
        self.bodies: Counter[tuple[str, str, int]] = Counter()  # run, command, attempt -> how often it began
        self.checked = 0

    def before_write(self, turn: StoreTurn, writes: Writes) -> None:
        """Check fencing on the tables before the write: a worker that reports must hold the command now."""
        for fact in writes.facts:
            if isinstance(fact, StepSettled):
                self._fenced(writes.run, f"{fact.step}/{fact.visit}", fact.report)
            elif isinstance(fact, ItemsSettled):
                for report in fact.reports:
                    self._fenced(writes.run, f"{fact.step}/{fact.visit}/{report.item}", report)

    def after_claim(self, leases: Sequence[Lease]) -> None:
        """Check that no worker gets a command of a paused run, or one whose time has not come."""
        for lease in leases:
            paused = lease.run in self.runs and self.runs[lease.run].paused
            for entry in self.store.logs[lease.run][self.read[lease.run] :]:
                fact = codec.decode_fact(entry.data)
                paused = isinstance(fact, RunPaused) or (paused and not isinstance(fact, (RunResumed, RunEnding)))
            if paused:
                self._find(f"S13: run {lease.run}: {lease.command.id} was claimed while the run was paused")
            if lease.command.not_before > lease.claimed_at:
                self._find(f"S14: run {lease.run}: {lease.command.id} was claimed before its time")

    def began(self, run: str, command: str, attempt: int) -> None:
        """A body begins. The outcome of this try, or of the command, must not be known already.

        It is known as soon as it is committed: in the log, or beside it as long as the log cannot take it. Where no
        process dies and no store fails, a try that was not put aside begins once.
        """
        held, oracle = self.store.commands.get((run, command)), self.runs.get(run)
        if held is None or not held.is_held() or held.command.attempt != attempt or oracle is None:
            return  # who begins it has lost it, and will not be heard
        self.bodies[run, command, attempt] += 1
        if command in oracle.over:
            self._find(f"S11: run {run}: {command} ran again after it had succeeded")
        elif (command, attempt) in oracle.settled:
            self._find(f"S11: run {run}: try {attempt} of {command} ran again after its outcome was known")
        elif self._kept(run, command) is not None:
            self._find(f"S11: run {run}: {command} ran again while its report was kept")
        elif self.exactly_once and self.bodies[run, command, attempt] > 1 + oracle.aside[command, attempt]:
            self._find(f"S11: run {run}: try {attempt} of {command} ran twice, and nothing was lost")

    def _kept(self, run: str, command: str) -> Report | None:
        """The report of a command that its run could not accept yet."""
        for data in self.store.letters.get(run, {}).values():
            body = codec.decode_letter(data).body
            if isinstance(body, LetterReport) and body.command == command:
                return body.report
        return None

    def _fenced(self, run: str, command: str, report: Report) -> None:
        if not report.worker:
            return
        queued = self.store.commands.get((run, command))
        current = queued is not None and queued.worker == report.worker and queued.generation == report.generation
        if queued is not None and queued.held and queued.generation == report.generation:
            kept = self._kept(run, command)
            current = kept is not None and (kept.worker, kept.generation) == (report.worker, report.generation)
        if not current:
            self._find(f"S3: run {run}: {command} was accepted from {report.worker} under {report.generation}")

    def _find(self, what: str) -> None:
        self.found.append(Violation(what))

    def after_step(self) -> None:
        """Read what is new; a log only ever grows."""
        if self.found:
            raise self.found[0]
        for run, log in self.store.logs.items():
            if run in self.poisoned or len(log) == self.read[run]:
                if len(log) < self.read[run]:
                    raise Violation(f"S4: the log of run {run} lost facts")
                continue
            self._read_more(run)
            self._projections(run)

    def _read_more(self, run: str) -> None:
        log = self.store.logs[run]
        for entry in log[self.read[run] :]:
            fact = codec.decode_fact(entry.data)
            if run not in self.runs:
                if not isinstance(fact, RunStarted):
                    raise Violation(f"S4: the log of run {run} begins with {type(fact).__name__}")
                self.runs[run] = RunOracle(run, read_plan(self.store.plans[fact.plan]), self.speaking)
            self.runs[run].read(entry.at, fact)
            self.digests[run] = hashlib.sha256(self.digests.get(run, b"") + entry.data).digest()
            self.checked += 1
        self.read[run] = len(log)

    def _projections(self, run: str) -> None:
        """Check that a run that has ended leaves no command, slot, timer or child."""
        oracle = self.runs[run]
        rows = [command for owner, command in self.store.commands if owner == run] if oracle.stopped else []
        if oracle.ended:
            left = [*rows, *self.store.timers.get(run, {}), *self._children(run)]
        else:
            allowed = {command for command in rows if command.split("/")[0] in oracle.finalizers} | oracle.cleaning
            left = [command for command in rows if command not in allowed]
        if left:
            raise Violation(f"S12: run {run} was cancelled or has ended, and still has {left}")

    def _children(self, run: str) -> list[str]:
        rows = self.store.rows.values()
        return [row.run for row in rows if row.parent == run and row.status not in ("completed", "failed", "cancelled")]

    def whole(self) -> None:
        """Check at the end that every fact that was ever read is still in its place."""
        for run, digest in self.digests.items():
            if run in self.poisoned:
                continue
            again = b""
            for entry in self.store.logs[run]:
                again = hashlib.sha256(again + entry.data).digest()
            if again != digest:
                raise Violation(f"S4: the log of run {run} is not what it was")
