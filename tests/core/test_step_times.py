"""When steps began and ended, as it is read from the log."""

from refold.core.facts import StepIssued, StepSettled
from refold.core.fold.apply import Record
from refold.core.outcomes import SECOND, Report, Succeeded
from refold.core.read.step_times import step_times


def test_a_wait_began_when_it_was_entered() -> None:
    log: list[Record] = [
        (1, 10 * SECOND, StepIssued("nap", 1, until=12 * SECOND)),
        (2, 12 * SECOND, StepSettled("nap", 1, Report(1, Succeeded({"by": "timer"})))),
        (3, 12 * SECOND, StepIssued("paid", 1, signal="go")),
    ]
    times = step_times(log)
    assert (times["nap"].began_at, times["nap"].seconds()) == (10 * SECOND, 2)
    assert (times["paid"].began_at, times["paid"].ended_at) == (12 * SECOND, 0)


def test_work_began_when_a_worker_started_it() -> None:
    report = Report(1, Succeeded(1), worker="w", started_at=11 * SECOND)
    log: list[Record] = [(1, 10 * SECOND, StepIssued("a", 1)), (2, 14 * SECOND, StepSettled("a", 1, report))]
    assert step_times(log[:1])["a"].began_at == 0
    assert step_times(log)["a"].seconds() == 3
