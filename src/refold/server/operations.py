"""Operations on many runs or schedules, in two steps: the first counts and pins what it would act on, the second acts
on exactly these, at a rate, through crashes of servers, with an outcome for each."""

import asyncio
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Literal

from msgspec import Struct, json, structs

from refold.core.outcomes import SECOND, Instant
from refold.core.read.summary import Summary
from refold.core.state import CANCELLED, COMPLETED, FAILED, PAUSED, TERMINAL
from refold.errors import Conflict, InvalidValue, NotFound, RefoldError
from refold.logs import WARNING, event, logger
from refold.ports import RunFilter, Views
from refold.queries.dead_letters import runs_to_retry
from refold.queries.runs import STATUSES, list_runs, moment, with_started
from refold.runtime.engine import Engine
from refold.runtime.schedule_changes import list_schedules, pause_schedule, resume_schedule
from refold.server.access import Credential
from refold.server.documents import Documents, Read
from refold.server.problems import HttpProblem

log = logger("server")

Action = Literal["pause", "resume", "cancel", "retry", "redrive", "migrate", "delete"]
State = Literal["counted", "running", "done", "stopped"]
OPERATION, PART = "operation", "operation-part"  # kinds of documents
MOST = 100_000  # runs of one operation
PINNED = 500  # in one document
SHOWN = 20
EXPIRES = 600 * SECOND  # after it was counted, if nobody lets it go
KEPT = 30 * 24 * 3600 * SECOND  # after its last change
LEASE = 30 * SECOND  # after which another server goes on with it
TOGETHER = 20  # requests at a time; after a crash, so many of them are asked again
LOOK = 5.0  # seconds between two looks for work that another server has left
FASTEST = 10_000.0  # requests in a second

ON_SCHEDULES: tuple[Action, ...] = ("pause", "resume")


class WantedRuns(Struct, frozen=True, forbid_unknown_fields=True):
    """Which runs are meant: those that fit everything that is given."""

    status: tuple[str, ...] = ()
    workflow: str | None = None
    plan: str | None = None
    name: str | None = None
    key: str | None = None
    labels: dict[str, str] = {}
    since: str | None = None
    until: str | None = None
    parent: str | None = None  # the run that has started them
    error: str = ""  # a part of the message
    fingerprint: str = ""  # of dead letters: only for redrive


class OperationBody(Struct, frozen=True, forbid_unknown_fields=True):
    action: Action
    on: Literal["runs", "schedules"] = "runs"
    filter: WantedRuns | None = None
    ids: tuple[str, ...] | None = None  # instead of a filter
    to: str = ""  # the hash of a plan: for migrate
    reason: str = ""  # for cancel, and for the pause of schedules


class GoBody(Struct, frozen=True, forbid_unknown_fields=True):
    rate: float = 100.0  # requests in a second


class Operation(Struct, frozen=True):
    """What was asked, and how far it is."""

    id: str
    action: Action
    on: Literal["runs", "schedules"]
    by: str
    at: Instant
    count: int
    to: str = ""
    reason: str = ""
    workflows: tuple[str, ...] | None = None  # that the author may steer; None: all
    state: State = "counted"
    rate: float = 100.0
    done: int = 0
    refused: int = 0
    part: int = 0  # the first that may have something left
    server: str = ""  # that works on it, until its lease ends
    until: Instant = 0
    changed_at: Instant = 0


class Pinned(Struct):
    """One run or schedule of an operation. `why` is the reason of a refusal; `outcome` is empty before it was asked."""

    id: str
    outcome: str = ""
    why: str = ""


def part_id(operation: str, number: int) -> str:
    return f"{operation}/{number:06d}"


