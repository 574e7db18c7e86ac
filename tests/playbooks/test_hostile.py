"""Hostile playbooks, read in a process of their own: no crash, nothing that takes long, nothing that takes much."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from refold.playbooks.playbook import read
from refold.tools.catalog import CATALOG
from tests.growth import grows_linearly
from tests.playbooks.hostile import PAYLOADS, fuzzed

ROOT = Path(__file__).parents[2]
SECONDS = 1.0  # of CPU time, for each
MEGABYTES = 64


def hostile(*arguments: object, limit: float = 100) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.playbooks.hostile", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit, check=False)
    assert done.returncode == 0, f"{done.stdout[-200:]} ... {done.stderr[-2000:]}"
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert result["seconds"] < SECONDS, result
    assert result["megabytes"] < MEGABYTES, result
    return result


def test_no_payload_crashes_or_costs_much() -> None:
    result = hostile("payloads")
    assert (result["refused"], result["accepted"]) == (len(PAYLOADS), 0)


def test_no_random_text_crashes_or_costs_much() -> None:
    result = hostile("fuzz", 0, 6_500)
    assert result["accepted"] > 100 and result["refused"] > 2_000


@pytest.mark.proof
def test_no_random_text_of_a_hundred_thousand_crashes_or_costs_much() -> None:
    first = int(os.environ.get("REFOLD_FIRST_SEED", random.SystemRandom().randrange(10**9)))
    result = hostile("fuzz", first, 130_000, limit=4_000)
    print(f"130,000 texts from seed {first}: {result}")
    assert result["accepted"] > 2_000 and result["refused"] > 40_000


def test_a_seed_gives_the_same_text_again() -> None:
    assert [fuzzed(seed) for seed in range(50)] == [fuzzed(seed) for seed in range(50)]


def ladder(steps: int) -> str:
    """Each step leads on to the next and back to the one before: as many loops inside each other as steps."""
    back, on = "{{step: s{}, when: '{{{{ visit < 3 }}}}'}}", "{{step: s{}}}"
    ways = [[back.format(s - 1)] * (s > 0) + [on.format(s + 1)] * (s < steps - 1) for s in range(steps)]
    lines = [
        f"  - {{step: s{s}, tool: {{kind: noop}}, next: {{arcs: [{', '.join(way)}]}}}}" for s, way in enumerate(ways)
    ]
    return "\n".join(["apiVersion: refold/v1", "kind: Playbook", "metadata: {name: ladder}", "workflow:", *lines])


def test_a_ladder_of_back_arcs_is_checked_in_time_that_grows_with_it() -> None:
    assert len(read(ladder(2_000), "ladder.yaml", CATALOG).plan.steps) == 2_000
    assert grows_linearly(lambda size: read(ladder(size), "ladder.yaml", CATALOG), 250)
