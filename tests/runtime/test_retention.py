"""Runs that are over are removed as the settings say: too old, too many, by workflow and status."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from refold.core.plan import Arc, Child, Fail, Wait, plan_hash
from refold.core.retention import Retention, RetentionRule
from refold.errors import RunFailed
from refold.plan import Plan, Step
from refold.ports import RunFilter, Store
from refold.queries.runs import list_runs
from refold.runtime.retention import BATCH, OldRuns, runs_to_remove
from refold.settings import Settings
from refold.stores.memory import MemoryStore
from refold.stores.sqlite.store import SqliteStore
from refold.wiring import Process, open_process
from tests.contracts.stores import FakeClock

DAY = 86_400.0
PLAIN, OTHER = (Plan(name=name, steps=(Step(name="a"),)) for name in ("plain", "other"))
FAILS = Plan(name="plain", steps=(Step(name="a", work=Fail("wrong", "it is wrong")),))


@asynccontextmanager
async def opened(store: Store) -> AsyncIterator[Process]:
    async with open_process(store=store) as process:
        yield process


async def removed(store: Store, clock: FakeClock, retention: Retention) -> list[str]:
    """Remove what the rules do not keep; return the names of the runs that are left, the newest first."""

    async def advance(work: Callable[[], object]) -> object:
        return work()

    await OldRuns(store, advance, _Clock(clock), retention, 60.0).once()
    return [row.name for row in list_runs(store.views)]


class _Clock:
    def __init__(self, clock: FakeClock) -> None:
        self.now, self.sleep = clock, asyncio.sleep


async def made(store: Store, clock: FakeClock, *runs: tuple[str, Plan]) -> None:
    """Run these one after the other, a day apart."""
    async with opened(store) as process:
        for name, plan in runs:
            try:
                await process.engine.options(name=name).run(plan)
            except RunFailed:
                assert plan is FAILS
            clock.elapse(DAY)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def test_runs_that_ended_long_ago_are_removed(clock: FakeClock) -> None:
    store = MemoryStore(clock, clock.steady)
    await made(store, clock, ("one", PLAIN), ("two", OTHER), ("three", PLAIN))
    assert await removed(store, clock, Retention()) == ["three", "two", "one"]
    assert await removed(store, clock, Retention(age="2d")) == ["three"]


async def test_the_newest_are_kept_up_to_a_count(clock: FakeClock) -> None:
    store = MemoryStore(clock, clock.steady)
    await made(store, clock, *((name, PLAIN) for name in "abcde"))
    assert await removed(store, clock, Retention(count=4, age="10d")) == ["e", "d", "c", "b"]
    assert await removed(store, clock, Retention(count=2)) == ["e", "d"]


async def test_a_rule_can_be_for_some_statuses_only(clock: FakeClock) -> None:
    store = MemoryStore(clock, clock.steady)
    await made(store, clock, ("good", PLAIN), ("bad", FAILS), ("better", PLAIN))
    assert await removed(store, clock, Retention(age="1d", status=("completed",))) == ["bad"]


async def test_a_workflow_can_have_a_rule_of_its_own(clock: FakeClock) -> None:
    store = MemoryStore(clock, clock.steady)
    await made(store, clock, ("a", PLAIN), ("b", OTHER), ("c", PLAIN), ("d", OTHER))
    own = {"other": RetentionRule(count=1)}
    assert await removed(store, clock, Retention(age="1d", workflow=own)) == ["d"]
    assert list(runs_to_remove(store.views, Retention(age="1s", workflow={"other": RetentionRule()}), clock())) == []


async def test_a_run_that_is_not_over_and_its_children_are_kept(clock: FakeClock) -> None:
    store = MemoryStore(clock, clock.steady)
    child = Plan(name="child", steps=(Step(name="a"),))
    async with opened(store) as process:
        await process.engine.register(child)
        first = Step(name="a", work=Child(plan_hash(child)), arcs=(Arc(to="b"),))
        parent = Plan(name="parent", steps=(first, Step(name="b", work=Wait(signal="go"))))
        handle = await process.engine.options(name="parent").start(parent)
        while not list(list_runs(store.views, RunFilter(status="completed"))):
            await asyncio.sleep(0.01)
        clock.elapse(10 * DAY)
        assert len(await removed(store, clock, Retention(age="1d"))) == 2
        await handle.signal("go")
        await handle.result()
        clock.elapse(10 * DAY)
    assert await removed(store, clock, Retention(age="1d")) == []


async def test_a_process_that_serves_every_run_removes_in_commits_of_a_few_runs(tmp_path: Path) -> None:
    settings = Settings(retention=Retention(age="0s"), retention_every=0.05)
    clock = FakeClock()
    store = SqliteStore(tmp_path / "refold.db", clock)
    try:
        await made(store, clock, *((f"r{n}", PLAIN) for n in range(BATCH + 5)))
        async with open_process(store=store, settings=settings):
            while list(list_runs(store.views)):
                await asyncio.sleep(0.01)
        async with open_process(store=store, settings=settings, only="x") as one:
            assert one.old_runs is None  # a process that serves one run leaves the others alone
    finally:
        store.close()


def test_a_wrong_rule_is_refused() -> None:
    with pytest.raises(Exception, match="no duration"):
        RetentionRule(age="soon")
    with pytest.raises(ValueError, match="`count` is a number of runs"):
        RetentionRule(count=-1)


@pytest.mark.parametrize(
    ("seconds", "age"),
    [(2_000, 400.0), pytest.param(604_800, DAY, marks=[pytest.mark.proof, pytest.mark.timeout(7200)])],
    ids=["2,000 seconds", "a week"],
)
async def test_the_file_stays_bounded_at_one_run_a_second(seconds: int, age: float, tmp_path: Path) -> None:
    """The clock is moved by a second for each run. After the first runs were removed, the file does not grow any more:
    their space is used again."""
    clock = FakeClock()
    store = SqliteStore(tmp_path / "refold.db", clock)
    every, sizes = round(age / 10), list[int]()
    try:
        async with opened(store) as process:
            for number in range(seconds):
                await process.engine.run(PLAIN, number=number)
                clock.elapse(1)
                if number % every == 0:
                    await removed(store, clock, Retention(age=f"{age:g}s"))
                    sizes.append(store.views.health().size)
                    assert store.views.count()[0] <= age + every + 1
    finally:
        store.close()
    full = sizes[12]  # as much as is kept has come in
    assert max(sizes[12:]) <= 1.25 * full
