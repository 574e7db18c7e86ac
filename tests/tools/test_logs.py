"""What steps print goes to the side stream of their run: live, in order, per try, bounded, and never in the way."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from refold import Engine, Retry, open_engine
from refold.core.commands import Command
from refold.errors import LeaseLost, Unavailable
from refold.plan import Loop
from refold.ports import Lease
from refold.wiring import WallClock
from refold.worker.output import MOST, TryOutput
from tests.tools.calls import SETTINGS, engine, fault_of_run, one_step

ROOT = Path(__file__).parents[2]
ITEM = Command(id="a/2/7", step="a", visit=2, attempt=3, item=7)
LEASE = Lease(run="r", command=ITEM, worker="w", generation=1, until=0, claimed_at=0, plan="p")


async def lines_of(opened: Engine, run: str, after: int = 0) -> list[dict[str, Any]]:
    return [line for _, line in await opened.logs(run, after)]


async def texts_of(opened: Engine, run: str) -> list[tuple[str, str]]:
    return [(line["stream"], line["text"]) for line in await lines_of(opened, run)]


@pytest.mark.parametrize("isolation", ["process", "inline"])
async def test_lines_of_python_are_kept_with_their_step_and_try(isolation: str) -> None:
    code = "import sys\nprint('one', 2)\nprint('three\\nfour', file=sys.stderr)\nprint(end='five')"
    async with engine() as opened:
        before = time.time_ns() // 1000
        run = (await opened.start(one_step("python", {"code": code, "isolation": isolation}))).id
        await opened.result(run)
        lines = await lines_of(opened, run)
        assert sorted((line["stream"], line["text"]) for line in lines) == [
            ("stderr", "four"),
            ("stderr", "three"),
            ("stdout", "five"),
            ("stdout", "one 2"),
        ]
        assert {(line["step"], line["visit"], line["attempt"]) for line in lines} == {("a", 1, 1)}
        assert all(before <= line["at"] <= time.time_ns() // 1000 and "item" not in line for line in lines)


async def test_what_a_step_logs_is_kept_too() -> None:
    code = "import logging\nlogging.getLogger('shop').info('sold %d', 3)\nlogging.warning('low')\nlogging.debug('no')"
    async with engine() as opened:
        run = (await opened.start(one_step("python", {"code": code}))).id
        await opened.result(run)
        assert await texts_of(opened, run) == [("stderr", "INFO shop: sold 3"), ("stderr", "WARNING root: low")]


async def test_what_inline_code_logs_is_kept_too_and_only_with_its_own_run() -> None:
    code = "import logging, time\nfor _ in range(3):\n    logging.getLogger('shop').warning('sold by %s', who)"
    later = "import asyncio\nawait asyncio.sleep(0.01)\n" + code
    async with engine() as opened:
        plans = [
            one_step("python", {"code": each, "isolation": "inline"}, None, {"who": who})
            for who, each in (("ann", code), ("bob", later), ("cid", code))
        ]
        runs = [(await opened.start(plan)).id for plan in plans]
        for run, who in zip(runs, ("ann", "bob", "cid"), strict=True):
            await opened.result(run)
            assert await texts_of(opened, run) == [("stderr", f"WARNING shop: sold by {who}")] * 3


LOGGING = """
import asyncio, logging, sys
from tests.tools.calls import engine, one_step

async def main() -> None:
    async with engine() as opened:
        code = "import logging\\nlogging.info('told')\\nlogging.debug('too much')"
        run = (await opened.start(one_step("python", {"code": code, "isolation": "inline"}))).id
        await opened.result(run)
        print([line["text"] for _, line in await opened.logs(run)])
        logging.info("nobody")
        logging.warning("to the terminal")

