"""The worker against a desk that the test holds in its hands: what it takes, keeps, reports and gives back."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from refold.core.commands import Command
from refold.core.outcomes import Failed, Outcome, Succeeded
from refold.doorbells.local import LocalDoorbell
from refold.errors import Ambiguous, Corrupt, LeaseLost, Unavailable
from refold.ports import Abilities, Done, Lease, Memory, Place, ToolCall
from refold.wiring import WallClock
from refold.worker.leases import Beat, LeaseKeeper, as_task, on_thread, place
from refold.worker.loop import Worker, WorkerOptions
from refold.worker.run_tool import run_tool


def lease(command: str = "a/1", generation: int = 1) -> Lease:
    order = Command(id=command, step="a", visit=1, attempt=1, tool="tool")
    return Lease(run="r", command=order, worker="w", generation=generation, until=0, claimed_at=0, plan="p")


class HandDesk:
    """Leases are what the test puts there; each call may be made to wait or to fail."""

    def __init__(self) -> None:
        self.waiting: list[Lease] = []
        self.held: dict[Any, Lease] = {}
        self.settled: list[tuple[str, Done]] = []
        self.handed_back: list[str] = []
        self.lost: list[str] = []  # given up
        self.beats = 0
        self.before: dict[str, Callable[[], Any]] = {}  # what happens first, by the name of the call

    async def claim(self, can: Abilities, lease_for: float) -> Lease | None:
        found = self._lease()
        await self._first("claim")
        return found

    async def settle(self, lease: Lease, done: Done, then: Abilities | None = None) -> Lease | None:
        if place(lease) not in self.held:
            raise LeaseLost("it is another's")
        del self.held[place(lease)]
        self.settled.append((lease.command.id, done))
        found = self._lease() if then is not None else None
        await self._first("settle")
        return found

    async def extend(self, worker: str, lease_for: float, left: Mapping[Place, float] = {}) -> Sequence[Lease]:
        self.beats += 1
        await self._first("extend")
        return list(self.held.values())

    async def leases_of(self, worker: str) -> Sequence[Lease]:
        await self._first("leases_of")
        return list(self.held.values())

    async def hand_back(self, lease: Lease, lost: bool = False) -> None:
        await self._first("hand_back")
        if self.held.pop(place(lease), None) is not None:
            (self.lost if lost else self.handed_back).append(lease.command.id)

    async def publish(self, lease: Lease, lines: Sequence[Any]) -> None: ...

    async def recall(self, lease: Lease) -> Memory:
        return Memory()

    async def record(self, lease: Lease, key: str, outcome: Outcome) -> None: ...

    async def expect(self, lease: Lease, calls: Sequence[Any]) -> None: ...

    async def wake(self, lease: Lease) -> None: ...

    async def interrupted(self, leases: Sequence[Lease]) -> Sequence[Place]:
        return ()

    def _lease(self) -> Lease | None:
        if not self.waiting:
            return None
        found = self.waiting.pop(0)
        self.held[place(found)] = found
        return found

    async def _first(self, call: str) -> None:
        if call in self.before:
            answer = self.before[call]()
            if answer is not None:
                await answer


class Bodies:
    """A tool that notes what began and ended, and holds until it is let go."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.ended: list[str] = []
        self.go = asyncio.Event()

    async def __call__(self, call: ToolCall) -> Any:
        self.began.append(call.command.id)
        try:
            await self.go.wait()
            return call.command.id
        finally:
            self.ended.append(call.command.id)


@asynccontextmanager
async def working(
    desk: HandDesk, tool: Any, settings: Callable[[Lease], Awaitable[Mapping[str, Any]]] | None = None, **more: Any
) -> AsyncIterator[Worker]:
    async def nothing(_: Lease) -> Mapping[str, Any]:
        return {}

    options = WorkerOptions(**{"lease_for": 0.15, "poll": 0.05, "patience": 0.2, **more})
    worker = Worker(desk, {"tool": tool}, settings or nothing, WallClock(), LocalDoorbell(), Abilities("w"), options)
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        await worker.stop()
        running.cancel()
        await asyncio.wait([running])


async def until(holds: Callable[[], Any], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.005)


async def soon(holds: Callable[[], Any]) -> None:
    """For what needs turns of the event loop alone, and neither time nor a thread."""
    for _ in range(5_000):
        if holds():
            return
        await asyncio.sleep(0)
    assert holds()


