"""Faults for a simulation: a store that errs, a bell that is not heard, a clock that is off."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from msgspec import Struct

from refold.core.outcomes import SECOND, Instant
from refold.errors import Ambiguous, Unavailable
from refold.ports import Abilities, Lease, Store, StoreTurn, Writes
from refold.testing.loop import Killed, Process


class Rates(Struct):
    """How often each fault happens; a seed draws its own, and some of them are zero."""

    error: float = 0.0  # a store call fails and did nothing
    applied: float = 0.0  # a store call fails and was carried out all the same
    unheard: float = 0.0  # rings lost
    doubled: float = 0.0  # rings heard twice
    crash: float = 0.0  # per step of a process: it dies at an await
    stall: float = 0.0  # per step of a process: it stops for longer than its leases
    skew: float = 0.0  # seconds that a process's clock may be off


def draw_rates(chance: random.Random) -> Rates:
    def rate(most: float) -> float:
        return 0.0 if chance.random() < 0.3 else most * chance.random() ** 2

    return Rates(
        error=rate(0.2),
        applied=rate(0.2),
        unheard=1.0 if chance.random() < 0.15 else rate(0.8),
        doubled=rate(0.5),
        crash=rate(0.02),
        stall=rate(0.01),
        skew=chance.choice([0.0, 0.0, 1.0, 30.0, 600.0]),
    )


class Faults:
    """Draws faults and counts those that happened; `heal` ends them all."""

    def __init__(self, rates: Rates, chance: random.Random) -> None:
        self.rates, self.chance = rates, chance
        self.seen: Counter[str] = Counter()

    def heal(self) -> None:
        self.rates = Rates()

    def strikes(self, kind: str) -> bool:
        rate = getattr(self.rates, kind)
        if rate and self.chance.random() < rate:
            self.seen[kind] += 1
            return True
        return False


class Watch(Protocol):
    """An oracle that looks at every write and every claim."""

    def before_write(self, turn: StoreTurn, writes: Writes) -> None: ...

    def after_claim(self, leases: Sequence[Lease]) -> None: ...


class FaultyStore:
    """A store as one process sees it: any call may fail before or after it was carried out."""

    def __init__(self, store: Store, faults: Faults, process: Process, watch: Watch) -> None:
        self._store, self._faults, self._process, self._watch = store, faults, process, watch

    @contextmanager
    def turn(self, runs: Sequence[str]) -> Iterator[StoreTurn]:
        self._before()
        with self._store.turn(runs) as turn:
            yield WatchedTurn(turn, self._watch)
            if not self._process.alive:
                raise Killed
            if self._faults.strikes("error"):
                raise Unavailable("the commit failed")
        self._after()

    def __getattr__(self, name: str) -> Any:
        """Every other call of the port."""
        call = getattr(self._store, name)

        def faulty(*given: Any, **named: Any) -> Any:
            self._before()
            answer = call(*given, **named)
            self._after()
            return answer

        return faulty

    def _before(self) -> None:
        if not self._process.alive:
            raise Killed
        if self._faults.strikes("error"):
            raise Unavailable("the store does not answer")

    def _after(self) -> None:
        if self._faults.strikes("applied"):
            raise Ambiguous("the answer was lost")


class WatchedTurn:
    """Lets an oracle look at every write before it is made, and at every claim."""

    def __init__(self, turn: StoreTurn, watch: Watch) -> None:
        self._turn, self._watch = turn, watch

    def write(self, writes: Writes) -> None:
        self._watch.before_write(self._turn, writes)
        self._turn.write(writes)

    def claim(self, can: Abilities, lease_for: float, limit: int) -> Sequence[Lease]:
        leases = self._turn.claim(can, lease_for, limit)
        self._watch.after_claim(leases)
        return leases

    def __getattr__(self, name: str) -> Any:
        return getattr(self._turn, name)


class Belfry:
    """One doorbell for all processes; each hears it through its own faults."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.bells: list[FaultyDoorbell] = []

    def ring(self) -> None:
        for bell in self.bells:
            if bell.process.alive and not self.faults.strikes("unheard"):
                bell.hear()


class FaultyDoorbell:
    def __init__(self, belfry: Belfry, process: Process) -> None:
        self.belfry, self.process = belfry, process
        self._rung: asyncio.Event | None = None
        belfry.bells = [bell for bell in belfry.bells if bell.process.alive] + [self]

    def ring(self) -> None:
        self.belfry.ring()

    def hear(self) -> None:
        if self._rung is not None:
            self._rung.set()

    async def wait(self, timeout: float) -> None:
        if self._rung is None:
            self._rung = asyncio.Event()
        try:
            await asyncio.wait_for(self._rung.wait(), timeout)
        except TimeoutError:
            return
        if not self.belfry.faults.strikes("doubled"):
            self._rung.clear()


class SimClock:
    """The wall clock of a process, which may be off; sleeping is not."""

    def __init__(self, process: Process, epoch: Instant) -> None:
        self.process, self.epoch = process, epoch

    def now(self) -> Instant:
        return self.epoch + round(self.process.now() * SECOND)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def advance(work: Callable[[], Any]) -> Any:
    """A turn between two awaits: a process can die before it, or after the commit and before anybody knows."""
    await asyncio.sleep(0)
    answer = work()
    await asyncio.sleep(0)
    return answer
