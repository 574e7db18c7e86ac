"""The places of a worker: it claims only what it can start, and nothing that was passed over is forgotten."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from refold.core.commands import Command
from refold.ports import Abilities, Done, Lease, ToolCall
from refold.worker.loop import BodyPlaces
from tests.worker.test_loop import HandDesk, until, working

LIMITS = {"interpreter": 2}


def lease(command: str, executor: str = "") -> Lease:
    order = Command(id=command, step="a", visit=1, attempt=1, tool="tool", executor=executor)
    return Lease(run="r", command=order, worker="w", generation=1, until=0, claimed_at=0, plan="p")


class ChoosyDesk(HandDesk):
    """Gives out the first lease for which the worker says that it has a place."""

    def __init__(self, *waiting: Lease) -> None:
        super().__init__()
        self.waiting = list(waiting)
        self.places: Mapping[str, int] = {}

    async def claim(self, can: Abilities, lease_for: float) -> Lease | None:
        self.places = dict(can.places)
        return await super().claim(can, lease_for)

    async def settle(self, lease: Lease, done: Done, then: Abilities | None = None) -> Lease | None:
        self.places = dict(then.places) if then is not None else {}
        return await super().settle(lease, done, then)

    def _lease(self) -> Lease | None:
        for at, each in enumerate(self.waiting):
            if self.places.get(each.command.executor, 1) > 0:
                self.waiting = [each, *self.waiting[:at], *self.waiting[at + 1 :]]
                return super()._lease()
        return None


class NamedBodies:
    """Bodies that run until they are let go, each by its name."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.most = 0  # interpreters at a time
        self.go: dict[str, asyncio.Event] = {}

    async def __call__(self, call: ToolCall) -> Any:
        name = call.command.id
        self.running.add(name)
        self.most = max(self.most, len([each for each in self.running if each.startswith("code")]))
        try:
            await self.go.setdefault(name, asyncio.Event()).wait()
        finally:
            self.running.discard(name)

    def end(self, *names: str) -> None:
        for name in names:
            self.go.setdefault(name, asyncio.Event()).set()


def codes(count: int) -> Sequence[Lease]:
    return [lease(f"code{n}", "interpreter") for n in range(count)]


async def test_a_worker_claims_no_more_than_it_has_places_for_and_fills_other_slots_with_other_work() -> None:
    desk, bodies = ChoosyDesk(*codes(5), lease("web0"), lease("web1")), NamedBodies()
    async with working(desk, bodies, slots=6, places=LIMITS):
        await until(lambda: bodies.running == {"code0", "code1", "web0", "web1"})
        assert [each.command.id for each in desk.waiting] == ["code2", "code3", "code4"]
        bodies.end(*(f"code{n}" for n in range(5)), "web0", "web1")
        await until(lambda: len(desk.settled) == 7)
    assert bodies.most == 2


async def test_a_place_that_other_work_did_not_use_is_offered_again_at_once() -> None:
    """The end of a `code` brings other work of a higher priority; the place then serves what was passed over."""
    desk, bodies = ChoosyDesk(*codes(2)), NamedBodies()
    async with working(desk, bodies, slots=4, places=LIMITS, poll=3600.0):
        await until(lambda: len(bodies.running) == 2)
        desk.waiting = [lease("web0"), lease("code2", "interpreter")]
        bodies.end("code0")
        await until(lambda: bodies.running == {"code1", "web0", "code2"})
        bodies.end("code1", "code2", "web0")
        await until(lambda: len(desk.settled) == 4)


async def test_a_body_that_fails_or_loses_its_lease_gives_its_place_back() -> None:
    async def raising(call: ToolCall) -> Any:
        raise RuntimeError(call.command.id)

    desk = ChoosyDesk(*codes(9))
    async with working(desk, raising, slots=4, places=LIMITS, poll=3600.0) as worker:
        await until(lambda: len(desk.settled) == 9)
        await until(lambda: not worker.keeper.held)
        assert worker.places.free == LIMITS
        desk.waiting = list(codes(4))
        desk.before["settle"] = desk.held.clear  # whoever settles next has lost its lease
        worker.doorbell.ring()
        await until(lambda: not desk.waiting and not worker.keeper.held)
        assert worker.places.free == LIMITS


def test_places_that_are_reserved_are_not_offered_twice() -> None:
    places = BodyPlaces(LIMITS)
    first, second, third = (places.reserve(1) for _ in range(3))
    assert (first, second, third) == ((("interpreter", 1),), (("interpreter", 1),), (("interpreter", 0),))
    assert places.release(first, "interpreter") is False  # it is in use now
    assert places.release(second) is True  # what the third was refused may be claimed now
    assert places.release(third) is False
    assert places.free == {"interpreter": 1}
    assert places.reserve(5, "interpreter") == (("interpreter", 2),)  # with the one that the caller has
