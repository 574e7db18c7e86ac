"""A cancelled run whose body waits: the body gets CancelledError there, and has time for its clean-up."""

import asyncio
import logging
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from refold import Context, SyncContext, flow, open_engine
from refold.core.facts import CallSettled, RunEnded, RunEnding, StepSettled
from refold.core.outcomes import Cancelled, TimedOut
from refold.errors import RunCancelled
from refold.runtime.handle import Handle
from refold.settings import Settings
from tests.python.killed_cleaning import go_on
from tests.python.test_parking import SHORT, facts, suspended, until

NOTHING_KEPT = Settings(lease_for=2.0, sweep_every=0.05, poll=0.05, parked_bodies=0)
lines: list[str] = []


@pytest.fixture(autouse=True)
def _no_lines() -> None:
    lines.clear()


def do(what: str) -> str:
    lines.append(what)
    return what


async def ends_as_cancelled(handle: Handle) -> None:
    with pytest.raises(RunCancelled):
        await asyncio.wait_for(handle.result(), 30)


@flow
async def saga(ctx: Context) -> str:
    await ctx.call(do, "book")
    try:
        await ctx.wait_for("paid")
    except asyncio.CancelledError:
        lines.append("seen")
        await ctx.call(do, "refund")
        raise
    finally:
        await ctx.call(do, "release")
    return "paid"


async def test_a_parked_body_gets_the_cancellation_where_it_waits_and_makes_durable_calls() -> None:
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(saga)
        await suspended(handle)
        await handle.cancel("changed my mind")
        await ends_as_cancelled(handle)
        assert lines == ["book", "seen", "refund", "release"]
        (ending,) = await facts(engine, handle.id, RunEnding)
        assert (ending.cleaning, ending.grace, ending.withdrawn) == (("saga/1",), 30.0, ())
        settled = await facts(engine, handle.id, StepSettled)
        assert isinstance(settled[-1].report.outcome, Cancelled)
        recorded = [fact.key for fact in await facts(engine, handle.id, CallSettled)]
        assert len(recorded) == 3
        (ended,) = await facts(engine, handle.id, RunEnded)
        assert (ended.status, ended.also_failed) == ("cancelled", ())


async def test_a_body_whose_coroutine_is_gone_is_brought_to_its_wait_first() -> None:
    async with open_engine(settings=NOTHING_KEPT) as engine:
        handle = await engine.start(saga)
        await suspended(handle)
        await handle.cancel()
        await ends_as_cancelled(handle)
    assert lines == ["book", "seen", "refund", "release"]


async def test_another_process_cleans_up(tmp_path: Path) -> None:
    db = str(tmp_path / "refold.db")
    async with open_engine(db=db, settings=SHORT) as engine:
        handle = await engine.start(saga)
        await suspended(handle)
        run = handle.id
    assert lines == ["book"]
    async with open_engine(db=db, settings=SHORT) as engine:
        handle = await engine.attach(run, saga)
        await handle.cancel()
        await ends_as_cancelled(handle)
    assert lines == ["book", "seen", "refund", "release"]


@pytest.mark.parametrize("settings", [SHORT, NOTHING_KEPT], ids=["parked", "gone"])
async def test_a_clean_up_may_wait(settings: Settings) -> None:
    @flow
    async def patient(ctx: Context) -> None:
        try:
            await asyncio.gather(ctx.wait_for("a"), ctx.wait_for("b"), return_exceptions=True)
        finally:
            await ctx.sleep(0.01)
            lines.append(await ctx.wait_for("thanks"))

    async with open_engine(settings=settings) as engine:
        handle = await engine.start(patient)
        await suspended(handle)
        await handle.cancel()
        await suspended(handle, 2)
        await handle.signal("thanks", "bye")
        await ends_as_cancelled(handle)
    assert lines == ["bye"]


