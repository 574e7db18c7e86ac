"""Mail that waits for nobody, and mail that shares a commit."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from refold.core.plan import Arc, Call, Plan, Step
from refold.ports import Offer, ToolCall
from refold.runtime import turn_thread
from refold.runtime.mailroom import AT_ONCE
from refold.runtime.turn import Delivery, TurnResult
from refold.wiring import Process, open_process


def nothing() -> None:
    return None


class Batches:
    """How many posts each turn of a process took, and whether it was taken before `send` let go of the loop."""

    def __init__(self, process: Process) -> None:
        self.sizes: list[int] = []
        self.at_once = 0
        mailroom = process.engine.mailroom
        commit, at_once = mailroom.turns.commit, mailroom.at_once

        def counted(posts: Sequence[Delivery], offer: Callable[[], Offer | None] = nothing) -> TurnResult:
            self.sizes.append(len(posts))
            return commit(posts, offer)

        def noted(work: Any) -> tuple[bool, Any]:
            done, result = at_once(work)
            self.at_once += done
            return done, result

        mailroom.turns.commit = counted  # type: ignore[method-assign]
        mailroom.at_once = noted


@pytest.fixture
async def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Process]:
    monkeypatch.setattr(turn_thread, "SHORT", 2.0)

    async def meet(call: ToolCall) -> Any:
        """Ends when all of them are under way."""
        gate.append(call.command.id)
        while len(gate) < call.input:
            await asyncio.sleep(0)
        return call.input

    gate: list[str] = []
    async with open_process({"meet": meet}, db=tmp_path / "refold.db") as process:
        await process.engine.run(chain(1))  # what is done once is done
        yield process


def chain(length: int) -> Plan:
    arcs = [(Arc(to=f"s{n + 1}"),) for n in range(length - 1)] + [()]
    return Plan(name="chain", steps=tuple(Step(name=f"s{n}", arcs=arcs[n]) for n in range(length)))


def abreast(width: int) -> Plan:
    """Steps that end in the same moment."""
    steps = [Step(name=f"s{n}", work=Call(tool="meet"), input=width) for n in range(width)]
    first = Step(name="first", mode="inclusive", arcs=tuple(Arc(to=step.name) for step in steps))
    return Plan(name="abreast", steps=(first, *steps))


async def test_the_reports_of_a_lone_worker_go_at_once(process: Process) -> None:
    batches = Batches(process)
    await process.engine.run(chain(5))
    assert batches.sizes == [1] * 6
    assert batches.at_once == 5, "all but the start"


async def test_after_so_many_in_a_row_everybody_else_has_a_go(process: Process) -> None:
    batches, others = Batches(process), 0

    async def other() -> None:
        nonlocal others
        while True:
            await asyncio.sleep(0)
            others += 1

    length = 3 * (AT_ONCE + 1)
    beside = asyncio.create_task(other())
    await process.engine.run(chain(length))
    beside.cancel()
    assert batches.at_once == length - 3
    assert others >= 3


async def test_reports_of_two_busy_slots_share_a_commit(process: Process) -> None:
    batches = Batches(process)
    await process.engine.run(abreast(8))
    assert max(batches.sizes) >= 7
    assert batches.at_once <= 2, "that of the first step, and the last one of the others if it comes alone"


async def test_what_a_report_at_once_issues_is_leased_in_the_same_commit(process: Process) -> None:
    batches = Batches(process)
    await process.engine.run(abreast(8))
    assert len(batches.sizes) <= 4, "the start, the first step, and those abreast; no claim has a turn of its own"


async def test_an_error_of_the_turn_reaches_whoever_reports_and_gives_back_the_slots(process: Process) -> None:
    mailroom = process.engine.mailroom
    commit, failed = mailroom.turns.commit, 0

    def fails_once(posts: Sequence[Delivery], offer: Callable[[], Offer | None] = nothing) -> TurnResult:
        nonlocal failed
        if not failed and process.worker.is_alone():
            failed += 1
            offer()  # somebody asked, and then it went wrong
            raise ZeroDivisionError
        return commit(posts, offer)

    mailroom.turns.commit = fails_once  # type: ignore[method-assign]
    with pytest.raises(Exception, match="s0"):
        await process.engine.run(chain(2))
    assert failed == 1
    assert await process.engine.run(abreast(8)) is not None
    assert process.worker.offer() is not None
