"""A workflow of the user in the simulator: its tools are faked, a person answers it, idle time is passed over."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context as Variables
from functools import partial
from threading import Thread
from typing import Any

import msgspec
from msgspec import Struct, structs

from refold.core.commands import SOURCE_TOOL
from refold.core.expressions import Values
from refold.core.outcomes import ANSWER, SECOND, Fault
from refold.core.pipeline import TOOL, TaskPipeline
from refold.core.plan import BODY, Call, Gate, Plan
from refold.core.read.why import Reason, reasons
from refold.core.state import TERMINAL
from refold.doorbells.local import LocalDoorbell
from refold.errors import ToolFailed
from refold.executors.functions import resolve
from refold.executors.inline import Inline
from refold.ports import Entries, Executor, Say, StoreTurn, Tool, ToolCall, Writes
from refold.python.context import SyncContext
from refold.python.definition import Definition
from refold.queries.reading import RunReader
from refold.runtime.engine import Engine
from refold.stores.memory import MemoryStore
from refold.testing.bench.fakes import Called, called_of
from refold.testing.bench.recordings import Replay
from refold.testing.bench.run import told_in_lines
from refold.testing.simulator.event_loop import SimProcess, current_process
from refold.testing.simulator.faults import Rates, advance
from refold.testing.simulator.invented_results import invented_answer, invented_reply, invented_result, invented_task
from refold.testing.simulator.oracles import Oracles, Violation
from refold.testing.simulator.simulation import EPOCH, LEASE, Simulation, stubborn
from refold.tools.pipeline.secrets import Vault
from refold.tools.python.tool import PythonTool
from refold.tools.simple import FunctionTool
from refold.wiring import Process, WallClock, World
from refold.wiring.tools import source_tool


class Endless(Violation):
    """A run does not end."""


class Unwaitable(Exception):
    """A step without `async` waits for something that another step would have to do."""


async def caught(what: Any) -> tuple[Any, Exception | None]:
    try:
        return await what, None
    except Exception as error:
        return None, error


def run_in_real_loop(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run the work in a thread with a real event loop, while the simulation waits."""
    came: list[Any] = []
    thread = Thread(target=lambda: came.append(asyncio.run(work())), name="refold-real")
    thread.start()
    thread.join()
    return came[0]


class RealThreadExecutor:
    """Runs bodies that ask for a process of their own in a thread."""

    async def run(self, call: str, input: Any, say: Say | None = None) -> Any:
        async def body() -> Any:
            return await asyncio.to_thread(resolve(call), input)

        value, error = run_in_real_loop(lambda: caught(body()))
        if error is not None:
            raise error
        return value


def with_own_steps(work: Callable[[], Any]) -> Callable[[], Any]:
    """The same work, with a context that does not block its thread."""
    if not isinstance(work, partial):
        return work
    arguments = [each.waiting_by(_stepping) if isinstance(each, SyncContext) else each for each in work.args]
    return partial(work.func, *arguments, **work.keywords)


