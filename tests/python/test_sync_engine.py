"""The engine and the handle for code without `async`."""

import contextvars
import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import refold
from refold import Context, Settings, SyncContext, flow
from refold.errors import Conflict, RefoldError, RequestRefused, StepFailed, Unusable
from refold.plan import Plan, Step
from refold.runtime.engine import Engine
from refold.runtime.handle import Handle
from refold.runtime.sync import BlockingMethod, SyncEngine, SyncHandle

SHORT = Settings(poll=0.05, sweep_every=0.05)
USER: contextvars.ContextVar[str] = contextvars.ContextVar("user", default="nobody")


@flow
async def double(ctx: Context, n: int) -> int:
    await ctx.publish(f"doubling {n}")
    return n * 2


@flow
async def asks(ctx: Context) -> str:
    ctx.set("seen", 1)
    async for request in ctx.requests("ping"):
        if request.value is None:
            await request.refuse("nothing to say")
            break
        await request.reply(f"pong {request.value}")
    return str(await ctx.wait_for("go"))


def test_a_script_starts_runs_and_waits_for_them() -> None:
    with refold.open_engine() as engine:
        handle = engine.start(double, n=4)
        assert handle.result() == 8
        assert engine.run(double, 5) == 10
        assert engine.options(key="k", labels={"team": "data"}).run(double, n=1) == 2
        assert [row.labels for row in engine.runs(label={"team": "data"})] == [{"team": "data"}]
        assert engine.show(handle.id).status == "completed"
        assert [shown.value for shown in handle.stream()] == ["doubling 4"]
        last = handle.latest()
        assert last is not None and last.value == "doubling 4"
        assert engine.run(Plan(name="p", steps=(Step(name="a", input=3),))) == 3


def test_a_run_is_steered_without_async(tmp_path: Path) -> None:
    with refold.open_engine(db=tmp_path / "r.db", settings=SHORT) as engine:
        run = engine.start(asks).id
        handle = engine.attach(run, asks)
        assert handle.request("ping", 1) == "pong 1"
        with pytest.raises(RequestRefused, match="nothing to say"):
            handle.request("ping")
        handle.signal("go", "done")
        assert handle.result() == "done"
        assert [row.run for row in engine.runs(workflow=asks)] == [run]


def test_errors_of_a_run_are_raised_where_it_is_waited_for() -> None:
    @flow
    async def fails(ctx: Context) -> None:
        raise ValueError("no luck")

    with refold.open_engine() as engine, pytest.raises(StepFailed, match="no luck") as raised:
        engine.run(fails)
    assert isinstance(raised.value.__cause__, ValueError)


def test_many_threads_use_one_engine() -> None:
    with refold.open_engine() as engine, ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda n: engine.run(double, n=n), range(40))) == [2 * n for n in range(40)]


def test_after_its_end_and_on_its_own_thread_the_engine_refuses_calls() -> None:
    inner: list[Any] = []

    with refold.open_engine() as engine:

        @flow
        async def wrong(ctx: Context) -> None:
            engine.run(double, n=1)

        @flow
        def right(ctx: SyncContext) -> int:
            inner.append(threading.current_thread().name)
            return engine.run(double, n=1)

        with pytest.raises(StepFailed, match="on the thread of its own event loop"):
            engine.run(wrong)
        assert engine.run(right) == 2 and inner
        handle = engine.start(double, n=1)
        handle.result()
    for call in (lambda: engine.run(double, n=1), handle.result, engine.runs):
        with pytest.raises(Conflict, match="it is closed"):
            call()


def test_an_engine_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    file = tmp_path / "r.db"
    file.write_bytes(b"this is not a database of Refold, whatever it is called" * 20)
    with pytest.raises(RefoldError) as raised, refold.open_engine(db=file):
        pass
    assert isinstance(raised.value, Unusable | RefoldError)


def test_an_error_inside_with_closes_the_engine() -> None:
    with pytest.raises(ZeroDivisionError), refold.open_engine() as engine:
        raise ZeroDivisionError
    with pytest.raises(Conflict):
        engine.runs()
    assert not [thread for thread in threading.enumerate() if thread.name == "refold-engine"]


def test_everything_that_an_engine_does_is_there_without_async() -> None:
    """What belongs to the engine itself, or to those who run it, is left out."""
    inner = {"change_schedules", "completed", "lines", "last_line", "signal_stored", "started", "successor"}

    def names(of: type) -> set[str]:
        return {name for name, value in inspect.getmembers(of, inspect.isfunction) if not name.startswith("_")}

    def blocking(of: type) -> set[str]:
        found = {name for each in of.__mro__ for name, value in vars(each).items() if isinstance(value, BlockingMethod)}
        return found | names(of)

    assert names(Engine) - inner - blocking(SyncEngine) == set()
    assert names(Handle) - blocking(SyncHandle) == set()
