"""The pages about `.wf` files: what they show is read by Refold, and they name every node and key."""

import re
from pathlib import Path

import pytest

from refold.playbooks.wf.keys import TABLES
from refold.playbooks.wf.parser import NODES
from refold.playbooks.wf.schemas import read_schema
from refold.templates.output_blocks import read_block
from refold.templates.wf_language import ENGINE_NAMES
from tests.wf.programs import Program, problems

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reference" / "wf.md").read_text(encoding="utf-8")
COMING = (DOCS / "coming-from" / "runkon-flow.md").read_text(encoding="utf-8")


def test_the_schema_and_the_block_of_the_page_are_read() -> None:
    [schema] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert list(read_schema(schema, "wf.md")["markers"]) == ["failed", "many"]
    assert read_block(PAGE).value == {"markers": ["has_errors"], "context": "two files", "branch": "fix-7"}


def test_the_workflow_of_the_page_for_newcomers_is_valid(tmp_path: Path) -> None:
    [text] = re.findall(r"```\n(workflow .*?)```", COMING, re.DOTALL)
    schema = {"fields": {"findings": "array"}}
    assert problems(Program(text=text, schemas={"verdict": schema}), tmp_path / "p") == []


@pytest.mark.parametrize("words", [NODES, [key for table in TABLES.values() for key in table], ENGINE_NAMES])
def test_every_node_key_and_variable_is_named(words: list[str]) -> None:
    page = re.sub(r"\W", " ", PAGE)
    about_people = {"description", "group", "trigger", "targets", "dry_run", "prior_output_file"}
    assert [word for word in {*words} - about_people if word not in page] == []
