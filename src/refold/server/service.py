"""What routes work with: the store's views, the engine, the catalogue, credentials, changes; and how they read."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from refold.core.expressions import unknown
from refold.core.graph import Graph
from refold.core.outcomes import Instant
from refold.core.read.summary import Summary
from refold.core.read.why import Reason
from refold.core.state import RunState
from refold.errors import NotFound
from refold.ports import Views
from refold.queries.reading import RunReader
from refold.queries.why import run_reasons
from refold.runtime.engine import Engine
from refold.server.access import Deed
from refold.server.catalogue import Catalogue
from refold.server.changes import Changes
from refold.server.credentials import Credentials
from refold.server.cursors import Cursors
from refold.server.moments import Moments
from refold.server.problems import HttpProblem
from refold.server.shared_log import SharedLog
from refold.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from refold.server.desk import RemoteDesk
    from refold.server.operations import Operations
    from refold.server.repeats import Repeats

T = TypeVar("T")
Note = Callable[[Deed], Awaitable[None]]
READERS = 4  # threads that read the store


class ServerOptions(Struct, frozen=True):
    """How a server is reached and what it may do."""

    host: str = "127.0.0.1"
    port: int = 7399
    public_address: str = ""  # what people type, as https://refold.example.org; empty: only this machine
    read_only: bool = False

    @property
    def is_secure(self) -> bool:
        return self.public_address.startswith("https://")


class ShownSetting(Struct, frozen=True):
    """A setting as administrators see it: no value is a secret."""

    name: str
    value: Any
    origin: str  # a variable, a line of a file, the command line, or `default`


class ServerFacts(Struct, frozen=True):
    """What a server is told about itself, to show it."""

    store: str = ""  # its kind, in words
    address: str = ""  # of the store, without a password
    settings: tuple[ShownSetting, ...] = ()


class Readers:
    """Threads that read, so that no reader delays a turn or the event loop."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(READERS, "refold-read")

    async def __call__(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


class ServiceParts(Struct, frozen=True):
    options: ServerOptions
    views: Views
    read: Readers
    engine: Engine | None  # None: this server only reads
    credentials: Credentials
    cursors: Cursors
    catalogue: Catalogue
    changes: Changes
    version: str
    metrics: Metrics
    note: Note | None  # adds a row to the audit log; None: a server that only reads changes nothing
    operations: "Operations | None"  # None: a server that only reads
    repeats: "Repeats | None"  # None: a server that only reads
    facts: ServerFacts
    is_ready: Callable[[], str]  # why the server is not ready; empty: it is
    desk: "Callable[[asyncio.Event], RemoteDesk] | None" = None  # makes the desk of remote workers; None: there is none


class Service:
    """One for a server."""

    def __init__(self, parts: ServiceParts) -> None:
        self.options, self.views, self.read, self.version = parts.options, parts.views, parts.read, parts.version
        self.credentials, self.cursors, self.catalogue = parts.credentials, parts.cursors, parts.catalogue
        self.changes, self.is_ready, self.metrics = parts.changes, parts.is_ready, parts.metrics
        self.note, self.repeats, self.facts = parts.note, parts.repeats, parts.facts
        self._engine, self._operations = parts.engine, parts.operations
        self.moments = Moments(parts.views)
        self.log = SharedLog(parts.views, parts.read)
        self.stopping = asyncio.Event()  # set when the server ends: streams say goodbye
        self._desk = None if parts.desk is None else parts.desk(self.stopping)
        self.streams: dict[str, int] = {}  # open streams by credential

    @property
    def engine(self) -> Engine:
        """Raises HttpProblem if this server only reads."""
        if self._engine is None:
            why = "this server only reads: start it without --read-only"
            raise HttpProblem(403, "read_only", "The server only reads", why)
        return self._engine

    @property
    def has_desk(self) -> bool:
        return self._desk is not None

    @property
    def desk(self) -> "RemoteDesk":
        """Raises HttpProblem if this server only reads."""
        if self._desk is None:
            raise HttpProblem(403, "read_only", "The server only reads", "start it without --read-only")
        return self._desk

    @property
    def operations(self) -> "Operations":
        """Raises HttpProblem if this server only reads."""
        if self._operations is None:
            why = "this server only reads: start it without --read-only"
            raise HttpProblem(403, "read_only", "The server only reads", why)
        return self._operations

    @property
    def is_steering(self) -> bool:
        return self._engine is not None

    def reasons(self, row: Summary, graph: Graph, state: RunState) -> list[Reason]:
        """Why a run waits now."""
        languages = unknown if self._engine is None else self._engine.mailroom.turns.languages
        return run_reasons(self.views, row, graph, state, self.now(), languages)

    def now(self) -> Instant:
        return self.views.now()

    async def row(self, run: str) -> Summary:
        """Raises NotFound. Only a whole id names a run here."""
        found: Summary | None = await self.read(lambda: self.views.summary(run))
        if found is None:
            raise NotFound(f"there is no run {run}")
        return found

    def folded(self, run: str) -> tuple[Graph, RunState]:
        """Fold the log of a run; call it on a thread for readers."""
        return RunReader(self.views, run).read()
