"""Opens a worker that gets its commands from a server: the same parts as next to a database, on a remote desk."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from refold.client.connection import Connection, is_private_way
from refold.client.desk import RemoteDesk
from refold.core.faults import text_of
from refold.core.graph import Graph, prepare
from refold.core.plan import Plan
from refold.doorbells.local import LocalDoorbell
from refold.errors import RefoldError, Unavailable, Unusable
from refold.logs import INFO, WARNING, event, logger
from refold.ports import Abilities, Lease, Tool
from refold.queries.reading import stored_graph
from refold.registry import LazyRegistry
from refold.runtime.turn_thread import inline
from refold.settings import Settings
from refold.wiring.opening import own_world
from refold.wiring.process import settings_of, worker_options
from refold.wiring.python_code import PythonCode
from refold.wiring.tools import make_tools
from refold.wiring.world import World
from refold.worker.loop import Worker

if TYPE_CHECKING:
    from refold.python.body_call import ChildRun
    from refold.python.workflow import Workflow

log = logger("worker")

PLANS = 1000  # graphs that are kept
PAUSE = 1.0  # seconds after a watch that has failed


class RemoteWorker(Struct, frozen=True):
    """A worker with its code; it serves from its opening to its end."""

    worker: Worker
    desk: RemoteDesk
    code: PythonCode
    tools: LazyRegistry[Tool]

    async def register(self, workflow: "Workflow[Any] | type[Workflow[Any]]") -> str:
        """From here on this worker runs the bodies of a Python workflow. Raises NameTaken."""
        return await self.code.registered(workflow)

    async def until_refused(self) -> None:
        """Return when the server asks the worker to end. Raises the reason for which it cannot go on."""
        failed = self.desk.failed
        assert failed is not None
        while not self.desk.is_stopping:
            await asyncio.wait({failed}, timeout=PAUSE)
            if failed.done():
                failed.result()

    async def stop(self, grace: float = 0.0) -> None:
        """Claim nothing more; work that does not finish within the grace is handed back."""
        await self.worker.stop(grace)


class ServerPlans:
    """What the worker and the bodies read of plans and runs, through the server."""

    def __init__(self, desk: RemoteDesk) -> None:
        self._desk = desk
        self._graphs: dict[str, Graph] = {}

    async def settings(self, lease: Lease) -> Mapping[str, Any]:
        """Return what the plan of a run says about the tool of this command."""
        graph = self._graphs.get(lease.plan)
        if graph is None:
            while len(self._graphs) >= PLANS:
                del self._graphs[next(iter(self._graphs))]
            graph = self._graphs[lease.plan] = stored_graph(lease.plan, await self._plan(lease.plan))
        return settings_of(graph, lease)

    async def _plan(self, hash: str) -> bytes:
        while True:
            try:
                data = await self._desk.plan(hash)
                break
            except Unavailable as error:
                event(log, WARNING, "a plan is not there yet: the server did not answer", plan=hash, why=text_of(error))
                await asyncio.sleep(PAUSE)
        if hashlib.sha256(data).hexdigest() != hash:
            raise Unusable(f"the server has sent another plan than {hash}")
        return data

    async def child(self, run: str) -> "ChildRun":
        from refold.python.body_call import ChildRun

        seen = await self._desk.child(run)
        return ChildRun(seen.run, seen.started_at, seen.ended_at, seen.usage)

    async def open_plans(
        self, workflows: Collection[str], known: Collection[str], newest: int | None
    ) -> Mapping[str, bytes]:
        return await self._desk.open_plans(workflows, known, newest)

    async def register(self, workflow: Any) -> str:
        """Store a plan at the server; of a playbook, those that it starts too."""
        plan: Plan = workflow if isinstance(workflow, Plan) else workflow.plan
        for child in () if isinstance(workflow, Plan) else workflow.children:
            await self.register(child.plan)
        prepared = prepare(plan)
        await self._desk.put_plan(prepared.hash, prepared.data)
        return prepared.hash


@asynccontextmanager
async def open_remote_worker(
    address: str, token: str, settings: Settings | None = None, tools: Mapping[str, Tool] | None = None
) -> AsyncIterator[RemoteWorker]:
    """Open a worker of a server; when it is closed, unfinished work is handed back immediately.

    Its secrets, folders and executors are its own. Raises InvalidValue, NotAllowed or Unreachable.
    """
    settings = settings if settings is not None else Settings()
    doorbell, name = LocalDoorbell(), f"worker-{os.urandom(8).hex()}"
    connect = partial(Connection, address, token)
    queues = settings.queues or None
    desk = RemoteDesk(connect, name, doorbell, queues=queues, slots=settings.slots)
    async with own_world(desk.clock, inline, lambda work: (False, None), settings, None) as world:
        world = structs.replace(world, doorbell=doorbell)
        registry = make_tools(tools or {}, world, settings, desk.blob, name)
        await desk.open(registry)
        remote = assembled(desk, world, settings, registry)
        if not is_private_way(address):
            event(log, WARNING, "the token and all data go unencrypted to the server; use https", server=address)
        at = {"worker": name, "server": address}
        event(log, INFO, "worker opened", at, slots=settings.slots)
        working, watching = asyncio.create_task(_work(remote)), asyncio.create_task(_watch(remote))
        try:
            yield remote
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            try:
                await remote.stop()
            finally:
                working.cancel()
                await asyncio.wait([working])
                await desk.close()
                await remote.tools.close()
                await remote.code.close()
                event(log, INFO, "worker closed", at)


def assembled(desk: RemoteDesk, world: World, settings: Settings, registry: LazyRegistry[Tool]) -> RemoteWorker:
    """Put the parts together, for a desk that knows how long its leases are."""
    stored = ServerPlans(desk)
    can = Abilities(worker=desk.worker, queues=settings.queues or None, tools=frozenset(registry))
    options = structs.replace(worker_options(settings, world), lease_for=desk.lease_for)
    worker = Worker(desk, registry, stored.settings, world.clock, world.doorbell, can, options)
    code = PythonCode(
        stored,
        worker,
        registry,
        desk.value,
        register=stored.register,
        enrol=desk.enrol,
        chance=world.chance,
        new_id=world.new_id,
        in_thread=world.in_thread,
        isolated=world.isolated_bodies or world.executors.get("process"),
    )
    return RemoteWorker(worker, desk, code, registry)


async def _work(remote: RemoteWorker) -> None:
    try:
        await remote.worker.run()
    except RefoldError as error:
        failed = remote.desk.failed
        if failed is not None and not failed.done():
            failed.set_exception(error)


async def _watch(remote: RemoteWorker) -> None:
    """Hear what the server takes away: commands that are withdrawn, and runs that are cancelled or over."""
    over: set[str] = set()  # runs that are over, and whose live objects are still in use here
    while True:
        try:
            over &= remote.code.sessions.keys()
            found = await remote.desk.watch(remote.code.sessions.keys() - over)
            for run in found.over:
                remote.code.run_ended(run)
            over.update(found.over)
            if found.looks:
                await remote.worker.keeper.look()
        except RefoldError as error:
            with suppress(Exception):
                event(log, WARNING, "the server could not be watched", why=text_of(error))
            await asyncio.sleep(PAUSE)
