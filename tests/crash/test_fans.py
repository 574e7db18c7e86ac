"""A process dies at a commit of loops of every kind; another one repeats nothing that was done, and ends alike."""

from functools import partial

import pytest

from tests.crash.evidence import effects
from tests.crash.failpoints import AFTER, BEFORE, die_at_commit
from tests.crash.fans import RUNS, armed
from tests.crash.interrupted import Figures
from tests.crash.processes import scratch
from tests.crash.trees import interrupt, uninterrupted


def kill_at_commits(when: str, first: int, step: int) -> Figures:
    """`interrupt` demands that no finished body runs again, that logs only grow, and the same end with all results."""
    figures = Figures()
    with scratch() as folder:
        expected = uninterrupted(folder / "run", armed, RUNS)
        n = first
        while interrupt(folder / "run", partial(die_at_commit, n, when), expected, figures, armed):
            ran = [command for _, _, (_, command), _ in effects(folder / "run") if command.startswith("pulled")]
            begun = list(dict.fromkeys(int(command.rsplit("/", 1)[1]) for command in ran))
            assert begun.index(3) < min(begun.index(1), begun.index(2)) and begun.index(0) > begun.index(1), begun
            n += step
    print(f"killed {when} commits {first}, {first + step} ... {n - step}: {figures}")
    return figures


@pytest.mark.parametrize("when", [BEFORE, AFTER])
def test_a_kill_at_a_commit_of_loops_changes_nothing_in_the_end(when: str) -> None:
    assert kill_at_commits(when, 3 if when == BEFORE else 6, 6).kills >= 3


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("when", [BEFORE, AFTER])
def test_a_kill_at_any_commit_of_loops_changes_nothing_in_the_end(when: str) -> None:
    assert kill_at_commits(when, 1, 1).kills >= 25