async def test_a_task_group_is_cancelled_as_a_whole() -> None:
    async def wait(ctx: Context, name: str) -> None:
        try:
            await ctx.wait_for(name)
        except asyncio.CancelledError:
            lines.append(name)
            raise

    @flow
    async def both(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(wait(ctx, "a"))
            group.create_task(wait(ctx, "b"))
        return "never"

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(both)
        await suspended(handle)
        await handle.cancel()
        await ends_as_cancelled(handle)
    assert sorted(lines) == ["a", "b"]


async def test_a_child_that_the_body_waits_for_is_cancelled_too_and_cleans_up() -> None:
    @flow
    async def parent(ctx: Context) -> None:
        try:
            await ctx.run_child(saga)
        finally:
            await ctx.call(do, "parent")

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(parent)
        await until(lambda: "book" in lines)
        await suspended(handle)
        await handle.cancel()
        await ends_as_cancelled(handle)
    assert sorted(lines) == ["book", "parent", "refund", "release", "seen"]


async def test_a_clean_up_that_does_not_end_within_the_grace_is_ended() -> None:
    @flow
    async def slow(ctx: Context) -> None:
        try:
            await ctx.wait_for("never")
        finally:
            await ctx.wait_for("never either")

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(slow)
        await suspended(handle)
        await handle.cancel(grace=0.2)
        await ends_as_cancelled(handle)
        settled = await facts(engine, handle.id, StepSettled)
        assert settled[-1].report.outcome == TimedOut(0.2)
        (ended,) = await facts(engine, handle.id, RunEnded)
        assert [(each.step, each.why) for each in ended.also_failed] == [(settled[0].step, "clean-up")]


async def test_a_clean_up_that_is_cancelled_again_is_ended() -> None:
    @flow
    async def stubborn(ctx: Context) -> None:
        try:
            await ctx.wait_for("never")
        finally:
            await ctx.wait_for("never either")

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(stubborn)
        await suspended(handle)
        await handle.cancel()
        await suspended(handle, 2)
        await handle.cancel()
        await ends_as_cancelled(handle)


async def test_a_clean_up_that_raises_something_else_is_shown_and_the_run_is_cancelled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @flow
    async def clumsy(ctx: Context) -> None:
        try:
            await ctx.wait_for("never")
        finally:
            raise ValueError("no refund")

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(clumsy)
        await suspended(handle)
        with caplog.at_level(logging.WARNING, "refold"):
            await handle.cancel()
            await ends_as_cancelled(handle)
        (ended,) = await facts(engine, handle.id, RunEnded)
        assert [(each.why, each.fault.message) for each in ended.also_failed] == [("clean-up", "no refund")]
    assert "cancelled body has ended in another way" in caplog.text


async def test_a_body_that_swallows_the_cancellation_and_returns_is_cancelled_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @flow
    async def deaf(ctx: Context) -> str:
        try:
            await ctx.wait_for("never")
        except asyncio.CancelledError:
            lines.append("swallowed")
        return "done"

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(deaf)
        await suspended(handle)
        with caplog.at_level(logging.WARNING, "refold"):
            await handle.cancel()
            await ends_as_cancelled(handle)
    assert lines == ["swallowed"]
    assert "cancelled body has ended in another way" in caplog.text


async def test_a_body_without_async_is_withdrawn() -> None:
    @flow
    def plain(ctx: SyncContext) -> None:
        try:
            ctx.wait_for("never")
        except asyncio.CancelledError:
            lines.append("seen")

    async with open_engine(settings=SHORT) as engine:
        handle: Any = await engine.start(plain)
        await suspended(handle)
        await handle.cancel()
        await ends_as_cancelled(handle)
        (ending,) = await facts(engine, handle.id, RunEnding)
        assert ending.cleaning == ()
    assert lines == []


@pytest.mark.parametrize("at", ["caught", "refunded", "slept", "released"])
async def test_after_kill_9_in_the_clean_up_no_completed_call_is_repeated(tmp_path: Path, at: str) -> None:
    (tmp_path / "die").write_text(at, encoding="utf-8")
    program = [sys.executable, "-m", "tests.python.killed_cleaning", str(tmp_path / "refold.db")]
    died = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert died.returncode == -signal.SIGKILL, died.stderr
    (tmp_path / "die").unlink()
    assert await go_on(str(tmp_path / "refold.db")) == "cancelled"
    marks = Counter((tmp_path / "marks").read_text(encoding="utf-8").splitlines())
    assert marks == {"book": 1, "refund": 1, "release": 1}
