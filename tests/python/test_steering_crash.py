"""Killed at any moment, a run answers each request once and starts each run that it does not wait for once."""

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.python.killed_steering import go_on, go_round


def killed(folder: Path, at: str, *more: str) -> None:
    """Run the program until it dies there."""
    Path(folder, "die").write_text(at, encoding="utf-8")
    program = [sys.executable, "-m", "tests.python.killed_steering", str(folder / "refold.db"), *more]
    died = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert died.returncode == -signal.SIGKILL, died.stderr
    Path(folder, "die").unlink()


def marks(folder: Path) -> Counter[str]:
    return Counter(Path(folder, "marks").read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("at", ["taken", "booked", "replied", "started"])
async def test_after_kill_9_a_request_is_replied_to_once_and_a_started_run_is_one(tmp_path: Path, at: str) -> None:
    killed(tmp_path, at)
    assert await go_on(str(tmp_path / "refold.db")) == ([10, 20], [1, 2])
    assert marks(tmp_path) == {"book 1": 1, "book 2": 1, "note 1": 1, "note 2": 1}


@pytest.mark.parametrize("at", ["round 1", "round 2", "round 3"])
async def test_after_kill_9_a_run_is_continued_once_and_repeats_nothing(tmp_path: Path, at: str) -> None:
    killed(tmp_path, at, "rounds")
    result = await go_round(str(tmp_path / "refold.db"))
    assert result == (60, ["completed", "continued", "continued"])
    assert marks(tmp_path) == {"book 1": 1, "book 2": 1, "book 3": 1}
