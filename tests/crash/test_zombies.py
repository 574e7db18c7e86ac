"""A worker that was stopped for longer than its lease reports too late, and is refused by its generation."""

import pytest

from tests.crash.processes import scratch
from tests.crash.zombies import Buried, bury


def bury_all(count: int) -> Buried:
    with scratch() as folder:
        buried = bury(folder, count)
    print(buried)
    return buried


def test_a_report_after_the_lease_has_moved_on_is_refused() -> None:
    buried = bury_all(10)
    assert buried.refused == buried.zombies >= 8
    assert buried.while_running >= 3


@pytest.mark.proof
def test_two_hundred_late_reports_in_a_row_are_refused() -> None:
    buried = bury_all(210)
    assert buried.refused == buried.zombies >= 200
    assert buried.while_running >= 90
