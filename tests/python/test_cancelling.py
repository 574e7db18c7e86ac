"""A cancelled run whose body waits: the body gets CancelledError there, and has time for its clean-up."""

import asyncio
import json
import logging
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from refold import Context, SyncContext, flow, open_engine
from refold.core.facts import CallSettled, RunEnded, RunEnding, StepSettled
from refold.core.outcomes import Cancelled, Outcome, TimedOut
from refold.errors import RunCancelled
from refold.ports import Lease
from refold.runtime.desk import LocalDesk
from refold.runtime.handle import Handle
from refold.settings import Settings
from refold.wiring import open_process
from tests.python.killed_cleaning import go_on, works
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


def killed_at_work(db: str, at: str) -> dict[str, Any]:
    """Let a process die while its body works; cancel the run on the command line, and return how it stands."""
    Path(db).with_name("die").write_text(at, encoding="utf-8")
    program = [sys.executable, "-m", "tests.python.killed_cleaning", db, "works"]
    died = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert died.returncode == -signal.SIGKILL, died.stderr
    refold = str(Path(sys.executable).with_name("refold"))
    for arguments in (["cancel", "cancelled"], ["show", "cancelled", "-o", "json"]):
        command = [refold, "runs", *arguments, "--db", db]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown


def test_a_run_ends_at_once_if_its_process_is_dead_and_had_recorded_nothing(tmp_path: Path) -> None:
    assert killed_at_work(str(tmp_path / "refold.db"), "begins")["status"] == "cancelled"


async def test_a_body_that_worked_in_a_dead_process_cleans_up_in_the_next_one(tmp_path: Path) -> None:
    db = str(tmp_path / "refold.db")
    assert killed_at_work(db, "works")["status"] != "cancelled"
    (tmp_path / "die").unlink()
    assert await go_on(db, works) == "cancelled"
    assert (tmp_path / "marks").read_text(encoding="utf-8").split() == ["book", "release"]


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


class Slow:
    """A call that tells when it is under way, and waits until it is let go or cancelled."""

    def __init__(self) -> None:
        self.began, self.go = asyncio.Event(), asyncio.Event()

    async def __call__(self, what: str) -> str:
        self.began.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            lines.append(f"{what} interrupted")
            raise
        return what


slow = Slow()


@pytest.fixture(autouse=True)
def _not_begun() -> None:
    slow.began, slow.go = asyncio.Event(), asyncio.Event()


async def ship(what: str) -> str:
    return await slow(what)


@flow
async def running(ctx: Context) -> str:
    lines.append("begins")
    await ctx.call(do, "book")
    try:
        await ctx.call(ship, "parcel")
    except asyncio.CancelledError:
        lines.append("seen")
        await ctx.call(do, "refund")
        await ctx.sleep(0.01)
        raise
    finally:
        await ctx.call(do, "release")
    return "shipped"


CLEANED = ["begins", "book", "parcel interrupted", "seen", "refund", "release"]


async def test_a_running_body_is_interrupted_where_it_is_and_its_clean_up_is_recorded() -> None:
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(running)
        await slow.began.wait()
        await handle.cancel("changed my mind")
        await ends_as_cancelled(handle)
        assert lines == CLEANED
        (ending,) = await facts(engine, handle.id, RunEnding)
        assert (ending.cleaning, ending.withdrawn) == (("running/1",), ())
        recorded = [fact.key for fact in await facts(engine, handle.id, CallSettled)]
        assert [key.rpartition("(")[2] for key in recorded if key.startswith("call")] == [
            '"book")',
            '"refund")',
            '"release")',
        ]


