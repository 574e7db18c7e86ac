"""The desk of remote workers: what they claim, report and ask goes to the desk of this process, under their session.

A worker sends its session and an id with each call, so that a call that comes twice is made once. What it holds it
shows by vouchers, which this server or another one of the same store has signed.
"""

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import Struct, json

from refold.core.commands import LetterReport
from refold.core.facts import Fact, ItemsSettled, PageCame, StepSettled
from refold.core.outcomes import SECOND, Instant, Report
from refold.core.state import TERMINAL
from refold.doorbells.local import LocalDoorbell
from refold.errors import Conflict, InvalidValue, LeaseLost, NotFound, RefoldError, StaleWrite, Unavailable
from refold.logs import logger
from refold.ports import Advance, Lease, Place, Store
from refold.runtime.desk import LocalDesk
from refold.server.answers import Answers
from refold.server.desk_sessions import BEATS, DeskSession, DeskSessions
from refold.server.documents import Documents, Read
from refold.server.problems import invalid
from refold.wire import (
    LONGEST_WAIT,
    BeatBody,
    BlobName,
    ClaimBody,
    Payload,
    SentReport,
    Verdict,
    Voucher,
    Vouchers,
    read_done,
)

log = logger("server")

LOOK_EVERY = 1.0  # seconds between two looks while somebody waits, if the doorbell does not ring
SHORTEST_LOOK = 0.25  # seconds between two looks at the leases of a worker
MOST_TOLD = 10_000  # leases of which a server knows that their worker has let go
MOST_RUNS = 1000  # that a worker asks about at once
PART = 512 * 1024  # bytes of a blob in one document
BLOBS, LINES = "desk-blob", "desk-lines"
KEPT_FOR = 3600 * SECOND  # what a worker has sent and not used


class PublishedLines(Struct, frozen=True):
    """How many lines were published under a lease."""

    generation: int
    n: int


class Claimed(Struct, frozen=True):
    """Leases for a worker; `is_new`: this claim has made them, and nobody else gives them to it."""

    leases: tuple[Lease, ...] = ()
    is_new: bool = False

    def __bool__(self) -> bool:
        return bool(self.leases)


class DeskParts(Struct, frozen=True):
    desk: LocalDesk
    store: Store
    advance: Advance
    read: Read
    documents: Documents
    doorbell: LocalDoorbell
    vouchers: Vouchers
    lease_for: float
    stopping: asyncio.Event


