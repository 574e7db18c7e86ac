"""The pages that show how: files are typed from their blocks, and the commands print what stands below them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from refold.core.plan import Plan, Step
from refold.playbooks.bindings import BINDINGS_FILE
from refold.playbooks.bindings_file import read_bindings
from refold.playbooks.playbook import Lookups, read
from refold.playbooks.python_workflows import PythonWorkflow
from refold.playbooks.schedule_file import read_schedule_file
from refold.sources.catalog import installed_sources
from refold.tools.catalog import CATALOG
from tests.contracts.stores import postgres_url

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted([*(DOCS / "howto").glob("*.md"), *(DOCS / "explanation").glob("*.md")])
FILE = re.compile(r"```yaml\n(?=# (\S+)\n)(.*?)```", re.S)  # the first line, which names the file, belongs to it
SCHEDULE = re.compile(r"^kind: (?:Schedule|Calendar)$", re.M)
PLAIN = re.compile(r"```(?:toml)\n# (\S+\.toml)\n(.*?)```", re.S)
MODULE = re.compile(r"```python\n# (\S+\.py)\n(.*?)```", re.S)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.M)


def named(target: str) -> PythonWorkflow:
    """Code is imported by the commands alone."""
    return PythonWorkflow(target, (Plan(name=target, steps=(Step(name="a"),)),))


def run(folder: Path, command: str) -> list[str]:
    server = {"DATABASE_URL": postgres_url(folder)} if "DATABASE_URL" in command else {}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REFOLD_")}
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**kept, "PATH": path, "REFOLD_SWEEP_EVERY": "0.1", "REFOLD_KEY_FILE": str(folder / "keys"), **server},
    )
    assert done.returncode == 0, (command, done.stderr)
    return [" ".join(line.split()) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_files_are_good_and_the_commands_print_what_stands_below_them(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    files = FILE.findall(text)
    assert len(files) == text.count("```yaml")
    for name, body in [*MODULE.findall(text), *PLAIN.findall(text)]:
        (tmp_path / name).write_text(body, encoding="utf-8")
    bound = dict(files).get(BINDINGS_FILE, "{}")
    found = read_bindings(bound, BINDINGS_FILE, CATALOG, installed_sources)
    for name, body in files:
        load = lambda other: dict(files)[other].encode()  # noqa: E731
        asked = Lookups(sources=installed_sources, code=named, bindings=lambda: found)
        if SCHEDULE.search(body):
            assert read_schedule_file(body.encode(), name).warnings == ()
        elif name != BINDINGS_FILE:
            assert read(body, name, CATALOG, load, **asked).warnings == ()
        (tmp_path / name).write_text(body, encoding="utf-8")
    for command, expected in COMMAND.findall("".join(re.findall(r"```console\n(.*?)```", text, re.S))):
        told = run(tmp_path, command)
        for line in expected.splitlines():
            assert any(" ".join(line.split()) in each for each in told), (command, line, told)
