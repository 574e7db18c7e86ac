"""Callers of a run: whose context variables its bodies see, and what happens when a caller no longer waits."""

import asyncio
import os
import signal
import subprocess
import sys
from contextvars import ContextVar
from pathlib import Path
from textwrap import dedent

import pytest

import refold
from refold import Context, Retry
from refold.errors import RunCancelled, RunTimeout, StepFailed
from tests.python.house import SHORT

USER: ContextVar[str] = ContextVar("user", default="nobody")


@refold.flow
async def who(ctx: Context) -> list[str]:
    first = USER.get()
    await ctx.sleep(0.01)
    return [first, USER.get(), await ctx.call(user_in_a_thread)]


def user_in_a_thread() -> str:
    return USER.get()


@refold.flow
async def asks_child(ctx: Context) -> list[str]:
    seen: list[str] = await ctx.run_child(who)
    return seen


async def test_each_body_sees_the_context_variables_of_the_caller_that_started_its_run() -> None:
    async with refold.open_engine(settings=SHORT) as engine:

        async def request(user: str) -> list[str]:
            USER.set(user)
            seen: list[str] = await engine.run(who)
            return seen

        users = [f"u{number}" for number in range(30)]
        seen = list(await asyncio.wait_for(asyncio.gather(*map(request, users)), 60))
    assert seen == [[user] * 3 for user in users]


async def test_a_child_run_sees_the_context_variables_of_the_caller_of_its_parent() -> None:
    async with refold.open_engine(settings=SHORT) as engine:

        async def request(user: str) -> list[str]:
            USER.set(user)
            seen: list[str] = await engine.run(asks_child)
            return seen

        assert list(await asyncio.gather(request("ada"), request("bob"))) == [["ada"] * 3, ["bob"] * 3]


async def test_a_run_of_another_process_sees_the_context_of_the_engine(tmp_path: Path) -> None:
    @refold.flow
    async def waits(ctx: Context) -> str:
        await ctx.wait_for("go")
        return USER.get()

    async with refold.open_engine(db=tmp_path / "r.db", settings=SHORT) as engine:

        async def request() -> str:
            USER.set("ada")
            return (await engine.start(waits)).id

        run = await asyncio.create_task(request())
    async with refold.open_engine(db=tmp_path / "r.db", settings=SHORT) as engine:

        async def other() -> str:
            USER.set("eve")
            handle = await engine.attach(run, waits)
            await handle.signal("go")
            return str(await handle.result())

        assert await asyncio.wait_for(asyncio.create_task(other()), 60) == "nobody"


async def test_a_run_whose_caller_is_cancelled_continues() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @refold.flow
    async def works(ctx: Context) -> str:
        begun.set()
        await go_on.wait()
        return "done"

    async with refold.open_engine(settings=SHORT) as engine:
        waiting = asyncio.create_task(engine.run(works))
        await asyncio.wait_for(begun.wait(), 60)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await waiting
        [row] = await engine.runs()
        assert row.status == "running"
        assert f"engine.attach({row.run!r}, workflow)" in "".join(cancelled.value.__notes__)
        go_on.set()
        assert await (await engine.attach(row.run, works)).result() == "done"


async def test_a_run_is_cancelled_with_its_caller_if_that_is_asked_for() -> None:
    begun = asyncio.Event()

    @refold.flow
    async def works(ctx: Context) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with refold.open_engine(settings=SHORT) as engine:
        waiting = asyncio.create_task(engine.options(cancel_with_caller=True).run(works))
        await asyncio.wait_for(begun.wait(), 60)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        [row] = await engine.runs()
        with pytest.raises(RunCancelled, match="its caller no longer waits for it"):
            await asyncio.wait_for(engine.result(row.run), 60)


PROGRAM = """
    import sys
    import refold

    @refold.flow
    async def nap(ctx: refold.Context) -> str:
        print("begun", flush=True)
        return str(await ctx.wait_for("go"))

    if __name__ == "__main__":
        refold.options(db=sys.argv[1]).run_sync(nap)
"""


