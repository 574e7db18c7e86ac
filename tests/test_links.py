"""Every link in the documentation leads somewhere, and every page is found from its index."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.M)
FENCED = re.compile(r"```.*?```", re.S)


def prose(page: Path) -> str:
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(prose(page))}


def links(page: Path) -> list[tuple[Path, str]]:
    found = (link.partition("#") for link in LINK.findall(prose(page)) if "://" not in link)
    return [((page.parent / path).resolve() if path else page, anchor) for path, _, anchor in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_its_links_lead_somewhere(page: Path) -> None:
    for target, anchor in links(page):
        assert target.exists(), target
        assert not anchor or anchor in anchors(target), (target, anchor)


def test_the_index_names_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    named = {target for target, _ in links(index)}
    left_out = {page for page in PAGES if page.is_relative_to(index.parent) and "decisions" not in page.parts} - named
    assert left_out == {index}
    assert (index, "") in links(ROOT / "README.md")
