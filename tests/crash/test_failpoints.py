"""A process is killed before and after each of its commits; another one finishes, as if nothing had happened."""

from functools import partial

import pytest

from tests.crash.failpoints import AFTER, BEFORE, die_at_commit
from tests.crash.interrupted import Figures, interrupt, uninterrupted
from tests.crash.processes import scratch


def kill_at_commits(when: str, first: int, step: int) -> Figures:
    """At the commits `first`, `first + step` ... until the workflow ends before the next of them."""
    figures = Figures()
    with scratch() as folder:
        expected = uninterrupted(folder / "run")
        n = first
        while interrupt(folder / "run", partial(die_at_commit, n, when), expected, figures):
            n += step
    print(f"killed {when} commits {first}, {first + step} ... {n - step}: {figures}")
    return figures


@pytest.mark.parametrize("when", [BEFORE, AFTER])
def test_a_kill_at_a_commit_changes_nothing_in_the_end(when: str) -> None:
    figures = kill_at_commits(when, 1 if when == BEFORE else 3, 7)
    assert figures.kills >= 5
    assert figures.facts_acked >= 50


@pytest.mark.proof
@pytest.mark.parametrize("when", [BEFORE, AFTER])
def test_a_kill_at_any_commit_changes_nothing_in_the_end(when: str) -> None:
    figures = kill_at_commits(when, 1, 1)
    assert figures.kills >= 45
    assert figures.facts_acked >= 1500
    assert figures.bodies_repeated >= 5
