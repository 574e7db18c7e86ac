"""The rows of the matrix work, and one without faults is a failure. In full they run by `make chaos`."""

from tests.chaos.rows import ROWS, Row, run_row


def test_a_row_runs_a_fleet_under_faults_and_judges_it() -> None:
    row = ROWS["T2"]
    verdict = run_row(row, 4.0)
    assert verdict.wrong == [] and verdict.numbers["steps settled"] > 0 and verdict.numbers["backend killed"] > 0


def test_a_row_that_has_seen_too_few_faults_has_failed() -> None:
    row = Row("none", "no faults at all", lambda stage: None, {"fault": 600})
    assert run_row(row, 2.0).wrong == ["0 x fault, and 2 are needed"]
