"""Steps in warm processes: reused, contained, and really ended, with everything they started."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from refold.core.outcomes import Fault
from refold.errors import ToolFailed
from refold.executors.interpreter_pool import InterpreterPool
from refold.executors.supervised import KILLED_BY
from tests.alive import children, living, noted_in, own_children, within

BODIES = "tests.executors.bodies"
ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def pool(size: int = 1, **more: Any) -> AsyncIterator[InterpreterPool]:
    """A pool that must leave nothing behind."""
    before = children(os.getpid())
    processes = InterpreterPool(size, **{"grace": 0.2, **more})
    try:
        yield processes
    finally:
        await processes.close()
    assert children(os.getpid()) - before == set()


def of_supervisors(processes: InterpreterPool) -> set[int]:
    """The processes that supervisors have started."""
    return {pid for supervisor in own_children(processes.supervisors.pid) for pid in own_children(supervisor)}


async def fault_of(processes: InterpreterPool, body: str, input: Any = None) -> Fault:
    with pytest.raises(ToolFailed) as caught:
        await processes.run(f"{BODIES}:{body}", input)
    fault = caught.value.fault
    assert isinstance(fault, Fault)
    return fault


async def begun(
    processes: InterpreterPool, body: str, folder: Path, count: int
) -> tuple["asyncio.Task[Any]", set[int]]:
    """A body that notes process ids in this folder, and those."""
    running = asyncio.create_task(processes.run(f"{BODIES}:{body}", str(folder)))
    pids = await asyncio.to_thread(noted_in, folder, count)
    return running, set(pids)


async def test_a_function_runs_in_another_process_with_its_input_and_gives_its_result() -> None:
    async with pool() as processes:
        value = {"name": "ann", "n": [1, 2.5, None, True, "ü"], "deep": {"er": []}}
        assert await processes.run(f"{BODIES}:echo", value) == value
        assert await processes.run(f"{BODIES}:echo_later", value) == value
        assert await processes.run(f"{BODIES}:pid", None) != os.getpid()


async def test_a_process_is_warm_after_its_first_command_and_is_used_again() -> None:
    async with pool(2) as processes:
        first, again = [await processes.run(f"{BODIES}:pid", None) for _ in range(2)]
        assert first == again
        assert [await processes.run(f"{BODIES}:count_calls", None) for _ in range(3)] == [1, 2, 3]


async def test_imports_are_done_before_the_first_command() -> None:
    async with pool(1, preload=(BODIES, "no.such.module")) as processes:
        await processes.warm()
        assert await processes.run("sys:modules.__contains__", BODIES) is True


async def test_a_process_is_replaced_after_so_many_commands() -> None:
    async with pool(1, orders_each=2) as processes:
        pids = [await processes.run(f"{BODIES}:pid", None) for _ in range(5)]
        assert (pids[0] == pids[1], pids[2] == pids[3], len(set(pids))) == (True, True, 3)
        assert await asyncio.to_thread(within, 60.0, lambda: living(pids[:4]) == set())


async def test_as_many_bodies_run_at_once_as_there_are_processes_and_no_more(tmp_path: Path) -> None:
    async with pool(3) as processes:
        running = [asyncio.create_task(processes.run(f"{BODIES}:wait_for", str(tmp_path))) for _ in range(5)]
        assert await asyncio.to_thread(within, 60.0, lambda: len(list(tmp_path.iterdir())) == 3)
        await asyncio.sleep(0.1)
        assert len(list(tmp_path.iterdir())) == 3
        (tmp_path / "go").touch()
        assert len(set(await asyncio.gather(*running))) == 3


async def test_no_process_starts_before_it_is_needed(tmp_path: Path) -> None:
    async with pool(3) as processes:
        first = await processes.run(f"{BODIES}:pid", None)
        assert await processes.run(f"{BODIES}:pid", None) == first
        assert len(of_supervisors(processes)) == 1


async def test_a_process_that_has_had_no_work_for_a_while_ends_and_another_starts_when_needed() -> None:
    async with pool(2, idle_for=0.05) as processes:
        first = await processes.run(f"{BODIES}:pid", None)
        assert await asyncio.to_thread(within, 60.0, lambda: living([first]) == set())
        assert await processes.run(f"{BODIES}:pid", None) != first


async def test_a_process_that_works_does_not_end_for_being_idle_before(tmp_path: Path) -> None:
    async with pool(1, idle_for=0.3) as processes:
        pid = await processes.run(f"{BODIES}:pid", None)
        running = asyncio.create_task(processes.run(f"{BODIES}:wait_for", str(tmp_path)))
        await asyncio.sleep(0.6)  # longer than an idle process lives
        (tmp_path / "go").touch()
        assert await running == pid or living([pid]) == set()


async def test_an_exception_keeps_its_class_its_message_its_traceback_and_what_it_says_of_itself() -> None:
    async with pool() as processes:
        for body in ("fail", "fail_later"):
            fault = await fault_of(processes, body, "dice")
            assert (fault.type, fault.message) == (f"{BODIES}.Unlucky", "no luck with dice")
            assert (fault.kind, fault.retryable, fault.retry_after) == ("unlucky", True, 7.5)
            assert 'raise Unlucky(f"no luck with {value}")' in fault.traceback
        assert (await fault_of(processes, "fail_unspeakably")).type == f"{BODIES}.Unspeakable"
        assert await processes.run(f"{BODIES}:echo", 1) == 1


async def test_sys_exit_ends_the_step_and_not_the_process() -> None:
    async with pool() as processes:
        before = await processes.run(f"{BODIES}:pid", None)
        for body in ("leave", "leave_later"):
            assert (await fault_of(processes, body)).type == "SystemExit"
        assert await processes.run(f"{BODIES}:pid", None) == before


@pytest.mark.parametrize(
    ("body", "path"),
    [("not_json", "result.rows[1].when: a object is not a JSON value"), ("not_a_number", "result.rate: nan")],
)
async def test_a_result_that_is_no_json_is_refused_with_its_path(body: str, path: str) -> None:
    async with pool() as processes:
        fault = await fault_of(processes, body)
        assert fault.kind == "invalid_value" and fault.retryable is False
        assert fault.message.startswith(path)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("nonsense", "'nonsense' does not name a function: write 'module:function'"),
        ("no.such.module:f", "there is no module 'no.such.module'"),
        (f"{BODIES}:nothing", f"module '{BODIES}' has no 'nothing'"),
        (f"{BODIES}:number", f"'{BODIES}:number' is a int and cannot be called"),
        ("__main__:f", "'__main__:f': another process has another __main__; put the function into a module"),
    ],
)
async def test_a_name_that_is_no_function_is_refused_by_name(call: str, why: str) -> None:
    async with pool() as processes:
        with pytest.raises(ToolFailed) as caught:
            await processes.run(call, None)
        assert (caught.value.fault.message, caught.value.fault.retryable) == (why, False)


@pytest.mark.parametrize(
    ("body", "input", "code", "message"),
    [
        ("exit_hard", 3, 3, "the process ended with exit code 3 before the step did"),
        ("exit_hard", 0, 0, "the process ended with exit code 0 before the step did"),
        ("crash", None, "SIGSEGV", "the process was killed by SIGSEGV"),
        ("kill_self", None, "SIGKILL", f"the process was killed {KILLED_BY['SIGKILL']}"),
    ],
)
async def test_a_process_that_dies_fails_its_step_by_name_and_the_pool_goes_on(
    body: str, input: Any, code: int | str, message: str
) -> None:
    async with pool() as processes:
        before = await processes.run(f"{BODIES}:pid", None)
        fault = await fault_of(processes, body, input)
        assert (fault.kind, fault.code, fault.message) == ("process_died", code, message)
        assert await processes.run(f"{BODIES}:pid", None) != before
        assert living([before]) == set()


async def test_the_last_words_of_a_dead_process_are_kept() -> None:
    async with pool() as processes:
        assert "last words" in (await fault_of(processes, "exit_hard", 1)).traceback
        assert "in crash" in (await fault_of(processes, "crash")).traceback


async def test_a_body_that_spoils_the_line_to_its_process_fails_alone() -> None:
    async with pool() as processes:
        before = await processes.run(f"{BODIES}:pid", None)
        fault = await fault_of(processes, "babble")
        assert fault.message == "the process lost its connection to the engine before the step ended"
        assert living([before]) == set()
        assert await processes.run(f"{BODIES}:echo", 1) == 1


async def test_a_step_out_of_memory_fails_alone() -> None:
    async with pool() as processes:
        assert (await fault_of(processes, "eat_memory")).type == "MemoryError"
        assert await processes.run(f"{BODIES}:echo", 1) == 1


async def test_a_process_that_is_killed_while_idle_costs_no_step() -> None:
    async with pool() as processes:
        before = await processes.run(f"{BODIES}:pid", None)
        os.kill(before, signal.SIGKILL)
        [idle] = [await coming for coming in processes._idle]
        async with asyncio.timeout(60):
            while not idle.dead:
                await asyncio.sleep(0.005)
        assert await processes.run(f"{BODIES}:pid", None) != before


async def test_a_timeout_kills_the_body_for_real_with_all_its_processes(tmp_path: Path) -> None:
    took = list[float]()
    async with pool(grace=0.1) as processes:
        while len(took) < 5 and min(took, default=60.0) >= 3.0:  # others use this machine too: the fastest counts
            folder = tmp_path / str(len(took))
            folder.mkdir()
            running, pids = await begun(processes, "hang", folder, 4)
            assert len(living(pids)) == 4
            began = time.monotonic()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            took.append(time.monotonic() - began)
            assert living(pids) == set(), "when the cancelled call returns, nothing of it runs any more"
        assert 0.1 <= min(took) < 3.0, "soon after the grace"
        assert await processes.run(f"{BODIES}:echo", "next") == "next"


@pytest.mark.parametrize("body", ["hang_politely", "hang_later"])
async def test_cleanup_code_of_a_body_runs_within_the_grace(tmp_path: Path, body: str) -> None:
    async with pool(grace=120.0) as processes:
        running, pids = await begun(processes, body, tmp_path, 1)
        began = time.monotonic()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert time.monotonic() - began < 60.0, "it does not wait for the rest of the grace"
        assert (tmp_path / "cleaned up").exists()
        assert living(pids) == set()


async def test_a_call_that_is_cancelled_twice_is_killed_all_the_same(tmp_path: Path) -> None:
    async with pool(grace=0.2) as processes:
        running, pids = await begun(processes, "hang", tmp_path, 4)
        running.cancel()
        await asyncio.sleep(0.02)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await asyncio.to_thread(within, 60.0, lambda: living(pids) == set())


async def test_a_dead_process_takes_along_what_it_started(tmp_path: Path) -> None:
    async with pool() as processes:
        running, pids = await begun(processes, "hang", tmp_path, 4)
        [leader] = pids & of_supervisors(processes)
        os.kill(leader, signal.SIGKILL)
        with pytest.raises(ToolFailed):
            await running
        assert living(pids) == set()


async def test_a_body_that_forks_and_returns_twice_answers_once() -> None:
    async with pool() as processes:
        who, forked = await processes.run(f"{BODIES}:forget_a_child", None)
        assert who == "body"
        assert await asyncio.to_thread(within, 60.0, lambda: living([forked]) == set())
        assert await processes.run(f"{BODIES}:echo", "next") == "next"


async def test_what_a_body_prints_comes_as_lines() -> None:
    async with pool() as processes:
        said: list[tuple[str, str]] = []
        await processes.run(f"{BODIES}:speak", "one\ntwo\nthree", lambda *line: said.append(line))
        assert [line for stream, line in said if stream == "stdout"] == ["one", "two", "threefrom a program"]
        assert [line for stream, line in said if stream == "stderr"] == ["\ufffd raw"]
        said.clear()
        await processes.run(f"{BODIES}:speak", "unheard")
        await processes.run(f"{BODIES}:speak", "", lambda *line: said.append(line))
        assert [line for stream, line in said if stream == "stdout"] == ["from a program"]


async def test_a_body_that_prints_without_end_is_heard_up_to_a_limit() -> None:
    async with pool() as processes:
        said: list[tuple[str, str]] = []
        assert await processes.run(f"{BODIES}:shout", 100_000, lambda *line: said.append(line)) == 100_000
        printed = [line for stream, line in said if stream == "stdout"]
        assert printed[:2] == [f"line {i} " + 90 * "x" for i in range(2)]
        assert 500_000 < sum(map(len, printed)) < 1_100_000
        assert printed[-1].endswith("bytes more are left out)")
        assert ("stderr", "done") in said


async def test_large_values_pass_in_both_directions() -> None:
    async with pool() as processes:
        value = ["x" * 1000] * 20_000
        assert await processes.run(f"{BODIES}:echo", value) == value


async def test_a_process_that_cannot_start_is_a_failure_that_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pool(orders_each=1) as processes:
        await processes.run(f"{BODIES}:echo", 1)
        monkeypatch.setattr(sys, "executable", "/bin/false")
        fault = await fault_of(processes, "echo", 1)
        assert (fault.kind, fault.code) == ("process_died", 1)
        assert fault.message == "no process could be started: the process ended with exit code 1 before the step did"


async def test_without_a_supervisor_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    async with pool() as processes:
        fault = await fault_of(processes, "echo", 1)
        assert fault.message == "no process could be started: the process was killed with its supervisor"


PARENT = """
import asyncio, os, sys
from refold.executors.interpreter_pool import InterpreterPool

