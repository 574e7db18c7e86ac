"""A timeout starts with the body: whatever waits for an interpreter, a thread or a connection has not started."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection

from refold import Engine
from refold.core.facts import StepSettled
from refold.core.outcomes import Report, Succeeded, TimedOut
from refold.executors.inline import Threads
from refold.playbooks.playbook import read
from refold.settings import Settings
from refold.time_limits import Stopwatch, TimeLimit, began, waiting
from refold.tools.catalog import CATALOG
from refold.tools.sql import postgres as sql_postgres
from refold.tools.sql.driver import BlockingCalls, Work
from refold.tools.sql.postgres import PostgresTool
from tests.alive import within
from tests.tools.calls import call, engine, one_step
from tests.tools.conftest import postgres

__all__ = ["postgres"]  # a fixture

LEASE_FOR = 0.9  # seconds: three heartbeats, each of which would find what has run out of time
TIMEOUT = 2.0
HELD = 1.25 * TIMEOUT  # seconds that another has what is waited for
SETTINGS = Settings(processes=1, process_grace=0.2, lease_for=LEASE_FOR, sweep_every=0.3)
HOLD = (
    "import pathlib, time\n"
    "folder = pathlib.Path({folder!r})\n"
    "(folder / 'began').touch()\n"
    "while not (folder / 'go').exists():\n"
    "    time.sleep(0.01)\n"
)


@asynccontextmanager
async def busy(opened: Engine, folder: Path) -> AsyncIterator[None]:
    """The only interpreter is taken meanwhile."""
    held = (await opened.start(one_step("python", {"code": HOLD.format(folder=str(folder))}))).id
    assert await asyncio.to_thread(within, 60.0, (folder / "began").exists)
    try:
        yield
    finally:
        (folder / "go").touch()
        assert (await opened.wait(held)).status == "completed"


async def report_of(opened: Engine, run: str) -> Report:
    await opened.wait(run)
    return next(fact.report for _, _, fact in await opened.history(run) if isinstance(fact, StepSettled))


PARALLEL = """
apiVersion: refold/v1
kind: Playbook
metadata: {name: three}
workflow:
  - parallel: p
    branches:
      a: [{step: a, timeout: 2s, tool: {kind: python, code: "import time; time.sleep(1.5)"}}]
      b: [{step: b, timeout: 2s, tool: {kind: python, code: "import time; time.sleep(1.5)"}}]
      c: [{step: c, timeout: 2s, tool: {kind: python, code: "import time; time.sleep(1.5)"}}]
