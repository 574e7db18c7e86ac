"""A bench for workflows: an engine in memory whose time is virtual, with tools that can be faked and are noted."""

import asyncio
import os
import random
import shutil
import tempfile
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import Any, ParamSpec, TypeVar, overload

from refold.core.expressions import Values
from refold.core.outcomes import SECOND
from refold.core.plan import BODY, Plan
from refold.core.times import instant, seconds
from refold.doorbells.local import LocalDoorbell
from refold.errors import Conflict
from refold.playbooks.playbook import Playbook
from refold.python.definition import Definition
from refold.python.load import load
from refold.python.workflow import Flow, Workflow
from refold.registry import LazyRegistry
from refold.runtime.engine import Engine
from refold.runtime.turn_thread import inline
from refold.secrets.access import SecretAccess, SecretPlaces
from refold.secrets.names import variable
from refold.settings import Settings
from refold.stores.memory import MemoryStore
from refold.testing.bench.executors import BenchExecutors
from refold.testing.bench.fakes import Called, Fakes
from refold.testing.bench.given import GivenRun
from refold.testing.bench.recordings import Recording, Replay, record, write
from refold.testing.bench.recordings import read as read_recording
from refold.testing.bench.run import Run
from refold.testing.bench.switchboard import Switchboard, named
from refold.testing.bench.virtual_loop import TooLong, VirtualClock, VirtualLoop
from refold.wiring import World, assemble
from refold.wiring.playbook_files import playbook

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Target = Any
"""A subclass of Workflow, an instance of one, a flow, a plan, or the path of a playbook."""

NEVER = 1e9  # seconds; nothing else works on this store, so nothing has to be looked for
EPOCH = "2027-01-15T08:00:00Z"
PATIENCE = 60.0  # seconds of real time for one call


