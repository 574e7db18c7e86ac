"""The parts of a process, put together."""

import asyncio
import os
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, structs

from refold.core.expressions import Evaluate
from refold.core.pipeline import TaskPipeline
from refold.core.plan import Call
from refold.ports import Abilities, Lease, Store, Tool
from refold.registry import LazyRegistry
from refold.runtime.background import Listener, ServedRuns, Sweep, Timers
from refold.runtime.desk import LocalDesk
from refold.runtime.engine import Engine
from refold.runtime.mailroom import Mailroom
from refold.runtime.turn import RunSnapshot, Turns
from refold.secrets.access import SecretAccess, SecretPlaces, file_beside
from refold.settings import Settings
from refold.wiring.python_code import PythonCode
from refold.wiring.tools import make_tools
from refold.wiring.world import WallClock, World, language
from refold.worker.loop import Worker
from refold.worker.run_tool import RESULT


class Process(Struct):
    """One process: an engine, and a worker and a sweep that serve every run of the store, or a run and its kin."""

    engine: Engine
    worker: Worker
    sweep: Sweep
    timers: Timers
    desk: LocalDesk
    tools: LazyRegistry[Tool]
    served_runs: ServedRuns | None = None
    listener: Listener | None = None  # where other processes may write
    secrets: SecretAccess | None = None
    code: PythonCode | None = None

    async def serve(self) -> None:
        """Everything that runs for the life of the process; returns when it was stopped."""
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(part()) for part in (self.sweep.run, self.timers.run)]
            if self.listener is not None:
                beside.append(group.create_task(self.listener.run()))
            if self.served_runs is not None:
                beside.append(group.create_task(self.served_runs.run_for(self.sweep.clock)))
            await self.worker.run()
            for each in beside:
                each.cancel()

    async def stop(self, grace: float = 0.0) -> None:
        """Take nothing new; what does not finish within the grace is handed back, for others to go on with."""
        await self.worker.stop(grace)

    async def close(self) -> None:
        """After the end of `serve`."""
        await self.tools.close()
        if self.code is not None:
            await self.code.close()


def assemble(
    store: Store, world: World, evaluate: Evaluate, tools: Mapping[str, Tool], settings: Settings, name: str
) -> Process:
    turns = Turns(store, evaluate, world.chance, world.new_id, settings.lease_for)
    turns.languages = language
    turns.keep = settings.states_kept
    turns.child_limits.limit = settings.depth_limit
    mailroom = Mailroom(turns, world.advance, world.doorbell)
    engine = Engine(store, mailroom, world.advance, world.clock, world.new_id)
    engine.ends.poll = settings.poll
    desk = LocalDesk(store, world.advance, mailroom)

    async def tool_settings(lease: Lease) -> Mapping[str, Any]:
        graph = turns.graphs.get(lease.plan) or await world.advance(lambda: turns.graph(lease.plan))
        step = graph.plan.steps[graph.index[lease.command.step]]
        if isinstance(step.work, TaskPipeline):
            if step.work.secret:  # its result can be checked only before it is encrypted
                return {step.work.tool: structs.replace(step.work, schema=step.result)}
            settings: dict[str, Any] = {step.work.tool: step.work}
        else:
            settings = step.work.settings if isinstance(step.work, Call) else {}
        return settings if step.result is None else {**settings, RESULT: step.result}

    async def read_blob(run: str, hash: str) -> bytes:
        def read() -> bytes:
            with store.turn(()) as turn:
                return turn.blob(run, hash)

        found: bytes = await world.advance(read)
        return found

    known = make_tools(tools, world, settings, read_blob, name)
    queues = settings.queues or None
    can = Abilities(worker=name, queues=queues, tools=frozenset(known))
    worker = Worker(desk, known, tool_settings, world.clock, world.doorbell, can)
    worker.slots, worker.lease_for, worker.poll = settings.slots, settings.lease_for, settings.poll
    worker.heartbeat = world.heartbeat
    if world.secrets is not None:
        worker.redaction = world.secrets.redaction
    mailroom.taker, mailroom.at_once = worker, world.at_once
    mailroom.on_withdrawn = worker.keeper.withdraw
    sweep = Sweep(store, world.advance, mailroom, world.clock, world.doorbell)
    sweep.every = settings.sweep_every
    timers = Timers(world.clock, mailroom.wake)
    mailroom.on_alarm = timers.set
    engine.workers = lambda: {worker.can.worker: worker.can}
    engine.serves = lambda queue: queues is None or queue in queues
    code = engine.code = PythonCode(engine, worker, known, read_blob, world.executors.get("process"))
    return Process(engine, worker, sweep, timers, desk, known, secrets=world.secrets, code=code)


def open_secrets(settings: Settings, db: str | os.PathLike[str] | None) -> SecretAccess:
    """Nothing is read before a secret is."""
    where = SecretPlaces(
        folder=settings.secrets_folder,
        file=settings.secrets or (file_beside(db) if db is not None else ""),
        key_file=settings.key_file,
        keyring=settings.keyring,
    )
    return SecretAccess(os.environ, where, WallClock())


def serve_only(process: Process, run: str) -> None:
    """This run and what it starts; all runs if it is empty."""
    if not run:
        return
    worker, mailroom = process.worker, process.engine.mailroom
    served_runs = process.served_runs = process.sweep.served_runs = ServedRuns(
        run, mailroom.turns, process.engine.advance
    )
    tell = mailroom.on_end

    def serve(runs: frozenset[str]) -> None:
        worker.can = structs.replace(worker.can, runs=runs)

    def ended(seen: RunSnapshot) -> None:
        served_runs.ended(seen.state.run)
        tell(seen)

    served_runs.on_change, mailroom.on_births, mailroom.on_end = serve, served_runs.add, ended
    serve(served_runs.runs)
