"""Whoever waits for a run to end hears of it, whichever process ends it, and one look serves all who wait."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from refold.core.plan import Plan, Step, Wait
from refold.core.read.summary import Summary
from refold.core.state import COMPLETED, RUNNING
from refold.errors import Corrupt, NotFound, Unavailable
from refold.runtime.run_waiters import PAGE, RunWaiters
from refold.stores.memory import MemoryStore
from refold.wiring import open_engine

PLAN = Plan(name="p", steps=(Step(name="a", work=Wait(signal="go")),))


class Listed:
    """A store of which only the list matters."""

    def __init__(self) -> None:
        self.status: dict[str, str | Exception] = {}
        self.asked: list[str] = []

    def summary(self, run: str) -> Summary | None:
        self.asked.append(run)
        status = self.status.get(run)
        if isinstance(status, Exception):
            raise status
        return None if status is None else Summary(run, "p", "", status)


class Looks:
    """Counts how often the store is asked."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self, work: Callable[[], Any]) -> Any:
        self.count += 1
        return work()


def ends(store: Listed, looks: Looks) -> RunWaiters:
    return RunWaiters(store, looks, poll=0.01)  # type: ignore[arg-type]


async def test_one_look_serves_all_who_wait() -> None:
    store, looks = Listed(), Looks()
    waiting = ends(store, looks)
    runs = [f"r{n}" for n in range(PAGE + 1)]
    for run in runs:
        store.status[run] = RUNNING
        waiting.expect(run)
        waiting.watch(run)
    while looks.count < 2:
        await asyncio.sleep(0.001)
    assert sorted(store.asked) == sorted(runs)


async def test_what_ended_elsewhere_is_told_without_what_it_left() -> None:
    store, waiting = Listed(), ends(Listed(), Looks())
    waiting.store = store  # type: ignore[assignment]
    store.status = {"r": RUNNING, "s": RUNNING}
    end, other = waiting.expect("r"), waiting.expect("s")
    waiting.watch("r")
    waiting.watch("s")
    store.status["r"] = COMPLETED
    assert await asyncio.wait_for(end, 60) is None
    assert not other.done()


async def test_a_run_that_is_not_there_yet_is_not_asked_for() -> None:
    store = Listed()
    waiting = ends(store, Looks())
    end = waiting.expect("new")
    store.status["old"] = RUNNING
    waiting.expect("old")
    waiting.watch("old")
    while len(store.asked) < 3:
        await asyncio.sleep(0.001)
    assert not end.done() and "new" not in store.asked


@pytest.mark.parametrize("trouble", [None, Corrupt("damaged")])
async def test_what_is_wrong_with_one_run_is_told_to_those_who_wait_for_it(trouble: Exception | None) -> None:
    store = Listed()
    waiting = ends(store, Looks())
    store.status = {"good": RUNNING} if trouble is None else {"good": RUNNING, "bad": trouble}
    bad, good = waiting.expect("bad"), waiting.expect("good")
    waiting.watch("bad")
    waiting.watch("good")
    with pytest.raises(NotFound if trouble is None else Corrupt):
        await asyncio.wait_for(bad, 60)
    assert not good.done()


async def test_a_store_that_does_not_answer_is_asked_again() -> None:
    store = Listed()
    waiting = ends(store, Looks())
    store.status["r"] = Unavailable("disk full")
    end = waiting.expect("r")
    waiting.watch("r")
    while len(store.asked) < 2:
        await asyncio.sleep(0.001)
    store.status["r"] = COMPLETED
    assert await asyncio.wait_for(end, 60) is None


async def test_nobody_is_asked_for_once_nobody_waits() -> None:
    store = Listed()
    waiting = ends(store, Looks())
    store.status["r"] = RUNNING
    end = waiting.expect("r")
    waiting.watch("r")
    waiting.forget("r", end)
    await asyncio.sleep(0.05)
    assert store.asked == []


async def test_a_run_that_another_process_ends_is_heard_of() -> None:
    store = MemoryStore(lambda: 1)
    async with open_engine(store=store) as one, open_engine(store=store) as two:
        two.ends.poll = 0.01
        run = (await one.start(PLAN)).id
        waiting = [asyncio.create_task(two.result(run)) for _ in range(2)]
        await asyncio.sleep(0.03)
        await one.signal(run, "go", "value")
        results = await asyncio.wait_for(asyncio.gather(*waiting), 60)
    assert [result["value"] for result in results] == ["value", "value"]
