"""Engine and referee agree on generated programs: which steps ran how often, results, skips, endings."""

import os
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings

from refold.core import codec
from refold.core.fold.apply import fold
from refold.core.state import RunState
from tests.programs import FEATURES, features, programs, random_program
from tests.referee import run
from tests.ticks import Ticks, run_core

SEEDS = 500
PROOF_SEEDS = 5000


@given(programs())
@settings(max_examples=150)
def test_engine_and_referee_agree_on_what_hypothesis_finds(workflow: dict[str, Any]) -> None:
    assert run_core(workflow) == run(workflow)


def check_seeds(first: int, count: int) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in range(first, first + count):
        workflow = random_program(seed)
        expected = run(workflow)
        assert run_core(workflow) == expected, f"seed {seed}"
        seen.update(features(workflow, expected))
    return seen


def test_engine_and_referee_agree_on_500_programs() -> None:
    seen = check_seeds(0, SEEDS)
    assert set(seen) == set(FEATURES)


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_engine_and_referee_agree_on_5000_programs_with_every_feature_200_times() -> None:
    first = int(os.environ.get("REFOLD_FIRST_SEED", "1000"))
    seen = check_seeds(first, PROOF_SEEDS)
    print(f"\n{PROOF_SEEDS} programs from seed {first}; with each feature:")
    for name in FEATURES:
        print(f"  {name:20} {seen[name]:5}")
    assert min(seen[name] for name in FEATURES) >= 200


def test_folding_the_log_again_gives_the_same_state() -> None:
    for seed in range(300):
        ticks = Ticks(random_program(seed))
        ticks.run()
        again = fold(ticks.graph, ticks.log, RunState(run="r"))
        assert codec.encode_snapshot(again) == codec.encode_snapshot(ticks.state), f"seed {seed}"


def test_a_snapshot_at_every_cut_and_the_tail_give_the_same_state() -> None:
    for seed in range(120):
        ticks = Ticks(random_program(seed))
        ticks.run()
        whole = codec.encode_snapshot(ticks.state)
        state = RunState(run="r")
        for cut, record in enumerate(ticks.log, 1):
            fold(ticks.graph, [record], state)
            snapshot = codec.decode_snapshot(codec.encode_snapshot(state))
            assert snapshot is not None
            rest = fold(ticks.graph, ticks.log[cut:], snapshot)
            assert codec.encode_snapshot(rest) == whole, f"seed {seed}, cut {cut}"