def why_not(row: Summary, action: Action, to: str) -> str:
    """Return why an action cannot be done with a run as it is now; empty: it can, as far as its row says."""
    over = row.status in TERMINAL
    match action:
        case "pause" if over or row.status == PAUSED:
            return f"it is {row.status}"
        case "resume" if row.status != PAUSED:
            return f"it is {row.status}"
        case "cancel" if over:
            return f"it is {row.status}"
        case "retry" | "redrive" if row.parent:
            return "another run has started it: retry that one"
        case "retry" if row.status not in (FAILED, CANCELLED):
            return f"it is {row.status}"
        case "redrive" if row.status not in (FAILED, CANCELLED, COMPLETED):
            return f"it is {row.status}"
        case "migrate" if over:
            return f"it is {row.status}"
        case "migrate" if row.plan == to:
            return "it follows this plan already"
        case "delete" if not over:
            return f"it is {row.status}: cancel it first"
    return ""


def chosen_rows(views: Views, body: OperationBody, now: Instant) -> Iterator[Summary]:
    """The runs that are meant, each once."""
    if body.ids is not None:
        for run in dict.fromkeys(body.ids):
            row = views.summary(run)
            if row is None:
                raise NotFound(f"there is no run {run}")
            yield row
        return
    wanted = body.filter or WantedRuns()
    if wanted.fingerprint:
        yield from runs_to_retry(views, [wanted.fingerprint], (), False)
        return
    filter = RunFilter(
        wanted.status[0] if len(wanted.status) == 1 else None,
        wanted.workflow,
        wanted.name,
        wanted.key,
        tuple(sorted(wanted.labels.items())),
        moment(wanted.since, now),
        moment(wanted.until, now),
        wanted.parent,
        error=wanted.error,
    )
    for row in list_runs(views, filter):
        if wanted.status and row.status not in wanted.status:
            continue
        if wanted.plan in (None, row.plan):
            yield row


class OperationCounts(Struct):
    """What the first step of an operation found."""

    pinned: list[str]
    first: list[Summary]
    refused: list[tuple[str, str]]  # the first of those with which it cannot be done, and why
    why: dict[str, int]  # how many by reason


def counted(rows: Iterable[Summary], body: OperationBody, credential: Credential) -> OperationCounts:
    """Raises HttpProblem if there are more than MOST."""
    found, reasons = OperationCounts([], [], [], {}), Counter[str]()
    for row in rows:
        if not credential.sees(row.workflow):
            if body.ids is not None:
                raise NotFound(f"there is no run {row.run}")
            continue
        if why := why_not(row, body.action, body.to):
            reasons[why] += 1
            if len(found.refused) < SHOWN:
                found.refused.append((row.run, why))
            continue
        if len(found.pinned) == MOST:
            why = f"an operation acts on at most {MOST:,} runs: narrow the filter"
            raise HttpProblem(413, "too_large", "The operation is too large", why)
        found.pinned.append(row.run)
        if len(found.first) < SHOWN:
            found.first.append(row)
    found.why = dict(reasons)
    return found