async def test_one_settlement_after_the_other_brings_the_next_command() -> None:
    desk, bodies = HandDesk(), Bodies()
    bodies.go.set()
    desk.waiting = [lease(f"a/{i}") for i in range(1, 6)]
    async with working(desk, bodies, slots=1):
        await until(lambda: len(desk.settled) == 5)
    assert [done.outcome for _, done in desk.settled] == [Succeeded(f"a/{i}") for i in range(1, 6)]
    assert desk.held == {}


async def test_a_command_whose_claim_comes_in_after_the_stop_is_handed_back_unbegun() -> None:
    desk, bodies, answered = HandDesk(), Bodies(), asyncio.Event()
    desk.before["claim"] = answered.wait
    desk.waiting = [lease()]
    async with working(desk, bodies) as worker:
        await until(lambda: desk.held)
        stopping = asyncio.create_task(worker.stop(grace=60.0))
        await asyncio.sleep(0.01)
        answered.set()
        await until(lambda: desk.handed_back or bodies.began)
        assert (desk.handed_back, bodies.began) == (["a/1"], [])
        await stopping


async def test_a_command_that_a_settlement_brings_after_the_stop_is_handed_back_unbegun() -> None:
    desk, bodies, answered = HandDesk(), Bodies(), asyncio.Event()
    bodies.go.set()
    desk.before["settle"] = answered.wait
    desk.waiting = [lease("a/1")]
    async with working(desk, bodies, slots=1) as worker:
        desk.waiting.append(lease("a/2"))
        await until(lambda: desk.settled)
        stopping = asyncio.create_task(worker.stop())
        await asyncio.sleep(0.02)
        answered.set()
        await stopping
        assert (desk.handed_back, bodies.began) == (["a/2"], ["a/1"])
        assert [done.outcome for _, done in desk.settled] == [Succeeded("a/1")], "a report under way is not cut off"


async def test_a_stop_that_comes_before_a_body_has_begun_hands_its_command_back() -> None:
    desk, bodies = HandDesk(), Bodies()
    desk.waiting = [lease()]
    async with working(desk, bodies) as worker:
        while not worker.keeper.held:
            await asyncio.sleep(0)
        await worker.stop()
        assert desk.handed_back == ["a/1"] and desk.held == {}


async def test_within_the_grace_a_body_finishes_and_its_lease_is_kept_alive() -> None:
    desk, bodies = HandDesk(), Bodies()
    desk.waiting = [lease()]
    async with working(desk, bodies) as worker:
        await until(lambda: bodies.began)
        stopping = asyncio.create_task(worker.stop(grace=60.0))
        before = desk.beats
        await until(lambda: desk.beats >= before + 3 or worker._over.is_set())
        assert not worker._over.is_set()
        bodies.go.set()
        await stopping
        assert desk.handed_back == [] and len(desk.settled) == 1


async def test_after_the_grace_a_body_is_cancelled_and_its_command_handed_back() -> None:
    desk, bodies = HandDesk(), Bodies()
    desk.waiting = [lease()]
    async with working(desk, bodies) as worker:
        await until(lambda: bodies.began)
        await worker.stop(grace=0.05)
        assert (bodies.ended, desk.handed_back, desk.settled) == (["a/1"], ["a/1"], [])


async def test_the_command_of_a_body_that_will_not_end_is_handed_back_all_the_same() -> None:
    desk, go = HandDesk(), asyncio.Event()

    async def stubborn(call: ToolCall) -> Any:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    desk.waiting = [lease()]
    async with working(desk, stubborn) as worker:
        await until(lambda: worker.keeper.held)
        await asyncio.sleep(0.02)
        await worker.stop()
        assert desk.handed_back == ["a/1"]
        go.set()


async def test_stopping_a_worker_that_never_ran_is_no_trouble() -> None:
    desk = HandDesk()
    async with working(desk, Bodies()) as worker:
        pass
    await worker.stop()
    assert not worker.keeper.held and not desk.handed_back


@pytest.mark.parametrize("heartbeat", [as_task, on_thread])
async def test_a_lease_that_a_heartbeat_does_not_return_ends_its_body_and_frees_the_slot(heartbeat: Any) -> None:
    desk, bodies = HandDesk(), Bodies()
    desk.waiting = [lease("a/1")]
    async with working(desk, bodies, slots=1, heartbeat=heartbeat, poll=3600.0):
        await until(lambda: bodies.began)
        desk.waiting.append(lease("a/2"))
        desk.held.clear()
        before = desk.beats
        await until(lambda: bodies.ended or desk.beats > before + 3)
        await soon(lambda: bodies.ended == ["a/1"])
        await until(lambda: bodies.began == ["a/1", "a/2"])  # without waiting for the next poll
    assert [command for command, _ in desk.settled] == []


