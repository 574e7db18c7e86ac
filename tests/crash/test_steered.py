"""Cancelled and paused after any commit: over means over for the whole tree, and a pause changes nothing in the end."""

import pytest

from refold.core.plan import Plan
from tests.crash.steered import Steered, trees


def steer(tree: tuple[Plan, Plan, Plan], every: int) -> int:
    whole = Steered(tree)
    expected, commits = whole.end(), whole.store.commits
    steered = 0
    for n in range(1, commits + 1, every):
        run = Steered(tree)
        if run.after_commit(n, lambda engine, run: engine.cancel(run)):
            ended = run.end()
            assert ended[run.run][0] == "cancelled", n
            assert all(visits.get("tidy") == 1 for _, _, visits in ended.values()), "what always runs has run"
            steered += 1
        run = Steered(tree)
        if run.after_commit(n, lambda engine, run: engine.pause(run)):
            run.stage.pass_time(30)
            assert not run.store.leases, "what was at work has finished"
            run.stage.do(run.stage.engine.resume(run.run))
            assert run.end() == expected, n
            steered += 1
    return steered


@pytest.mark.parametrize("number", range(4))
def test_cancel_and_pause_work_at_some_commits_of_generated_trees(number: int) -> None:
    assert steer(trees(4)[number], every=5) >= 2


@pytest.mark.proof
@pytest.mark.timeout(3600)
def test_cancel_and_pause_work_at_every_commit_of_50_generated_trees() -> None:
    steered = sum(steer(tree, every=1) for tree in trees(50))
    print(f"\n{steered} times cancelled or paused")
    assert steered > 1000
