"""A process dies at a commit of a flow that parks, races, answers, continues and cleans up; another one finishes it."""

from collections import Counter
from functools import partial

import pytest

from tests.crash.failpoints import AFTER, BEFORE, die_at_commit
from tests.crash.flows import interrupt, uninterrupted
from tests.crash.interrupted import Figures
from tests.crash.processes import scratch

ENDS = Counter({("whole", "continued"): 1, ("whole", "completed"): 1, ("kid", "completed"): 4})
ENDS += Counter({("waits", "cancelled"): 2, ("works", "cancelled"): 2})


def kill_at_commits(when: str, first: int, step: int) -> Figures:
    figures = Figures()
    with scratch() as folder:
        expected = uninterrupted(folder / "run")
        assert expected == ENDS
        n = first
        while interrupt(folder / "run", partial(die_at_commit, n, when), expected, figures):
            n += step
    print(f"killed {when} commits {first}, {first + step} ... {n - step}: {figures}")
    return figures


@pytest.mark.parametrize("when", [BEFORE, AFTER])
def test_a_kill_at_a_commit_of_a_flow_changes_nothing_in_the_end(when: str) -> None:
    assert kill_at_commits(when, 4 if when == BEFORE else 9, 16).kills >= 3


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("when", [BEFORE, AFTER])
def test_a_kill_at_any_commit_of_a_flow_changes_nothing_in_the_end(when: str) -> None:
    assert kill_at_commits(when, 1, 1).kills >= 40