@pytest.mark.parametrize("heartbeat", [as_task, on_thread])
@pytest.mark.parametrize("error", [Unavailable("away"), Ambiguous("perhaps"), Corrupt("bad")])
async def test_a_heartbeat_that_fails_is_followed_by_the_next(heartbeat: Any, error: Exception) -> None:
    desk, bodies = HandDesk(), Bodies()

    def fail() -> None:
        if desk.beats <= 2:
            raise error

    desk.before["extend"] = fail
    desk.waiting = [lease()]
    async with working(desk, bodies, heartbeat=heartbeat):
        await until(lambda: desk.beats >= 4)
        assert bodies.ended == []


async def test_a_bug_in_the_heartbeat_is_told_and_costs_one_beat() -> None:
    desk, bodies = HandDesk(), Bodies()
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

    def fail() -> None:
        if desk.beats == 1:
            raise ZeroDivisionError

    desk.before["extend"] = fail
    async with working(desk, bodies, heartbeat=on_thread):
        await until(lambda: desk.beats >= 3)
    assert [type(each["exception"]) for each in told] == [ZeroDivisionError]


async def test_the_thread_of_the_heartbeat_ends_with_the_worker() -> None:
    desk, bodies = HandDesk(), Bodies()
    async with working(desk, bodies, heartbeat=on_thread):
        await until(lambda: desk.beats)
    beats = desk.beats
    await asyncio.sleep(0.15)
    assert desk.beats == beats


async def test_a_lease_whose_answer_was_lost_is_given_back() -> None:
    desk, bodies = HandDesk(), Bodies()

    def lose() -> None:
        if desk.held and not desk.handed_back:
            raise Ambiguous("the answer was lost")

    desk.before["claim"] = lose
    desk.waiting = [lease()]
    async with working(desk, bodies):
        await until(lambda: desk.handed_back == ["a/1"])
    assert bodies.began == []


async def test_a_lease_is_not_given_back_while_a_call_may_still_bring_it() -> None:
    desk, bodies, answered = HandDesk(), Bodies(), asyncio.Event()
    desk.before["claim"] = answered.wait
    desk.waiting = [lease()]
    async with working(desk, bodies):
        await until(lambda: desk.beats >= 4)
        assert desk.handed_back == []
        answered.set()
        await until(lambda: bodies.began == ["a/1"])


async def test_beats_that_pile_up_behind_a_blocked_loop_give_nothing_back_that_is_on_its_way() -> None:
    desk = HandDesk()
    keeper = LeaseKeeper(desk, WallClock(), "w", 1.0)
    asking = keeper.begin_asking()
    beat = Beat((), {place(lease()): lease()})
    for _ in range(3):
        keeper.hear(beat)
    keeper.hold(lease())
    keeper.end_asking(asking)
    keeper.hear(beat)
    await asyncio.sleep(0)
    assert desk.handed_back == []


async def test_a_report_under_way_is_not_cut_off_by_a_heartbeat_that_no_longer_finds_its_lease() -> None:
    desk, bodies, answered = HandDesk(), Bodies(), asyncio.Event()
    bodies.go.set()
    desk.before["settle"] = answered.wait  # committed, but the answer takes its time
    desk.waiting = [lease("a/1"), lease("a/2")]
    async with working(desk, bodies, slots=1):
        await until(lambda: desk.settled)
        before = desk.beats
        await until(lambda: desk.beats >= before + 3)
        answered.set()
        await until(lambda: len(desk.settled) == 2)
    assert desk.handed_back == []


async def test_a_body_that_raises_cancelled_by_itself_has_failed() -> None:
    desk = HandDesk()

    async def gives_up(call: ToolCall) -> Any:
        raise asyncio.CancelledError

    desk.waiting = [lease()]
    async with working(desk, gives_up):
        await until(lambda: desk.settled)
    [(_, done)] = desk.settled
    assert isinstance(done.outcome, Failed)


