"""Killed at any moment, a pipeline goes on inside its stage, in its round, and with its finished branches."""

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.python.killed_pipeline import ROUNDS, go_on
from tests.python.test_crash import marks

ONCE = {
    "quick": 3,
    "patient": 1,
    **{f"first {n}": 1 for n in range(ROUNDS)},
    **{f"second {n}": 1 for n in range(ROUNDS)},
}


def killed(folder: Path, at: str) -> Counter[str]:
    Path(folder, "die").write_text(at, encoding="utf-8")
    program = [sys.executable, "-m", "tests.python.killed_pipeline", str(folder / "refold.db"), "r"]
    died = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert died.returncode == -signal.SIGKILL, died.stderr
    Path(folder, "die").unlink()
    return marks(folder)


@pytest.mark.parametrize("at", ["patient", "second 0", "second 2", "until 2", "raced"])
async def test_after_kill_9_a_pipeline_resumes_where_it_was(tmp_path: Path, at: str) -> None:
    before = killed(tmp_path, at)
    done = await go_on(str(tmp_path / "refold.db"), "r")
    assert [each.output for each in done.stages] == [
        {"quick": "quick", "patient": "patient"},
        {"won": "quick"},
        ROUNDS,
        "quick",
    ]
    assert (done.stage("polish").rounds, done.state) == (ROUNDS, {"rounds": ROUNDS})
    after = marks(tmp_path)
    assert {name: after[name] for name in ONCE} == ONCE
    assert after["stuck"] == 0
    asked = {name: times for name, times in after.items() if name.startswith(("asked", "until"))}
    again = {name for name, times in asked.items() if times > 1}
    assert again <= {at}  # a function that was killed before its answer was recorded is asked anew
    assert all(after[name] == before[name] for name in before if name not in ("quick", "patient began", at))