class Operations:
    """Keeps operations as documents, and works on those that were let go. Every server of a store does; a lease says
    which of them works on one."""

    def __init__(self, documents: Documents, read: Read, views: Views, engine: Engine) -> None:
        self._documents, self._read, self._views, self._engine = documents, read, views, engine
        self._me = os.urandom(8).hex()
        self._wake = asyncio.Event()

    async def put(self, operation: Operation, pinned: Sequence[str]) -> None:
        for number in range(math.ceil(len(pinned) / PINNED)):
            part = [Pinned(id) for id in pinned[number * PINNED : (number + 1) * PINNED]]
            await self._documents.put(PART, part_id(operation.id, number), json.encode(part))
        await self._documents.put(OPERATION, operation.id, json.encode(operation))

    async def find(self, id: str) -> tuple[Operation, int]:
        """Return an operation and its version. Raises NotFound; one that expired is not there any more."""
        found = await self._documents.get(OPERATION, id)
        if found is None:
            raise NotFound(f"there is no operation {id!r}")
        operation = json.decode(found.data, type=Operation)
        if self._is_gone(operation):
            raise NotFound(f"operation {id!r} has expired: count again")
        return operation, found.version

    def _is_gone(self, operation: Operation) -> bool:
        now = self._views.now()
        if operation.state == "counted":
            return now >= operation.at + EXPIRES
        return operation.state in ("done", "stopped") and now >= operation.changed_at + KEPT

    async def every(self) -> list[Operation]:
        found = [json.decode(each.data, type=Operation) for each in await self._documents.all(OPERATION)]
        return sorted((each for each in found if not self._is_gone(each)), key=lambda each: (-each.at, each.id))

    async def change(self, id: str, change: Callable[[Operation], Operation]) -> Operation:
        """Raises NotFound, or what `change` raises."""
        while True:
            operation, version = await self.find(id)
            changed = structs.replace(change(operation), changed_at=self._views.now())
            with suppress(Conflict):
                await self._documents.put(OPERATION, id, json.encode(changed), version)
                self._wake.set()
                return changed

    async def parts(self, operation: Operation) -> list[Pinned]:
        found: list[Pinned] = []
        for number in range(math.ceil(operation.count / PINNED)):
            document = await self._documents.get(PART, part_id(operation.id, number))
            found += [] if document is None else json.decode(document.data, type=list[Pinned])
        return found

    async def run(self) -> None:
        """Work on operations until cancelled."""
        while True:
            self._wake.clear()
            try:
                for operation in await self.every():
                    if operation.state == "running" and self._is_free(operation):
                        await self._work(operation.id)
            except RefoldError as error:
                event(log, WARNING, "operations could not be read", why=str(error))
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await self._wake.wait()

    def _is_free(self, operation: Operation) -> bool:
        return operation.server in ("", self._me) or self._views.now() >= operation.until

    async def _work(self, id: str) -> None:
        """Act on what is left, a few at a time, as long as nobody stops it and no other server has taken it."""

        def take(operation: Operation) -> Operation:
            if operation.state != "running" or not self._is_free(operation):
                raise Conflict("another server works on it, or it was stopped")
            return structs.replace(operation, server=self._me, until=self._views.now() + LEASE)

        try:
            operation = await self.change(id, take)
        except Conflict:
            return
        for number in range(operation.part, math.ceil(operation.count / PINNED)):
            while True:
                document = await self._documents.get(PART, part_id(id, number))
                part = [] if document is None else json.decode(document.data, type=list[Pinned])
                left = [each for each in part if not each.outcome][: min(TOGETHER, max(1, int(operation.rate)))]
                if document is None or not left:
                    break
                began = asyncio.get_running_loop().time()
                await asyncio.gather(*(self._act(operation, each) for each in left))
                await self._documents.put(PART, document.id, json.encode(part), document.version)
                operation = await self.change(id, self._progress(left, number))
                if operation.state != "running" or operation.server != self._me:
                    return
                await self._pace(operation, began, len(left))
        with suppress(Conflict):
            await self.change(id, lambda known: structs.replace(take(known), state="done", server=""))

    def _progress(self, asked: Sequence[Pinned], number: int) -> Callable[[Operation], Operation]:
        """What was done counts, also of an operation that somebody has just stopped."""
        refused = sum(each.outcome == "refused" for each in asked)

        def change(known: Operation) -> Operation:
            mine = known.state == "running" and known.server == self._me
            until = self._views.now() + LEASE if mine else known.until
            done = known.done + len(asked) - refused
            return structs.replace(known, done=done, refused=known.refused + refused, part=number, until=until)

        return change

    async def _pace(self, operation: Operation, began: float, number: int) -> None:
        """Wait as long as the rate says, unless somebody changes the operation meanwhile."""
        loop = asyncio.get_running_loop()
        while (left := began + number / operation.rate - loop.time()) > 0:
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._wake.wait()
                known, _ = await self.find(operation.id)
                if known.state != "running" or known.rate != operation.rate:
                    return

    async def _act(self, operation: Operation, pinned: Pinned) -> None:
        try:
            await self._request(operation, pinned.id)
            pinned.outcome = "done"
        except RefoldError as error:
            pinned.outcome, pinned.why = "refused", str(error)

    async def _request(self, operation: Operation, id: str) -> None:
        """Raises the reason for a refusal."""
        engine, by = self._engine, operation.by
        if operation.on == "schedules":
            if operation.action == "pause":
                await engine.change_schedules(lambda store: pause_schedule(store, id, operation.reason, by))
            else:
                await engine.change_schedules(lambda store: resume_schedule(store, id))
            return
        row: Summary | None = await self._read(lambda: self._views.summary(id))
        if row is None:
            raise NotFound(f"there is no run {id}")
        if why := why_not(row, operation.action, operation.to):
            raise Conflict(f"run {id}: {why}")
        match operation.action:
            case "pause":
                await engine.pause(id, by)
            case "resume":
                await engine.resume(id, by)
            case "cancel":
                await engine.cancel(id, operation.reason, by)
            case "retry":
                await engine.retry(id, by=by)
            case "redrive" if row.status == COMPLETED:
                await engine.retry_items(id, "", (), by)  # only what failed and was tolerated
            case "redrive":
                await engine.retry(id, by=by)
            case "migrate":
                await engine.migrate(id, operation.to, by)
            case "delete":
                await remove_family(self._read, self._views, engine, row)

    async def tidy(self) -> None:
        """Remove operations that have expired."""
        for document in await self._documents.all(OPERATION):
            operation = json.decode(document.data, type=Operation)
            if self._is_gone(operation):
                for number in range(math.ceil(operation.count / PINNED)):
                    part = await self._documents.get(PART, part_id(operation.id, number))
                    if part is not None:
                        await self._documents.delete(PART, part.id, part.version)
                with suppress(Conflict):
                    await self._documents.delete(OPERATION, document.id, document.version)


