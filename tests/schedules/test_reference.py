"""The reference of schedules is what the tables of the reader say."""

from pathlib import Path

from docs.build.schedule_page import page

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date() -> None:
    assert (ROOT / "docs/reference/schedule.md").read_text() == page(), "python -m docs.build.schedule_page prints it"
