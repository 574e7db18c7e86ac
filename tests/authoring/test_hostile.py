"""Hostile playbooks, read in a process of their own: no crash, nothing that takes long, nothing that takes much."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.authoring.hostile import PAYLOADS, fuzzed

ROOT = Path(__file__).parents[2]
SECONDS = 1.0  # of CPU time, for each
MEGABYTES = 64


def hostile(*arguments: object, limit: float = 100) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.authoring.hostile", *map(str, arguments)]
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
