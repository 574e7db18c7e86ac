"""The simulator: the real runtime and workers, several of each over one store, in one thread and in virtual time."""

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from refold.core import codec
from refold.core.decide.decision import Decision
from refold.core.decide.migrate import replay
from refold.core.expressions import Evaluate
from refold.core.graph import analyse
from refold.core.outcomes import SECOND, Instant
from refold.core.plan import read_plan
from refold.core.read.summary import summarize
from refold.core.read.why import briefly
from refold.core.state import PAUSED, TERMINAL, RunState
from refold.errors import Conflict, NotFound, Unavailable
from refold.ports import Store, Tool, ToolCall
from refold.runtime.engine import Engine
from refold.runtime.turn import TurnOptions
from refold.settings import Settings
from refold.stores.memory import MemoryStore
from refold.testing.simulator.event_loop import SimLoop, SimProcess
from refold.testing.simulator.faults import (
    Faults,
    FaultyDoorbell,
    FaultyEvaluate,
    FaultyStore,
    Rates,
    SharedDoorbell,
    SimClock,
    advance,
    draw_rates,
    faulty_body,
    faulty_decision,
    is_injected,
)
from refold.testing.simulator.oracles import Oracles, Violation
from refold.wiring import Process, World, assemble

EPOCH: Instant = 1_800_000_000 * SECOND
LEASE, SWEEP, POLL = 3.0, 0.5, 0.5


class SimulationResult(Struct):
    """The result of a simulation."""

    seed: int
    digest: str  # of every byte in every log: the same for the same seed
    steps: int
    seconds: float  # of virtual time
    faults: dict[str, int]
    facts: int
    runs: dict[str, str]  # run -> status