async def test_a_slot_whose_report_brought_nothing_does_not_ask_again() -> None:
    desk, bodies, asked = HandDesk(), Bodies(), 0

    def ask() -> None:
        nonlocal asked
        asked += 1

    bodies.go.set()
    desk.before["claim"] = ask
    async with working(desk, bodies, slots=2, poll=3600.0) as worker:
        await until(lambda: asked == 1)
        desk.waiting = [lease("a/1")]
        worker.doorbell.ring()
        await until(lambda: len(desk.settled) == 1)
        await until(lambda: asked >= 3)
        await asyncio.sleep(0.05)
    assert asked == 3, "one at the start, one that found it, one that found nothing more; its report was the fourth"


def lend(desk: HandDesk, worker: Worker, command: str) -> None:
    """A turn issues the command and leases it to this worker, as it was offered."""
    found, offer = lease(command), worker.offer()
    assert offer is not None
    desk.held[place(found)] = found
    worker.accept(offer, [found])


async def test_what_came_while_no_slot_was_free_is_taken_when_one_falls_free() -> None:
    desk, bodies, asked = HandDesk(), Bodies(), asyncio.Event()
    desk.before["claim"] = asked.set
    async with working(desk, bodies, slots=1, poll=3600.0) as worker:
        await until(asked.is_set)
        lend(desk, worker, "a/1")

        def settled() -> None:  # behind the claim of the report, before its slot is free
            del desk.before["settle"]
            desk.waiting.append(lease("a/2"))
            assert worker.offer() is None

        desk.before["settle"] = settled
        bodies.go.set()
        await soon(lambda: bodies.began == ["a/1", "a/2"])


async def test_a_slot_that_lost_its_lease_looks_for_another_command() -> None:
    desk, bodies, asked = HandDesk(), Bodies(), asyncio.Event()
    desk.before["claim"] = asked.set
    async with working(desk, bodies, slots=1, poll=3600.0, lease_for=3600.0) as worker:
        await until(asked.is_set)
        lend(desk, worker, "a/1")
        await until(lambda: bodies.began == ["a/1"])
        desk.held.clear()
        desk.waiting = [lease("a/2")]
        bodies.go.set()
        await soon(lambda: len(bodies.began) > 1)
        assert bodies.began == ["a/1", "a/2"] and desk.waiting == []


async def test_a_worker_that_cannot_learn_what_a_command_needs_gives_it_up_as_a_loss() -> None:
    async def settings(_: Lease) -> Mapping[str, Any]:
        raise KeyError("step")

    desk, bodies = HandDesk(), Bodies()
    desk.waiting = [lease()]
    async with working(desk, bodies, settings=settings):
        await until(lambda: desk.lost or desk.handed_back)
    assert (desk.lost, desk.handed_back, bodies.began) == (["a/1"], [], [])


async def test_a_report_that_is_refused_twice_gives_the_command_up_as_a_loss() -> None:
    desk, bodies = HandDesk(), Bodies()
    bodies.go.set()
    desk.waiting = [lease()]

    async def refuse(lease: Lease, done: Done, then: Abilities | None = None) -> Lease | None:
        raise KeyError("a bug")

    desk.settle = refuse  # type: ignore[method-assign]
    async with working(desk, bodies):
        await until(lambda: desk.lost or desk.handed_back)
    assert (desk.lost, desk.handed_back, bodies.began) == (["a/1"], [], ["a/1"])


async def test_a_slot_that_somebody_else_cancels_gives_its_command_up_as_a_loss() -> None:
    desk, bodies = HandDesk(), Bodies()
    desk.waiting = [lease()]
    async with working(desk, bodies) as worker:
        await until(lambda: bodies.began)
        for task in list(worker._busy):
            task.cancel()
        await soon(lambda: desk.lost)
        assert (desk.lost, desk.handed_back, bodies.ended) == (["a/1"], [], ["a/1"])


async def test_a_store_that_cannot_be_asked_what_a_command_needs_costs_a_hand_back_and_no_loss() -> None:
    async def settings(_: Lease) -> Mapping[str, Any]:
        raise Unavailable("locked")

    desk, bodies = HandDesk(), Bodies()
    desk.waiting = [lease()]
    async with working(desk, bodies, settings=settings):
        await until(lambda: desk.handed_back)
    assert (desk.lost, desk.handed_back) == ([], ["a/1"])


async def test_a_real_ctrl_c_is_no_failure_of_the_body_it_reaches() -> None:
    async def interrupted(call: ToolCall) -> None:
        signal.raise_signal(signal.SIGINT)
        for _ in range(1000):
            pass

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            await run_tool(lease(), {}, {"tool": interrupted}, WallClock())
    finally:
        signal.signal(signal.SIGINT, before)
