"""The desks under contract: that of a process with the store, and that of a worker with nothing but an address."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

from msgspec import Struct

from refold.client.connection import Connection
from refold.client.desk import RemoteDesk
from refold.doorbells.local import LocalDoorbell
from refold.ports import Abilities, Desk, Lease
from refold.runtime.engine import Engine
from refold.settings import Settings
from refold.wiring import open_process
from tests.client.remote import serving

SLOW = Settings(poll=0.05, sweep_every=0.05, processes=1, lease_for=30.0)
TOOLS = frozenset({"body", "noop", "other"})


class Office(Struct):
    """A desk, and the engine whose commands it hands out."""

    engine: Engine
    desk: Desk
    worker: str

    def can(self, **more: Any) -> Abilities:
        return Abilities(self.worker, **{"queues": None, "tools": TOOLS, **more})

    async def claimed(self, **more: Any) -> Lease:
        lease = await self.desk.claim(self.can(**more), 30.0)
        assert lease is not None
        return lease


@asynccontextmanager
async def local() -> AsyncIterator[Office]:
    async with open_process(settings=SLOW, claims=False) as process:
        yield Office(process.engine, process.desk, "worker-w")


@asynccontextmanager
async def remote() -> AsyncIterator[Office]:
    async with serving(SLOW) as server:
        connect = partial(Connection, server.address, await server.token())
        desk = RemoteDesk(connect, "worker-w", LocalDoorbell(), longest_wait=0.0)
        await desk.open(TOOLS)
        try:
            yield Office(server.engine, desk, "worker-w")
        finally:
            await desk.close()


DESKS: dict[str, Callable[[], AbstractAsyncContextManager[Office]]] = {"local": local, "remote": remote}