class Simulation:
    """Simulated processes that crash, stall and restart, and a client that never dies but uses the same store."""

    def __init__(self, seed: int, tools: Mapping[str, Tool], evaluate: Evaluate, rates: Rates | None = None) -> None:
        self.seed = seed
        self.chance = random.Random(f"{seed}/world")
        self.faults = Faults(rates or draw_rates(self.chance), random.Random(f"{seed}/faults"))
        self.evaluate, self.decision = evaluate, Decision
        faulty = {name: faulty_body(tool, self.faults) for name, tool in tools.items()}
        self.tools = {name: self._watched(tool) for name, tool in (faulty if self.faults.rates.body else tools).items()}
        if self.faults.rates.expression:
            self.evaluate = FaultyEvaluate(evaluate, self.faults)
        if self.faults.rates.decide:
            self.decision = faulty_decision(self.faults)
        self.loop = SimLoop(random.Random(f"{seed}/order"))
        self.store = MemoryStore(lambda: EPOCH + round(self.loop.time() * SECOND))
        self.oracles = self._oracles(self.store)
        self.shared_doorbell = SharedDoorbell(self.faults)
        self.nodes: dict[str, SimProcess] = {}
        self.born = 0
        self.client = self._parts(self.loop.process("client")).engine
        self.loop.before_step = self._strike
        self.loop.after_step = lambda _: self.oracles.after_step()

    def run(
        self, script: Callable[[Engine], Awaitable[None]], nodes: int = 3, limit: float = 3600.0
    ) -> SimulationResult:
        """Run the client's script under faults, then end all faults, after which every run must end."""
        for number in range(nodes):
            self._boot(f"node{number}")
        client = self.loop.process("script").spawn(_as_coroutine(script(self.client)))
        chaos = 5.0 + 60.0 * self.chance.random()
        self.loop.run_until(lambda: client.done() and self._all_over(), limit_time=chaos)
        self._heal()
        if not self.loop.run_until(client.done, limit_time=limit):
            raise Violation("L2: the client's script did not end")
        client.result()
        self.loop.process("healer").spawn(self._resume_all())
        if not self.loop.run_until(self._all_over, limit_time=limit):
            raise Violation(f"L2: after healing these runs did not end: {self._stuck()}")
        self._judge()
        return self._simulated()

    def restart(self) -> None:
        """Kill all nodes and start them again with empty memory."""
        for name, process in list(self.nodes.items()):
            if process.alive:
                process.kill()
                self._boot(name)

    def folded(self, run: str) -> RunState:
        """The state of a run, folded from its log."""
        state: RunState = self._fold(run)[1]
        return state

    def _watched(self, tool: Tool) -> Tool:
        async def watched(call: ToolCall) -> Any:
            self.oracles.began(call.run, call.command.id, call.command.attempt)
            return await tool(call)

        return watched

    def _oracles(self, store: MemoryStore) -> Oracles:
        return Oracles(store)

    def _parts(self, process: SimProcess) -> Process:
        self.born += 1
        ids = random.Random(f"{self.seed}/ids/{self.born}")
        world = self._world(process, ids)
        store: Store = FaultyStore(self.store, self.faults, process, self.oracles)
        settings = Settings(lease_for=LEASE, sweep_every=SWEEP, poll=POLL, slots=4, states_kept=3)
        name = f"{process.name}-{self.born}"
        options = TurnOptions(snapshot_every=5, decision=self.decision)
        return assemble(store, world, self.evaluate, self.tools, settings, name, turn_options=options)

    def _world(self, process: SimProcess, ids: random.Random) -> World:
        return World(
            clock=SimClock(process, EPOCH),
            doorbell=FaultyDoorbell(self.shared_doorbell, process),
            advance=advance,
            chance=ids.random,
            new_id=lambda: f"{ids.getrandbits(64):016x}",
        )

    def _boot(self, name: str) -> None:
        process = self.loop.process(name)
        process.clock_skew = self.chance.uniform(-1, 1) * self.faults.rates.skew
        self.nodes[name] = process
        process.spawn(self._parts(process).serve())

    def _strike(self, process: SimProcess | None) -> None:
        """Between any two steps a process may die, or stall for longer than its leases last."""
        if process is None or self.nodes.get(process.name) is not process:
            return
        if self.faults.strikes("crash"):
            process.kill()
            self.loop.call_later(self.chance.uniform(0.1, 2 * LEASE), self._boot, process.name)
        elif self.faults.strikes("stall"):
            process.pause(self.chance.uniform(0.3, 3) * LEASE)

    def _heal(self) -> None:
        self.faults.heal()
        for process in self.nodes.values():
            process.clock_skew = 0.0

    async def _resume_all(self) -> None:
        for run, row in list(self.store.rows.items()):
            if row.status == PAUSED:
                await self.client.resume(run)

    def _all_over(self) -> bool:
        rows = self.store.rows
        waiting = any(letters for run, letters in self.store.letters.items() if run not in self.oracles.poisoned)
        done = all(row.status in TERMINAL for run, row in rows.items() if run not in self.oracles.poisoned)
        return bool(rows) and done and not waiting

    def _stuck(self) -> dict[str, Any]:
        stuck = {}
        for run, row in self.store.rows.items():
            if row.status not in TERMINAL and run not in self.oracles.poisoned:
                graph, state = self._fold(run)
                stuck[run] = (row.status, briefly(graph, state), sorted(self.store.timers.get(run, {})))
        return stuck

    def _fold(self, run: str, state: RunState | None = None) -> Any:
        state = state or RunState(run=run)
        graphs = {plan: analyse(read_plan(data)) for plan, data in self.store.plans.items()}
        return replay(graphs.__getitem__, self.store.facts(run, state.seq), state), state

    def _judge(self) -> None:
        """The log alone gives the state: with or without a snapshot, and the same row that lists show."""
        self.oracles.whole()
        if self.loop.errors:
            raise Violation(f"unexpected: {self.loop.errors[0]!r}")
        for run in self.store.rows.keys() - self.oracles.poisoned:
            graph, state = self._fold(run)
            data = self.store.snapshots.get(run)
            snapshot = codec.decode_snapshot(data) if data is not None else None
            if snapshot is not None:
                _, again = self._fold(run, snapshot)
                if codec.encode_snapshot(again) != codec.encode_snapshot(state):
                    raise Violation(f"S6: run {run}: snapshot and tail give another state than the log")
            if summarize(graph, state) != self.store.rows[run]:
                raise Violation(f"S6: run {run}: the row is not what the log gives")

    def _simulated(self) -> SimulationResult:
        digest = hashlib.sha256()
        for run in sorted(self.store.logs):
            digest.update(run.encode())
            for entry in self.store.logs[run]:
                digest.update(entry.data + str(entry.at).encode() + (entry.turn or "").encode())
        facts = sum(map(len, self.store.logs.values()))
        statuses = {run: row.status for run, row in self.store.rows.items()}
        seen = dict(self.faults.seen)
        return SimulationResult(self.seed, digest.hexdigest(), self.loop.steps, self.loop.time(), seen, facts, statuses)


async def _as_coroutine(awaitable: Awaitable[None]) -> None:
    await awaitable


async def stubborn(ask: Callable[[], Awaitable[Any]]) -> Any:
    """A client that asks again while the store does not answer; too late or already so is an answer too."""
    while True:
        try:
            return await ask()
        except Unavailable:
            continue
        except Exception as error:
            if is_injected(error):
                await asyncio.sleep(1.0)
            elif isinstance(error, (Conflict, NotFound)):
                return None
            else:
                raise
