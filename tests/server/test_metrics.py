"""Metrics: what happens to runs is counted once, from their facts, with bounded labels."""

import re
from pathlib import Path

import httpx2
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from refold.telemetry import run_metrics
from refold.telemetry.run_metrics import RunMetrics
from tests.server.conftest import NS, Server

DOCS = Path(__file__).parents[2] / "docs" / "howto" / "server.md"


def shown(registry: CollectorRegistry) -> str:
    return generate_latest(registry).decode()


async def test_starts_ends_tries_and_waits_are_counted_once(server: Server, client: httpx2.AsyncClient) -> None:
    registry = CollectorRegistry()
    counting = RunMetrics(server.service.views, registry)
    counting.follow()
    for workflow, end in (("greet", "completed"), ("greet", "completed"), ("broken", "failed")):
        await server.until(client, await server.start(client, workflow), end)
    counting.follow()
    counting.follow()
    text = shown(registry)
    assert 'refold_runs_started_total{trigger="request",workflow="greet"} 2.0' in text
    assert 'refold_runs_ended_total{outcome="failed",workflow="broken"} 1.0' in text
    assert 'refold_run_seconds_count{outcome="completed",workflow="greet"} 2.0' in text
    assert 'refold_attempts_total{outcome="completed",tool="noop"} 2.0' in text
    assert 'refold_attempts_total{outcome="failed",tool="python"} 1.0' in text
    assert 'refold_claim_wait_seconds_count{queue="default"} 3.0' in text


async def test_a_counter_that_begins_later_counts_nothing_of_the_past(
    server: Server, client: httpx2.AsyncClient
) -> None:
    await server.until(client, await server.start(client, "greet"), "completed")
    registry = CollectorRegistry()
    counting = RunMetrics(server.service.views, registry)
    counting.follow()
    counting.follow()
    assert 'workflow="greet"' not in shown(registry)


async def test_workflows_without_end_have_a_bounded_number_of_counters(
    server: Server, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_metrics, "MOST_LABELS", 1)
    registry = CollectorRegistry()
    counting = RunMetrics(server.service.views, registry)
    counting.follow()
    for workflow in ("greet", "many"):
        await server.until(client, await server.start(client, workflow), "completed")
    counting.follow()
    names = set(re.findall(r'refold_runs_started_total\{.*workflow="(\w+)"', shown(registry)))
    assert names == {"greet", "other"}


async def test_the_page_names_every_metric_and_no_other(server: Server, client: httpx2.AsyncClient) -> None:
    await server.until(client, await server.start(client, "greet"), "completed")
    text = (await client.get("/metrics")).text
    served = set(re.findall(r"^# TYPE refold_(\w+) (?:counter|gauge|histogram)$", text, re.MULTILINE))
    served = {name for name in served if not name.endswith("_created")} - {"commands_leased"}
    section = DOCS.read_text().partition("## Watch it")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert served == {name for row in rows for name in re.findall(r"`(\w+)`", row)} - {"refold_"}
    await client.get(f"{NS}/runs")
    assert "refold_http_seconds_bucket" in (await client.get("/metrics")).text
