"""Reading a file from any thread: connections of its own, no lock of the writer, and only what is committed."""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any, TypeVar

import apsw
from msgspec import json

from refold.core.fold.apply import Record
from refold.core.outcomes import Instant
from refold.core.read.dead_letters import DeadLetter
from refold.core.read.summary import Summary
from refold.core.state import FAILED
from refold.errors import Corrupt, Unusable
from refold.ports import (
    ALL_RUNS,
    MOST_SCANNED,
    Abilities,
    ChangePosition,
    Document,
    FeedFact,
    Health,
    Leased,
    LimitUse,
    LiveWorker,
    Queue,
    RunChanges,
    RunCursor,
    RunFilter,
    RunPage,
    Share,
)
from refold.stores.clock import StoreClock
from refold.stores.feed import ahead_of, read_cursor, write_cursor
from refold.stores.limits import limit_use
from refold.stores.sqlite import queries
from refold.stores.sqlite.file import File, OnWrong, readable_rows
from refold.stores.sqlite.locks import ALIVE_UNTIL, LOCK_NAME, file_system_of, mount_table
from refold.stores.sqlite.migrate import APPLICATION, newest
from refold.stores.sqlite.rows import (
    ABILITIES,
    CHANGES,
    FAR,
    FEED,
    LINES,
    WORKERS,
    CommandRow,
    Values,
    check,
    label_text,
    malformed,
    read_dead,
    read_queued,
    read_run,
)
from refold.stores.sqlite.tables import ALL, Tables, last_change, read_document, read_limit, read_mark, read_weight

T = TypeVar("T")
LINES_AT_ONCE = 1000  # read at once while they are searched
TABLES = (
    "runs",
    "labels",
    "facts",
    "commands",
    "timers",
    "letters",
    "blobs",
    "snapshots",
    "streams",
    "dead",
    "plans",
    "workers",
    "documents",
)


