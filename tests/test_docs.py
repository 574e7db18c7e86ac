"""Every snippet is run, and the demo does what the README says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SNIPPETS = [
    (path.relative_to(ROOT), number, code)
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(), re.S), 1)
]


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("path", "number", "code"), SNIPPETS, ids=[f"{path}:{n}" for path, n, _ in SNIPPETS])
def test_the_snippet_runs_and_prints_what_its_comments_say(path: Path, number: int, code: str) -> None:
    said = re.findall(r"^print\(.*\)\s+# (.*)$", code, re.M)
    assert [line for line in said if line not in run("-c", code)] == []


def test_the_readme_starts_with_exactly_two_commands() -> None:
    block = re.search(r"```\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert block is not None
    assert [line.split("#")[0].strip() for line in block.group(1).splitlines()] == ["make demo", "make test"]


def test_the_demo_loses_nothing_and_repeats_no_finished_step() -> None:
    shown = run("examples/demo.py")
    assert "Result: apples ok, pears ok, plums ok, nuts ok" in shown
    assert "begun more than once: check/1/1, check/1/2" in shown
    assert "run completed" in shown
