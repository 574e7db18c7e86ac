"""Steps in this process: coroutines on the loop, plain functions in threads."""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from refold.errors import ToolFailed
from refold.executors.functions import resolve
from refold.executors.inline import Inline
from tests.alive import within
from tests.executors import bodies

BODIES = "tests.executors.bodies"


async def run(executor: Inline, body: str, input: Any = None) -> Any:
    return await executor.run(f"{BODIES}:{body}", input)


def step_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "refold-step"}


async def test_async_functions_run_on_the_loop_and_others_in_a_thread() -> None:
    executor = Inline()
    assert await run(executor, "echo", {"a": [1]}) == {"a": [1]}
    assert await run(executor, "echo_later", {"a": [1]}) == {"a": [1]}
    assert await run(executor, "loop_thread") == threading.current_thread().name
    assert await run(executor, "thread_name") == "refold-step"
    await executor.close()


async def test_threads_are_used_again_and_end_with_the_executor() -> None:
    before = step_threads()
    executor = Inline(threads=4)
    for _ in range(5):
        await run(executor, "thread_name")
    assert len(step_threads() - before) == 1
    await executor.close()
    assert await asyncio.to_thread(within, 60.0, lambda: step_threads() <= before)


async def test_no_more_functions_run_at_once_than_there_are_threads(tmp_path: Path) -> None:
    before = step_threads()
    executor = Inline(threads=2)
    running = [asyncio.create_task(run(executor, "wait_for", str(tmp_path))) for _ in range(5)]
    assert await asyncio.to_thread(within, 60.0, lambda: any(tmp_path.iterdir()))
    await asyncio.sleep(0.05)
    assert len(step_threads() - before) == 2
    (tmp_path / "go").touch()
    await asyncio.gather(*running)
    await executor.close()


async def test_the_loop_goes_on_while_a_function_blocks_its_thread(tmp_path: Path) -> None:
    executor = Inline()
    blocked = asyncio.create_task(run(executor, "wait_for", str(tmp_path)))
    for _ in range(10):
        await asyncio.sleep(0.01)
    assert not blocked.done()
    (tmp_path / "go").touch()
    await blocked
    await executor.close()


async def test_a_function_that_is_cancelled_goes_on_unheard_and_another_thread_takes_its_place(tmp_path: Path) -> None:
    before = step_threads()
    executor = Inline(threads=1)
    stuck = asyncio.create_task(run(executor, "wait_for", str(tmp_path)))
    assert await asyncio.to_thread(within, 60.0, lambda: any(tmp_path.iterdir()))
    stuck.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stuck
    assert await asyncio.wait_for(run(executor, "echo", "next"), 60.0) == "next"
    assert len(step_threads() - before) == 2
    (tmp_path / "go").touch()
    assert await asyncio.to_thread(within, 60.0, lambda: len(step_threads() - before) == 1)
    await executor.close()


async def test_a_coroutine_that_is_cancelled_cleans_up(tmp_path: Path) -> None:
    executor = Inline()
    hanging = asyncio.create_task(run(executor, "hang_later", str(tmp_path)))
    await asyncio.sleep(0.05)
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging
    assert (tmp_path / "cleaned up").exists()


async def test_what_a_body_raises_comes_out_as_it_is() -> None:
    executor = Inline()
    for body in ("fail", "fail_later"):
        with pytest.raises(bodies.Unlucky, match="no luck with dice"):
            await run(executor, body, "dice")
    with pytest.raises(RuntimeError):  # a coroutine may not raise StopIteration
        await run(executor, "stop_iteration")
    await executor.close()


@pytest.mark.parametrize("body", ["leave", "leave_later"])
async def test_sys_exit_ends_the_step_and_not_the_worker(body: str) -> None:
    executor = Inline()
    with pytest.raises(ToolFailed) as caught:
        await run(executor, body)
    assert caught.value.fault.type == "SystemExit"
    await executor.close()


async def test_what_a_body_logs_is_heard_until_it_ends() -> None:
    executor = Inline()
    said: list[tuple[str, str]] = []
    await executor.run(f"{BODIES}:log", "one", lambda *line: said.append(line))
    await executor.run(f"{BODIES}:log", "two")
    bodies.log("three")
    assert said == [("stderr", "WARNING body: one")]
    await executor.close()


async def test_context_variables_reach_the_thread() -> None:
    executor = Inline()
    bodies.colour.set("green")
    assert await run(executor, "context_colour") == "green"
    await executor.close()


async def test_a_call_from_a_thread_costs_little() -> None:
    executor = Inline()
    await run(executor, "echo", 1)
    began = time.process_time()
    for _ in range(200):
        await run(executor, "echo", 1)
    assert time.process_time() - began < 1.0
    await executor.close()


class Callable_:
    async def __call__(self, value: int) -> int:
        return value + 1

    def method(self) -> int:
        return 1


async_object = Callable_()


def no_parameters() -> int:
    return 1


def only_keywords(*, a: int = 1) -> int:
    return a


def any_number(*values: int) -> int:
    return len(values)


@pytest.mark.parametrize(
    ("name", "takes_input", "is_async"),
    [
        ("no_parameters", False, False),
        ("only_keywords", False, False),
        ("any_number", True, False),
        ("async_object", True, True),
        ("async_object.method", False, False),
    ],
)
def test_a_function_is_called_with_the_input_if_it_takes_one(name: str, takes_input: bool, is_async: bool) -> None:
    function = resolve(f"{__name__}:{name}")
    assert (function.takes_input, function.is_async) == (takes_input, is_async)


def test_a_module_that_cannot_import_what_it_needs_says_what_is_missing(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "needy.py").write_text("import not_there_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_there_at_all"):
        resolve("needy:f")
    with pytest.raises(ToolFailed, match=r"there is no module 'needy\.part'"):
        (tmp_path / "needy.py").write_text("")
        resolve("needy.part:f")