class SqliteViews:
    """Opens a connection when it needs one more than it has: as many as threads have ever read at the same time.

    `on_wrong` hears of rows that cannot be read where others are of use without them; without it they are raised.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        clock: StoreClock,
        *,
        namespace: str = "default",
        patience: float = 10.0,
        vfs: str | None = None,
        on_wrong: OnWrong | None = None,
    ) -> None:
        self.path, self.namespace, self.clock = os.path.realpath(path), namespace, clock
        self._patience, self._vfs, self._on_wrong = patience, vfs, on_wrong
        self._lock = Lock()
        self._free: list[File] = []
        self._is_closed = False
        self._tables = Tables(self._ask)

    def open(self) -> "SqliteViews":
        """Raise now what is wrong with the file, and not at the first question."""
        with self._connection():
            return self

    def now(self) -> Instant:
        with self._connection():  # whose opening has read how far the time of the file is
            return self.clock.now()

    def runs(self, wanted: RunFilter = ALL_RUNS, after: RunCursor | None = None, limit: int = 100) -> RunPage:
        ways = _ways(wanted)
        what, value = way = self._shortest(ways, wanted)
        bounds, moments = _bounds(wanted, after)
        edge: RunCursor | None = None
        if len(ways) > 1:  # further conditions are checked on a bounded number of rows
            edges = self._ask(queries.edge_of_runs_by(what, bounds), *value, *moments, MOST_SCANNED - 1)
            edge = (edges[0][0], edges[0][1]) if edges else None
        if edge is not None:
            bounds, moments = f"{bounds} and (created_at, run) >= {_place(edge)}", (*moments, *edge)
        also, values = _also(wanted, way) if len(ways) > 1 else ("", ())
        most = min(limit, MOST_SCANNED)
        rows = self._ask(queries.runs_by(what, bounds, also), *value, *moments, *values, most + 1)
        found = readable_rows(_summary, rows[:most], self.report)
        page = [each for each in found if wanted.fits(each)]
        if len(rows) > most:
            return RunPage(page, (rows[most - 1][3], rows[most - 1][0]), more=True)
        return RunPage(page, edge or _last(rows, after), more=edge is not None)

    def called(self, text: str, status: str | None = None, limit: int = 100) -> Sequence[Summary]:
        return readable_rows(_summary, self._ask(queries.RUNS_CALLED, status, text, limit), self.report)

    def count(self, wanted: RunFilter = ALL_RUNS, most: int = 10_000) -> tuple[int, bool]:
        ways = _ways(wanted)
        number = self._count_pages(wanted, most) if len(ways) > 1 else self._count(ways[0], wanted, most + 1)
        return min(number, most), number > most

    def _count(self, way: "Way", wanted: RunFilter, most: int) -> int:
        what, value = way
        bounds, moments = _bounds(wanted)
        return int(self._ask(queries.count_runs_by(what, bounds), *value, *moments, most)[0][0])

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
        change, number = read_cursor("s", cursor, 2)
        found: list[FeedFact] = []
        parts = [_part(row) for row in self._ask(queries.FEED, change, limit + 1)]
        if cursor and not parts and change > self._last_change():
            raise ahead_of(cursor)
        for at_change, run, after, until in parts:
            first = max(after, number) if at_change == change else after
            for at, moment, fact in self.facts(run, first, min(until - first, limit - len(found))):
                found.append(FeedFact(run, at, moment, fact, write_cursor("s", (at_change, at))))
            if len(found) >= limit:
                return found
        if parts and not found and len(parts) > limit:  # of runs that have no facts
            return self.feed(write_cursor("s", (parts[-1][0], parts[-1][2])), limit)
        return found

    def feed_end(self) -> str:
        rows = self._ask(queries.FEED_END)
        return write_cursor("s", (_part(rows[0])[0], _part(rows[0])[3])) if rows else ""

    def _last_change(self) -> int:
        with self._connection() as file:
            return last_change(lambda query: file.rows(query, (self.namespace,)))[2]

    def changed(self, since: ChangePosition | None = None, limit: int = 1000) -> RunChanges:
        if since is None:
            with self._connection() as file:
                _, head, change = last_change(lambda query: file.rows(query, (self.namespace,)))
            return RunChanges((change, head))
        change, head = since
        changes = readable_rows(_change, self._ask(queries.CHANGED, change, change, head, limit), self.report)
        position = (changes[-1][2], changes[-1][1]) if changes else since
        return RunChanges(position, {run: head for run, head, _ in changes})

    def summary(self, run: str) -> Summary | None:
        return self._tables.summary(run)

    def facts(self, run: str, after: int = 0, limit: int | None = None) -> Sequence[Record]:
        return self._tables.facts(run, after, limit)

    def some_facts(self, run: str, numbers: Collection[int]) -> Sequence[Record]:
        return self._tables.some_facts(run, numbers)

    def blob(self, run: str, hash: str) -> bytes:
        return self._tables.blob(run, hash)

    def snapshot(self, run: str) -> bytes | None:
        return self._tables.snapshot(run)

    def lines(self, run: str, after: int = 0, limit: int | None = None, search: str = "") -> Sequence[tuple[int, Any]]:
        if not search:
            return list(self._lines(run, after, limit, b""))
        lines: list[tuple[int, Any]] = []
        wanted = json.encode(search)[1:-1]  # as it is written inside a JSON text
        while limit is None or len(lines) < limit:
            last = self._ask(queries.STREAM, run, after, LINES_AT_ONCE)
            lines += self._lines(run, after, LINES_AT_ONCE, wanted)
            if len(last) < LINES_AT_ONCE:
                break
            after = last[-1][0]
        return lines[:limit]

    def _lines(self, run: str, after: int, limit: int | None, wanted: bytes) -> Iterator[tuple[int, Any]]:
        rows = self._ask(queries.STREAM, run, after, ALL if limit is None else limit)
        for expected, row in enumerate(rows, after + 1):
            LINES.check((run, row[0]), row)
            n, data, mark = row
            check(f"line {expected} of run {run}", (run, expected, data), mark if n == expected else -1, "streams")
            if wanted in data:
                yield n, LINES.decoded((run, n), "data", json.decode, data)

    def last_lines(self, run: str, before: int | None = None, limit: int = 100) -> Sequence[tuple[int, Any]]:
        rows = self._ask(queries.STREAM_BACKWARDS, run, FAR if before is None else before, limit)
        lines: list[tuple[int, Any]] = []
        for row in rows:
            LINES.check((run, row[0]), row)
            n, data, mark = row
            check(f"line {n} of run {run}", (run, n, data), mark, "streams")
            lines.append((n, LINES.decoded((run, n), "data", json.decode, data)))
        return lines

    def plan(self, hash: str) -> bytes | None:
        return self._tables.plan(hash)

    def plans(self, beginning: str, limit: int = 10) -> Sequence[str]:
        rows = self._ask(queries.PLANS, len(beginning), beginning, limit)
        return [hash for (hash,) in rows if type(hash) is str]

    def queues(self) -> Sequence[Queue]:
        rows = self._ask(queries.QUEUE_SIZES)
        return [Queue(name, waiting, leased, oldest) for name, waiting, leased, oldest in rows if type(name) is str]

    def shares(self) -> Sequence[Share]:
        rows = self._ask(queries.SHARE_SIZES)
        counts = {share: (int(waiting), int(leased)) for share, waiting, leased in rows if type(share) is str}
        weights = dict(readable_rows(read_weight, self._ask(queries.WEIGHTS), self.report))
        names = sorted(counts.keys() | weights.keys())
        return [Share(name, weights.get(name, 1), *counts.get(name, (0, 0))) for name in names]

    def limits(self) -> Sequence[LimitUse]:
        rows = self._ask(queries.LIMIT_SIZES)
        counts = {name: (int(leased), int(waiting)) for name, waiting, leased in rows if type(name) is str}
        limits = readable_rows(read_limit, self._ask(queries.LIMITS), self.report)
        now = self.now()
        return [limit_use(limit, *counts.get(limit.name, (0, 0)), bucket, now) for limit, bucket in limits]

    def workers(self) -> Sequence[LiveWorker]:
        rows = self._ask(queries.ABILITIES)
        alive = self._alive()
        cans = readable_rows(_abilities, (row for row in rows if row[0] in alive), self.report)
        leases = readable_rows(read_queued, self._ask(queries.LEASES), self.report)
        return [_live_worker(can, leases) for can in sorted(cans, key=lambda can: can.worker)]

    def _alive(self) -> frozenset[str]:
        """The workers that have claimed something and whose processes have not ended since."""
        with self._connection() as file:
            rows = file.readable(read_worker, file.rows(queries.WORKERS, (self.namespace, "")))
            life = file.life
            now = self.now()
            return frozenset(worker for worker, lock in rows if life.is_held(lock, now))

    def leases(self, run: str | None = None) -> Sequence[Leased]:
        rows = self._ask(queries.LEASES) if run is None else self._ask(queries.CLAIMED, run)
        leased = readable_rows(read_queued, rows, self.report)
        alive = self._alive() if leased else frozenset[str]()
        return [
            Leased(each.run, each.id, each.worker or "", each.until, each.worker in alive, each.claimed_at)
            for each in leased
        ]

    def dead(self, fingerprint: str | None = None, limit: int = 100) -> Sequence[DeadLetter]:
        if fingerprint is None:
            return readable_rows(read_dead, self._ask(queries.DEAD, limit), self.report)
        return readable_rows(read_dead, self._ask(queries.DEAD_ALIKE, fingerprint, limit), self.report)

    def document(self, kind: str, id: str) -> Document | None:
        return self._tables.document(kind, id)

    def documents(self, kind: str, after: str = "", limit: int = 100) -> Sequence[Document]:
        rows = self._ask(queries.DOCUMENTS, kind, after, limit)
        return readable_rows(partial(read_document, kind), rows, self.report)

    def due_documents(self, kind: str, limit: int = 100) -> tuple[Sequence[Document], Instant | None]:
        now = self.clock.now()
        next_due = self._tables.row(queries.NEXT_DUE_DOCUMENT, kind, now)
        due = readable_rows(
            partial(read_document, kind), self._ask(queries.DUE_DOCUMENTS, kind, now, limit), self.report
        )
        return due, None if next_due is None or type(next_due[0]) is not int else next_due[0]

    def health(self, thorough: bool = False) -> Health:
        with self._connection() as file:
            return examine(file, thorough)

    def sizes(self) -> Mapping[str, int]:
        with self._connection() as file:
            return {table: file.rows(f"select count(*) from {table}", ())[0][0] for table in TABLES}

    def backup(self, target: str) -> None:
        with self._connection() as file:
            file.backup(target)

    def report(self, error: Corrupt) -> None:
        if self._on_wrong is None:
            raise error
        self._on_wrong(error)

    def close(self) -> None:
        with self._lock:
            self._is_closed, files, self._free = True, self._free, []
        for file in files:
            file.close()

    def _ask(self, query: str, *bindings: Any) -> list[Values]:
        with self._connection() as file:
            return file.rows(query, (self.namespace, *bindings))

    @contextmanager
    def _connection(self) -> Iterator[File]:
        """A connection that no other thread uses meanwhile."""
        with self._lock:
            if self._is_closed:
                raise Unusable(f"{self.path} was closed")
            file = self._free.pop() if self._free else None
        if file is None:
            file = File(self.path, self._patience, self._vfs, reading=True, on_wrong=self._on_wrong)
            read_mark(file, self.namespace, self.clock)
        try:
            file.check_place()
            yield file
        finally:
            with self._lock:
                is_closed = self._is_closed
                if not is_closed:
                    self._free.append(file)
            if is_closed:
                file.close()


def examine(file: File, thorough: bool = False) -> Health:
    """Read back from the connection and the file, not from what was asked for."""
    pragma, log = file.db.pragma, f"{file.path}-wal"
    check = [str(row[0]) for row in file.rows("pragma integrity_check", ())] if thorough else []
    journal_mode, synchronous = "wal" if file.is_logged() else pragma("journal_mode"), pragma("synchronous")
    mode = oct(os.stat(file.path).st_mode & 0o777)
    page_size, pages = pragma("page_size"), pragma("page_count")
    log_bytes = os.path.getsize(log) if os.path.exists(log) else 0
    return Health(
        schema=pragma("user_version"),
        is_ours=pragma("user_version") == newest() and pragma("application_id") == APPLICATION,
        size=page_size * pages + log_bytes,
        is_writable=os.access(file.path, os.W_OK) and os.access(os.path.dirname(file.path), os.W_OK),
        is_durable=journal_mode == "wal" and synchronous == 2,  # 2 is FULL
        damage=() if check == ["ok"] else tuple(check),
        details={
            "path": file.path,
            "sqlite": apsw.sqlite_lib_version(),
            "file_system": file_system_of(file.path, mount_table()),
            "schema": pragma("user_version"),
            "journal_mode": journal_mode,
            "synchronous": synchronous,
            "page_size": page_size,
            "pages": pages,
            "free": page_size * int(pragma("freelist_count")),
            "log_bytes": log_bytes,
            "mode": mode,
        },
    )


PLAIN_COLUMNS = ("status", "workflow", "name", "key", "parent")
PLAIN = re.compile(r"[a-z0-9 _.,:;()/=-]+")
Way = tuple[str, tuple[str, ...]]
"""An index that finds runs, and the value to look for."""


def _ways(wanted: RunFilter) -> list[Way]:
    """Every index that serves a filter. Those that are not used are compared with the rows that were read."""
    values = (
        ("key", wanted.key),
        ("name", wanted.name),
        ("status", wanted.status or (FAILED if wanted.error else None)),
        ("workflow", wanted.workflow),
        *(("label", label_text(*label)) for label in wanted.labels),
    )
    ways: list[Way] = [(what, (value,)) for what, value in values if value]
    if wanted.parent is not None:
        ways.append(("parent", (wanted.parent,)))  # last: most runs have no parent
    is_all = all(value is None or value for _, value in values)  # what is empty is in no index
    is_all = is_all and not wanted.error  # nor is this
    age: Way = ("age", ())
    return (ways or [age]) if is_all else [*(ways or [age]), age]  # of several ways, the rows are compared


def _also(wanted: RunFilter, way: Way) -> tuple[str, Values]:
    """Return the conditions that the index of a way does not check, and their values. What they let through is checked
    again, and nothing that fits is left out."""
    conditions = [
        *(
            (what, value)
            for what in ("status", "workflow", "name", "key", "parent")
            if (value := getattr(wanted, what))
        ),
        *(("label", label_text(*label)) for label in wanted.labels),
        *((("status", FAILED), ("error", part)) if wanted.error and (part := _searched(wanted.error)) else ()),
        *((("parent", ""),) if wanted.parent == "" else ()),
    ]
    left = [(what, value) for what, value in conditions if way != (what, (value,))]
    return "".join(f" and {queries.ALSO[what]}" for what, _ in left), tuple(value for _, value in left)


def _searched(text: str) -> str:
    """Return a pattern for the longest part of a text that summaries hold as it is, apart from capitals; empty: there
    is no such part."""
    part = max(PLAIN.findall(text.lower()), key=len, default="")
    return f"%{part.replace('_', chr(92) + '_')}%" if part else ""


def _last(rows: Sequence[Values], after: RunCursor | None) -> RunCursor | None:
    return (rows[-1][3], rows[-1][0]) if rows else after


def _bounds(wanted: RunFilter, after: RunCursor | None = None) -> tuple[str, Values]:
    """Bounds of a query, and their values."""
    bounds, moments = "", list[Any]()
    if wanted.since is not None:
        bounds, moments = " and created_at >= ?", [wanted.since]
    if wanted.until is not None:
        bounds, moments = bounds + " and created_at < ?", [*moments, wanted.until]
    if after is not None:
        bounds, moments = f"{bounds} and (created_at, run) < {_place(after)}", [*moments, *after]
    return bounds, tuple(moments)


def _place(after: RunCursor) -> str:
    """Return the cursor as a query has it. Text that is not UTF-8 was read as bytes, and SQLite sorts bytes behind all
    text: without the cast the same row would be found again, without end."""
    return f"({', '.join('cast(? as text)' if isinstance(each, bytes) else '?' for each in after)})"


def _change(row: Values) -> tuple[str, int, int]:
    CHANGES.check(row[:1], row)
    return row[0], row[1], row[2]


def _summary(row: Values) -> Summary:
    return read_run(row[0], row[1:])


def _live_worker(can: Abilities, leases: Sequence[CommandRow]) -> LiveWorker:
    own = [each for each in leases if each.worker == can.worker]
    return LiveWorker(can, len(own), max((each.beat_at for each in own), default=0))


def read_worker(row: Values) -> tuple[str, str]:
    WORKERS.check(row[:1], row)
    if row[1] and LOCK_NAME.fullmatch(row[1]) is None and ALIVE_UNTIL.fullmatch(row[1]) is None:
        raise malformed("workers", row[:1], "lock", f"{row[1]!r} is not the name of a lock")
    return row[0], row[1]


def _abilities(row: Values) -> Abilities:
    """Its tools are None if it has not said which it has."""
    ABILITIES.check(row[:1], row)
    worker, tools, queues = row
    can_tools = ABILITIES.decoded((worker,), "tools", _names, tools)
    can_queues = ABILITIES.decoded((worker,), "queues", _names, queues)
    return Abilities(worker, can_queues, None if can_tools is None else frozenset(can_tools))


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else json.decode(text, type=tuple[str, ...])


def _part(row: Values) -> tuple[int, str, int, int]:
    """Raises Corrupt."""
    FEED.check((row[0],), row)
    change, run, after, until = row
    return change, run, after, until
