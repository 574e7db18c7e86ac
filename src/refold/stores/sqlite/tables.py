"""What the tables of a file say, checked row by row; the store and its views read by it, each on its connections."""

from collections.abc import Callable, Collection, Sequence
from hashlib import sha256
from typing import Any

from msgspec import json

from refold.core.fold.apply import Record
from refold.core.read.summary import Summary
from refold.errors import Corrupt, NotFound
from refold.ports import Document, Limit
from refold.stores.clock import Mark, StoreClock
from refold.stores.limits import Bucket
from refold.stores.sqlite import queries
from refold.stores.sqlite.file import File
from refold.stores.sqlite.rows import (
    BLOBS,
    CHANGES,
    DOCUMENTS,
    LIMITS,
    PLANS,
    RUNS,
    WEIGHTS,
    Values,
    check,
    malformed,
    read_fact,
    read_run,
    seal,
)

ALL = -1  # as a limit
MOST_CHANGES = 1 << 62

Ask = Callable[..., list[Values]]
"""Runs a query: its text, and what is bound behind the namespace."""


class Tables:
    """Reads what turns and views both need; `ask` chooses the connection."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask

    def row(self, query: str, *bindings: Any) -> Values | None:
        rows = self.ask(query, *bindings)
        return rows[0] if rows else None

    def plan(self, hash: str) -> bytes | None:
        row = self.row(queries.PLAN, hash)
        if row is None:
            return None
        PLANS.check((hash,), row)
        if sha256(row[0]).hexdigest() != hash:
            raise Corrupt(f"workflow {hash} is not what its name says (table plans, column data)")
        return bytes(row[0])

    def facts(self, run: str, after: int = 0, limit: int | None = None) -> Sequence[Record]:
        row = self.row(queries.RUN, run)  # first: meanwhile others may add facts, but never take one away
        rows = self.ask(queries.FACTS, run, after, ALL if limit is None else limit)
        if row is not None:
            RUNS.check((run,), row)
        last = after + len(rows) if row is None else row[0]
        if limit is not None:
            last = min(last, after + limit)
        records = [read_fact(run, row) for row in rows]
        numbers = [record[0] for record in records]
        if len(numbers) < last - after or numbers != list(range(after + 1, after + len(numbers) + 1)):
            raise Corrupt(
                f"not all of the facts {after + 1} to {last} of run {run} are there (table runs, column head, says how "
                "many there must be in table facts)"
            )
        return records

    def some_facts(self, run: str, numbers: Collection[int]) -> Sequence[Record]:
        wanted = json.encode(sorted(set(numbers))).decode()
        return [read_fact(run, row) for row in self.ask(queries.SOME_FACTS, run, wanted)]

    def turn_of(self, run: str, number: int) -> str | None:
        for row in self.ask(queries.FACTS, run, number - 1, 1):
            if row[0] == number:
                read_fact(run, row)
                return None if row[3] is None else str(row[3])
        return None

    def blob(self, run: str, hash: str) -> bytes:
        row = self.row(queries.BLOB, run, hash)
        if row is None:
            raise NotFound(f"run {run} has no blob {hash}")
        BLOBS.check((run, hash), row)
        check(f"blob {hash} of run {run}", (run, hash, row[0]), row[1], "blobs")
        return bytes(row[0])

    def summary(self, run: str) -> Summary | None:
        row = self.row(queries.RUN, run)
        if row is None and self.ask(queries.FACTS, run, 0, 1):
            raise Corrupt(f"run {run} has a log and no row: `refold db rebuild` makes the row again")
        return None if row is None else read_run(run, row)

    def snapshot(self, run: str) -> bytes | None:
        """One that does not read as it was written counts as none."""
        row = self.row(queries.SNAPSHOT, run)
        if row is None or tuple(map(type, row)) != (bytes, int) or row[1] != seal((run, row[0])):
            return None
        return bytes(row[0])

    def document(self, kind: str, id: str) -> Document | None:
        row = self.row(queries.DOCUMENT, kind, id)
        return None if row is None else read_document(kind, row)


def read_document(kind: str, row: Values) -> Document:
    """Raises Corrupt."""
    DOCUMENTS.check((kind, row[0]), row)
    id, version, due, data, mark = row
    check(f"document {id} of the kind {kind}", (kind, id, version, due, data), mark, "documents")
    return Document(kind, id, version, bytes(data), due)


def read_limit(row: Values) -> tuple[Limit, Bucket]:
    """Raises Corrupt."""
    LIMITS.check((row[0],), row)
    name, slots, rate, burst, tokens, at, mark = row
    check(f"limit {name}", tuple(row[:6]), mark, "limits")
    return Limit(name=name, slots=slots, rate=rate, burst=burst), Bucket(tokens, at)


def limit_row(namespace: str, limit: Limit, bucket: Bucket) -> Values:
    rate = None if limit.rate is None else float(limit.rate)
    values = (limit.name, limit.slots, rate, float(limit.burst), float(bucket.tokens), bucket.at)
    return (namespace, *values, seal(values))


def read_weight(row: Values) -> tuple[str, int]:
    """Raises Corrupt."""
    WEIGHTS.check((row[0],), row)
    share, weight, mark = row
    check(f"the weight of share {share}", (share, weight), mark, "weights")
    return share, weight


def read_mark(file: File, namespace: str, clock: StoreClock) -> None:
    """Continue the time of the last process that wrote. A mark that does not read as it was written is ignored; the
    next commit writes another."""
    row = file.row(queries.MARK, (namespace,))
    if row is None or row[3] != seal((namespace, *row[:3])):
        return
    mark = Mark(*row[:3])
    if mark.is_plausible():
        clock.resume(mark)


def put_mark(file: File, namespace: str, clock: StoreClock) -> None:
    """Write down what the clock shows, so that the time continues from there in the next process. Only inside a
    transaction."""
    mark = clock.mark()
    values = (namespace, mark.at, mark.steady, mark.boot)
    file.write(queries.PUT_MARK, [(*values, seal(values))])


def last_change(ask: Callable[[str], Sequence[Values]]) -> tuple[str, int, int]:
    """Return the run that changed last with its head and the number of that change; no run if it was removed.
    Raises Corrupt."""
    rows = ask(queries.LAST_CHANGED) or ask(queries.REMOVED_CHANGE)
    run, head, change, removed = rows[0] if rows else ("", 0, 0, 0)
    CHANGES.check((run,), (run, head, change))
    if type(removed) is not int:
        raise malformed("removed_changes", (), "change", f"{removed!r} is not an integer")
    if removed > change:
        run, head, change = "", 0, removed
    if not 0 <= change <= MOST_CHANGES:
        raise malformed("runs", (run,), "change", f"{change} is not the number of a change")
    return run, head, change
