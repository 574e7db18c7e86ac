"""The fixture `refold_engine`, and what it costs those who do not use it."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]

USED = """
import refold
from refold import Context, StartEvent, StopEvent, Workflow, step

class Nap(Workflow):
    @step
    async def nap(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.sleep("7d")
        return StopEvent(result=ev.n)

def test_a_nap(refold_engine):
    assert refold_engine.run(Nap, n=4) == 4
    assert refold.Workflow is Workflow  # the argument does not hide the package

async def test_it_in_an_async_test(refold_engine):
    assert refold_engine.run(Nap, n=5) == 5
"""

UNUSED = """
import sys

def test_nothing_is_loaded():
    assert "refold.testing.plugin" in sys.modules
    loaded = [name for name in sys.modules if name.startswith("refold.")]
    assert sorted(loaded) == ["refold.testing", "refold.testing.plugin"]
"""


def run(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(text)
    plugins = ["-p", "refold.testing.plugin", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, *arguments, "test_it.py"]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # whether this Refold is installed or not
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False, env=env)


def test_a_test_asks_for_a_bench_by_the_name_of_its_argument(tmp_path: Path) -> None:
    done = run(tmp_path, USED, "-p", "pytest_asyncio.plugin", "-o", "asyncio_mode=auto")
    assert "2 passed" in done.stdout, done.stdout


def test_those_who_do_not_use_it_load_nothing_of_it(tmp_path: Path) -> None:
    done = run(tmp_path, UNUSED)
    assert "1 passed" in done.stdout, done.stdout


def test_pytest_finds_the_plugin_by_its_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"refold": "refold.testing.plugin"}


def test_the_kit_itself_imports_no_pytest() -> None:
    code = "import sys, refold.testing as t; [getattr(t, name) for name in t.__all__]; print('pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"