"""


async def test_three_steps_of_a_second_and_a_half_keep_within_two_seconds_with_two_interpreters() -> None:
    """Others use this machine too, and can make a body slower; so the best of a few is the measure. If the wait for
    an interpreter counted, the third would need three seconds, however fast the machine is."""
    plan = read(PARALLEL, "three.yaml", CATALOG).plan
    async with engine(Settings(processes=2)) as opened:
        seen: list[str] = []
        while len(seen) < 5 and "completed" not in seen:
            run = (await opened.start(plan)).id
            seen.append((await opened.wait(run)).status)
    assert "completed" in seen


@pytest.mark.parametrize("kind", ["a step", "a pipeline", "a task of a pipeline"])
async def test_to_wait_for_an_interpreter_is_no_part_of_a_timeout(kind: str, tmp_path: Path) -> None:
    code = {"name": "one", "kind": "python", "settings": {"code": "result = 1"}}
    plan = {
        "a step": lambda: one_step("python", {"code": "result = 1"}, timeout=TIMEOUT),
        "a pipeline": lambda: one_step("pipeline", {"tasks": [code], "single": True, "timeout": TIMEOUT}),
        "a task of a pipeline": lambda: one_step("pipeline", {"tasks": [{**code, "timeout": TIMEOUT}], "single": True}),
    }[kind]()
    async with engine(SETTINGS) as opened:
        async with busy(opened, tmp_path):
            run = (await opened.start(plan)).id
            await asyncio.sleep(HELD)
            let_go = time.time_ns() // 1000
        report = await report_of(opened, run)
    assert report.outcome == Succeeded(1)
    assert report.claimed_at >= let_go, "no worker takes it before an interpreter is free"
    assert report.started_at >= let_go, "but it had not started"


async def test_a_body_that_has_waited_runs_out_of_time_like_any_other(tmp_path: Path) -> None:
    async with engine(SETTINGS) as opened:
        async with busy(opened, tmp_path):
            run = (await opened.start(one_step("python", {"code": "import time; time.sleep(60)"}, timeout=0.5))).id
            await asyncio.sleep(1.0)
            let_go = time.time_ns() // 1000
        report = await report_of(opened, run)
    assert report.outcome == TimedOut(0.5)
    assert report.started_at >= let_go or not report.started_at, "0: the store was faster than the worker"


async def test_who_waits_for_an_interpreter_can_be_cancelled_and_ends_with_its_run(tmp_path: Path) -> None:
    async with engine(SETTINGS) as opened, busy(opened, tmp_path):
        plan = one_step("python", {"code": "result = 1"}, timeout=TIMEOUT)
        cancelled = (await opened.start(plan)).id
        await asyncio.sleep(LEASE_FOR)
        await opened.cancel(cancelled)
        assert (await asyncio.wait_for(opened.wait(cancelled), 60)).status == "cancelled"


async def test_later_tasks_of_a_pipeline_that_has_waited_have_the_rest_of_its_time(tmp_path: Path) -> None:
    code = "import time; time.sleep(0.2); result = "
    tasks = [{"name": name, "kind": "python", "settings": {"code": f"{code}{name!r}"}} for name in ("one", "two")]
    async with engine(SETTINGS) as opened:
        async with busy(opened, tmp_path):
            run = (await opened.start(one_step("pipeline", {"tasks": tasks, "timeout": TIMEOUT}, timeout=TIMEOUT))).id
            await asyncio.sleep(HELD)
        assert (await report_of(opened, run)).outcome == Succeeded({"one": "one", "two": "two"})


async def test_to_wait_for_a_thread_is_no_part_of_a_timeout() -> None:
    threads, go = Threads(1), threading.Event()
    held = asyncio.create_task(threads.run(go.wait))
    await asyncio.sleep(0)
    waits = asyncio.create_task(_limited(0.2, lambda: threads.run(lambda: "ran")))
    await asyncio.sleep(0.5)
    go.set()
    assert (await waits, await held) == ("ran", True)
    threads.close()


async def test_to_wait_for_a_thread_of_a_database_is_no_part_of_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refold.tools.sql.driver.THREADS", 1)
    blocking, go = BlockingCalls("any"), threading.Event()
    held = asyncio.create_task(blocking.run(Work(), go.wait, None))
    await asyncio.sleep(0)
    waits = [
        asyncio.create_task(blocking.run(Work(), lambda: "ran", 1.0)),
        asyncio.create_task(_limited(1.0, lambda: blocking.run(Work(), lambda: "ran", None))),
    ]
    await asyncio.sleep(1.5)
    go.set()
    assert (await asyncio.gather(*waits), await held) == (["ran", "ran"], True)


async def test_to_wait_for_a_connection_of_a_pool_is_no_part_of_a_timeout(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_postgres, "CONNECTIONS", 1)
    tool, outside = PostgresTool(), PostgresTool()

    async def run(query: str, with_tool: PostgresTool = tool, **more: Any) -> Any:
        return await with_tool(call(None, {"url": postgres, "query": query, **more}))

    async def begun() -> bool:
        query = "select count(*) as n from pg_locks where locktype = 'advisory' and not granted"
        return bool((await run(query, outside))["rows"][0]["n"])

    other = await AsyncConnection.connect(postgres, autocommit=True)
    await other.execute("select pg_advisory_lock(7)")
    held = asyncio.create_task(run("select pg_advisory_lock(7), pg_advisory_unlock(7)"))
    while not await begun():
        await asyncio.sleep(0.02)
    waits = asyncio.create_task(run("select 1 as one", timeout=TIMEOUT))
    await asyncio.sleep(HELD)
    assert not waits.done(), "there is one connection, and another has it"
    await other.execute("select pg_advisory_unlock(7)")
    assert (await waits)["rows"] == [{"one": 1}]
    await held
    await other.close()
    for each in (tool, outside):
        await each.close()


async def _limited(seconds: float, work: Callable[[], Any]) -> Any:
    async with TimeLimit(seconds):
        return await work()


async def test_a_limit_that_has_stood_still_has_the_rest_of_its_time() -> None:
    limit = TimeLimit(0.3)
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    with pytest.raises(TimeoutError):
        async with limit:
            with waiting(), waiting():
                await asyncio.sleep(0.5)
            await asyncio.sleep(60)
    assert limit.expired()
    assert 0.45 <= limit.waited <= loop.time() - began_at - 0.25


async def test_what_waits_in_another_task_does_not_stop_a_limit() -> None:
    async def wait() -> None:
        with waiting():
            await asyncio.sleep(60)

    with pytest.raises(TimeoutError):
        async with TimeLimit(0.05):
            await asyncio.gather(wait())


async def test_a_limit_that_has_run_out_is_left_alone_by_who_waits_all_the_same() -> None:
    with pytest.raises(TimeoutError):
        async with TimeLimit(0.01):
            try:
                await asyncio.sleep(60)
            finally:
                with waiting():
                    await asyncio.sleep(0.02)


async def test_a_watch_counts_only_what_runs_and_its_delay_is_what_came_before() -> None:
    watch = Stopwatch()
    assert watch.ran() == 0.0
    with watch:
        with waiting():
            before = watch.ran()
            await asyncio.sleep(0.1)
            assert watch.ran() == before
        delay = watch.delay
        assert delay >= 0.09
        await asyncio.sleep(0.05)
        began()
        with waiting():
            await asyncio.sleep(0.05)
        assert watch.delay == delay, "it had begun"
    ran = watch.ran()
    assert ran >= 0.04
    await asyncio.sleep(0.02)
    assert watch.ran() == ran, "it has ended"
