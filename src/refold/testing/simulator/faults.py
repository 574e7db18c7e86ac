"""Faults for a simulation: a store that fails, a doorbell that is not heard, a clock that is off, code that raises."""

import asyncio
import builtins
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from msgspec import Struct

from refold.core.commands import Command, Held
from refold.core.decide.decision import Decision
from refold.core.expressions import Evaluate, Path, TemplateScope
from refold.core.facts import Fact, Move
from refold.core.outcomes import SECOND, Instant
from refold.errors import Ambiguous, Conflict, InvalidValue, NotFound, RefoldError, Unavailable
from refold.ports import Abilities, ClaimRequest, Hint, Lease, Store, StoreTurn, Tool, ToolCall, Views, Writes
from refold.testing.simulator.event_loop import Killed, SimProcess


class Rates(Struct):
    """How often each fault happens; a seed draws its own, and some of them are zero."""

    error: float = 0.0  # a store call fails and did nothing
    applied: float = 0.0  # a store call fails and was carried out all the same
    unheard: float = 0.0  # rings lost
    doubled: float = 0.0  # rings heard twice
    crash: float = 0.0  # per step of a process: it dies at an await
    stall: float = 0.0  # per step of a process: it stops for longer than its leases
    skew: float = 0.0  # seconds that a process's clock may be off
    expression: float = 0.0  # a call of `Evaluate` raises, in a class that it does not name
    decide: float = 0.0  # a turn raises while it accepts mail or applies its rules; not for ever
    body: float = 0.0  # a body raises, in any class, or does to its own task what it likes


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


def draw_error_rates(chance: random.Random) -> Rates:
    """Exceptions of any class, of expressions, of turns and of bodies; some are zero, but never all."""
    rates = Rates(
        expression=chance.choice((0.0, 0.005, 0.02, 0.2)),
        decide=chance.choice((0.0, 0.01, 0.1)),
        body=chance.choice((0.0, 0.02, 0.1, 0.4)),
    )
    return rates if rates.expression or rates.decide or rates.body else Rates(expression=0.1, decide=0.05, body=0.2)


class Panic(BaseException):
    """An exception that is not an `Exception`, as a library in another language may raise it."""


