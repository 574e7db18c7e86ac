"""What a screen shows of a run that goes on."""

from refold.core.outcomes import SECOND, Fault
from refold.core.plan import Call, Loop, Retry, Wait
from refold.core.read.summary import Progress, StepProgress, progress
from refold.testing.core import NOON, failed, succeeded
from tests.core.acts import Given, chain, plan, start, step


def seen(run: Given, after: int = 0) -> Progress:
    return progress(run.graph, run.state, run.state.at + after)


def test_each_step_has_a_row_in_the_order_of_the_plan() -> None:
    run = start(chain("a", "b"))
    run.when(succeeded("a"))
    assert seen(run).rows == (StepProgress("a", "completed", 1, 1), StepProgress("b", "issued", 1, 0))


def test_the_head_says_whose_progress_it_is() -> None:
    shown = seen(start(chain("a")), after=3)
    assert (shown.run, shown.workflow, shown.status, shown.started_at, shown.now) == (
        "run",
        "plan",
        "running",
        NOON,
        NOON + 3,
    )


def test_a_fan_out_is_one_row_with_counts() -> None:
    loop = Loop(items=[1, 2, 3, 4], max_in_flight=2)
    run = start(plan(step("a", loop=loop, retry=Retry(attempts=2))))
    run.when(succeeded("a", item=0))
    run.when(failed("a", item=1))
    assert seen(run).rows == (StepProgress("a", "issued", 1, 2, count=4, done=1, failed=0, open=2, retried=1),)
    run.when(failed("a", item=1, attempt=2))
    assert (seen(run).rows[0].failed, seen(run).rows[0].done) == (1, 1)


def test_a_row_that_waits_says_why_and_one_that_works_does_not() -> None:
    run = start(plan(step("s", "a", "w", mode="inclusive"), step("a"), step("w", work=Wait(seconds=9))))
    run.when(succeeded("s"))
    rows = seen(run).rows
    assert rows[1].reason is None
    assert rows[2].reason is not None
    assert (rows[2].reason.kind, rows[2].reason.until) == ("timer", NOON + 9 * SECOND)


def test_a_loop_waits_only_if_all_that_is_open_waits() -> None:
    loop = Loop(items=[1, 2], max_in_flight=2)
    run = start(plan(step("a", work=Call(), loop=loop, retry=Retry(attempts=2, delay=5.0))))
    run.when(failed("a", item=0))
    assert seen(run).rows[0].reason is None
    run.when(failed("a", item=1))
    assert getattr(seen(run).rows[0].reason, "kind", "") == "backoff"


def test_a_failed_row_has_its_fault() -> None:
    run = start(chain("a"))
    run.when(failed("a", message="no"))
    shown = seen(run)
    assert (shown.status, shown.rows[0].fault) == ("failed", Fault("error", "no"))
    assert shown.error is not None


def test_a_step_that_failed_once_and_then_succeeded_shows_no_fault() -> None:
    run = start(plan(step("a", retry=Retry(attempts=2))))
    run.when(failed("a"))
    run.when(succeeded("a", attempt=2))
    assert seen(run).rows == (StepProgress("a", "completed", 1, 2),)
