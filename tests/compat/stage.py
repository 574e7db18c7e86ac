"""What these tests run on: a memory store, a clock that costs nothing, and engine processes that can be killed."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from itertools import count, pairwise
from typing import Any, TypeVar

from msgspec import Struct

from refold.core.facts import Fact, Routed
from refold.core.outcomes import SECOND, AddTo, AppendTo, Fault, Instant, SetKey, Succeeded, Write
from refold.core.plan import canonical, plan_hash
from refold.core.state import TERMINAL
from refold.doorbells.local import LocalDoorbell
from refold.plan import Arc, Call, Plan, Step
from refold.ports import Abilities, Clock, Done, Lease, Tool, ToolCall
from refold.runtime.desk import LocalDesk
from refold.runtime.engine import Engine, RunReport
from refold.runtime.turn_thread import inline
from refold.settings import Settings
from refold.stores.memory import MemoryStore
from refold.testing.core import Scripted
from refold.testing.simulator.event_loop import SimLoop, SimProcess
from refold.tools.simple import noop
from refold.wiring import Process, World, assemble

T = TypeVar("T")
F = TypeVar("F")

NOON: Instant = 1_800_000_000 * SECOND
PATIENCE = 5_000.0  # virtual seconds after which what was waited for will never come


class Refusal(Exception):
    """How a tool of these tests fails: with the fault it is given."""

    def __init__(self, **fault: Any) -> None:
        self.fault = Fault(**fault)
        super().__init__(self.fault.message)


async def do_as_told(call: ToolCall) -> Done:
    """The tool `work`: what it takes, gives and writes stands in the plan; `faults` has one entry per try."""
    told = call.settings
    if "takes" in told:
        await asyncio.sleep(told["takes"])
    fault = dict(enumerate(told.get("faults", ()), 1)).get(call.command.attempt)
    if fault is not None:
        raise Refusal(**fault)
    writes: list[Write] = [SetKey(key, value) for key, value in told.get("set", {}).items()]
    writes += [AddTo(key, amount) for key, amount in told.get("add", {}).items()]
    writes += [AppendTo(key, value) for key, value in told.get("append", {}).items()]
    return Done(Succeeded(told.get("gives", call.input)), writes=tuple(writes), usage=told.get("usage", {}))


def work(**told: Any) -> Call:
    return Call(tool="work", settings=told)


def step(name: str, *to: str | Arc, **more: Any) -> Step:
    return Step(name=name, arcs=tuple(Arc(to=each) if isinstance(each, str) else each for each in to), **more)


def plan(*steps: Step, name: str = "seed", **more: Any) -> Plan:
    return Plan(name=name, steps=steps, **more)


def chain(length: int, **more: Any) -> Plan:
    names = [f"s{i}" for i in range(length)]
    follows = {name: (after,) for name, after in pairwise(names)}
    return plan(*(step(name, *follows.get(name, ()), **more) for name in names))


class Began(Struct, frozen=True):
    """A tool was called: when, by which process, and for what."""

    at: float
    process: str
    run: str
    command: str
    attempt: int
    call: ToolCall


class _StageClock:
    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop

    def now(self) -> Instant:
        return NOON + round(self.loop.time() * SECOND)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class House:
    """One engine process of the stage."""

    def __init__(self, sim: SimProcess, parts: Process) -> None:
        self.sim, self.parts = sim, parts

    @property
    def engine(self) -> Engine:
        return self.parts.engine

    @property
    def desk(self) -> LocalDesk:
        return self.parts.desk

    def serve(self) -> None:
        self.sim.spawn(self.parts.serve(), name="serve")

    def kill(self) -> None:
        self.sim.kill()


class Stage:
    def __init__(self, seed: int = 0) -> None:
        self.loop = SimLoop(random.Random(seed), fifo=True)
        self.clock: Clock = _StageClock(self.loop)
        self.store = MemoryStore(self.clock.now)
        self.tools: dict[str, Tool] = {"noop": noop, "work": do_as_told}
        self.chance: Callable[[], float] = lambda: 0.5
        self.began: list[Began] = []
        self.houses: list[House] = []
        self._ids = count(1).__next__

    def house(self, name: str = "", serves: bool = True, **settings: Any) -> House:
        """Start a process: an engine, and unless told otherwise a worker and a sweep."""
        name = name or f"house{len(self.houses)}"
        sim = self.loop.process(name)
        tools = {each: partial(self._call, name, tool) for each, tool in self.tools.items()}
        world = World(self.clock, LocalDoorbell(), inline, lambda: self.chance(), lambda: f"id{self._ids()}")
        house = House(sim, assemble(self.store, world, Scripted(), tools, Settings(**settings), name))
        self.houses.append(house)
        if serves:
            house.serve()
        return house

    def _call(self, process: str, tool: Tool, call: ToolCall) -> Awaitable[Any]:
        self.began.append(Began(self.loop.time(), process, call.run, call.command.id, call.command.attempt, call))
        return tool(call)

    @property
    def first(self) -> House:
        """The first process that is alive; one is started if there is none."""
        alive = [house for house in self.houses if house.sim.alive]
        return alive[0] if alive else self.house()

    @property
    def engine(self) -> Engine:
        return self.first.engine

    def do(self, what: Coroutine[Any, Any, T], by: House | None = None) -> T:
        """What comes of this, done inside a process."""
        asked = (by or self.first).sim.spawn(_caught(what))
        assert self.loop.run_until(asked.done, PATIENCE), "it never came to an end"
        value, error = asked.result()
        if error is not None:
            raise error
        return value  # type: ignore[return-value]

    def ask(self, what: Coroutine[Any, Any, T], by: House | None = None) -> "asyncio.Task[tuple[T | None, Any]]":
        """Let it begin and go on; the task gives (value, error)."""
        return (by or self.first).sim.spawn(_caught(what))

    def start(self, plan: Plan, input: dict[str, Any] | None = None, **more: Any) -> str:
        return self.do(self.engine.options(**more).start(plan, input)).id

    def run(self, plan: Plan, input: dict[str, Any] | None = None) -> RunReport:
        return self.end(self.start(plan, input))

    def end(self, run: str) -> RunReport:
        """The run once it has ended, by whatever means."""
        assert self.first.sim.alive
        assert self.until(lambda: self.status(run) in TERMINAL), f"it never ended: {self.show(run)}"
        return self.show(run)

    def until(self, holds: Callable[[], bool], within: float = PATIENCE) -> bool:
        return self.loop.run_until(holds, within)

    def pass_time(self, seconds: float) -> None:
        until = self.loop.time() + seconds
        self.loop.call_at(until, lambda: None)
        self.loop.run_until(lambda: self.loop.time() >= until)
        self.settle_down()

    def settle_down(self) -> None:
        """All that can happen at this moment happens."""
        now = self.loop.time()
        self.loop.call_at(now + 1e-6, lambda: None)
        self.loop.run_until(lambda: self.loop.time() > now)

    def register(self, plan: Plan) -> str:
        """Make a workflow known to the store, for a child that is started by its hash."""
        self.store.put_plan(plan_hash(plan), canonical(plan))
        return plan_hash(plan)

    def show(self, run: str) -> RunReport:
        return self.do(self.engine.show(run))

    def status(self, run: str) -> str:
        row = self.store.rows.get(run)
        return row.status if row is not None else ""

    def history(self, run: str) -> list[Fact]:
        return [fact for _, _, fact in self.do(self.engine.history(run))]

    def facts(self, run: str, kind: type[F]) -> list[F]:
        return [fact for fact in self.history(run) if isinstance(fact, kind)]

    def moves(self, run: str, kind: type[F]) -> list[F]:
        routed = self.facts(run, Routed)
        return [move for fact in routed for move in fact.moves if isinstance(move, kind)]

    def calls(self, *steps: str) -> list[str]:
        """The commands that tools were called for, in order; of these steps, if any are named."""
        return [each.command for each in self.began if not steps or each.command.split("/")[0] in steps]

    def claim(self, worker: str = "me", lease_for: float = 30.0, **can: Any) -> Lease | None:
        """Take a command by hand, as a worker of that name."""
        return self.do(self.first.desk.claim(Abilities(worker, **can), lease_for))

    def settle(self, lease: Lease, done: Done) -> Lease | None:
        return self.do(self.first.desk.settle(lease, done))

    def close(self) -> None:
        try:
            assert [repr(error) for error in self.loop.errors] == [], "errors that nobody caught"
        finally:
            self.loop.close()


async def _caught(what: Coroutine[Any, Any, T]) -> tuple[T | None, Exception | None]:
    try:
        return await what, None
    except Exception as error:
        return None, error


def names(commands: Sequence[str]) -> list[str]:
    """The steps of these commands."""
    return [command.split("/")[0] for command in commands]


def tables(store: MemoryStore) -> Mapping[str, Any]:
    """All that a refused write must leave as it was."""
    kept = ("logs", "rows", "commands", "timers", "letters", "blobs", "streams")
    return {name: _copied(getattr(store, name)) for name in kept}


def _copied(table: dict[Any, Any]) -> dict[Any, Any]:
    return {key: value.copy() if isinstance(value, dict | list) else value for key, value in table.items()}
