"""Killed at any moment, a run answers each request once and starts each run that it does not wait for once."""

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.python.killed_steering import go_on


@pytest.mark.parametrize("at", ["taken", "booked", "replied", "started"])
async def test_after_kill_9_a_request_is_replied_to_once_and_a_started_run_is_one(tmp_path: Path, at: str) -> None:
    Path(tmp_path, "die").write_text(at, encoding="utf-8")
    program = [sys.executable, "-m", "tests.python.killed_steering", str(tmp_path / "refold.db")]
    died = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert died.returncode == -signal.SIGKILL, died.stderr
    Path(tmp_path, "die").unlink()
    assert await go_on(str(tmp_path / "refold.db")) == ([10, 20], [1, 2])
    marks = Counter(Path(tmp_path, "marks").read_text(encoding="utf-8").splitlines())
    assert marks == {"book 1": 1, "book 2": 1, "note 1": 1, "note 2": 1}