asyncio.run(main())
"""


def test_a_program_that_sets_up_no_logging_sees_what_it_would_have_seen() -> None:
    done = subprocess.run([sys.executable, "-c", LOGGING], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "['INFO root: told']\n"
    assert done.stderr == "to the terminal\n"


async def test_lines_of_a_program_are_kept() -> None:
    async with engine() as opened:
        run = (await opened.start(one_step("shell", {"script": "echo one; printf two"}))).id
        await opened.result(run)
        assert await texts_of(opened, run) == [("stdout", "one"), ("stdout", "two")]


async def test_lines_of_a_function_in_a_process_are_kept() -> None:
    async with engine() as opened:
        run = (await opened.start(one_step("function", {"call": "builtins:print", "isolation": "process"}))).id
        await opened.result(run)
        assert await texts_of(opened, run) == [("stdout", "{'config': {}, 'input': {}}")]


async def test_every_try_and_every_item_has_its_own_lines() -> None:
    code = "print('item', context['item'], 'try', context['attempt'])\nif context['attempt'] == 1:\n    raise OSError"
    async with engine() as opened:
        plan = one_step("python", {"code": code}, loop=Loop(items=["x", "y"]), retry=Retry(attempts=2))
        run = (await opened.start(plan)).id
        await opened.wait(run)
        lines = await lines_of(opened, run)
        told = {(line["item"], line["attempt"], line["text"]) for line in lines}
        assert told == {(item, attempt, f"item {item} try {attempt}") for item in (0, 1) for attempt in (1, 2)}


@pytest.mark.parametrize("kept", ["memory", "file"])
async def test_lines_are_there_while_the_step_still_runs(kept: str, tmp_path: Path) -> None:
    code = "import os, time\nprint('begun')\nwhile not os.path.exists(go):\n    time.sleep(0.01)\nprint('done')"
    async with open_engine(settings=SETTINGS, db=None if kept == "memory" else tmp_path / "refold.db") as opened:
        run = (await opened.start(one_step("python", {"code": code}, None, {"go": str(tmp_path / "go")}))).id
        async with asyncio.timeout(60):
            while not await opened.logs(run):
                await asyncio.sleep(0.02)
        assert (await opened.show(run)).status == "running"
        (tmp_path / "go").touch()
        await opened.result(run)
        assert await texts_of(opened, run) == [("stdout", "begun"), ("stdout", "done")]
        [(number, line)] = await opened.logs(run, after=1)
        assert (number, line["text"]) == (2, "done")


async def test_what_was_printed_before_a_failure_or_a_timeout_is_kept() -> None:
    async with engine() as opened:
        await fault_of_run(opened, one_step("python", {"code": "print('so far')\n1 / 0"}))
        script = "echo so far; sleep 60"
        assert (await fault_of_run(opened, one_step("shell", {"script": script}, timeout=3))).kind == "timeout"
        for row in await opened.runs():
            assert await texts_of(opened, row.run) == [("stdout", "so far")]


async def test_a_step_that_prints_nothing_writes_nothing() -> None:
    async with engine() as opened:
        run = (await opened.start(one_step("python", {"code": "result = 1"}))).id
        await opened.result(run)
        assert await opened.logs(run) == []


async def test_however_much_a_step_prints_a_bounded_part_is_kept_and_says_so() -> None:
    async with engine() as opened:
        code = "for i in range(60_000):\n    print(i)"
        run = (await opened.start(one_step("python", {"code": code, "isolation": "inline"}))).id
        await opened.result(run)
        lines = await lines_of(opened, run)
        assert [line["text"] for line in lines[:3]] == ["0", "1", "2"]
        assert len(lines) < 25_000
        left_out = 60_000 - (len(lines) - 1)
        assert lines[-1]["text"] == f"({left_out} lines more are left out)"


async def test_what_cannot_be_stored_as_text_is_spelt_out() -> None:
    async with engine() as opened:
        run = (await opened.start(one_step("python", {"code": "print('\\ud800 ü')", "isolation": "inline"}))).id
        await opened.result(run)
        assert await texts_of(opened, run) == [("stdout", "\\ud800 ü")]


class Desk:
    """Takes lines, or does not."""

    def __init__(self, *errors: Exception | None) -> None:
        self.errors = list(errors)
        self.batches: list[list[dict[str, Any]]] = []

    async def publish(self, lease: Lease, lines: Sequence[Any]) -> None:
        assert lease is LEASE
        await asyncio.sleep(0)
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        self.batches.append(list(lines))

    @property
    def texts(self) -> list[str]:
        return [line["text"] for batch in self.batches for line in batch]


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.005)


def printed(desk: Desk) -> TryOutput:
    return TryOutput(LEASE, desk.publish, WallClock())


async def test_lines_wait_a_moment_for_others() -> None:
    desk = Desk()
    some = printed(desk)
    for i in range(10):
        some.say("stdout", str(i))
    await asyncio.sleep(0.05)
    assert desk.batches == []
    await until(lambda: desk.batches)
    assert [len(batch) for batch in desk.batches] == [10]
    assert desk.batches[0][0] == {**desk.batches[0][0], "step": "a", "visit": 2, "attempt": 3, "item": 7}
    await some.close()
    assert len(desk.batches) == 1


async def test_many_lines_wait_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refold.worker.output.EVERY", 3600.0)
    desk = Desk()
    some = printed(desk)
    for _ in range(10):
        some.say("stdout", "x" * 10_000)
    await until(lambda: desk.batches)
    assert len(desk.batches) == 1
    await some.close()
    assert len(desk.texts) == 10


async def test_the_order_of_lines_is_kept_while_one_batch_is_under_way() -> None:
    desk = Desk()
    some = printed(desk)
    for i in range(2000):
        some.say("stdout", str(i).zfill(100))
        if i % 50 == 0:
            await asyncio.sleep(0)
    await some.close()
    assert desk.texts == [str(i).zfill(100) for i in range(2000)]


async def test_lines_of_other_threads_are_there_before_what_follows_them() -> None:
    desk = Desk()
    some = printed(desk)
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def speak() -> None:
        some.say("stdout", "from a thread")
        done.get_loop().call_soon_threadsafe(done.set_result, None)

    threading.Thread(target=speak).start()
    await done
    await some.close()
    assert desk.texts == ["from a thread"]
    some.say("stdout", "too late")
    await asyncio.sleep(0.3)
    assert desk.texts == ["from a thread"]


async def test_a_store_that_does_not_answer_gets_the_lines_the_next_time() -> None:
    desk = Desk(Unavailable("busy"))
    some = printed(desk)
    some.say("stdout", "one")
    await until(lambda: not desk.errors)
    some.say("stdout", "two")
    await some.close()
    assert desk.texts == ["one", "two"]


@pytest.mark.parametrize("error", [LeaseLost("gone"), Unavailable("busy"), RuntimeError("a bug")])
async def test_lines_that_nobody_takes_are_no_reason_to_fail(error: Exception) -> None:
    desk = Desk(*[error] * 10)
    some = printed(desk)
    some.say("stdout", "one")
    await until(lambda: len(desk.errors) < 10)
    some.say("stdout", "two")
    await some.close()
    assert desk.texts == []


async def test_lines_are_counted_with_what_they_cost_beside_their_text() -> None:
    desk = Desk()
    some = printed(desk)
    for _ in range(100_000):
        some.say("stdout", "")
    await some.close()
    assert len(desk.texts) == MOST // 100 + 1
    assert desk.texts[-1] == f"({100_000 - MOST // 100} lines more are left out)"


async def test_a_step_whose_lines_are_refused_succeeds_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    async with engine() as opened:
        monkeypatch.setattr(opened.store, "publish", lambda *_: False)
        code = "print('unheard' * 10_000)\nawait asyncio.sleep(0.05)\nprint('heard')\nresult = 1"
        settings = {"code": code, "libs": {"asyncio": "asyncio"}, "isolation": "inline"}
        run = (await opened.start(one_step("python", settings))).id
        assert await opened.result(run) == 1
        assert [line["text"] for _, line in await opened.logs(run)] == ["heard"]  # with its report


def test_this_process_prints_nothing_for_its_steps(capfd: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        async with engine() as opened:
            for isolation in ("process", "inline"):
                await opened.run(one_step("python", {"code": "print('hello')", "isolation": isolation}))
            await opened.run(one_step("shell", {"script": "echo hello; echo hello >&2"}))

    asyncio.run(main())
    assert capfd.readouterr() == ("", "")
