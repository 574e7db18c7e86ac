"""A process is killed before each single write, truncation, sync and deletion it makes; another one finishes."""

from functools import partial

import pytest

from tests.crash.failpoints import die_at_write
from tests.crash.interrupted import Figures, interrupt, uninterrupted
from tests.crash.processes import scratch

SHARDS = 6


def kill_at_writes(first: int, step: int) -> Figures:
    figures = Figures()
    with scratch() as folder:
        expected = uninterrupted(folder / "run")
        n = first
        while interrupt(folder / "run", partial(die_at_write, n), expected, figures):
            n += step
    print(f"killed at writes {first}, {first + step} ... {n - step}: {figures}")
    return figures


def test_a_kill_at_a_write_changes_nothing_in_the_end() -> None:
    figures = kill_at_writes(7, 61)
    assert figures.kills >= 10
    assert figures.facts_acked >= 200


@pytest.mark.proof
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_kill_at_any_write_changes_nothing_in_the_end(shard: int) -> None:
    figures = kill_at_writes(1 + shard, SHARDS)
    assert figures.kills >= 130
    assert figures.facts_acked >= 3000