class Bench:
    """Time stands still between two calls. Each of them returns when nothing more can happen at that moment."""

    def __init__(
        self,
        *,
        now: str = EPOCH,
        seed: int = 0,
        secrets: Mapping[str, str] | None = None,
        patience: float = PATIENCE,
        settings: Settings | None = None,
    ) -> None:
        self.patience = patience
        self._loop = VirtualLoop()
        self._clock = VirtualClock(self._loop, instant(now))
        self._thread: ThreadPoolExecutor | None = None
        self._fakes = Fakes()
        self.board = Switchboard(self._loop, self._fakes)
        self.store = MemoryStore(self._clock.now)
        self._ids = count(1).__next__
        self._open(seed, secrets or {}, settings or Settings())

    @overload
    def run(self, workflow: Flow[P, R], /, *inputs: P.args, **named: P.kwargs) -> R: ...

    @overload
    def run(self, workflow: Workflow[R] | type[Workflow[R]], /, *inputs: Any, **named: Any) -> R: ...

    @overload
    def run(self, workflow: Target, /, *inputs: Any, **named: Any) -> Any: ...

    def run(self, workflow: Target, /, *inputs: Any, **named: Any) -> Any:
        """Start it and wait for its result, however long that takes in virtual time. Raises RunFailed or
        RunCancelled; raises StillGoing if it waits for something that does not come by itself."""
        return self.start(workflow, *inputs, **named).result()

    @overload
    def start(self, workflow: Flow[P, R], /, *inputs: P.args, **named: P.kwargs) -> Run[R]: ...

    @overload
    def start(self, workflow: Workflow[R] | type[Workflow[R]], /, *inputs: Any, **named: Any) -> Run[R]: ...

    @overload
    def start(self, workflow: Target, /, *inputs: Any, **named: Any) -> Run: ...

    def start(self, workflow: Target, /, *inputs: Any, **named: Any) -> Run:
        """Start it and let it go on until it waits."""
        return self.begin(workflow, inputs, named, "")

    def begin(self, workflow: Target, inputs: Sequence[Any], named: Mapping[str, Any], run: str) -> Run:
        """As `start`, with an id of its own."""

        async def begin() -> Run:
            if isinstance(workflow, str | os.PathLike | Playbook):
                plan: Any = await self._read(workflow)
            else:
                plan = workflow
            if isinstance(plan, Plan):
                handle = await self.engine.options(run=run).start(plan, *inputs, **named)
                return Run(self, handle.id, None)
            await self._known(plan)
            handle = await self.engine.options(run=run).start(plan, *inputs, **named)
            return Run(self, handle.id, handle)

        return self.do(begin())

    def given(self, workflow: Target, **inputs: Any) -> GivenRun:
        """A run whose steps are done only as far as the test says."""
        return GivenRun(self, workflow, inputs)

    def advance(self, span: str | float) -> None:
        """Let so much time pass; what comes due on the way happens in its order."""
        self.do(asyncio.sleep(seconds(span)))

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now() / SECOND, UTC)

    def fake(self, name: str, gives: Any = None) -> None:
        """What a tool gives, for all of a kind, a step, a task (`step/task`) or a command (`step/2`).

        A list has one result for each call; an exception is raised; a function gets the call. Anything else is the
        result. In the place of a step of a Python workflow it gives events.
        """
        self._fakes.add(name, gives)

    def allow(self, *kinds: str) -> None:
        """Let these tools reach the world."""
        self.board.allowed.update(kinds)

    def calls(self, name: str = "") -> list[Called]:
        """The calls of tools so far, of a kind, a step or a command; of all, if none is named. Raises InvalidValue."""
        made = self._fakes.calls
        if not name:
            return list(made)
        known = dict.fromkeys(each for call in made for each in (call.kind, call.step, call.command))
        self._fakes.check_name(name, [*known])
        return [call for call in made if name in (call.kind, call.step, call.command)]

    def record(self, run: "Run | str", file: str | os.PathLike[str]) -> Recording:
        """The results of a run, into a file for `replay`."""
        recording = record(self.store.views, run if isinstance(run, str) else run.id)
        write(recording, file)
        return recording

    def replay(self, *files: str | os.PathLike[str], live: Sequence[str] = ()) -> None:
        """Give recorded results in the place of tools and durable calls; steps and kinds in `live` really run."""
        self.board.replay = Replay([read_recording(file) for file in files], live)

    @property
    def unrecorded(self) -> list[str]:
        """Calls for which the recordings had nothing."""
        return [] if self.board.replay is None else list(self.board.replay.missing)

    def do(self, what: Coroutine[Any, Any, T]) -> T:
        """What comes of this, done on the loop of the bench; then all that can happen at this moment happens."""
        if self._loop.is_closed():
            what.close()  # or it would be told that nobody waited for it
            raise Conflict("this bench is closed; make another with `testing.engine()`")

        async def whole() -> T:
            try:
                return await what
            finally:
                await self._loop.quiet()

        self._loop.patient(self.patience)
        return self._driven(whole())

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._loop.patient(self.patience)
        try:
            self._driven(self._executors.close(self._parts, self._serving, self._real))
        finally:
            self._loop.close()
            if self._thread is not None:
                self._thread.shutdown()
            shutil.rmtree(self._artifacts, ignore_errors=True)

    def _open(self, seed: int, secrets: Mapping[str, str], settings: Settings) -> None:
        self._executors = BenchExecutors(self._loop, settings)
        self._artifacts = os.path.join(tempfile.gettempdir(), f"refold-bench-{os.getpid()}-{id(self)}")
        variables = {**os.environ, **{variable(name): value for name, value in secrets.items()}}
        world = World(
            self._clock,
            LocalDoorbell(),
            inline,
            random.Random(seed).random,
            lambda: f"run{self._ids()}",
            executors=self._executors.executors,
            secrets=SecretAccess(variables, SecretPlaces(folder=settings.secrets_folder), self._clock),
            isolated=self._executors.isolated,
            artifacts=self._artifacts,
        )
        unhurried = Settings(lease_for=NEVER, sweep_every=NEVER, poll=NEVER, private_addresses=True)
        self._parts = self._driven(self._assembled(world, unhurried))
        self.engine: Engine = self._parts.engine
        self._serving: asyncio.Task[None] = self._loop.create_task(self._parts.serve())

    async def _assembled(self, world: World, settings: Settings) -> Any:
        parts = assemble(self.store, world, Values(), {}, settings, "bench")
        tools = parts.tools
        self._real = LazyRegistry(tools._ready, tools._makers)  # as they are; none is made before it is used
        for kind in named(tools):
            tools.add(kind, self.board.before(kind, partial(self._real.__getitem__, kind)))
        assert parts.code is not None
        self._executors.connect(parts.code, self._known)
        return parts

    async def _known(self, workflow: Any) -> Definition:
        """Its bodies run here, behind the switchboard."""
        code = self._parts.code
        assert code is not None
        before = {*code.adopted}
        definition: Definition = await code.known(workflow)
        for hash in code.adopted.keys() - before:
            name = f"{BODY}:{hash}"
            self._parts.tools.add(name, self.board.before_body(code.adopted[hash], self._parts.tools[name]))
        return definition

    async def _read(self, file: "str | os.PathLike[str] | Playbook") -> Plan:
        found = file if isinstance(file, Playbook) else playbook(file)
        for child in found.children:
            await self.engine.register(child.plan)
        for target in found.code:
            await self._known(load(target))
        return found.plan

    def _driven(self, what: Coroutine[Any, Any, T]) -> T:
        """Here, or on a thread of its own where another loop is running."""
        if asyncio._get_running_loop() is None:
            return self._complete(what)
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "refold-bench")
        return self._thread.submit(self._complete, what).result()

    def _complete(self, what: Coroutine[Any, Any, T]) -> T:
        try:
            return self._loop.run_until_complete(what)
        except TooLong:
            why = f"{self.patience:g} seconds of real time were not enough: a step blocks, or goes round and round"
            raise TimeoutError(f"{why}; `engine(patience=…)` allows more") from None
