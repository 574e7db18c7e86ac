"""Metrics for Prometheus: gauges are read from the store at most every five seconds, counters are the server's own."""

import time
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from refold.core.outcomes import SECOND
from refold.ports import Document, RunFilter, Views
from refold.queries.gates import waiting_for_people
from refold.queries.runs import STATUSES, list_runs
from refold.queries.workers import unserved
from refold.schedules.documents import SCHEDULE, read_schedule
from refold.telemetry.run_metrics import RunMetrics

MOST_UNSERVED = 1000  # runs that are looked at, the newest
KEPT = 5.0  # seconds for which the gauges of the store are kept
MEDIA = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """What a server counts. To count never fails and never waits."""

    def __init__(self, views: Views, version: str) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self.registry.register(StoreGauges(views, version))
        labels = ("route", "method", "code")
        self._seconds = Histogram("refold_http_seconds", "Requests by route.", labels, registry=self.registry)
        self._resets = Counter("refold_streams_reset", "Readers that were too slow.", registry=self.registry)

        self._streams = Gauge("refold_streams", "Open streams.", registry=self.registry)
        self.runs = RunMetrics(views, self.registry)

    def streams(self, number: int) -> None:
        self._streams.set(number)

    def request(self, route: str, method: str, code: int, seconds: float) -> None:
        self._seconds.labels(route, method, str(code)).observe(seconds)

    def stream_reset(self) -> None:
        self._resets.inc()

    def text(self) -> bytes:
        return generate_latest(self.registry)


class StoreGauges(Collector):
    """The store as it stands."""

    def __init__(self, views: Views, version: str) -> None:
        self._views, self._version = views, version
        self._read_at, self._kept = -KEPT, list[Metric]()

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        if time.monotonic() - self._read_at >= KEPT:
            self._kept, self._read_at = list(self._look()), time.monotonic()
        return self._kept

    def _look(self) -> Iterable[Metric]:
        views, now = self._views, self._views.now()
        runs = GaugeMetricFamily("refold_runs", "Runs by status; counting stops at 10,000.", labels=["status"])
        for status in STATUSES:
            runs.add_metric([status], views.count(RunFilter(status=status))[0])
        yield runs
        waiting = GaugeMetricFamily("refold_commands_waiting", "Commands that a worker may claim.", labels=["queue"])
        leased = GaugeMetricFamily("refold_commands_leased", "Commands that workers have.", labels=["queue"])
        oldest = GaugeMetricFamily("refold_queue_oldest_seconds", "How long the first of them waits.", labels=["queue"])
        for queue in views.queues():
            waiting.add_metric([queue.name], queue.waiting)
            leased.add_metric([queue.name], queue.leased)
            oldest.add_metric([queue.name], 0 if queue.oldest is None else (now - queue.oldest) / SECOND)
        yield from (waiting, leased, oldest)
        yield GaugeMetricFamily("refold_workers", "Workers that are alive.", value=len(views.workers()))
        letters = sum(letter.count for letter in views.dead(limit=10_000))
        yield GaugeMetricFamily(
            "refold_dead_letters", "Work that failed permanently, up to 10,000 letters.", value=letters
        )
        gates = sum(1 for _ in waiting_for_people(views))
        yield GaugeMetricFamily("refold_gates_waiting", "Gates and questions that wait for people.", value=gates)
        paused = sum(read_schedule(each).paused for each in _schedules(views))
        yield GaugeMetricFamily("refold_schedules_paused", "Schedules that are paused.", value=paused)
        lacking = sum(1 for _ in unserved(views, list_runs(views, RunFilter(parent=""), MOST_UNSERVED)))
        unserved_runs = GaugeMetricFamily(
            "refold_runs_unserved", "Unfinished runs that no process executes.", labels=["reason"]
        )
        unserved_runs.add_metric(["no_worker"], lacking)
        yield unserved_runs
        yield GaugeMetricFamily("refold_store_bytes", "The size of the store.", value=views.health().size)
        built = GaugeMetricFamily("refold_build_info", "What runs.", labels=["version"])
        built.add_metric([self._version], 1)
        yield built


def _schedules(views: Views) -> Iterable[Document]:
    after = ""
    while page := views.documents(SCHEDULE, after, 500):
        yield from page
        after = page[-1].id
