"""Statements that hear no interruption: whoever waits for them goes on in time, and what they hold is let go."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from refold.errors import ToolFailed
from refold.tools.sql import sqlite
from refold.tools.sql.driver import THREADS, BlockingCalls, Driver, GivenUp, SharedConnection, Work
from refold.tools.sql.faults import failure
from refold.tools.sql.request import request_of
from tests.tools.calls import call, fault_of

PATIENCE = 0.2
LONG = 120.0  # seconds; whoever waits so long waits for ever


class Stuck(Exception):
    pass


DRIVER = Driver(Stuck, lambda error, _: failure("db_error", str(error), "STUCK"))


class Connection:
    """Its statements called `stuck` do not return before the test lets them, whatever is done to them."""

    def __init__(self, free: threading.Event) -> None:
        self.free, self.began, self.said = free, threading.Event(), list[str]()
        self.interrupted, self.closed = 0, threading.Event()

    def execute(self, query: str, *_: Any) -> Any:
        self.said.append(query)
        if query == "stuck":
            self.began.set()
            assert self.free.wait(LONG)
        return self

    def interrupt(self) -> None:
        self.interrupted += 1

    @contextmanager
    def open(self) -> Iterator["Connection"]:
        try:
            yield self
        finally:
            self.closed.set()


@pytest.fixture
def db() -> Iterator[Connection]:
    """Nothing of it is left after the test."""
    made = Connection(threading.Event())
    yield made
    made.free.set()
    threads = [each for each in threading.enumerate() if each.name == "refold-stuck"]
    for each in threads:
        each.join(LONG)
    assert not any(each.is_alive() for each in threads)


@pytest.fixture
def blocking() -> BlockingCalls:
    return BlockingCalls("stuck", PATIENCE)


async def ends(doing: Any) -> Any:
    """What comes of it, as long as the thread is stuck."""
    return await asyncio.wait_for(doing, LONG / 2)


async def test_a_call_that_is_out_of_time_ends_although_its_thread_does_not(
    db: Connection, blocking: BlockingCalls
) -> None:
    work = Work(db.interrupt)
    with pytest.raises(GivenUp):
        await ends(blocking.run(work, lambda: db.execute("stuck"), 0.05))
    assert work.given_up and not db.free.is_set()
    assert db.interrupted > 1, "it was asked again and again before"
    assert await ends(blocking.run(Work(), lambda: 7, 1.0)) == 7


async def test_a_call_that_is_cancelled_ends_although_its_thread_does_not(
    db: Connection, blocking: BlockingCalls
) -> None:
    work = Work(db.interrupt)
    running = asyncio.create_task(blocking.run(work, lambda: db.execute("stuck"), None))
    assert await asyncio.to_thread(db.began.wait, LONG)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ends(running)
    assert work.given_up and not db.free.is_set()


async def test_a_thread_that_ends_within_the_patience_is_not_given_up(db: Connection) -> None:
    def heard() -> None:
        db.interrupt()
        if db.interrupted == 3:
            db.free.set()

    work = Work(heard)
    with pytest.raises(TimeoutError) as caught:
        await BlockingCalls("stuck", LONG).run(work, lambda: _fails_at_last(db), 0.05)
    assert not isinstance(caught.value, GivenUp) and not work.given_up


def _fails_at_last(db: Connection) -> None:
    db.execute("stuck")
    raise Stuck


async def test_nothing_is_committed_for_nobody(db: Connection, blocking: BlockingCalls) -> None:
    request = request_of(call(), {"query": "stuck"}, "sqlite")
    work = Work(db.interrupt)

    def do() -> Any:
        with db.open():
            return DRIVER.answer(db, request, work, lambda statement: {"rows": [db.execute(statement.text)]})

    with pytest.raises(GivenUp):
        await ends(blocking.run(work, do, 0.05))
    db.free.set()
    assert await asyncio.to_thread(db.closed.wait, LONG)
    assert db.said == ["begin", "stuck"]


async def test_a_connection_is_closed_by_the_thread_that_does_not_give_it_back(
    db: Connection, blocking: BlockingCalls
) -> None:
    async def use() -> None:
        async with SharedConnection(DRIVER, blocking, db.open) as held:
            await held.run(lambda: _late(held))

    using = asyncio.create_task(use())
    assert await asyncio.to_thread(db.began.wait, LONG)
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ends(using)
    assert not db.closed.is_set(), "closing what a thread is in may never return"
    db.free.set()
    assert await asyncio.to_thread(db.closed.wait, LONG)
    assert db.said == ["stuck"]


def _late(held: "SharedConnection[Connection]") -> None:
    held.db.execute("stuck")
    held.check()
    held.db.execute("what cannot be taken back")


class Slow:
    """A connection that is stuck while it opens."""

    def __init__(self, db: Connection) -> None:
        self.db = db

    def __enter__(self) -> Connection:
        self.db.execute("stuck")
        return self.db

    def __exit__(self, *_: object) -> None:
        self.db.closed.set()


async def test_a_connection_that_takes_for_ever_to_open_is_closed_when_it_is_open(
    db: Connection, blocking: BlockingCalls
) -> None:
    async def use() -> None:
        async with SharedConnection(DRIVER, blocking, lambda: Slow(db)):
            raise AssertionError("it never is")

    using = asyncio.create_task(use())
    assert await asyncio.to_thread(db.began.wait, LONG)
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ends(using)
    db.free.set()
    assert await asyncio.to_thread(db.closed.wait, LONG)


async def test_a_connection_is_closed_after_its_use_and_after_a_failure(
    db: Connection, blocking: BlockingCalls
) -> None:
    async with SharedConnection(DRIVER, blocking, db.open) as held:
        await held.run(lambda: held.db.execute("one"))
        assert not db.closed.is_set()
    assert db.closed.is_set()
    db.closed.clear()
    with pytest.raises(ToolFailed):
        async with SharedConnection(DRIVER, blocking, db.open) as held:
            db.free.set()
            await held.run(lambda: _fails_at_last(held.db))
    assert db.closed.is_set()


async def test_when_too_many_do_not_end_no_more_are_begun(db: Connection) -> None:
    blocking = BlockingCalls("stuck", 0.0)
    calls = (blocking.run(Work(), lambda: db.execute("stuck"), 0.01) for _ in range(THREADS))
    assert {type(each) for each in await asyncio.gather(*calls, return_exceptions=True)} == {GivenUp}
    with pytest.raises(ToolFailed) as caught:
        await blocking.run(Work(), lambda: 7, None)
    assert caught.value.fault.kind == "db_connection" and caught.value.fault.retryable
    assert caught.value.fault.message.startswith(f"{THREADS} calls of stuck do not end, though they were interrupted")
    db.free.set()
    for _ in range(1000):
        try:
            assert await blocking.run(Work(), lambda: 7, None) == 7
            return
        except ToolFailed:
            await asyncio.sleep(0.02)
    raise AssertionError("those that have ended are not forgotten")


async def test_a_step_says_that_its_statement_could_not_be_stopped_and_the_next_one_has_a_connection(
    db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = sqlite.sqlite_tool()
    tool.blocking.patience, tool.blocking.name = PATIENCE, "stuck"
    with monkeypatch.context() as patch:
        patch.setattr(sqlite, "SqliteFile", lambda *_: db.open())
        patch.setattr(sqlite, "_one", lambda db, _, statement: db.execute(statement.text))
        fault = await ends(fault_of(tool, call(None, {"query": "stuck", "timeout": 0.05})))
    assert (fault.kind, fault.code, fault.retryable) == ("db_timeout", "SQLITE_INTERRUPT", True)
    assert fault.message == "not done within 0.05 s; the statement could not be stopped, and nobody waits for it"
    assert (await tool(call(None, {"query": "select 1 as n"})))["rows"] == [{"n": 1}]


EXIT = """
import asyncio, threading
from refold.tools.sql.driver import BlockingCalls, GivenUp, Work

async def main() -> None:
    try:
        await BlockingCalls("stuck", 0.1).run(Work(), threading.Event().wait, 0.1)
    except GivenUp:
        print("gave up")

asyncio.run(main())
"""


def test_no_exit_waits_for_a_thread_that_was_given_up() -> None:
    done = subprocess.run([sys.executable, "-c", EXIT], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, b"gave up\n"), done.stderr
