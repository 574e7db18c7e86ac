"""The pages about NoETL files: as the tables have it, and every file in them is read and run."""

import re
from pathlib import Path

import pytest

from docs.build.noetl_page import page
from refold.playbooks.noetl.kinds import KINDS
from refold.playbooks.noetl.tables import TABLES
from refold.playbooks.playbook import read
from refold.playbooks.problems import InvalidPlaybook
from refold.tools.catalog import CATALOG
from tests.test_howto import COMMAND, FILE, run

DOCS = Path(__file__).parents[2] / "docs"


def test_the_reference_is_up_to_date() -> None:
    found = (DOCS / "reference" / "noetl.md").read_text(encoding="utf-8")
    assert found == page(), "write it anew: python -m docs.build.noetl_page"


def test_every_key_of_every_table_and_every_kind_is_in_the_reference() -> None:
    for table in TABLES.values():
        for key in table.keys:
            assert re.search(rf"^\| (\*\*)?`{key.name}`", page(), re.M), f"{table.name}.{key.name}"
    assert all(f"| `{kind}` |" in page() for kind in KINDS)


def test_the_playbook_of_the_reference_is_a_good_one() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", page(), re.S)
    assert [read(text, "reference.yaml", CATALOG).warnings for text in blocks] == [()]


def test_every_link_of_the_reference_leads_somewhere() -> None:
    titles = {re.sub(r"[^\w -]", "", title.lower()) for title in re.findall(r"^#+ (.*)$", page(), re.M)}
    assert {link for link in re.findall(r"\]\(#([^)]*)\)", page()) if link not in titles} == set()


def test_the_files_of_the_page_are_read_and_the_commands_print_what_stands_below_them(tmp_path: Path) -> None:
    text = (DOCS / "noetl.md").read_text(encoding="utf-8")
    files = FILE.findall(text)
    assert len(files) == text.count("```yaml")
    for name, body in files:
        (tmp_path / name).write_text(body, encoding="utf-8")
        if name == "refused.yaml":
            with pytest.raises(InvalidPlaybook):
                read(body, name, CATALOG)
            continue
        warned = {each.code for each in read(body, name, CATALOG).warnings}
        assert warned == ({"old-form"} if name == "old.yaml" else set())
    [log] = re.findall(r"```jsonl\n(.*?)```", text, re.S)
    (tmp_path / "events.jsonl").write_text(log, encoding="utf-8")
    commands = COMMAND.findall("".join(re.findall(r"```console\n(.*?)```", text, re.S)))
    assert len(commands) == 11
    for command, expected in commands:
        told = run(tmp_path, command)
        for line in expected.splitlines():
            assert any(" ".join(line.split()) in each for each in told), (command, line, told)
