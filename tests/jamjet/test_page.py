"""The page on files of JamJet is what the tables of the reader print."""

from pathlib import Path

from docs.build.jamjet_page import page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "jamjet.md"


def test_the_page_is_printed_from_the_tables() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it anew: python -m docs.build.jamjet_page"