def test_ctrl_c_leaves_a_run_that_can_be_resumed_and_prints_the_command(tmp_path: Path) -> None:
    program, db = tmp_path / "naps.py", tmp_path / "r.db"
    program.write_text(dedent(PROGRAM))
    process = subprocess.Popen(
        [sys.executable, str(program), str(db)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    (line,) = [each for each in errors.splitlines() if each.startswith("to continue: refold runs resume ")]

    async def row() -> tuple[str, str]:
        async with refold.open_engine(db=db, settings=SHORT) as engine:
            [found] = await engine.runs()
            return found.run, found.status

    run, status = asyncio.run(row())
    assert (line, status in ("running", "waiting")) == (f"to continue: refold runs resume {run} --db {db}", True)


# what a caller learns of a run that has failed


async def test_a_run_that_exceeds_its_timeout_raises_an_error_of_its_own() -> None:
    @refold.flow(timeout=0.05)
    async def slow(ctx: Context) -> None:
        await ctx.wait_for("never")

    async with refold.open_engine(settings=SHORT) as engine:
        handle = await engine.start(slow)
        with pytest.raises(RunTimeout, match=r"no end after 0\.05 s, which is its timeout") as failed:
            await asyncio.wait_for(handle.result(), 60)
        with pytest.raises(RunTimeout):
            await engine.result(handle.id)
    assert isinstance(failed.value, StepFailed) and isinstance(failed.value, TimeoutError)
    assert (failed.value.run, failed.value.after) == (handle.id, 0.05)


async def test_a_cancelled_run_has_a_reason() -> None:
    @refold.flow
    async def waits(ctx: Context) -> None:
        await ctx.wait_for("never")

    async with refold.open_engine(settings=SHORT) as engine:
        handle = await engine.start(waits)
        await handle.cancel("the order was withdrawn")
        with pytest.raises(RunCancelled, match="was cancelled: the order was withdrawn") as cancelled:
            await handle.result()
    assert (cancelled.value.run, cancelled.value.reason) == (handle.id, "the order was withdrawn")


@refold.flow
async def fails(ctx: Context, number: int) -> None:
    raise LookupError(number)


async def test_each_of_many_failed_runs_has_its_cause_and_shows_its_traceback_once() -> None:
    async with refold.open_engine(settings=SHORT) as engine:
        handles = [await engine.start(fails, number=number) for number in range(150)]
        for handle in handles:
            await engine.wait(handle.id)
        for number, handle in enumerate(handles):
            with pytest.raises(StepFailed) as failed:
                await handle.result()
            assert isinstance(failed.value.__cause__, LookupError)
            assert failed.value.__cause__.args == (number,)
            assert not hasattr(failed.value, "__notes__")


async def test_a_failure_of_another_process_shows_its_traceback_as_a_note(tmp_path: Path) -> None:
    async with refold.open_engine(db=tmp_path / "r.db", settings=SHORT) as engine:
        run = (await engine.wait((await engine.start(fails, number=1)).id)).id
    async with refold.open_engine(db=tmp_path / "r.db", settings=SHORT) as engine:
        with pytest.raises(StepFailed) as failed:
            await (await engine.attach(run, fails)).result()
    assert failed.value.__cause__ is None
    (note,) = failed.value.__notes__
    assert "LookupError: 1" in note


async def test_a_retry_names_classes_of_exceptions() -> None:
    tries: list[int] = []

    @refold.flow(retry=Retry(attempts=3, on=(LookupError, "timeout")))
    async def looks_up(ctx: Context) -> int:
        tries.append(len(tries))
        raise KeyError("k") if len(tries) == 1 else ValueError

    async with refold.open_engine(settings=SHORT) as engine:
        with pytest.raises(StepFailed, match="ValueError"):
            await engine.run(looks_up)
    assert tries == [0, 1]
    assert Retry(on=(LookupError, "timeout")).on == ("LookupError", "timeout")
    assert Retry(on=OSError).on == ("OSError",)  # type: ignore[arg-type]
