"""What happened to runs, counted from their facts as they come: no turn waits for it, and nothing is counted twice."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Generic, TypeVar

from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Histogram

from refold.core.facts import ItemsSettled, RunEnded, RunMigrated, RunStarted, StepIssued, StepSettled
from refold.core.outcomes import (
    QUEUE,
    SECOND,
    Failed,
    Instant,
    Report,
    Succeeded,
    Suspended,
    TimedOut,
    fault_of_outcome,
)
from refold.core.plan import WorkerWork, tool_of
from refold.errors import Corrupt
from refold.ports import FeedFact, Views
from refold.queries.reading import graph_of

K = TypeVar("K")
V = TypeVar("V")
AT_ONCE = 1000  # facts in one read
REMEMBERED = 10_000  # runs, plans and commands
MOST_LABELS = 500  # workflows and schedules with counters of their own; the others are `other`
LONG = (0.01, 0.1, 0.5, 1, 5, 10, 60, 300, 1800, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600)
SHORT = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 600, 3600)
OUTCOMES = ((Succeeded, "completed"), (Failed, "failed"), (TimedOut, "timeout"), (Suspended, "suspended"))


class Recent(OrderedDict[K, V], Generic[K, V]):
    """The newest entries, and no more than so many."""

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        if len(self) > REMEMBERED:
            self.popitem(last=False)


class Steps(Struct, frozen=True):
    """What counters need of a plan: its name, and the tool and the queue of each step that workers execute."""

    workflow: str
    tools: dict[str, tuple[str, str]]


class Known(Struct):
    plan: str
    started_at: Instant
    queue: str = QUEUE  # of the steps that name none


class RunMetrics:
    """Follows the feed of a store. `follow` is called from one thread at a time."""

    def __init__(self, views: Views, registry: CollectorRegistry) -> None:
        self._views = views
        self._cursor: str | None = None  # None: the first look only finds where the feed ends
        self._runs: Recent[str, Known] = Recent()
        self._plans: Recent[str, Steps] = Recent()
        self._issued: Recent[tuple[str, str, int], Instant] = Recent()
        self._faults: Recent[tuple[str, str, int], str] = Recent()
        self._labels: dict[str, set[str]] = {}
        self._started = Counter(
            "refold_runs_started", "Runs that were started.", ("workflow", "trigger"), registry=registry
        )
        self._ended = Counter("refold_runs_ended", "Runs that ended.", ("workflow", "outcome"), registry=registry)
        self._took = Histogram(
            "refold_run_seconds",
            "From the start to the end of a run.",
            ("workflow", "outcome"),
            registry=registry,
            buckets=LONG,
        )
        self._attempts = Counter("refold_attempts", "Tries that ended.", ("tool", "outcome"), registry=registry)
        self._worked = Histogram(
            "refold_attempt_seconds", "How long tries took.", ("tool", "outcome"), registry=registry, buckets=SHORT
        )
        self._retries = Counter("refold_retries", "Tries after the first.", ("tool", "kind"), registry=registry)
        self._waited = Histogram(
            "refold_claim_wait_seconds",
            "From the moment a command is free until a worker takes it.",
            ("queue",),
            registry=registry,
            buckets=SHORT,
        )
        self._lost = Counter(
            "refold_leases_lost", "Leases that ended without a report.", ("reason",), registry=registry
        )
        self._lag = Histogram(
            "refold_schedule_lag_seconds",
            "From the planned time to the start.",
            ("schedule",),
            registry=registry,
            buckets=SHORT,
        )
        self._usage = Counter("refold_usage", "What steps have used.", ("unit", "workflow"), registry=registry)

    def follow(self) -> None:
        """Count what has come since the last call."""
        if self._cursor is None:
            self._cursor = self._views.feed_end()
            return
        while facts := self._views.feed(self._cursor, AT_ONCE):
            for each in facts:
                self._count(each)
            self._cursor = facts[-1].cursor

    def restart(self) -> None:
        """Forget the place, as after the store was restored from a backup."""
        self._cursor = None

    def _count(self, each: FeedFact) -> None:
        fact = each.fact
        match fact:
            case RunStarted():
                self._runs[each.run] = Known(fact.plan, each.at, fact.queueing.queue or QUEUE)
                trigger = "schedule" if fact.schedule else "run" if fact.parent or fact.predecessor else "request"
                self._started.labels(self._label("workflow", self._steps(each.run).workflow), trigger).inc()
                if fact.schedule is not None and not fact.schedule.backfill:
                    schedule = self._label("schedule", fact.schedule.id)
                    self._lag.labels(schedule).observe(max(each.at - fact.schedule.planned, 0) / SECOND)
            case RunEnded(status=status):
                workflow = self._label("workflow", self._steps(each.run).workflow)
                self._ended.labels(workflow, status).inc()
                known = self._runs.pop(each.run, None)
                if known is not None:
                    self._took.labels(workflow, status).observe((each.at - known.started_at) / SECOND)
            case RunMigrated(plan=plan):
                if each.run in self._runs:
                    self._runs[each.run].plan = plan
            case StepIssued(step=step, visit=visit, attempt=attempt, not_before=not_before):
                tool, _ = self._steps(each.run).tools.get(step, ("", ""))
                if tool:
                    self._issued[each.run, step, visit] = max(each.at, not_before)
                    if attempt > 1:
                        tool = self._label("tool", tool)
                        self._retries.labels(tool, self._faults.pop((each.run, step, visit), "other")).inc()
            case StepSettled(step=step, visit=visit, report=report):
                self._report(each, step, visit, [report])
            case ItemsSettled(step=step, visit=visit, reports=reports):
                self._report(each, step, visit, reports)
            case _:
                pass

    def _report(self, each: FeedFact, step: str, visit: int, reports: Iterable[Report]) -> None:
        steps = self._steps(each.run)
        tool, queue = steps.tools.get(step, ("", ""))
        tool = self._label("tool", tool) if tool else ""
        for report in reports:
            outcome = next((name for kind, name in OUTCOMES if isinstance(report.outcome, kind)), "other")
            for unit, amount in report.usage.items():
                if amount > 0:
                    self._usage.labels(self._label("unit", unit), self._label("workflow", steps.workflow)).inc(amount)
            if report.losses:
                self._lost.labels("expired").inc(report.losses)
            if not tool:
                continue
            self._attempts.labels(tool, outcome).inc()
            if report.started_at:
                self._worked.labels(tool, outcome).observe(max(each.at - report.started_at, 0) / SECOND)
            if (fault := fault_of_outcome(report.outcome)) is not None:
                self._faults[each.run, step, visit] = self._label("kind", fault.kind)
            issued = self._issued.pop((each.run, step, visit), None)
            if issued is not None and report.claimed_at:
                queue = self._label("queue", queue or self._runs[each.run].queue)
                self._waited.labels(queue).observe(max(report.claimed_at - issued, 0) / SECOND)

    def _steps(self, run: str) -> Steps:
        """What the plan of a run says; a plan that cannot be read has no tools."""
        known = self._runs.get(run)
        if known is None:
            row = self._views.summary(run)
            if row is None:
                return Steps("other", {})
            first = next((fact for _, _, fact in self._views.facts(run, 0, 1)), None)
            queue = first.queueing.queue if isinstance(first, RunStarted) else ""
            known = self._runs[run] = Known(row.plan, row.created_at, queue or QUEUE)
        if known.plan not in self._plans:
            try:
                plan = graph_of(self._views, known.plan).plan
            except Corrupt:
                return Steps("other", {})
            tools = {
                step.name: (tool_of(step.work), step.queue) for step in plan.steps if isinstance(step.work, WorkerWork)
            }
            self._plans[known.plan] = Steps(plan.name, tools)
        return self._plans[known.plan]

    def _label(self, kind: str, text: str) -> str:
        """What users name has a bounded number of counters."""
        seen = self._labels.setdefault(kind, set())
        if text in seen:
            return text
        if len(seen) >= MOST_LABELS:
            return "other"
        seen.add(text)
        return text
