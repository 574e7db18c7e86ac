"""A server in a thread of its own, for commands that run in the thread of the test."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from refold.server.access import AccessToken, permissions_of
from refold.server.process import ServedStore, WebServer, listen, open_service, with_port
from refold.server.service import ServerOptions
from refold.settings import Settings
from refold.wiring import open_process


class Served:
    """Where the server is, and tokens for it."""

    def __init__(self, db: Path, playbooks: Path | None, works: bool) -> None:
        self._db, self._playbooks, self._works = db, playbooks, works
        self._ready, self._ended = threading.Event(), asyncio.Event()
        self._error: BaseException | None = None
        self.address = ""
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._ready.wait(60)
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(60)

    def token(self, role: str = "admin", name: str = "ann", **more: object) -> str:
        wanted = AccessToken("", "", name, role, permissions_of(role), **more)  # type: ignore[arg-type]
        made = asyncio.run_coroutine_threadsafe(self._service.credentials.create(wanted), self._loop)
        return made.result(60)[1]

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        bound = listen(ServerOptions(port=0))
        options = with_port(ServerOptions(port=0), bound)
        quick = Settings(poll=0.1, sweep_every=0.1, processes=1)
        async with open_process(db=self._db, settings=quick, works=self._works) as process:
            engine = process.engine
            kept = ServedStore(engine.store.views, engine, engine.store, engine.advance)
            folder = "" if self._playbooks is None else str(self._playbooks)
            async with open_service(kept, options, folder, {}, time.monotonic) as service:
                self._service, self.address = service, f"http://127.0.0.1:{options.port}"
                serving = asyncio.create_task(WebServer(service, bound).run(self._ready.set))
                await self._ended.wait()
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)


@contextmanager
def served(db: Path, playbooks: Path | None = None, works: bool = False) -> Iterator[Served]:
    found = Served(db, playbooks, works)
    found.start()
    try:
        yield found
    finally:
        found.stop()
