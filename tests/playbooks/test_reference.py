"""The reference in the documentation: as the tables have it, and every playbook in it is a good one."""

import re
from pathlib import Path

import pytest

from docs.build.playbook_page import page
from refold.playbooks.language.playbook import TABLES
from refold.playbooks.playbook import read
from refold.tools.catalog import CATALOG

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "playbook.md"
BLOCKS = re.findall(r"```yaml\n(.*?)```", page(), re.S)


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it anew: python -m docs.build.playbook_page"


def test_every_key_is_on_the_page() -> None:
    for table in TABLES.values():
        for key in table.keys:
            assert re.search(rf"^\| (\*\*)?`{key.name}`", page(), re.M), f"{table.name}.{key.name}"


def test_there_are_playbooks_on_the_page() -> None:
    assert BLOCKS


@pytest.mark.parametrize("text", BLOCKS)
def test_every_playbook_on_the_page_is_a_good_one(text: str) -> None:
    assert read(text, "reference.yaml", CATALOG).warnings == ()


def test_every_link_leads_somewhere() -> None:
    titles = {re.sub(r"[^\w -]", "", title.lower()) for title in re.findall(r"^#+ (.*)$", page(), re.M)}
    assert {link for link in re.findall(r"\]\(#([^)]*)\)", page()) if link not in titles} == set()