async def test_a_running_body_in_another_process_is_interrupted_too(tmp_path: Path) -> None:
    db = str(tmp_path / "refold.db")
    async with open_engine(db=db, settings=SHORT) as engine:
        handle = await engine.start(running)
        await slow.began.wait()
        cancelled = subprocess.run(
            [str(Path(sys.executable).with_name("refold")), "runs", "cancel", handle.id, "--db", db],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert cancelled.returncode == 0, cancelled.stderr
        await ends_as_cancelled(handle)
    assert lines == CLEANED


async def test_a_call_that_is_being_recorded_when_its_run_is_cancelled_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cancelling: list[asyncio.Task[Any]] = []
    real = LocalDesk.record

    async def late(self: LocalDesk, lease: Lease, key: str, outcome: Outcome) -> None:
        if len(lines) == 6 and not cancelling:
            cancelling.append(asyncio.create_task(handle.cancel()))
            for _ in range(100):  # the cancellation comes to the body while the call is not recorded yet
                await asyncio.sleep(0.002)
        await real(self, lease, key, outcome)

    monkeypatch.setattr(LocalDesk, "record", late)

    @flow
    async def quick(ctx: Context) -> None:
        try:
            for n in range(1000):
                await ctx.call(do, str(n))
        finally:
            await ctx.call(do, "release")

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(quick)
        await ends_as_cancelled(handle)
        await asyncio.gather(*cancelling)
        recorded = [fact.key for fact in await facts(engine, handle.id, CallSettled)]
        assert lines == ["0", "1", "2", "3", "4", "5", "release"]
        called = [key for key in recorded if key.startswith("call")]
        assert len(called) == len(lines)


async def test_a_running_body_that_was_gone_before_its_clean_up_ended_starts_over_and_is_cancelled_there(
    tmp_path: Path,
) -> None:
    """The second body meets the cancellation behind the calls that were recorded before it."""
    plain: list[str] = []

    @flow
    async def works(ctx: Context) -> None:
        await ctx.call(do, "book")
        try:
            plain.append("works")
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await ctx.call(do, "refund")
            await ctx.wait_for("thanks")
            raise

    db = str(tmp_path / "refold.db")
    async with open_engine(db=db, settings=SHORT) as engine:
        handle = await engine.start(works)
        await until(lambda: plain)
        await handle.cancel()
        await suspended(handle)
        run = handle.id
    async with open_engine(db=db, settings=SHORT) as engine:
        handle = await engine.attach(run, works)
        await handle.signal("thanks")
        await ends_as_cancelled(handle)
    assert lines == ["book", "refund"]


@pytest.mark.parametrize("swallows", [False, True])
async def test_a_body_that_cleans_up_when_its_engine_closes_starts_over_in_the_next_one(
    tmp_path: Path, swallows: bool
) -> None:
    """Its run is not cancelled: the clean-up calls nothing, and what the body returns or raises is ignored."""
    starts: list[int] = []

    @flow
    async def works(ctx: Context) -> str:
        starts.append(1)
        await ctx.call(do, "book")
        if len(starts) > 1:
            return "done"
        try:
            lines.append("works")
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            if swallows:
                return "cut off"
            await ctx.call(do, "refund")
        return "cut off"

    db = str(tmp_path / "refold.db")
    async with open_engine(db=db, settings=SHORT) as engine:
        run = (await engine.start(works)).id
        await until(lambda: "works" in lines)
    async with open_engine(db=db, settings=SHORT) as engine:
        handle = await engine.attach(run, works)
        assert await asyncio.wait_for(handle.result(), 30) == "done"
    assert lines == ["book", "works"]


async def test_a_body_that_starts_over_is_cancelled_behind_what_its_earlier_try_has_done(tmp_path: Path) -> None:
    """The cancellation comes before the second body has asked for the call that the first one has made."""
    starts: list[int] = []
    go = asyncio.Event()

    @flow
    async def works(ctx: Context) -> None:
        starts.append(1)
        if len(starts) > 1:
            await go.wait()
        await ctx.call(do, "book")
        try:
            lines.append("works")
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await ctx.call(do, "refund")
            raise

    db = str(tmp_path / "refold.db")
    async with open_engine(db=db, settings=SHORT) as engine:
        run = (await engine.start(works)).id
        await until(lambda: "works" in lines)
    async with open_process(db=db, settings=SHORT) as process:
        handle = await process.engine.attach(run, works)
        await until(lambda: len(starts) > 1)
        await handle.cancel()
        await until(lambda: all(held.interrupted for held in process.worker.keeper.held.values()))
        go.set()
        await ends_as_cancelled(handle)
    assert lines == ["book", "works", "works", "refund"]


async def test_a_running_body_that_has_recorded_nothing_does_not_start_over_when_its_process_is_gone(
    tmp_path: Path,
) -> None:
    @flow
    async def plain(ctx: Context) -> None:
        lines.append("once")
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.5)

    db = str(tmp_path / "refold.db")
    async with open_engine(db=db, settings=SHORT) as engine:
        handle = await engine.start(plain)
        await until(lambda: lines)
        await handle.cancel()
        run = handle.id
    async with open_engine(db=db, settings=SHORT) as engine:
        handle = await engine.attach(run, plain)
        await ends_as_cancelled(handle)
    assert lines == ["once"]


async def test_a_running_body_without_async_is_ended_and_its_run_with_it() -> None:
    began, go = threading.Event(), threading.Event()

    @flow
    def plain(ctx: SyncContext) -> str:
        began.set()
        go.wait(60)
        return "done"

    async with open_engine(settings=SHORT) as engine:
        handle: Any = await engine.start(plain)
        await asyncio.to_thread(began.wait, 60)
        await handle.cancel()
        await ends_as_cancelled(handle)
        go.set()


async def test_a_running_body_that_swallows_the_cancellation_has_the_grace_and_no_more() -> None:
    over: list[bool] = []

    @flow
    async def deaf(ctx: Context) -> None:
        while not over:
            lines.append("again")
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(deaf)
        await until(lambda: lines)
        await handle.cancel(grace=0.2)
        await ends_as_cancelled(handle)
        settled = await facts(engine, handle.id, StepSettled)
        assert settled[-1].report.outcome == TimedOut(0.2)
        over.append(True)
