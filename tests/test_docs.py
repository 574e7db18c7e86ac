"""Every snippet is run, and the demo does what the README says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
SNIPPETS = [  # but for those of a page whose files belong together, which has a test of its own
    (path.relative_to(ROOT), number, code)
    for path in (README, *sorted((ROOT / "docs").rglob("*.md")))
    if path.name != "tutorial-python.md"
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(), re.S), 1)
]


def run(folder: Path, *command: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=240, check=False, env={**os.environ, "PATH": path}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("path", "number", "code"), SNIPPETS, ids=[f"{path}:{n}" for path, n, _ in SNIPPETS])
def test_the_snippet_runs_and_prints_what_its_comments_say(path: Path, number: int, code: str, tmp_path: Path) -> None:
    said = re.findall(r"^print\(.*\)\s+# (.*)$", code, re.M)
    told = run(tmp_path, sys.executable, "-c", code)
    assert [line for line in said if line not in told] == []


def test_the_readme_starts_with_exactly_two_commands() -> None:
    block = re.search(r"```\n(.*?)```", README.read_text(), re.S)
    assert block is not None
    assert [line.split("#")[0].strip() for line in block.group(1).splitlines()] == ["make demo", "make test"]


@pytest.mark.parametrize("style", ["(Workflow):", "@refold.flow", "Plan("])
def test_the_readme_shows_each_style_in_twelve_lines(style: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    (shown,) = [block for block in blocks if style in block]
    assert len([line for line in shown.splitlines() if line.strip()]) <= 12


def test_the_readmes_commands_do_what_stands_below_them(tmp_path: Path) -> None:
    """A file is typed from its block, the commands are run in their order, and what they print is there."""
    text = README.read_text()
    files = re.findall(r"```yaml\n# (\S+)\n(.*?)```", text, re.S)
    assert len(files[0][1].splitlines()) == 12  # the first one a newcomer types
    for name, body in files:
        (tmp_path / name).write_text(body)
    sessions = "".join(re.findall(r"```console\n(.*?)```", text, re.S))
    commands = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", sessions, re.M)
    assert len(commands) == 11
    for command, expected in commands:
        if "kill -9" in command:
            kill_half_way(tmp_path, command)
            continue
        told = [" ".join(line.split()) for line in run(tmp_path, "sh", "-c", command).splitlines()]
        for line in expected.splitlines():
            assert any(" ".join(line.split()) in each for each in told), (command, line, told)
    history = run(tmp_path, "refold", "runs", "history", "hi")
    assert [history.count(f"item {n} succeeded") for n in range(3)] == [1, 1, 1]


def kill_half_way(folder: Path, command: str) -> None:
    """The same, but at a moment that a busy machine does not move: when the first has been greeted."""
    start, _, _ = command.partition(" & ")
    wait = "until refold runs history hi 2>/dev/null | grep -q 'item 0 succeeded'; do sleep 0.1; done"
    run(folder, "sh", "-c", f"exec 2>/dev/null; {start} & {wait}; kill -9 $!; wait || true")


def test_the_demo_loses_nothing_and_repeats_no_finished_step() -> None:
    shown = run(ROOT, sys.executable, "examples/orders/demo.py")
    assert "12 files were read" in shown and "0 were read again" in shown
    assert "item 2 failed on try 1: OSError: the disk did not answer" in shown
    assert "run completed" in shown and "Emil" in shown


def test_the_map_names_every_room_and_every_file_of_the_core() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "refold"
    rooms = [path for path in source.iterdir() if path.is_dir() and path.name != "__pycache__"]
    files = [path for path in (source / "core").glob("*.py") if path.name != "__init__.py"]
    wanted = [*(f"`{room.name}/`" for room in rooms), *(f"`{file.name}`" for file in files)]
    assert [name for name in wanted if name not in text] == []


def test_no_playbook_and_no_session_stands_where_no_test_runs_it() -> None:
    """Pages of two folders are all run; any other is named by the test that does it."""
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page.parent.name not in ("howto", "explanation")]
    with_blocks = [page for page in pages if re.search(r"^```(yaml|console)", page.read_text(encoding="utf-8"), re.M)]
    assert [page.name for page in with_blocks if f'"{page.name}"' not in tests and f"/{page.name}" not in tests] == []
