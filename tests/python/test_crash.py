"""Killed at any moment, a run of events goes on as if nothing had happened."""

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from refold import open_engine
from tests.python.killed import PAGES, SHORT, Approve, Asking, go_on

EXPECTED = {"pages": list(range(PAGES)), "sum": sum(range(PAGES)), "exact": (1, 2)}


def killed(folder: Path, run: str, at: str) -> Counter[str]:
    """Run it until it dies there; what it has done until then."""
    Path(folder, "die").write_text(at, encoding="utf-8")
    program = [sys.executable, "-m", "tests.python.killed", str(folder / "refold.db"), run]
    died = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert died.returncode == -signal.SIGKILL, died.stderr
    Path(folder, "die").unlink()
    return marks(folder)


def marks(folder: Path) -> Counter[str]:
    return Counter(Path(folder, "marks").read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("at", ["0", "3", "5"])
async def test_after_kill_9_nothing_queued_is_lost_and_nothing_finished_runs_again(tmp_path: Path, at: str) -> None:
    before = killed(tmp_path, "r", at)
    assert await go_on(str(tmp_path / "refold.db"), "r") == EXPECTED
    after = marks(tmp_path)
    assert before["begin"] == after["begin"] == after["join"] == 1
    assert {f"fetch {n}" for n in range(PAGES)} <= after.keys()
    again = [name for name, times in after.items() if times > 1]
    assert len(again) <= 1  # of two that were in flight one may have been done and not reported


async def test_a_durable_call_is_made_once_and_only_the_rest_of_a_sleep_is_waited(tmp_path: Path) -> None:
    killed(tmp_path, "paying", "charged")
    assert marks(tmp_path) == {"start": 1, "charge 1": 1, "charge 2": 1}
    assert await go_on(str(tmp_path / "refold.db"), "paying") == [2, 4, 6]
    assert {name: times for name, times in marks(tmp_path).items() if name != "start"} == {
        "charge 1": 1,
        "charge 2": 1,
        "charge 3": 1,
    }


async def test_a_sleep_that_is_over_is_not_slept_again(tmp_path: Path) -> None:
    killed(tmp_path, "paying", "slept")
    assert await go_on(str(tmp_path / "refold.db"), "paying") == [2, 4, 6]


async def test_a_request_waits_while_its_process_is_dead_and_its_step_never_runs_again(tmp_path: Path) -> None:
    assert killed(tmp_path, "asking", "asked") == {"propose": 1, "beside": 1}
    async with open_engine(db=str(tmp_path / "refold.db"), settings=SHORT) as engine:
        handle = await engine.attach("asking", Asking)
        [request] = await handle.requests()
        assert request.event == Approve(request_id="a1", folder=str(tmp_path))
        await handle.answer("a1", {"yes": False})
        assert await asyncio.wait_for(handle.result(), 60) == ["a1", False]
    assert marks(tmp_path) == {"propose": 1, "beside": 1, "pay False": 1}


async def test_an_answer_is_kept_when_the_process_dies_in_the_step_that_takes_it(tmp_path: Path) -> None:
    assert killed(tmp_path, "asking", "answered") == {"propose": 1, "beside": 1, "pay True": 1}
    assert await go_on(str(tmp_path / "refold.db"), "asking") == ["a1", True]
    assert marks(tmp_path) == {"propose": 1, "beside": 1, "pay True": 2}
