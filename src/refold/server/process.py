"""Opens a server: store, readers, engine if it steers, and uvicorn; and closes all of it again."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import uvicorn
from msgspec import Struct, structs

from refold import __version__
from refold.core.plan import Plan
from refold.doorbells.local import LocalDoorbell
from refold.errors import Conflict, Corrupt, InvalidValue, RefoldError, Unusable
from refold.logs import WARNING, event, logger
from refold.ports import Advance, Store, Views
from refold.runtime.desk import LocalDesk
from refold.runtime.engine import Engine
from refold.server.access import AccessToken, permissions_of
from refold.server.app import App, is_loopback
from refold.server.audit import AuditLog
from refold.server.catalogue import Catalogue
from refold.server.changes import Changes
from refold.server.credentials import Credentials, Failures
from refold.server.cursors import Cursors
from refold.server.desk import DeskParts, RemoteDesk
from refold.server.documents import Documents, LocalDocuments, StoredDocuments
from refold.server.operations import Operations
from refold.server.repeats import Repeats
from refold.server.service import Readers, ServerFacts, ServerOptions, Service, ServiceParts
from refold.telemetry.metrics import Metrics
from refold.wire import Vouchers

log = logger("server")

KEYS, CURSOR_KEY = "server", "cursor-key"
COUNT_EVERY = 1.0  # seconds between two looks at the feed
TIDY_EVERY = 600.0  # seconds between two looks for sessions that have ended
BIGGEST_HEAD = 16 * 1024  # bytes of the head of a request
MOST_CONNECTIONS = 1000


class ServedStore(Struct, frozen=True):
    """What a server works on. Without a store it only reads."""

    views: Views
    engine: Engine | None = None
    store: Store | None = None
    advance: Advance | None = None
    late_loops: Callable[[], Sequence[str]] = tuple  # of the engine: those that do not turn
    keeps_tokens: bool = True  # in the store; if not, they end with the process
    facts: ServerFacts = ServerFacts()


def check_address(options: ServerOptions, plain_http: bool) -> None:
    """Refuse an address that would show tokens to others. Raises InvalidValue."""
    if options.public_address:
        if not options.public_address.startswith(("https://", "http://")):
            raise InvalidValue("--public-address", "an address begins with https://")
        if not options.is_secure and not plain_http:
            why = "tokens would be readable on the way; use https (a proxy can end it), or add --plain-http"
            raise InvalidValue("--public-address", why)
    elif not is_loopback(options.host):
        why = f"{options.host} can be reached from other machines: name the address that people type, which is https"
        raise InvalidValue("--public-address", why)


@asynccontextmanager
async def open_service(
    kept: ServedStore,
    options: ServerOptions,
    folder: str,
    code: Mapping[str, tuple[Any, Plan]],
    now: Callable[[], float],
) -> AsyncIterator[Service]:
    read = Readers()
    documents: Documents = LocalDocuments()
    audit: AuditLog | None = None
    if kept.store is not None and kept.advance is not None:
        documents = StoredDocuments(kept.views, read, kept.store, kept.advance)
        audit = AuditLog(kept.store, kept.advance, kept.views.now)
    changes = Changes(kept.views, read)
    private = documents if kept.keeps_tokens else LocalDocuments()
    key = await _cursor_key(private)
    operations, repeats = None, None
    if kept.engine is not None:
        repeats = Repeats(documents, kept.views.now)
        operations = Operations(documents, read, kept.views, kept.engine)
    service = Service(
        ServiceParts(
            options=options,
            views=kept.views,
            read=read,
            engine=kept.engine,
            credentials=Credentials(private, kept.views.now, options.port, Failures(now)),
            cursors=Cursors(key),
            catalogue=Catalogue(documents, read, folder, code),
            changes=changes,
            version=__version__,
            metrics=Metrics(kept.views, __version__),
            note=None if audit is None else audit.note,
            operations=operations,
            repeats=repeats,
            facts=kept.facts,
            is_ready=lambda: _why_not_ready(kept),
            desk=_desk_of(kept, read, documents, key),
        )
    )
    tasks = [asyncio.create_task(changes.run()), asyncio.create_task(_tidy(service, audit, operations))]
    if operations is not None:
        tasks += [asyncio.create_task(operations.run()), asyncio.create_task(_count(service))]
    try:
        yield service
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        read.close()


async def _cursor_key(documents: Documents) -> bytes:
    """The key of cursors, which is the same for all servers of a store and survives a restart."""
    while True:
        found = await documents.get(KEYS, CURSOR_KEY)
        if found is not None:
            return found.data
        with suppress(Conflict):  # another server has made it just now
            await documents.put(KEYS, CURSOR_KEY, os.urandom(32))


def _desk_of(
    kept: ServedStore, read: Readers, documents: Documents, key: bytes
) -> Callable[[asyncio.Event], RemoteDesk] | None:
    """Return what makes the desk of remote workers, over the mailroom of this process. It needs the store itself."""
    store, advance, engine = kept.store, kept.advance, kept.engine
    if store is None or advance is None or engine is None:
        return None
    doorbell = engine.mailroom.doorbell
    assert isinstance(doorbell, LocalDoorbell)
    vouchers, lease_for = Vouchers(key), engine.mailroom.turns.lease_for
    desk = LocalDesk(store, advance, engine.mailroom)
    return lambda stopping: RemoteDesk(
        DeskParts(desk, store, advance, read, documents, doorbell, vouchers, lease_for, stopping)
    )


def _why_not_ready(kept: ServedStore) -> str:
    try:
        health = kept.views.health()
    except (Unusable, Corrupt) as error:
        event(log, WARNING, "the store cannot be used", why=str(error))
        return "the store cannot be used: the log has the cause"
    if not health.is_ours:
        return f"the store has schema {health.schema}, which is not that of this release: start it again"
    if kept.engine is not None and not health.is_writable:
        return "the store cannot be written"
    if late := kept.late_loops():
        return f"nothing has been heard of {' and '.join(late)} for three of their periods: the log may have the cause"
    return ""


async def _tidy(service: Service, audit: AuditLog | None, operations: Operations | None) -> None:
    while True:
        await asyncio.sleep(TIDY_EVERY)
        try:
            await service.credentials.tidy()
            if audit is not None:
                await audit.tidy()
            if service.has_desk:
                await service.desk.tidy()
            if operations is not None:
                await operations.tidy()
            if service.repeats is not None:
                await service.repeats.tidy()
        except RefoldError as error:
            event(log, WARNING, "sessions and audit rows that have ended could not be removed", why=str(error))


async def _count(service: Service) -> None:
    """Count what happens to runs, a moment later."""
    while True:
        try:
            await service.read(service.metrics.runs.follow)
        except InvalidValue as error:  # the store is another one than before
            event(log, WARNING, "the feed begins anew", why=str(error))
            service.metrics.runs.restart()
        except RefoldError as error:
            event(log, WARNING, "runs could not be counted", why=str(error))
        await asyncio.sleep(COUNT_EVERY)


class FirstToken(Struct, frozen=True):
    """The token of the administrator that the first start makes; `text` is shown once. `link` signs a browser in."""

    text: str
    link: str


async def first_token(service: Service, address: str) -> FirstToken | None:
    """Make a token for an administrator if there is none at all."""
    if await service.credentials.tokens():
        return None
    wanted = AccessToken("", "", "admin", "admin", permissions_of("admin"))
    token, text = await service.credentials.create(wanted)
    return FirstToken(text, await sign_in_link(service, token.id, address))


async def sign_in_link(service: Service, token: str, address: str) -> str:
    """The ticket stands behind the `#`, which no browser sends."""
    return f"{address}/#ticket={await service.credentials.new_ticket(token)}"


class QuietServer(uvicorn.Server):
    """The signals of the process belong to the command, which also stops the engine."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(options: ServerOptions) -> socket.socket:
    """Bind the address. Raises Unusable, which names a port that is taken."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    # The protocol is named, or asyncio would not send small answers at once: it looks for TCP by its number.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((options.host.strip("[]"), options.port))
    except OSError as error:
        bound.close()
        why = error.strerror or str(error)
        raise Unusable(
            f"port {options.port} of {options.host} cannot be used: {why}; --port names another one"
        ) from None
    bound.listen(2048)
    return bound


def with_port(options: ServerOptions, bound: socket.socket) -> ServerOptions:
    """The options with the port that was bound: 0 means any free one."""
    return structs.replace(options, port=bound.getsockname()[1])


class WebServer:
    """uvicorn, which serves one application until it is stopped."""

    def __init__(self, service: Service, bound: socket.socket) -> None:
        self._service, self._bound = service, bound
        self._server = QuietServer(
            uvicorn.Config(
                App(service),
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=MOST_CONNECTIONS,
                timeout_keep_alive=5,
                timeout_graceful_shutdown=2,
                h11_max_incomplete_event_size=BIGGEST_HEAD,
                ws="none",
                lifespan="off",
                loop="asyncio",
                http="h11",
            )
        )
        self._ended = asyncio.Event()

    async def run(self, began: Callable[[], object]) -> None:
        """Serve until `stop` or until cancelled. `began` is called when requests are answered."""
        serving = asyncio.create_task(self._server.serve([self._bound]))
        try:
            while not self._server.started and not serving.done():
                await asyncio.sleep(0.005)
            began()
            await asyncio.shield(serving)
        finally:
            self._leave()
            with suppress(asyncio.CancelledError):
                await asyncio.shield(serving)
            self._ended.set()

    async def stop(self) -> None:
        """Say goodbye on streams, answer what is under way, and take no more requests."""
        self._leave()
        await self._ended.wait()

    def _leave(self) -> None:
        self._service.stopping.set()
        self._server.should_exit = True


def read_only(views: Views) -> ServedStore:
    return ServedStore(views)


def addresses(options: ServerOptions) -> Sequence[str]:
    """Where the server can be reached, as people type it."""
    host = f"[{options.host}]" if ":" in options.host and not options.host.startswith("[") else options.host
    return [options.public_address or f"http://{host}:{options.port}"]
