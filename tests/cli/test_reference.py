"""The reference in the documentation is what the program itself says."""

import re
from pathlib import Path

from docs.build.cli_page import page
from refold.cli.app import COMMANDS, DB, GATES, RUNS
from refold.cli.words import KINDS
from tests.cli.program import refold

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it anew: python -m docs.build.cli_page"


def test_every_command_is_on_the_page_and_says_what_it_is_for() -> None:
    groups = {"runs": RUNS, "gates": GATES, "db": DB}
    names = [*COMMANDS, *(f"{group} {name}" for group, commands in groups.items() for name in commands)]
    for name in names:
        assert re.search(rf"^## `refold {name}`\n\n```\nrefold {name}.*\n```\n\n[A-Z]", page(), re.M), name


def test_every_option_of_the_help_is_on_the_page(tmp_path: Path) -> None:
    for command in (["run"], ["runs", "prune"]):
        shown = set(re.findall(r"--[a-z-]+", refold(tmp_path, *command, "--help").out)) - {"--help"}
        section = page().split(f"## `refold {' '.join(command)}`")[1].split("\n## ")[0]
        assert shown == set(re.findall(r"`(--[a-z-]+)`", section))


def test_every_kind_of_reason_is_on_the_page() -> None:
    listed = page().split("| kind |")[1]
    assert {kind for kind in KINDS if f"`{kind}`" not in listed} == set()