class RemoteDesk:
    """One for a server."""

    def __init__(self, parts: DeskParts) -> None:
        self.desk, self.store, self.advance, self.read = parts.desk, parts.store, parts.advance, parts.read
        self.documents, self.doorbell, self.vouchers = parts.documents, parts.doorbell, parts.vouchers
        self.lease_for, self.stopping = parts.lease_for, parts.stopping
        self.beat_every = parts.lease_for / 3
        self.sessions, self.answers = DeskSessions(parts.documents), Answers()
        self.on_the_way: set[Place] = set()  # leases of claims that are being answered
        self._let_go: deque[Place] = deque(maxlen=MOST_TOLD)  # leases that their workers have settled or handed back

    @property
    def alive_for(self) -> float:
        return self.beat_every * BEATS

    def now(self) -> int:
        return self.store.now()

    # ---- leases

    async def claim(self, session: DeskSession, body: ClaimBody, began: Instant) -> "Claimed":
        """Return the leases that the worker has and does not know, or else the next one. What it was given since the
        request began is on its way with other answers."""
        known = {*body.known, *self.on_the_way}
        held = await self.desk.leases_of(session.worker)
        unknown = [each for each in held if place(each) not in known and each.claimed_at < began]
        if unknown or session.stop:
            return Claimed(tuple(unknown), False)
        lease = await self.desk.claim(session.can(self.alive_for, body.full), self.lease_for)
        if lease is None:
            return Claimed()
        self.on_the_way.add(place(lease))
        return Claimed((lease,), True)

    async def wait_for(
        self, seconds: float, look: Callable[[], Awaitable[Any]], has_left: Callable[[], Awaitable[bool]], pause: float
    ) -> Any:
        """Look again and again, when the doorbell rings or after a while, until there is something, the time is over,
        the server stops or the client has gone."""
        loop = asyncio.get_running_loop()
        until = loop.time() + min(max(seconds, 0.0), LONGEST_WAIT)
        with self.doorbell.another() as bell:
            while not (found := await look()):
                left = until - loop.time()
                if left <= 0 or self.stopping.is_set():
                    break
                await asyncio.sleep(min(pause, left))
                await bell.wait(max(0.0, min(LOOK_EVERY, until - loop.time())))
                if await has_left():
                    break
        return found

    async def settle(self, session: DeskSession, sent: SentReport, then: Any) -> tuple[Verdict, Lease | None]:
        voucher = self.voucher(session, sent.voucher)
        lease = voucher.lease()
        try:
            done = read_done(await self.payload(session, voucher.run, sent.done))
            following = await self.desk.settle(lease, done, then)
        except StaleWrite as stale:
            current = json.encode(stale.current)
            return Verdict("stale", str(stale), "", stale.key, current, stale.version, stale.is_there), None
        except InvalidValue as error:
            return Verdict("invalid", str(error).removeprefix(f"{error.path}: "), error.path), None
        except (LeaseLost, NotFound) as error:
            if await self.advance(lambda: self._is_settled(voucher)):
                return Verdict("already"), None
            return Verdict("lost", await self._who_holds(voucher, str(error))), None
        except Unavailable:
            raise
        except RefoldError as error:
            return Verdict("refused", str(error)), None
        self._let_go.append(voucher.place)
        await self._drop_blob(session, voucher.run, sent.done)
        return Verdict("ok"), following

    def _is_settled(self, voucher: Voucher) -> bool:
        """Whether the log has the report of this lease, or the run keeps it until it can be read."""
        with self.store.turn([voucher.run]) as turn:
            for letter in turn.letters(voucher.run):
                kept = letter.body
                if isinstance(kept, LetterReport) and kept.command == voucher.command and _is_of(kept.report, voucher):
                    return True
            last = turn.head(voucher.run)
            while last > 0:
                page = turn.some_facts(voucher.run, range(max(1, last - 499), last + 1))
                for _, _, fact in reversed(page):
                    if any(_is_of(report, voucher) for report in _reports(fact, voucher)):
                        return True
                if page and page[0][1] < voucher.claimed_at:
                    return False
                last -= 500
        return False

    async def _who_holds(self, voucher: Voucher, why: str) -> str:
        def found() -> Lease | None:
            with self.store.turn([voucher.run]) as turn:
                return turn.lease(voucher.run, voucher.command)

        lease: Lease | None = await self.advance(found)
        if lease is None:
            return f"{why}; nobody holds it now"
        return f"{why}; {lease.worker} holds it now, under generation {lease.generation}"

    async def beat(self, session: DeskSession, body: BeatBody) -> tuple[Sequence[Lease], Collection[Place]]:
        """Extend all leases of a worker; return them, and those of which the run is cancelled."""
        left = {each: seconds for each, seconds in body.left if seconds == seconds and abs(seconds) < 1e9}
        await self.advance(lambda: self.store.enrol(session.can(self.alive_for)))
        await self.sessions.seen(session, self.now())
        leases = await self.desk.extend(session.worker, self.lease_for, left)
        return leases, await self._interrupted(leases, body.told)

    async def watch(
        self, session: DeskSession, body: BeatBody, has_left: Callable[[], Awaitable[bool]]
    ) -> tuple[Sequence[Lease], Collection[Place]]:
        """The same without an extension, as soon as a lease was taken away or its run cancelled, or in the end."""
        seen = set(body.held)
        last: tuple[Sequence[Lease], Collection[Place]] = ((), ())

        async def look() -> bool:
            nonlocal last
            leases = await self.desk.leases_of(session.worker)
            last = leases, await self._interrupted(leases, body.told)
            kept = {place(each) for each in leases}
            gone = seen - kept - set(self._let_go)
            seen.update(kept)
            if gone or last[1] or await self.over(body.runs):
                return True
            return not session.stop and await self.sessions.is_stopping(session)

        await self.wait_for(body.wait, look, has_left, SHORTEST_LOOK)
        return last

    async def over(self, runs: Sequence[str]) -> tuple[str, ...]:
        """Those of these runs that have ended or are not there any more."""

        def ended() -> tuple[str, ...]:
            rows = ((run, self.store.views.summary(run)) for run in runs[:MOST_RUNS])
            return tuple(run for run, row in rows if row is None or row.status in TERMINAL)

        found: tuple[str, ...] = await self.read(ended) if runs else ()
        return found

    async def _interrupted(self, leases: Sequence[Lease], told: Collection[Place]) -> Collection[Place]:
        return set(await self.desk.interrupted(leases)) - set(told) if leases else ()

    async def hand_back(self, session: DeskSession, voucher: Voucher, lost: bool) -> bool:
        held = await self.desk.leases_of(session.worker)
        is_held = any(place(each) == voucher.place for each in held)
        await self.desk.hand_back(voucher.lease(), lost)
        self._let_go.append(voucher.place)
        return is_held

    async def leave(self, session: DeskSession) -> None:
        """The worker has ended: others get what it holds."""
        for lease in await self.desk.leases_of(session.worker):
            await self.desk.hand_back(lease)
        await self.advance(lambda: self.store.enrol(session.can(0.0)))
        await self.sessions.end(session)

    def publish(self, lease: Lease, start: int, lines: Sequence[Any]) -> int:
        """Append the lines behind the first `start` ones, if they are not there already: a request may come twice, and
        much later. Return how many there are. Raises LeaseLost."""
        id = f"{lease.run}/{lease.command.id}"
        with self.store.turn([lease.run]) as turn:
            found = turn.document(LINES, id)
            known = PublishedLines(0, 0) if found is None else json.decode(found.data, type=PublishedLines)
            if known.generation == lease.generation and start < known.n:
                return known.n
            if not turn.publish(lease, lines):
                raise LeaseLost(f"{lease.command.id} of run {lease.run} is no longer held")
            now = PublishedLines(lease.generation, start + len(lines))
            version = 0 if found is None else found.version
            turn.put_document(LINES, id, json.encode(now), version, turn.now + KEPT_FOR)
            return now.n

    # ---- vouchers and values

    def voucher(self, session: DeskSession, written: bytes) -> Voucher:
        """Raises LeaseLost for the voucher of another worker."""
        voucher = self.vouchers.read(written)
        if voucher.worker != session.worker:
            raise LeaseLost(
                f"{voucher.command} of run {voucher.run} was given to {voucher.worker}, not {session.worker}"
            )
        return voucher

    async def payload(self, session: DeskSession, run: str, payload: Payload) -> bytes:
        """Raises InvalidValue for a blob that did not come."""
        if isinstance(payload, bytes):
            return payload
        parts: list[bytes] = []
        while found := await self.documents.get(BLOBS, _part(session, run, payload.hash, len(parts))):
            parts.append(found.data)
        data = b"".join(parts)
        if len(data) != payload.size or hashlib.sha256(data).hexdigest() != payload.hash:
            raise InvalidValue("blob", f"{payload.hash} has not come as a whole: send it before it is named")
        return data

    async def take_blob(self, session: DeskSession, run: str, hash: str, chunks: AsyncIterator[bytes]) -> None:
        """Keep a blob until it is used. Raises HttpProblem if it is not what its name says."""
        rest, digest, count = bytearray(), hashlib.sha256(), 0
        async for chunk in chunks:
            digest.update(chunk)
            rest += chunk
            while len(rest) >= PART:
                await self._put_part(_part(session, run, hash, count), bytes(rest[:PART]))
                del rest[:PART]
                count += 1
        if rest or not count:
            await self._put_part(_part(session, run, hash, count), bytes(rest))
            count += 1
        if digest.hexdigest() != hash:
            await self._drop_parts(session, run, hash)
            raise invalid("/hash", f"the bytes are {digest.hexdigest()}, and not what their name says")

    async def _put_part(self, id: str, data: bytes) -> None:
        while True:
            found = await self.documents.get(BLOBS, id)
            with suppress(Conflict):  # the same came twice at once
                version = 0 if found is None else found.version
                await self.documents.put(BLOBS, id, data, version, self.now() + KEPT_FOR)
                return

    async def _drop_blob(self, session: DeskSession, run: str, payload: Payload) -> None:
        if isinstance(payload, BlobName):
            await self._drop_parts(session, run, payload.hash)

    async def _drop_parts(self, session: DeskSession, run: str, hash: str) -> None:
        count = 0
        while found := await self.documents.get(BLOBS, _part(session, run, hash, count)):
            with suppress(Conflict):  # it came again just now, and is removed when it is old
                await self.documents.delete(BLOBS, found.id, found.version)
            count += 1

    async def may_read(self, session: DeskSession, run: str) -> bool:
        """Whether the worker holds a lease of this run, of its parent or of a child."""
        runs = {each.run for each in await self.desk.leases_of(session.worker)}
        if run in runs:
            return True

        def related() -> bool:
            views = self.store.views
            row = views.summary(run)
            if row is None:
                return False
            return row.parent in runs or any((held := views.summary(each)) and held.parent == run for each in runs)

        found: bool = await self.read(related)
        return found

    async def tidy(self) -> None:
        """Remove what has ended: sessions without a sign of life, blobs and counts that nobody has used."""
        for kind in ("desk-session", BLOBS, LINES):
            while True:
                due, _ = await self.read(partial(self.store.views.due_documents, kind))
                for each in due:
                    with suppress(Conflict):  # it was used just now
                        await self.documents.delete(kind, each.id, each.version)
                if len(due) < 100:
                    break


def place(lease: Lease) -> Place:
    return lease.run, lease.command.id, lease.generation


def _is_of(report: Report, voucher: Voucher) -> bool:
    return (report.worker, report.generation, report.item) == (voucher.worker, voucher.generation, voucher.item)


def _reports(fact: Fact, voucher: Voucher) -> Sequence[Report]:
    """The reports of this fact, if it is about the visit of the voucher."""
    match fact:
        case StepSettled() | PageCame() if (fact.step, fact.visit) == (voucher.step, voucher.visit):
            return (fact.report,)
        case ItemsSettled() if (fact.step, fact.visit) == (voucher.step, voucher.visit):
            return fact.reports
    return ()


def _part(session: DeskSession, run: str, hash: str, number: int) -> str:
    return f"{session.worker}/{run}/{hash}/{number:05d}"
