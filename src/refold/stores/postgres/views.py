"""Reading from any thread: sessions of its own, no lock, and only what is committed."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeVar

from msgspec import json

from refold.core.fold.apply import Record
from refold.core.outcomes import Instant
from refold.core.read.dead_letters import DeadLetter
from refold.core.read.summary import Summary
from refold.errors import Corrupt, NotFound, Unusable
from refold.ports import (
    ALL_RUNS,
    MOST_SCANNED,
    Abilities,
    ChangePosition,
    Document,
    FeedFact,
    Health,
    Leased,
    Limit,
    LimitUse,
    LiveWorker,
    Queue,
    RunChanges,
    RunCursor,
    RunFilter,
    RunPage,
    Share,
)
from refold.stores.limits import Bucket, limit_use
from refold.stores.postgres import queries
from refold.stores.postgres.address import Address, read_address
from refold.stores.postgres.arrays import Ints
from refold.stores.postgres.connection import Row, Session
from refold.stores.postgres.feed import feed_end, read_feed
from refold.stores.postgres.migrate import check_version
from refold.stores.postgres.server_time import GivenTime, ServerTime
from refold.stores.postgres.turn import ALL, read_fact, read_summary

T = TypeVar("T")
LINES = 1000  # read together while they are searched

_dead_letter = json.Decoder(DeadLetter).decode


class PostgresViews:
    """Opens a session when it needs one more than it has: as many as threads have ever read at the same time.

    `on_wrong` hears of rows that cannot be read where others are of use without them; without it they are raised.
    """

    def __init__(
        self,
        address: Address,
        ns: int,
        time: ServerTime | GivenTime,
        on_wrong: Callable[[Corrupt], object] | None = None,
    ) -> None:
        self.address, self.ns, self._time, self._on_wrong = address, ns, time, on_wrong
        self._lock = Lock()
        self._free: list[Session] = []
        self._is_closed = False

    def now(self) -> Instant:
        return self._time.seen(self._ask(queries.OPENING, self.ns)[0][0])

    def runs(self, wanted: RunFilter = ALL_RUNS, after: RunCursor | None = None, limit: int = 100) -> RunPage:
        ways = _ways(wanted)
        most = MOST_SCANNED if len(ways) > 1 else min(limit, MOST_SCANNED)
        what, value = self._shortest(ways, wanted)
        bounds, moments = _bounds(wanted, after)
        rows = self._ask(queries.runs_by(what, bounds), self.ns, *value, *moments, most + 1)
        page: list[Summary] = []
        last, more = after, len(rows) > most
        for row in rows[:most]:
            if len(page) == limit:
                more = True
                break
            last = (row[1], row[0])
            page += (each for each in self._readable(_summary, [row]) if wanted.fits(each))
        return RunPage(page, last, more)

    def called(self, text: str, status: str | None = None, limit: int = 100) -> Sequence[Summary]:
        values = (self.ns, status, status, text, text, text, limit)
        return self._readable(_summary, self._ask(queries.RUNS_CALLED, *values))

    def count(self, wanted: RunFilter = ALL_RUNS, most: int = 10_000) -> tuple[int, bool]:
        ways = _ways(wanted)
        number = self._count_pages(wanted, most) if len(ways) > 1 else self._count(ways[0], wanted, most + 1)
        return min(number, most), number > most

    def _count(self, way: "Way", wanted: RunFilter, most: int) -> int:
        what, value = way
        bounds, moments = _bounds(wanted)
        return int(self._ask(queries.count_runs_by(what, bounds), self.ns, *value, *moments, most)[0][0])

    def _shortest(self, ways: "Sequence[Way]", wanted: RunFilter) -> "Way":
        """The way that finds the fewest rows; counting stops at as many as one part of a list may read."""
        if len(ways) == 1:
            return ways[0]
        return min(ways, key=lambda way: self._count(way, wanted, MOST_SCANNED))

    def _count_pages(self, wanted: RunFilter, most: int) -> int:
        page = self.runs(wanted, limit=MOST_SCANNED)
        number = len(page.rows)
        while page.more and number <= most:
            page = self.runs(wanted, page.after, MOST_SCANNED)
            number += len(page.rows)
        return number

    def feed(self, cursor: str = "", limit: int = 500) -> Sequence[FeedFact]:
        return read_feed(self._ask, self.ns, cursor, limit)

    def feed_end(self) -> str:
        return feed_end(self._ask, self.ns)

    def changed(self, since: ChangePosition | None = None, limit: int = 1000) -> RunChanges:
        """A position is a transaction and the number of a run."""
        if since is None:
            last = self._ask(queries.LAST_CHANGED, self.ns)
            return RunChanges((last[0][0], last[0][1]) if last else (0, 0))
        rows = self._ask(queries.CHANGED, self.ns, str(since[0]), since[1], limit)
        position = (rows[-1][1], rows[-1][2]) if rows else since
        return RunChanges(position, {run: head for run, _, _, head in rows})

    def summary(self, run: str) -> Summary | None:
        rows = self._ask(queries.RUN, self.ns, run)
        return read_summary(rows[0][0], rows[0][1]) if rows else None

    def facts(self, run: str, after: int = 0, limit: int | None = None) -> Sequence[Record]:
        rows = self._ask(queries.FACTS, self.ns, run, after, ALL if limit is None else limit)
        numbers = [row[0] for row in rows]
        if numbers != list(range(after + 1, after + len(numbers) + 1)):
            raise Corrupt(f"the log of run {run} has gaps behind fact {after} (table facts)")
        return [read_fact(run, row) for row in rows]

    def some_facts(self, run: str, numbers: Collection[int]) -> Sequence[Record]:
        rows = self._ask(queries.SOME_FACTS, self.ns, run, Ints(sorted(set(numbers))))
        return [read_fact(run, row) for row in rows]

    def blob(self, run: str, hash: str) -> bytes:
        rows = self._ask(queries.BLOB, self.ns, run, hash)
        if not rows:
            raise NotFound(f"run {run} has no blob {hash}")
        return bytes(rows[0][0])

    def snapshot(self, run: str) -> bytes | None:
        rows = self._ask(queries.SNAPSHOT, self.ns, run)
        return bytes(rows[0][0]) if rows else None

    def lines(self, run: str, after: int = 0, limit: int | None = None, search: str = "") -> Sequence[tuple[int, Any]]:
        wanted = json.encode(search)[1:-1]  # as it is written inside a JSON text
        if not search:
            rows = self._ask(queries.STREAM, self.ns, run, after, ALL if limit is None else limit)
            return [(n, json.decode(data)) for n, data in rows]
        lines: list[tuple[int, Any]] = []
        while limit is None or len(lines) < limit:
            rows = self._ask(queries.STREAM, self.ns, run, after, LINES)
            lines += [(n, json.decode(data)) for n, data in rows if wanted in bytes(data)]
            if len(rows) < LINES:
                break
            after = rows[-1][0]
        return lines[:limit]

    def last_lines(self, run: str, before: int | None = None, limit: int = 100) -> Sequence[tuple[int, Any]]:
        rows = self._ask(queries.STREAM_BACKWARDS, self.ns, run, ALL if before is None else before, limit)
        return [(n, json.decode(data)) for n, data in rows]

    def plan(self, hash: str) -> bytes | None:
        rows = self._ask(queries.PLAN, self.ns, hash)
        return bytes(rows[0][0]) if rows else None

    def plans(self, beginning: str, limit: int = 10) -> Sequence[str]:
        return [hash for (hash,) in self._ask(queries.PLANS, self.ns, len(beginning), beginning, limit)]

    def queues(self) -> Sequence[Queue]:
        return [Queue(*row) for row in self._ask(queries.QUEUES, self.ns)]

    def shares(self) -> Sequence[Share]:
        return [Share(*row) for row in self._ask(queries.SHARES, self.ns, self.ns)]

    def limits(self) -> Sequence[LimitUse]:
        now, found = self.now(), list[LimitUse]()
        for name, slots, rate, burst, tokens, at, leased, waiting in self._ask(queries.LIMITS, self.ns):
            limit = Limit(name=name, slots=slots, rate=rate, burst=burst)
            found.append(limit_use(limit, leased, waiting, Bucket(tokens, at), now))
        return found

    def workers(self) -> Sequence[LiveWorker]:
        rows = self._ask(queries.WORKERS, self.ns, self._time.now())
        busy = {worker: (count, beat_at) for worker, count, beat_at in self._ask(queries.LEASES_BY_WORKER, self.ns)}
        found: list[LiveWorker] = []
        for worker, tools, queues_ in rows:
            can = Abilities(
                worker, None if queues_ is None else tuple(queues_), None if tools is None else frozenset(tools)
            )
            found.append(LiveWorker(can, *busy.get(worker, (0, 0))))
        return found

    def leases(self, run: str | None = None) -> Sequence[Leased]:
        return [Leased(*row) for row in self._ask(queries.LEASES, self._time.now(), self.ns, run, run)]

    def dead(self, fingerprint: str | None = None, limit: int = 100) -> Sequence[DeadLetter]:
        rows = self._ask(queries.DEAD, self.ns, fingerprint, fingerprint, limit)
        return self._readable(_dead, rows)

    def document(self, kind: str, id: str) -> Document | None:
        rows = self._ask(queries.DOCUMENT, self.ns, kind, id)
        return Document(*rows[0]) if rows else None

    def documents(self, kind: str, after: str = "", limit: int = 100) -> Sequence[Document]:
        return [Document(*row) for row in self._ask(queries.DOCUMENTS, self.ns, kind, after, limit)]

    def due_documents(self, kind: str, limit: int = 100) -> tuple[Sequence[Document], Instant | None]:
        now = self._time.now()
        due = [Document(*row) for row in self._ask(queries.DUE_DOCUMENTS, self.ns, kind, now, limit)]
        return due, self._ask(queries.NEXT_DUE_DOCUMENT, self.ns, kind, now)[0][0]

    def health(self, thorough: bool = False) -> Health:
        from refold.stores.postgres.health import examine

        with self._session() as session:
            return examine(session, thorough)

    def sizes(self) -> Mapping[str, int]:
        sql = queries.SIZES.replace("%(ns)s", str(int(self.ns)))
        return dict(zip(queries.TABLES, self._ask(sql)[0], strict=True))

    def backup(self, target: str) -> None:
        raise Unusable(
            f"{target} was not written: a database of PostgreSQL is copied by pg_dump or pg_basebackup, and "
            f"`refold db copy {self.address.shown} FILE` writes a file of Refold"
        )

    def report(self, error: Corrupt) -> None:
        if self._on_wrong is None:
            raise error
        self._on_wrong(error)

    def close(self) -> None:
        with self._lock:
            self._is_closed, sessions, self._free = True, self._free, []
        for session in sessions:
            session.close()

    def _readable(self, read: Callable[[Row], T], rows: Sequence[Row]) -> list[T]:
        found: list[T] = []
        for row in rows:
            try:
                found.append(read(row))
            except Corrupt as error:
                self.report(error)
        return found

    def _ask(self, sql: str, *values: Any) -> list[Row]:
        with self._session() as session:
            return session.rows(sql, *values)

    @contextmanager
    def _session(self) -> Iterator[Session]:
        """A session that no other thread uses meanwhile."""
        with self._lock:
            if self._is_closed:
                raise Unusable(f"{self.address.shown} was closed")
            session = self._free.pop() if self._free else None
        if session is None:
            session = Session(self.address, reading=True)
        try:
            yield session
        finally:
            with self._lock:
                is_closed = self._is_closed
                if not is_closed:
                    self._free.append(session)
            if is_closed:
                session.close()


Way = tuple[str, tuple[str, ...]]
"""An index that finds runs, and the value to look for."""


def _ways(wanted: RunFilter) -> list[Way]:
    """Every index that serves a filter. Those that are not used are compared with the rows that were read."""
    values = (
        ("key", wanted.key),
        ("name", wanted.name),
        *(("label", f"{key}={value}") for key, value in wanted.labels),
        ("status", wanted.status),
        ("workflow", wanted.workflow),
    )
    ways: list[Way] = [(what, (value,)) for what, value in values if value]
    is_all = all(value is None or value for _, value in values)  # what is empty is in no index
    is_all = is_all and wanted.parent is None and not wanted.error  # nor are these
    age: Way = ("age", ())
    return (ways or [age]) if is_all else [*(ways or [age]), age]  # of several ways, the rows are compared


def _bounds(wanted: RunFilter, after: RunCursor | None = None) -> tuple[str, tuple[Any, ...]]:
    """Bounds of a query, and their values; `{t}` is the table of the index."""
    bounds, values = "", list[Any]()
    if wanted.since is not None:
        bounds, values = " and {t}.created_at >= %s", [wanted.since]
    if wanted.until is not None:
        bounds, values = bounds + " and {t}.created_at < %s", [*values, wanted.until]
    if after is not None:
        bounds, values = bounds + " and ({t}.created_at, {t}.run) < (%s, %s)", [*values, *after]
    return bounds, tuple(values)


def _summary(row: Row) -> Summary:
    return read_summary(row[2], row[3])


def _dead(row: Row) -> DeadLetter:
    try:
        return _dead_letter(row[0])
    except ValueError as error:
        raise Corrupt(f"a dead letter is not readable: {error} (table dead, column data)") from error


NAMESPACE = "select ns from refold.namespaces where name = %s"


def open_postgres_views(url: str, on_wrong: Callable[[Corrupt], object] | None = None) -> PostgresViews:
    """Views without a store. Raises Unusable."""
    address = read_address(url)
    session = Session(address, reading=True)
    try:
        with session.guard:
            check_version(session)
            rows = session.rows(NAMESPACE, address.namespace)
    finally:
        session.close()
    if not rows:
        raise NotFound(f"{address.shown} has no namespace {address.namespace!r}: `refold run` makes it")
    views = PostgresViews(address, rows[0][0], ServerTime(), on_wrong)
    views.now()
    return views