async def remove_family(read: Read, views: Views, engine: Engine, row: Summary) -> None:
    """Remove a run that is over, with its child runs. Raises Conflict if one of them is not over."""

    def check() -> list[str]:
        family = with_started(views, row)
        for each in family:
            if each.status not in TERMINAL:
                raise Conflict(f"run {each.run} is {each.status}: cancel it first")
        return [each.run for each in family]

    runs: list[str] = await read(check)

    def remove() -> None:
        with engine.store.turn(runs) as turn:
            for run in runs:
                turn.remove(run)

    await engine.advance(remove)


def check_operation(body: OperationBody) -> None:
    """Raises InvalidValue or HttpProblem."""
    if (body.filter is None) == (body.ids is None):
        raise InvalidValue("filter", "say which with `filter`, or name them with `ids`; a filter may be empty")
    if body.ids is not None and len(body.ids) > MOST:
        raise HttpProblem(413, "too_large", "The operation is too large", f"at most {MOST:,} ids")
    if body.on == "schedules" and (body.action not in ON_SCHEDULES or body.filter not in (None, WantedRuns())):
        raise InvalidValue("on", "schedules are paused and resumed: by `ids`, or all of them with an empty filter")
    if (body.action == "migrate") != bool(body.to):
        raise InvalidValue("to", "the hash of a plan goes with `migrate`, and `migrate` needs one")
    if body.filter is not None and body.filter.fingerprint and body.action != "redrive":
        raise InvalidValue("filter.fingerprint", "it goes with `redrive`")
    if body.filter is not None and (strange := sorted({*body.filter.status} - {*STATUSES})):
        raise InvalidValue("filter.status", f"{strange[0]!r} is not one of {', '.join(STATUSES)}")


def counted_schedules(views: Views, body: OperationBody, credential: Credential) -> OperationCounts:
    found, reasons, after = OperationCounts([], [], [], {}), Counter[str](), ""
    wanted = None if body.ids is None else set(body.ids)
    while page := list_schedules(views, after, 200):
        for each in page:
            if (wanted is not None and each.id not in wanted) or not credential.sees(each.target.name):
                continue
            if wanted is not None:
                wanted.discard(each.id)
            if each.paused == (body.action == "pause"):
                why = "it is paused" if each.paused else "it is not paused"
                reasons[why] += 1
                found.refused += [(each.id, why)] * (len(found.refused) < SHOWN)
            else:
                found.pinned.append(each.id)
        after = page[-1].id
    if wanted:
        raise NotFound(f"there is no schedule {min(wanted)!r}")
    found.why = dict(reasons)
    return found
