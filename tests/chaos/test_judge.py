"""The judge of histories finds nothing in a fleet with all its guards, and something where one of them is left out."""

import subprocess
import sys

import pytest

from tests.chaos.history import violations
from tests.chaos.toy_fleet import GUARDS, Fleet

FOUND_BY = {
    "fence": "log_has_no_gap",
    "generation": "a_try_is_settled_once",
    "turn_id": "log_has_no_gap",
    "final_read": "what_was_acknowledged",
    "poll": "every_run_is_over",
    "counted_slots": "keep_the_limits",
    "horizon": "the_feed_is_the_union",
}


@pytest.mark.parametrize("seed", range(200))
def test_a_fleet_with_all_its_guards_breaks_no_rule(seed: int) -> None:
    assert violations(Fleet(seed).run()) == []


@pytest.mark.parametrize("guard", GUARDS)
def test_a_fleet_without_one_guard_is_found_out_by_the_rule_for_it(guard: str) -> None:
    found = [text for seed in range(50) for text in violations(Fleet(seed, guard).run())]
    assert any(FOUND_BY[guard] in text for text in found), found[:5]


def test_the_judge_shares_no_code_with_the_engine() -> None:
    code = "import sys, tests.chaos.history, tests.chaos.toy_fleet; print([m for m in sys.modules if 'refold' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
