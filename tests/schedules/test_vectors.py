"""The first times after a moment, where clocks change: pinned vectors, all in UTC. By the pinned rules Cuba keeps its
summer time through 2026, so the vector of Havana is one of 2025."""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from refold.core.times import instant, stamp
from refold.schedules.times import When, next_time

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "vectors.json").read_text())


def test_the_vectors_are_for_these_rules_of_zones() -> None:
    assert version("tzdata") == "2026.6"
    assert len(VECTORS) == 29


@pytest.mark.parametrize("vector", VECTORS, ids=lambda each: f"{each['cron']} {each['zone']} {each['from']}")
def test_a_line_of_cron_names_these_times(vector: dict[str, Any]) -> None:
    options = {name: vector[name] for name in ("gap", "repeat") if name in vector}
    when, at = When(cron=(vector["cron"],), zone=vector["zone"], **options), instant(vector["from"])
    times = []
    for _ in vector["times"]:
        at = next_time(when, at) or 0
        times.append(stamp(at)[:16] + "Z")
    assert times == vector["times"]
