"""A JamJet graph whose process is killed at a commit goes on as if nothing had happened."""

from functools import partial

import pytest

from tests.crash.failpoints import AFTER, BEFORE, die_at_commit
from tests.crash.interrupted import Figures
from tests.crash.processes import scratch
from tests.jamjet.killed import interrupt, large, uninterrupted


def kill_at_commits(when: str, first: int, step: int) -> Figures:
    figures = Figures()
    with scratch() as folder:
        playbook = large()
        expected = uninterrupted(folder / "run", playbook)
        n = first
        while interrupt(folder / "run", playbook, partial(die_at_commit, n, when), expected, figures):
            n += step
    print(f"killed {when} commits {first}, {first + step} ... {n - step}: {figures}")
    return figures


@pytest.mark.parametrize("when", [BEFORE, AFTER])
def test_a_kill_at_a_commit_of_a_graph_changes_nothing_in_the_end(when: str) -> None:
    assert kill_at_commits(when, 2 if when == BEFORE else 6, 9).kills >= 3


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("when", [BEFORE, AFTER])
def test_a_kill_at_any_commit_of_a_graph_changes_nothing_in_the_end(when: str) -> None:
    assert kill_at_commits(when, 1, 1).kills >= 25
