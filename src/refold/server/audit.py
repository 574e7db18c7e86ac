"""The audit log: who did what through the server. Rows are only added, and each has the hash of the row before it."""

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct, json, structs

from refold.core.outcomes import SECOND, Instant
from refold.errors import Corrupt
from refold.ports import Advance, Store, StoreTurn, Views
from refold.queries.runs import stamp
from refold.server.access import Deed
from refold.server.problems import invalid
from refold.server.routes import Answer, Call

ROWS, HEAD = "audit", "audit-head"  # kinds of documents
KEPT = 400 * 24 * 3600 * SECOND
PAGE = 500
MOST = 1000  # rows of one answer


class AuditRow(Struct, frozen=True):
    number: int
    at: Instant
    deed: Deed
    previous: str  # the hash of the row before


class AuditHead(Struct, frozen=True):
    """The last row, so that a row that was cut off at the end is missed too."""

    number: int = 0
    hash: str = ""


def hash_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class AuditLog:
    """What the server writes to."""

    def __init__(self, store: Store, advance: Advance, now: Callable[[], Instant]) -> None:
        self._store, self._advance, self._now = store, advance, now

    async def note(self, deed: Deed) -> None:
        """Add a row, in a commit of its own."""

        def write() -> None:
            with self._store.turn(()) as turn:
                head, version = head_of(turn)
                row = AuditRow(head.number + 1, self._now(), deed, head.hash)
                data = json.encode(row)
                turn.put_document(ROWS, row_id(row.number), data)
                turn.put_document(HEAD, HEAD, json.encode(AuditHead(row.number, hash_of(data))), version)

        await self._advance(write)

    async def tidy(self) -> None:
        """Remove rows that are older than 400 days, a page at a time."""

        def remove() -> None:
            before = self._now() - KEPT
            for each in self._store.views.documents(ROWS, "", PAGE):
                if json.decode(each.data, type=AuditRow).at >= before:
                    return
                with self._store.turn(()) as turn:
                    turn.delete_document(ROWS, each.id, each.version)

        await self._advance(remove)


def head_of(turn: StoreTurn) -> tuple[AuditHead, int]:
    found = turn.document(HEAD, HEAD)
    return (AuditHead(), 0) if found is None else (json.decode(found.data, type=AuditHead), found.version)


def row_id(number: int) -> str:
    """Ids are in the order of the rows."""
    return f"{number:015d}"


def audit_rows(views: Views, after: int = 0) -> Iterator[tuple[AuditRow, bytes]]:
    """Every row after a number, with its bytes, the oldest first."""
    last = row_id(after) if after else ""
    while part := views.documents(ROWS, last, PAGE):
        for each in part:
            yield json.decode(each.data, type=AuditRow), each.data
        last = part[-1].id


def verify(views: Views) -> int:
    """Return how many rows there are, if each follows the one before it. Raises Corrupt, which names the first that
    does not."""
    count, before = 0, AuditHead()
    for row, data in audit_rows(views):
        if count and (row.number != before.number + 1 or row.previous != before.hash):
            raise Corrupt(f"audit row {row.number} does not follow row {before.number}: a row was changed or removed")
        count, before = count + 1, AuditHead(row.number, hash_of(data))
    found = views.document(HEAD, HEAD)
    head = AuditHead() if found is None else json.decode(found.data, type=AuditHead)
    if head != before:
        raise Corrupt(f"the audit log ends with row {before.number}, and row {head.number} was the last")
    return count


class AuditQuery(Struct, frozen=True, forbid_unknown_fields=True):
    after: int = 0
    limit: int = 100


def row_object(row: AuditRow) -> dict[str, Any]:
    return {"number": row.number, "at": stamp(row.at), **structs.asdict(row.deed)}


async def list_audit(call: Call) -> Answer:
    query: AuditQuery = call.query
    if not 1 <= query.limit <= MOST or query.after < 0:
        raise invalid("?limit", f"{query.limit} is not between 1 and {MOST}")

    def look() -> list[AuditRow]:
        rows = audit_rows(call.service.views, query.after)
        return [row for (row, _), _ in zip(rows, range(query.limit), strict=False)]

    rows = await call.service.read(look)
    return Answer({"items": [row_object(row) for row in rows], "more": len(rows) == query.limit})
