"""What the command line asks of a server in place of a database: the views of the store, as they are.

Who may not see values gets rows without messages. Documents are only those of schedules and dismissed failures: tokens,
sessions and the audit log are none of them.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from msgspec import Raw, Struct, json, structs

from refold.core.facts import StepFault
from refold.core.fold.apply import Record
from refold.core.outcomes import Fault
from refold.core.read.summary import Summary
from refold.errors import NotFound
from refold.ports import RunFilter, RunPage
from refold.queries.dead_letters import DISMISSED
from refold.queries.reading import stored_plan
from refold.queries.runs import list_runs
from refold.schedules.documents import BACKFILL, CALENDAR, SCHEDULE, TIME
from refold.server.problems import forbidden, invalid
from refold.server.routes import Answer, Call
from refold.server.runs import may_see

MOST = 1000  # rows of one answer
MOST_BYTES = 900_000  # of one answer; one row is there in any case
DOCUMENTS = (SCHEDULE, TIME, BACKFILL, CALENDAR, DISMISSED)


class RunsAsked(Struct, frozen=True, forbid_unknown_fields=True):
    status: str | None = None
    workflow: str | None = None
    name: str | None = None
    key: str | None = None
    label: tuple[str, ...] = ()
    since: int | None = None  # microseconds since 1970
    until: int | None = None
    parent: str | None = None
    error: str = ""
    after_at: int | None = None  # the place in the list: the start and the id of the run before it
    after_run: str = ""
    limit: int = 100
    most: int = 10_000  # where counting stops

    def wanted(self) -> RunFilter:
        labels = (pair.partition(":")[::2] for pair in self.label)
        return RunFilter(
            self.status,
            self.workflow,
            self.name,
            self.key,
            tuple(sorted(labels)),
            self.since,
            self.until,
            self.parent,
            self.error,
        )


class CalledAsked(Struct, frozen=True, forbid_unknown_fields=True):
    text: str
    status: str | None = None
    limit: int = 100


class RecordsAsked(Struct, frozen=True, forbid_unknown_fields=True):
    after: int = 0
    limit: int = MOST
    number: tuple[str, ...] = ()  # only these facts


class StreamAsked(Struct, frozen=True, forbid_unknown_fields=True):
    after: int = 0
    before: int | None = None  # the last lines before this one, the newest first
    backwards: bool = False
    limit: int = MOST
    search: str = ""


class LeasesAsked(Struct, frozen=True, forbid_unknown_fields=True):
    run: str | None = None


class DeadAsked(Struct, frozen=True, forbid_unknown_fields=True):
    fingerprint: str | None = None
    limit: int = 100


class PlansAsked(Struct, frozen=True, forbid_unknown_fields=True):
    beginning: str
    limit: int = 10


class DocumentsAsked(Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    id: str | None = None  # only this one
    after: str = ""
    limit: int = 100


def _most(limit: int, name: str = "limit") -> int:
    if limit < 1:
        raise invalid(f"?{name}", f"{limit} is not above 0")
    return min(limit, MOST)


def _seen(rows: Iterable[Summary], call: Call) -> list[Summary]:
    return [_shown(row, call) for row in rows if call.credential.sees(row.workflow)]


def _shown(row: Summary, call: Call) -> Summary:
    if row.error is None or call.credential.may("values"):
        return row
    fault = None if row.error.fault is None else Fault(row.error.fault.kind, "")
    return structs.replace(row, error=StepFault(row.error.step, row.error.visit, "failed", fault))


async def now(call: Call) -> Answer:
    return Answer(call.service.views.now())


async def runs(call: Call) -> Answer:
    query: RunsAsked = call.query
    after = None if query.after_at is None else (query.after_at, query.after_run)
    wanted, limit = _wanted(query, call), _most(query.limit)

    def look() -> RunPage:
        views = call.service.views
        if call.credential.workflows is None:
            page = views.runs(wanted, after, limit)
            return structs.replace(page, rows=_seen(page.rows, call))
        seen = (row for row in list_runs(views, wanted, after=after) if call.credential.sees(row.workflow))
        rows = list(islice(seen, limit))  # the place of the next part names no run of others
        last = (rows[-1].created_at, rows[-1].run) if len(rows) == limit else None
        return RunPage([_shown(row, call) for row in rows], last, last is not None)

    return Answer(await call.service.read(look))


async def called(call: Call) -> Answer:
    query: CalledAsked = call.query
    limit = _most(query.limit)
    found = await call.service.read(lambda: call.service.views.called(query.text, query.status, limit))
    return Answer(_seen(found, call))


async def count(call: Call) -> Answer:
    query: RunsAsked = call.query
    wanted, most = _wanted(query, call), max(1, min(query.most, 10_000))

    def look() -> tuple[int, bool]:
        if call.credential.workflows is None:
            return call.service.views.count(wanted, most)
        seen = (row for row in list_runs(call.service.views, wanted) if call.credential.sees(row.workflow))
        number = sum(1 for _ in islice(seen, most + 1))
        return min(number, most), number > most

    return Answer(await call.service.read(look))


def _wanted(query: RunsAsked, call: Call) -> RunFilter:
    """Raises HttpProblem: to look for a message is to see it."""
    if query.error and not call.credential.may("values"):
        raise forbidden("values")
    return query.wanted()


async def summary(call: Call) -> Answer:
    run = call.path["run"]
    row: Summary | None = await call.service.read(lambda: call.service.views.summary(run))
    if row is not None and not call.credential.sees(row.workflow):
        row = None
    return Answer(None if row is None else _shown(row, call))


async def _row(call: Call) -> Summary:
    row = await call.service.row(call.path["run"])
    may_see(call, row)
    return row


async def facts(call: Call) -> Answer:
    """Facts as they are stored, as many as fit into an answer."""
    query: RecordsAsked = call.query
    row, limit = await _row(call), _most(query.limit)
    if not all(each.isdecimal() and len(each) < 16 for each in query.number):
        raise invalid("?number", "a fact has a number from 1")
    numbers = [int(each) for each in query.number]

    def look() -> tuple[list[Any], bool]:
        views = call.service.views
        records = views.some_facts(row.run, numbers) if numbers else views.facts(row.run, query.after, limit)
        return _fitting(records, limit)

    items, more = await call.service.read(look)
    return Answer({"items": items, "more": more})


def _fitting(records: Sequence[Record] | Sequence[tuple[int, Any]], limit: int) -> tuple[list[Any], bool]:
    items: list[Any] = []
    size = 0
    for each in records:
        data = json.encode(each)
        size += len(data)
        if items and size > MOST_BYTES:
            return items, True
        items.append(Raw(data))
    return items, len(records) >= limit


async def lines(call: Call) -> Answer:
    query: StreamAsked = call.query
    row, limit = await _row(call), _most(query.limit)

    def look() -> tuple[list[Any], bool]:
        views = call.service.views
        if query.backwards:
            return _fitting(views.last_lines(row.run, query.before, limit), limit)
        return _fitting(views.lines(row.run, query.after, limit, query.search), limit)

    items, more = await call.service.read(look)
    return Answer({"items": items, "more": more})


async def plan(call: Call) -> Answer:
    hash = call.path["hash"]
    data = await call.service.read(lambda: call.service.views.plan(hash))
    if data is None or not call.credential.sees(stored_plan(hash, data).name):
        raise NotFound(f"there is no plan {hash}")
    return Answer(raw=data, headers={"cache-control": "private, max-age=31536000, immutable"})


async def plans(call: Call) -> Answer:
    query: PlansAsked = call.query
    limit = _most(query.limit)
    return Answer(await call.service.read(lambda: call.service.views.plans(query.beginning, limit)))


async def queues(call: Call) -> Answer:
    return Answer(await call.service.read(call.service.views.queues))


async def shares(call: Call) -> Answer:
    return Answer(await call.service.read(call.service.views.shares))


async def limits(call: Call) -> Answer:
    return Answer(await call.service.read(call.service.views.limits))


async def workers(call: Call) -> Answer:
    return Answer(await call.service.read(call.service.views.workers))


async def leases(call: Call) -> Answer:
    query: LeasesAsked = call.query

    def look() -> list[Any]:
        views = call.service.views
        found = views.leases(query.run)
        if call.credential.workflows is None:
            return list(found)
        rows = {run: views.summary(run) for run in {each.run for each in found}}
        seen = {run for run, row in rows.items() if row is not None and call.credential.sees(row.workflow)}
        return [each for each in found if each.run in seen]

    return Answer(await call.service.read(look))


async def dead(call: Call) -> Answer:
    query: DeadAsked = call.query
    limit = max(1, min(query.limit, 10_000))
    found = await call.service.read(lambda: call.service.views.dead(query.fingerprint, limit))
    return Answer([each for each in found if call.credential.sees(each.workflow)])


async def documents(call: Call) -> Answer:
    """The documents of schedules, of their times and of their backfills, and calendars."""
    query: DocumentsAsked = call.query
    if query.kind not in DOCUMENTS:
        raise invalid("?kind", f"{query.kind!r} is not one of {', '.join(DOCUMENTS)}")
    if call.credential.workflows is not None:
        raise NotFound("a credential that is limited to some workflows reads schedules one by one")
    limit = _most(query.limit)

    def look() -> list[Any]:
        views = call.service.views
        if query.id is not None:
            found = views.document(query.kind, query.id)
            return [] if found is None else [found]
        return list(views.documents(query.kind, query.after, limit))

    return Answer(await call.service.read(look))