async def main() -> None:
    processes = InterpreterPool(2)
    await processes.warm()
    await processes.run("tests.executors.bodies:{body}", sys.argv[1])

asyncio.run(main())
"""


@pytest.mark.parametrize(("body", "count"), [("hang", 4), ("hang_politely", 1)])
def test_nothing_outlives_a_parent_that_is_killed(tmp_path: Path, body: str, count: int) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT.replace("{body}", body), str(tmp_path)], cwd=ROOT)
    try:
        pids = set(noted_in(tmp_path, count)) | children(parent.pid)
        assert len(living(pids)) >= count + 1, "the idle one too"
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert within(60.0, lambda: living(pids) == set())


def test_without_the_launcher_supervisors_end_what_they_watch_over_all_the_same(tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT.replace("{body}", "hang"), str(tmp_path)], cwd=ROOT)
    try:
        pids = set(noted_in(tmp_path, 4)) | children(parent.pid)
        [supervisor] = own_children(parent.pid)
        os.kill(supervisor, signal.SIGKILL)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert within(60.0, lambda: living(pids) == set())


async def test_what_loses_its_supervisor_is_ended_by_the_launcher(tmp_path: Path) -> None:
    async with pool() as processes:
        running, pids = await begun(processes, "hang", tmp_path, 4)
        [supervisor] = own_children(processes.supervisors.pid)
        os.kill(supervisor, signal.SIGKILL)
        with pytest.raises(ToolFailed, match="killed with its supervisor"):
            await running
        assert await asyncio.to_thread(within, 60.0, lambda: living(pids) == set())
        assert await processes.run(f"{BODIES}:echo", "next") == "next"


async def test_a_supervisor_that_was_killed_is_replaced() -> None:
    async with pool(orders_each=1) as processes:
        await processes.run(f"{BODIES}:echo", 1)
        first = processes.supervisors.pid
        os.kill(first, signal.SIGKILL)
        assert await asyncio.to_thread(within, 60.0, lambda: living([first]) == set())
        for _ in range(3):
            assert await processes.run(f"{BODIES}:echo", "next") == "next"


async def test_closing_ends_what_runs_and_what_waits(tmp_path: Path) -> None:
    async with pool(2) as processes:
        await processes.warm()
        running, pids = await begun(processes, "hang", tmp_path, 4)
        running.cancel()
    assert running.done() and living(pids) == set()


async def test_a_closed_pool_finishes_what_runs_and_takes_nothing_new(tmp_path: Path) -> None:
    async with pool(1) as processes:
        running = asyncio.create_task(processes.run(f"{BODIES}:wait_for", str(tmp_path)))
        assert await asyncio.to_thread(within, 60.0, lambda: any(tmp_path.iterdir()))
        closing = asyncio.create_task(processes.close())
        await asyncio.sleep(0.01)
        (tmp_path / "go").touch()
        await closing
        assert isinstance(await running, int)
        assert (await fault_of(processes, "echo", 1)).kind == "closed"


async def test_a_program_that_cannot_be_found_is_an_ordinary_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pool() as processes:
        await processes.run(f"{BODIES}:echo", 1)
        monkeypatch.setattr(sys, "executable", "/no/such/python")
        processes.orders_each = 1
        await processes.run(f"{BODIES}:echo", 1)
        with pytest.raises(FileNotFoundError):
            await processes.run(f"{BODIES}:echo", 1)
