"""Signals to a real program: the first lets it finish or hand back, the second kills it; nothing is left running."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from refold.cli.commands.execute import in_foreground
from refold.errors import Stopped
from tests.alive import children, living, noted_in, state, within

ROOT = Path(__file__).parents[2]
STOPPING = "stopping: steps may finish within {} s, then they are handed back; once more kills them\n"
TO_CONTINUE = "to continue: refold runs resume RUN\n"


@contextmanager
def program(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.worker.program", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def said(process: "subprocess.Popen[str]") -> str:
    """The next line of its words about itself, once it is there."""
    assert process.stderr is not None
    return process.stderr.readline()


def is_pending(pid: int, number: int) -> bool:
    """Whether the process has still to hear this signal: two of a kind that wait are one."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    waiting = [int(line.split()[1], 16) for line in status if line.startswith(("SigPnd", "ShdPnd"))]
    return any(mask >> (number - 1) & 1 for mask in waiting)


def left(process: "subprocess.Popen[str]", seconds: float = 60.0) -> tuple[int, str, str]:
    """How and with what words it ended."""
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_hands_back_after_the_grace_and_prints_how_to_go_on(
    tmp_path: Path, number: int, code: int
) -> None:
    with program("hang_later", str(tmp_path), "0.2") as process:
        noted_in(tmp_path, 1)
        process.send_signal(number)
        assert left(process) == (code, "left running threads 1\n", STOPPING.format("0.2") + TO_CONTINUE)
    assert (tmp_path / "cleaned up").exists(), "a coroutine is cancelled, and its cleanup runs"


def test_a_step_that_ends_within_the_grace_counts_and_nothing_new_begins(tmp_path: Path) -> None:
    with program("wait_for", str(tmp_path), "60", "inline", "hang_later") as process:
        assert within(60.0, lambda: any(tmp_path.iterdir()))
        process.send_signal(signal.SIGINT)
        assert said(process) == STOPPING.format("60")
        assert process.poll() is None
        (tmp_path / "go").touch()
        code, out, err = left(process)
        assert (code, out.split(" threads")[0], err) == (130, "left running", TO_CONTINUE)
    assert not any(each.name.startswith("pid") for each in tmp_path.iterdir())


def test_a_run_that_ends_within_the_grace_has_its_result(tmp_path: Path) -> None:
    with program("wait_for", str(tmp_path), "60") as process:
        assert within(60.0, lambda: any(tmp_path.iterdir()))
        process.send_signal(signal.SIGTERM)
        assert said(process) == STOPPING.format("60")
        (tmp_path / "go").touch()
        assert left(process) == (0, f"result {process.pid}\n", "")


def test_a_stuck_thread_does_not_keep_the_program_from_leaving(tmp_path: Path) -> None:
    with program("wait_for", str(tmp_path), "0.1") as process:
        assert within(60.0, lambda: any(tmp_path.iterdir()))
        process.send_signal(signal.SIGINT)
        code, out, err = left(process)
        assert (code, out.split(" threads")[0]) == (130, "left running")
        assert err == STOPPING.format("0.1") + TO_CONTINUE


def test_a_process_of_a_step_is_killed_when_the_step_is_handed_back(tmp_path: Path) -> None:
    with program("hang", str(tmp_path), "0.1", "process") as process:
        pids = set(noted_in(tmp_path, 4)) | children(process.pid)
        process.send_signal(signal.SIGTERM)
        assert left(process) == (143, "left running threads 1\n", STOPPING.format("0.1") + TO_CONTINUE)
        assert living(pids) == set()


@pytest.mark.parametrize(("first", "second", "code"), [(2, 2, 130), (2, 15, 143), (15, 15, 143)])
def test_the_second_signal_kills_at_once_and_takes_the_processes_along(
    tmp_path: Path, first: int, second: int, code: int
) -> None:
    with program("hang", str(tmp_path), "3600", "process") as process:
        pids = set(noted_in(tmp_path, 4)) | children(process.pid)
        process.send_signal(first)
        assert said(process) == STOPPING.format("3600")
        process.send_signal(second)
        assert left(process) == (code, "", "killed\n" + TO_CONTINUE)
        assert within(60.0, lambda: living(pids) == set())


def test_the_second_signal_kills_even_if_the_event_loop_is_blocked(tmp_path: Path) -> None:
    with program("block_for_ever", str(tmp_path), "3600") as process:
        noted_in(tmp_path, 1)
        process.send_signal(signal.SIGINT)
        assert within(60.0, lambda: not is_pending(process.pid, signal.SIGINT) and state(process.pid) == "S")
        assert process.poll() is None

        def is_killed() -> bool:
            process.send_signal(signal.SIGINT)
            return process.poll() is not None

        assert within(60.0, is_killed)
        assert left(process) == (130, "", "killed\n" + TO_CONTINUE)


async def test_the_same_signal_twice_at_once_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr(os, "_exit", killed.append)

    async def work() -> None:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)  # as `timeout` does: to the process, and to its group
        await asyncio.sleep(3600)

    async def stop(grace: float) -> None:
        pass

    with pytest.raises(Stopped):
        await in_foreground(work(), stop, grace=1.0, resume="again", say=print)
    assert killed == []


async def test_without_a_signal_the_work_just_ends_and_the_old_signals_are_back() -> None:
    async def work() -> str:
        await asyncio.sleep(0.01)
        return "done"

    async def stop(grace: float) -> None:
        raise AssertionError("nobody asked")

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert await in_foreground(work(), stop, grace=1.0, resume="", say=print) == "done"
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


async def test_what_the_work_raises_comes_out() -> None:
    async def work() -> None:
        raise LookupError("not here")

    async def stop(grace: float) -> None:
        raise AssertionError("nobody asked")

    with pytest.raises(LookupError):
        await in_foreground(work(), stop, grace=1.0, resume="", say=print)


async def test_work_that_was_stopped_is_cancelled_and_the_exit_code_names_the_signal() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(3600)
        finally:
            ended.append("work")

    async def stop(grace: float) -> None:
        ended.append(f"stopped within {grace:g}")

    with pytest.raises(Stopped) as caught:
        await in_foreground(work(), stop, grace=2.5, resume="again", say=ended.append)
    await asyncio.sleep(0)
    assert caught.value.code == 143
    assert ended[1:] == ["stopped within 2.5", "to continue: again", "work"]