class Speechless(Exception):
    """An error whose text cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


UNRAISED = (KeyboardInterrupt, Unavailable)  # the keyboard's, and the store's own: the latter has a rate of its own


def _kinds() -> list[type[BaseException]]:
    """Every class of Python that can be made of a text."""
    found: list[type[BaseException]] = [Panic, Speechless, asyncio.CancelledError, Conflict, NotFound, InvalidValue]
    for kind in vars(builtins).values():
        if isinstance(kind, type) and issubclass(kind, BaseException) and not issubclass(kind, UNRAISED):
            try:
                kind("injected")
            except TypeError:
                continue
            found.append(kind)
    return sorted(set(found), key=lambda kind: kind.__name__)


KINDS = _kinds()
DEFECTS = [kind for kind in KINDS if not issubclass(kind, RefoldError)]  # with the others a turn refuses mail


def is_injected(error: BaseException | None) -> bool:
    return error is not None and (getattr(error, "injected", False) or is_injected(error.__cause__))


class Faults:
    """Draws faults and counts those that happened; `heal` ends them all."""

    def __init__(self, rates: Rates, chance: random.Random) -> None:
        self.rates, self.chance = rates, chance
        self.seen: Counter[str] = Counter()
        self.turns_struck: Counter[str] = Counter()  # by run

    def heal(self) -> None:
        self.rates = Rates()

    def strikes(self, kind: str) -> bool:
        rate = getattr(self.rates, kind)
        if rate and self.chance.random() < rate:
            self.seen[kind] += 1
            return True
        return False

    def error(self, kinds: Sequence[type[BaseException]] = KINDS) -> BaseException:
        """An error of any of these classes, marked as injected."""
        kind = self.chance.choice(kinds)
        error = InvalidValue("injected", "a fault") if kind is InvalidValue else kind("injected")
        error.injected = True  # type: ignore[attr-defined]
        return error

    def strike_turn(self, run: str) -> None:
        """Raise, but for one run at most MOST_STRUCK times, as if the defect were then repaired."""
        if self.turns_struck[run] < MOST_STRUCK and self.strikes("decide"):
            self.turns_struck[run] += 1
            raise self.error(DEFECTS)


MOST_STRUCK = 6  # turns of one run


class FaultyEvaluate:
    """An expression language of which any call may raise anything."""

    def __init__(self, evaluate: Evaluate, faults: Faults) -> None:
        self._evaluate, self._faults = evaluate, faults

    def names(self, view: TemplateScope) -> TemplateScope:
        self._strike()
        return self._evaluate.names(view)

    def value(self, template: Any, view: TemplateScope) -> Any:
        self._strike()
        return self._evaluate.value(template, view)

    def truth(self, template: Any, view: TemplateScope) -> bool:
        self._strike()
        return self._evaluate.truth(template, view)

    def paths(self, template: Any) -> Sequence[Path]:
        self._strike()
        return self._evaluate.paths(template)

    def _strike(self) -> None:
        if self._faults.strikes("expression"):
            raise self._faults.error()


def faulty_decision(faults: Faults) -> type[Decision]:
    """A decision that may raise whenever mail or a rule does something to it, before it is done or after."""

    class FaultyDecision(Decision):
        def record_fact(self, fact: Fact) -> None:
            faults.strike_turn(self.state.run)
            super().record_fact(fact)
            faults.strike_turn(self.state.run)

        def move(self, move: Move) -> None:
            faults.strike_turn(self.state.run)
            super().move(move)
            faults.strike_turn(self.state.run)

        def commands(self) -> dict[str, Command | Held | None]:
            faults.strike_turn(self.state.run)
            return super().commands()

    return FaultyDecision


def faulty_body(tool: Tool, faults: Faults) -> Tool:
    """A body that may raise anything, before its work or after it, or cancel its own task, now or later."""

    async def body(call: ToolCall) -> Any:
        if faults.strikes("body"):
            await _misbehave(faults)
        result = await tool(call)
        if faults.strikes("body"):
            await _misbehave(faults)
        return result

    return body


async def _misbehave(faults: Faults) -> None:
    task = asyncio.current_task()
    assert task is not None
    match faults.chance.randrange(6):
        case 0:
            task.cancel()
            await asyncio.sleep(0)
        case 1:
            task.cancel()  # it is heard at the next await, wherever that is
        case 2:
            await asyncio.timeout(faults.chance.uniform(0.01, 1.0)).__aenter__()  # and nobody leaves it
        case 3:
            raise KeyboardInterrupt("injected")
        case _:
            raise faults.error()


class WriteOracle(Protocol):
    """An oracle that looks at every write and every claim."""

    def before_write(self, turn: StoreTurn, writes: Writes) -> None: ...

    def after_claim(self, leases: Sequence[Lease]) -> None: ...


class FaultyStore:
    """A store as one process sees it: any call may fail before or after it was carried out."""

    takes_hints = False

    def __init__(self, store: Store, faults: Faults, process: SimProcess, watch: WriteOracle) -> None:
        self._store, self._faults, self._process, self._watch = store, faults, process, watch

    @contextmanager
    def turn(self, runs: Sequence[str]) -> Iterator[StoreTurn]:
        self._before()
        with self._store.turn(runs) as turn:
            watched = WatchedTurn(turn, self._watch)
            yield watched
            if not self._process.alive:
                raise Killed
            if self._faults.strikes("error"):
                raise Unavailable("the commit failed")
        for asked in watched.asked:
            self._watch.after_claim(asked.leases)
        self._after()

    def turn_from(self, hints: Mapping[str, Hint]) -> AbstractContextManager[StoreTurn]:
        return self.turn(sorted(hints))

    @property
    def views(self) -> "FaultyViews":
        return FaultyViews(self, self._store.views)

    def __getattr__(self, name: str) -> Any:
        """Every other call of the port."""
        return self.with_faults(getattr(self._store, name))

    def with_faults(self, call: Callable[..., Any]) -> Callable[..., Any]:
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


class FaultyViews:
    """The views of a faulty store: every call of them can fail, as those of the store can."""

    def __init__(self, store: FaultyStore, views: Views) -> None:
        self._store, self._views = store, views

    def __getattr__(self, name: str) -> Any:
        return self._store.with_faults(getattr(self._views, name))


class WatchedTurn:
    """Lets an oracle look at every write before it is made, and at every claim."""

    def __init__(self, turn: StoreTurn, watch: WriteOracle) -> None:
        self._turn, self._watch = turn, watch
        self.asked: list[ClaimRequest] = []

    def write(self, writes: Writes) -> None:
        self._watch.before_write(self._turn, writes)
        self._turn.write(writes)

    def claim(self, can: Abilities, lease_for: float, limit: int) -> Sequence[Lease]:
        leases = self._turn.claim(can, lease_for, limit)
        self._watch.after_claim(leases)
        return leases

    def ask(self, can: Abilities, lease_for: float, limit: int) -> ClaimRequest:
        asked = self._turn.ask(can, lease_for, limit)
        self.asked.append(asked)
        return asked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._turn, name)


class SharedDoorbell:
    """The doorbell of all processes; each hears it with its own faults."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.bells: list[FaultyDoorbell] = []

    def ring(self) -> None:
        for bell in self.bells:
            if bell.process.alive and not self.faults.strikes("unheard"):
                bell.hear()


class FaultyDoorbell:
    def __init__(self, shared_doorbell: SharedDoorbell, process: SimProcess) -> None:
        self.shared_doorbell, self.process = shared_doorbell, process
        self._rung: asyncio.Event | None = None
        shared_doorbell.bells = [bell for bell in shared_doorbell.bells if bell.process.alive] + [self]

    def ring(self) -> None:
        self.shared_doorbell.ring()

    def hear(self) -> None:
        if self._rung is not None:
            self._rung.set()

    async def wait(self, timeout: float) -> None:
        if self._rung is None:
            self._rung = asyncio.Event()
        try:
            async with asyncio.timeout(timeout):
                await self._rung.wait()
        except TimeoutError:
            return
        if not self.shared_doorbell.faults.strikes("doubled"):
            self._rung.clear()


class SimClock:
    """The wall clock of a process, which may be off; sleeping is not."""

    def __init__(self, process: SimProcess, epoch: Instant) -> None:
        self.process, self.epoch = process, epoch

    def now(self) -> Instant:
        return self.epoch + round(self.process.now() * SECOND)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def advance(work: Callable[[], Any]) -> Any:
    """A turn between two awaits: a process can die before it, or after the commit but before its result is used."""
    await asyncio.sleep(0)
    answer = work()
    await asyncio.sleep(0)
    return answer
