"""A process whose service has broken down says so, instead of letting its callers wait for ever."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import pytest

from refold.core.plan import Call
from refold.errors import Corrupt
from refold.plan import Plan, Step
from refold.settings import Settings
from refold.stores.memory import MemoryStore, MemoryTurn
from refold.wiring import open_process

PLAN = Plan(name="one", steps=(Step(name="a"),))


class Damaged(MemoryStore):
    """Takes runs, and finds itself damaged when a worker wants to claim."""

    @contextmanager
    def turn(self, runs: Sequence[str]) -> Iterator[Any]:
        with super().turn(runs) as turn:
            yield _Turn(turn)


class _Turn:
    def __init__(self, turn: Any) -> None:
        self._turn = turn

    def ask(self, *_: object) -> NoReturn:
        raise Corrupt("the file is damaged")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._turn, name)


async def test_a_caller_learns_why_nobody_serves_any_more() -> None:
    with pytest.raises(Corrupt, match="damaged"):
        async with asyncio.timeout(60), open_process(store=Damaged(lambda: time.time_ns() // 1000)) as process:
            await process.engine.run(PLAN)


class Breaking(MemoryStore):
    """Is damaged from some moment on."""

    broken = False

    @contextmanager
    def turn(self, runs: Sequence[str]) -> Iterator[MemoryTurn]:
        if self.broken and not runs:
            raise Corrupt("the file is damaged")
        with super().turn(runs) as turn:
            yield turn


async def test_a_service_that_breaks_down_does_not_cancel_the_run_that_somebody_waits_for() -> None:
    store = Breaking(lambda: time.time_ns() // 1000)

    async def hang(call: Any) -> None:
        store.broken = True
        await asyncio.sleep(3600)

    plan = Plan(name="p", steps=(Step(name="a", work=Call(tool="hang")),))
    with pytest.raises(Corrupt, match="damaged"):
        async with (
            asyncio.timeout(60),
            open_process({"hang": hang}, store=store, settings=Settings(poll=0.05)) as process,
        ):
            await process.engine.options(cancel_with_caller=True).run(plan)
    store.broken = False
    [row] = store.views.runs().rows
    assert row.status == "running"
