"""An engine whose steps run in a remote worker: a server on loopback, and a worker that has nothing but its address."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from refold.client.worker import RemoteWorker, open_remote_worker
from refold.ports import Store, Tool
from refold.runtime.engine import Engine
from refold.server.access import AccessToken, permissions_of
from refold.server.process import ServedStore, WebServer, listen, open_service, with_port
from refold.server.service import ServerOptions, Service
from refold.settings import Settings
from refold.wiring import Process, open_process

QUICK = Settings(poll=0.05, sweep_every=0.05, processes=1, lease_for=5.0)


class Serving(Struct):
    """A server that decides and executes nothing."""

    process: Process
    service: Service
    address: str

    @property
    def engine(self) -> Engine:
        return self.process.engine

    async def token(self, role: str = "worker", **more: Any) -> str:
        wanted = AccessToken("", "", role, role, permissions_of(role), **more)
        return (await self.service.credentials.create(wanted))[1]


@asynccontextmanager
async def serving(
    settings: Settings = QUICK,
    *,
    db: Path | None = None,
    store: Store | None = None,
    public: str = "",
    evaluate: Any = None,
) -> AsyncIterator[Serving]:
    """`public` is the address of a proxy before the server."""
    options = ServerOptions(port=0, public_address=public)
    bound = listen(options)
    options = with_port(options, bound)
    async with open_process(db=db, store=store, settings=settings, claims=False, evaluate=evaluate) as process:
        engine = process.engine
        kept = ServedStore(engine.store.views, engine, engine.store, engine.advance)
        async with open_service(kept, options, "", {}, time.monotonic) as service:
            began = asyncio.Event()
            web = asyncio.create_task(WebServer(service, bound).run(began.set))
            await began.wait()
            try:
                yield Serving(process, service, f"http://127.0.0.1:{options.port}")
            finally:
                web.cancel()
                await asyncio.gather(web, return_exceptions=True)


@asynccontextmanager
async def working(
    server: Serving, settings: Settings = QUICK, tools: Mapping[str, Tool] | None = None, address: str = ""
) -> AsyncIterator[RemoteWorker]:
    """A worker that also gets the code of every Python workflow that the server's engine learns of."""
    async with open_remote_worker(address or server.address, await server.token(), settings, tools) as remote:
        known = server.process.code.known

        async def known_by_both(workflow: Any) -> Any:
            definition = await known(workflow)
            await remote.code.known(workflow)
            return definition

        server.process.code.known = known_by_both  # type: ignore[method-assign]
        try:
            yield remote
        finally:
            server.process.code.known = known  # type: ignore[method-assign]


@asynccontextmanager
async def remote_engine(
    tools: Mapping[str, Tool] | None = None,
    *,
    settings: Settings = QUICK,
    db: Path | None = None,
    store: Store | None = None,
    evaluate: Any = None,
) -> AsyncIterator[Engine]:
    """In the place of `open_engine`: the same engine, and all bodies behind HTTP."""
    async with AsyncExitStack() as opened:
        server = await opened.enter_async_context(serving(settings, db=db, store=store, evaluate=evaluate))
        await opened.enter_async_context(working(server, settings, tools))
        yield server.engine