def _stepping(begin: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run a durable call without waiting: it returns what was recorded, or suspends the body."""
    coroutine = begin()
    name = getattr(coroutine, "__name__", "")
    try:
        while coroutine.send(None) is None:
            continue
    except StopIteration as end:
        return end.value
    coroutine.close()
    why = f"a step without `async` calls ctx.{name}, for which a simulation would need a second thread"
    raise Unwaitable(f"{why}: write `async def`")


LOOK = 1.0  # seconds between two checks by the simulated person
LONGEST = 5.0  # seconds of idle time that are not skipped
STEPS = 60_000  # of the loop; a run that needs more is taken for endless
FIELDS = ("value", "token", "access_token", "api_key", "key", "user", "username", "password", "host", "database", "dsn")


class _NoTools(dict[str, Tool]):
    """The tools that a source may ask for: a simulation has none."""

    def __missing__(self, name: str) -> Tool:
        raise ToolFailed(Fault("simulation", f"a simulation has no {name} for sources", retryable=False))


def _inline(tool: Callable[[Mapping[str, Executor]], Tool]) -> Tool:
    executor = Inline(1)
    return tool({"inline": executor, "process": executor})


def _source() -> Tool:
    world = World(WallClock(), LocalDoorbell(), advance, random.random, str)
    return source_tool(world, _NoTools())


TOOLS: Mapping[str, Callable[[], Tool]] = {  # these really run, once for each input
    "python": partial(_inline, PythonTool),
    "function": partial(_inline, FunctionTool),
    SOURCE_TOOL: _source,
}


class Subject(Struct, frozen=True):
    """What is simulated."""

    name: str
    plan: Plan
    input: dict[str, Any]
    children: tuple[Plan, ...] = ()
    workflow: Any = None  # of a Python workflow
    definition: Definition | None = None
    replay: Replay | None = None
    signals: Mapping[str, Any] = {}
    answer: Any = "yes"
    faked: tuple[str, ...] = ()  # kinds and steps that are not even computed
    code: tuple[Any, ...] = ()  # Python workflows that a playbook starts

    def plans(self) -> tuple[Plan, ...]:
        return (self.plan, *self.children)


class Memo:
    """Results of tools by step and input, shared by all seeds where they are the same."""

    def __init__(self) -> None:
        self.computed: dict[bytes, Any] = {}
        self.made_up: set[str] = set()  # steps whose results were invented

    def real(self, kind: str, call: ToolCall) -> Any:
        key = msgspec.json.encode(
            [kind, call.command.step, call.settings, call.input, call.command.attempt], order="sorted"
        )
        if key not in self.computed:
            self.computed[key] = run_in_real_loop(lambda: caught(TOOLS[kind]()(call)))
        value, error = self.computed[key]
        if error is not None:
            raise error
        return value


class Watching(Oracles):
    """Counts the commits, and calls `on_write` before each."""

    speaking = False

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.writes = 0
        self.on_write: Callable[[int], None] = lambda number: None

    def before_write(self, turn: StoreTurn, writes: Writes) -> None:
        super().before_write(turn, writes)
        self.writes += 1
        self.on_write(self.writes)


class WorkflowSimulation(Simulation):
    """The simulation of a user's workflow; the process dies just before or after commit number `cut`."""

    def __init__(self, subject: Subject, memo: Memo, seed: int, rates: Rates | None, cut: int = 0) -> None:
        self.subject, self.memo, self.cut, self.skipped = subject, memo, cut, 0.0
        self.calm, self.limit = rates is not None, STEPS
        self.doomed: SimProcess | None = None
        self.run_id = ""
        self.acts: set[tuple[str, ...]] = set()
        self.delays = random.Random(f"{seed}/delays")
        super().__init__(seed, {kind: self._tool(kind) for kind in kinds_of(subject)}, Values(), rates)
        self.watching.on_write = self._written
        self.loop.before_step = self._strike_or_cut

    def _oracles(self, store: MemoryStore) -> Oracles:
        self.watching = Watching(store)
        return self.watching

    def trial(self, nodes: int = 3) -> None:
        """Run the workflow to its end, first with faults and later without. Raise Violation."""
        for number in range(nodes):
            self._boot(f"node{number}")
        person = self.loop.process("person").spawn(self._person())
        chaos = 5.0 + 60.0 * self.chance.random()
        self._until(lambda: self._is_over() or self.loop.time() - self.skipped > chaos)
        self._heal()
        if not self._until(lambda: person.done() and self._is_over()):
            if self.loop.errors:
                raise Violation(f"unexpected: {self.loop.errors[0]!r}") from self.loop.errors[0]
            raise Endless(f"the run does not end: {self._stuck() or 'it was never started'}")
        person.result()
        self._judge()

    def _until(self, holds: Callable[[], bool]) -> bool:
        return self.loop.run_until(lambda: holds() or bool(self.loop.errors), limit_steps=self.limit) and holds()

    def _is_over(self) -> bool:
        return bool(self.run_id) and self._all_over()

    def story(self, most: int = 25) -> list[str]:
        """The last facts, in words."""
        return told_in_lines(self.store.facts(self.run_id), most) if self.run_id else []

    def _world(self, process: SimProcess, ids: random.Random) -> World:
        vault = Vault(
            read=_secret,
            keychain=_keychain,
            remember=lambda v: None,
            conceal=str,
            seal=lambda v, _: v,
            open_all=lambda v, *_: v,
        )
        world = super()._world(process, ids)
        return structs.replace(world, vault=vault, in_thread=self._in_this_thread, isolated_bodies=RealThreadExecutor())

    def _parts(self, process: SimProcess) -> Process:
        parts = super()._parts(process)
        if self.subject.workflow is not None or self.subject.code:
            process.spawn(self._adopt(parts))
        return parts

    async def _adopt(self, parts: Process) -> None:
        code = parts.code
        assert code is not None
        own = () if self.subject.workflow is None else (self.subject.workflow,)
        for each in (*own, *self.subject.code):
            await stubborn(partial(code.known, each))
        for hash, definition in code.adopted.items():
            name = f"{BODY}:{hash}"
            parts.tools.add(name, self._body(parts.tools[name], definition))

    async def _in_this_thread(self, work: Callable[[], Any]) -> Any:
        """Run a step without `async`. A simulation has one thread, so the step must not have to wait."""
        await asyncio.sleep(0)
        try:
            return with_own_steps(work)()
        except Unwaitable as error:
            self.watching.found.append(Violation(str(error)))
            raise

    def _body(self, real: Tool, definition: Definition) -> Tool:
        replay = self.subject.replay

        async def body(call: ToolCall) -> Any:
            self.oracles.began(call.run, call.command.id, call.command.attempt)
            return await real(call if replay is None else replay.of_body(call, definition))

        return body

    def _tool(self, kind: str) -> Tool:
        async def tool(call: ToolCall) -> Any:
            await asyncio.sleep(0.1 if self.calm else self.delays.uniform(0.01, 2.0))
            return self._came(called_of(call, kind), kind, call)

        return tool

    def _came(self, called: Called, kind: str, call: ToolCall) -> Any:
        """The result of a call: always the same for the same step, visit and item."""
        subject = self.subject
        if subject.replay is not None:
            found, value = subject.replay.of_tool(called)
            if found:
                return value
        if kind in TOOLS and kind not in subject.faked and called.step not in subject.faked:
            return self.memo.real(kind, call)
        self.memo.made_up.add(called.step)
        steps = (step for plan in subject.plans() for step in plan.steps if step.name == called.step)
        found_step = next(steps, None)
        work, schema = (None, None) if found_step is None else (found_step.work, found_step.result)
        single = called.command.count("/") == (1 if called.item is None else 2)
        chance = random.Random(f"{self.seed}/result/{called.command}")
        if kind == "agent" and called.config.get("reads") == "flow":
            return invented_answer(called.step, called.config, chance)
        if kind == "agent" and schema is None:
            return invented_reply(called.step, called.config, chance)
        if schema is not None and isinstance(work, TaskPipeline) and work.reads == "a2a":
            return invented_task(called.step, schema, chance)
        return invented_result(called.step, kind, schema if single else None, chance)

    def polls_in_vain(self) -> list[str]:
        """The steps that look again and again while their run does not end, if what they look at may be made up."""
        steps: dict[str, None] = {}
        for run, row in self.store.rows.items() if self.memo.made_up else ():
            if row.status not in TERMINAL:
                graph, state = self._fold(run)
                polls = (graph.step(opened.step) for opened in state.open.values())
                steps.update({step.name: None for step in polls if step.poll is not None})
        return list(steps)

    def _written(self, number: int) -> None:
        """Kill the process at commit `cut`: before the commit if the number is odd, otherwise after it.

        A commit of the client does not count: the next one of a node takes its place.
        """
        process = current_process()
        if 0 < self.cut <= number and process is not None and self.nodes.get(process.name) is process:
            self.cut = 0
            self.faults.seen["cut"] += 1
            if number % 2:
                self._die(process)
            else:
                self.doomed = process

    def _strike_or_cut(self, process: SimProcess | None) -> None:
        doomed, self.doomed = self.doomed, None
        if doomed is not None and doomed.alive:
            self._die(doomed)
        elif process is not None:
            self._strike(process)

    def _die(self, process: SimProcess) -> None:
        """Kill the process; the simulation restarts it some time later."""
        process.kill()
        self.loop.call_later(self.chance.uniform(0.1, 2 * LEASE), self._boot, process.name, context=Variables())

    async def _person(self) -> None:
        """Start the run, then provide whatever it waits for: decisions, signals and answers."""
        subject, engine = self.subject, self.client
        for child in subject.children:
            await stubborn(partial(engine.register, child))
        target = subject.workflow if subject.workflow is not None else subject.plan
        handle = await stubborn(lambda: engine.options(key="sim").start(target, **subject.input))
        self.run_id = handle.id
        while not self._is_over():
            for run, row in list(self.store.rows.items()):
                if row.status not in TERMINAL:
                    graph, state = RunReader(self.store.views, run).read()
                    for reason in reasons(graph, state, state.at):
                        await self._act(engine, run, reason, graph.plan)
            self._pass_over()
            await asyncio.sleep(LOOK)

    async def _act(self, engine: Engine, run: str, reason: Reason, plan: Plan) -> None:
        key = (run, reason.step, str(reason.visit), str(reason.item), reason.kind, reason.note, reason.signal)
        if reason.kind == "gate":
            gate = next(step.work for step in plan.steps if step.name == reason.step)
            assert isinstance(gate, Gate)
            option = next((each for each in gate.options if each not in gate.refuse), gate.options[0])
            voters = sum(act[: len(key)] == key for act in self.acts)
            form = random.Random(f"{self.seed}/form")
            feedback = None if gate.form is None else invented_result(reason.step, "gate", gate.form, form)
            self.memo.made_up |= set() if gate.form is None else {reason.step}
            self.acts.add((*key, str(voters)))
            await stubborn(lambda: engine.decide(run, reason.step, option, by=f"person {voters}", feedback=feedback))
        elif reason.kind in ("signal", "parked") and reason.signal and key not in self.acts:
            self.acts.add(key)
            name = reason.signal.split(", ")[0]
            value = self.subject.answer if name.startswith(ANSWER) else self.subject.signals.get(name)
            await stubborn(lambda: engine.signal(run, name, value))

    def _pass_over(self) -> None:
        """Move the clock to the next timer if nothing happens before it, as on a machine that was asleep."""
        now = EPOCH + round(self.loop.time() * SECOND)
        dues = [due for timers in self.store.timers.values() for due in timers.values()]
        for queued in self.store.commands.values():
            if queued.held:
                continue
            if queued.worker is not None or queued.command.not_before <= now:
                return
            dues.append(queued.command.not_before)
        idle = (min(dues) - now) / SECOND - LOOK if dues else 0.0
        if idle > LONGEST:
            self.skipped += idle
            self.loop._schedule.now += idle


async def _secret(name: str) -> Any:
    return f"secret {name}"


class _Keychain:
    """A keychain in which every entry has all common fields."""

    async def entry(self, alias: str) -> Mapping[str, Any]:
        return {field: f"{alias} {field}" for field in FIELDS}


def _keychain(*_: Any) -> Entries:
    return _Keychain()


def kinds_of(subject: Subject) -> list[str]:
    """All tools that its steps name, except those whose result is in the playbook."""
    found: dict[str, None] = {}
    for plan in subject.plans():
        for step in plan.steps:
            if isinstance(step.work, TaskPipeline):
                found.update(dict.fromkeys(task.kind for task in step.work.tasks))
            elif isinstance(step.work, Call):
                found[step.work.tool] = None
            if step.loop is not None and step.loop.source is not None:
                found[SOURCE_TOOL] = None
    return [kind for kind in found if kind not in (TOOL, BODY, "noop", "assert")]
