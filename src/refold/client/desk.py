"""The desk of a worker without a database: its calls go to a server, and what a network does to them is undone here.

Each call has an id, so that a server makes it once however often it arrives. A lease is given to the worker once: what
comes a second time, because an answer was lost or came late, is dropped.
"""

import asyncio
import hashlib
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import DecodeError, Struct, json

from refold import __version__
from refold.client.connection import NAMESPACE, Connection, ServerReply, error_of, problem_of, segment
from refold.core.codec import check_value
from refold.core.faults import text_of
from refold.core.outcomes import Awaited, Instant, Outcome, Succeeded
from refold.doorbells.local import LocalDoorbell
from refold.errors import (
    Conflict,
    InvalidValue,
    LeaseLost,
    NotAllowed,
    RefoldError,
    StaleWrite,
    Unavailable,
    Unusable,
)
from refold.logs import INFO, WARNING, event, logger
from refold.ports import Abilities, Done, Lease, Memory, Place
from refold.runtime.desk import checked_report
from refold.wire import (
    CALL,
    INLINE,
    LONGEST_WAIT,
    MEDIA,
    PROTOCOLS,
    SESSION,
    BeatBody,
    Beaten,
    BlobName,
    ChildBody,
    ChildSeen,
    ClaimBody,
    ExpectBody,
    HandBackBody,
    HandedBack,
    Hello,
    Leases,
    Nothing,
    OpenPlans,
    OpenPlansBody,
    Payload,
    PublishBody,
    Published,
    RecordBody,
    Remembered,
    RemoteLease,
    SentReport,
    SettleBody,
    Settled,
    Verdict,
    VoucherBody,
    Welcome,
    decoded,
    encoded,
    kept_lease,
    received,
    written_done,
)

log = logger("worker")

DESK = f"{NAMESPACE}/desk/v1"
MOST_SEEN = 10_000  # leases of which the worker knows that it has had them
MOST_COUNTED = 10_000  # leases whose lines are counted
PAUSE, LONGEST_PAUSE = 0.2, 5.0  # seconds between two tries of what is asked all the time

T = TypeVar("T", bound=Struct)
Connect = Callable[[], Connection]


class ServerClock:
    """The clock of the server, which is that of the store: as the last answer has said, and never back."""

    def __init__(self) -> None:
        self._ahead, self._last = 0, 0

    def hear(self, now: Instant) -> None:
        self._ahead = now - time.monotonic_ns() // 1000

    def now(self) -> Instant:
        self._last = max(self._last, time.monotonic_ns() // 1000 + self._ahead)
        return self._last

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Watched(Struct, frozen=True):
    """What a worker has to do: look at its leases, and let go of the live objects of runs that are over."""

    looks: bool = False
    over: tuple[str, ...] = ()


class Counted(Struct):
    """The lines that were published under a lease; one call at a time, so that they keep their order."""

    lock: asyncio.Lock
    n: int = 0
    pending: bytes | None = None  # the next lines, of which it is not known whether the server has them


class RemoteDesk:
    """`connect` makes a connection for the event loop that calls: the heartbeat has one of its own."""

    def __init__(
        self,
        connect: Connect,
        worker: str,
        doorbell: LocalDoorbell,
        *,
        queues: Sequence[str] | None = None,
        slots: int = 16,
        longest_wait: float = LONGEST_WAIT,
    ) -> None:
        self.worker, self.doorbell, self.clock = worker, doorbell, ServerClock()
        self.queues, self.slots, self.longest_wait = queues, slots, longest_wait
        self.lease_for = 30.0
        self.failed: asyncio.Future[None] | None = None  # why the worker cannot go on
        self.is_stopping = False  # the server has asked the worker to end
        self._connect = connect
        self._connection: Connection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tools: frozenset[str] = frozenset()
        self._session, self._hellos = "", 0
        self._held: dict[Place, RemoteLease] = {}  # given to the worker and not finished
        self._seen: OrderedDict[Place, None] = OrderedDict()  # given to the worker at any time
        self._ready: list[RemoteLease] = []  # brought by the poll, for the next claim
        self._poll: asyncio.Task[None] | None = None
        self._poll_for: tuple[str, ...] = ()  # kinds of executors without a place when the poll began
        self._told: set[Place] = set()  # runs of these leases are cancelled, and the worker knows it
        self._lines: OrderedDict[Place, Counted] = OrderedDict()

    async def open(self, tools: Collection[str]) -> Welcome:
        """Say hello. Everything else comes after it, on this event loop or on that of the heartbeat."""
        self._loop = asyncio.get_running_loop()
        self._connection = self._connect()
        self.failed = self._loop.create_future()
        self._tools = frozenset(tools)
        return await self._hello(self._connection)

    async def enrol(self, can: Abilities) -> None:
        """From now on the worker can take something else."""
        self._tools = can.tools or frozenset()
        if self._connection is not None:
            await self._hello(self._connection)
            self._stop_polling()
            self.doorbell.ring()

    async def close(self) -> None:
        """Hand back what is held, and end the session."""
        self._stop_polling()
        connection = self._connection
        if connection is None:
            return
        try:
            await connection.repeated("DELETE", f"{DESK}/session", headers=self._headers())
        except RefoldError as error:
            event(log, INFO, "the server was not told that this worker ends", worker=self.worker, why=text_of(error))
        self._connection = None
        await connection.close()

    # ---- the port

    async def claim(self, can: Abilities, lease_for: float) -> Lease | None:
        """Return a lease if there is one now. Else the server is asked to wait for one, and the doorbell rings when it
        has come."""
        full = can.full()
        for lease in self._ready:
            if lease.command.executor not in full:
                self._ready.remove(lease)
                return self._given(lease)
        if self._poll is not None and not self._poll.done():
            if self._poll_for == full:
                return None
            self._stop_polling()
        found = await self._claimed(full, 0.0)
        if not found and self.longest_wait > 0:
            self._poll_for = full
            self._poll = asyncio.get_running_loop().create_task(self._polling(full))
        self._ready += found[1:]
        return self._given(found[0]) if found else None

    async def settle(self, lease: Lease, done: Done, then: Abilities | None = None) -> Lease | None:
        where = place(lease)
        report = SentReport(voucher(lease), await self._payload(lease.run, written_done(checked_report(done))))
        full = () if then is None else then.full()
        body = SettleBody((report,), then is not None, full)
        settled = await self._call("settle", body, Settled)
        self._judge(settled.verdicts[0], where)
        found = [received(each, self.worker) for each in settled.leases]
        following = next((each for each in found if self._is_new(each)), None)
        return None if following is None else self._given(following)

    async def extend(self, worker: str, lease_for: float, left: Mapping[Place, float] = {}) -> Sequence[Lease]:
        return await self._beat(BeatBody(tuple(self._held), tuple(left.items())))

    async def leases_of(self, worker: str) -> Sequence[Lease]:
        return await self._beat(BeatBody(tuple(self._held)))

    async def interrupted(self, leases: Sequence[Lease]) -> Collection[Place]:
        found = await self._call("beat", BeatBody(tuple(self._held)), Beaten)
        self._told.update(found.interrupted)
        return frozenset(found.interrupted)

    async def hand_back(self, lease: Lease, lost: bool = False) -> None:
        where = place(lease)
        self._ready = [each for each in self._ready if place(each) != where]
        self._held.pop(where, None)
        await self._call("hand-back", HandBackBody((voucher(lease),), lost), HandedBack)

    async def publish(self, lease: Lease, lines: Sequence[Any]) -> None:
        counted = self._counted(place(lease))
        async with counted.lock:
            data = json.encode(list(lines))
            if counted.pending is not None:
                is_again = counted.pending == data
                await self._publish(lease, counted, counted.pending)
                if is_again:
                    return
            await self._publish(lease, counted, data)

    async def _publish(self, lease: Lease, counted: Counted, data: bytes) -> None:
        """Publish lines. If the server does not answer they stay pending: they must come before all others."""
        counted.pending = data
        try:
            sent = await self._payload(lease.run, data)
            published = await self._call("publish", PublishBody(voucher(lease), counted.n, sent), Published)
        except Unavailable:
            raise
        except RefoldError:
            counted.pending = None
            raise
        counted.n, counted.pending = published.n, None

    async def recall(self, lease: Lease) -> Memory:
        found = await self._call("memory", VoucherBody(voucher(lease)), Remembered)
        return json.decode(found.memory, type=Memory)

    async def record(self, lease: Lease, key: str, outcome: Outcome) -> None:
        if isinstance(outcome, Succeeded):
            check_value(outcome.result, key)
        data = await self._payload(lease.run, json.encode(outcome))
        await self._call("record", RecordBody(voucher(lease), key, data), Nothing)

    async def expect(self, lease: Lease, calls: Sequence[Awaited]) -> None:
        for call in calls:
            check_value(call.input, call.key)
        data = await self._payload(lease.run, json.encode(list(calls)))
        await self._call("expect", ExpectBody(voucher(lease), data), Nothing)

    async def wake(self, lease: Lease) -> None:
        await self._call("wake", VoucherBody(voucher(lease)), Nothing)

    # ---- what else a worker asks

    async def watch(self, runs: Collection[str]) -> "Watched":
        """Wait until the server takes a lease away or cancels its run, at most some seconds. `runs` are those of which
        the worker has live objects."""
        told = tuple(self._told & self._held.keys())
        body = BeatBody(tuple(self._held), told=told, wait=self.longest_wait, runs=tuple(runs))
        found = await self._call("beat", body, Beaten, waits=self.longest_wait)
        self._hear(found)
        kept = {(each.run, each.command, each.generation) for each in found.kept}
        gone = [each for each in body.held if each in self._held and each not in kept]
        self._told &= self._held.keys()
        return Watched(bool(gone or found.interrupted), found.over)

    async def blob(self, run: str, hash: str) -> bytes:
        """Return a large value. Raises NotFound."""
        return (await self._sent("GET", f"{DESK}/blobs/{segment(run)}/{segment(hash)}")).body

    async def value(self, run: str, hash: str) -> Any:
        """Return a large value. Raises NotFound."""
        return json.decode(await self.blob(run, hash))

    async def plan(self, hash: str) -> bytes:
        """Raises NotFound."""
        return (await self._sent("GET", f"{DESK}/plans/{segment(hash)}")).body

    async def put_plan(self, hash: str, data: bytes) -> None:
        await self._sent("PUT", f"{DESK}/plans/{segment(hash)}", data)

    async def child(self, run: str) -> ChildSeen:
        return await self._call("child", ChildBody(run), ChildSeen)

    async def open_plans(
        self, workflows: Collection[str], known: Collection[str], newest: int | None
    ) -> Mapping[str, bytes]:
        body = OpenPlansBody(tuple(workflows), tuple(known), newest)
        return (await self._call("open-plans", body, OpenPlans)).plans

    # ---- claims

    async def _claimed(self, full: tuple[str, ...], wait: float) -> list[RemoteLease]:
        known = (*self._held, *(place(each) for each in self._ready))
        reply = await self._asked("claim", encoded(ClaimBody(known, full, wait)), wait)
        if reply.status == 204:
            return []
        found = [received(each, self.worker) for each in decoded(reply.body, Leases).leases]
        finished = [each for each in found if place(each) in self._seen and place(each) not in self._held]
        if finished:  # the worker has given them up, and the server has not heard of it
            await self._call("hand-back", HandBackBody(tuple(each.voucher for each in finished)), HandedBack)
        return [each for each in found if self._is_new(each)]

    async def _polling(self, full: tuple[str, ...]) -> None:
        """Wait for a lease at the server, again and again, and ring when one has come."""
        pause, is_down = PAUSE, False
        while True:
            try:
                found = await self._claimed(full, self.longest_wait)
            except Unavailable as error:
                if not is_down:
                    event(log, WARNING, "no command could be claimed", worker=self.worker, why=text_of(error))
                is_down, pause = True, min(pause * 2, LONGEST_PAUSE)
                await asyncio.sleep(pause)
                continue
            except RefoldError as error:
                self._fail(error)
                return
            if is_down:
                event(log, INFO, "the server answers again", worker=self.worker)
            pause, is_down = PAUSE, False
            if found:
                self._ready += found
                self.doorbell.ring()
                return

    def _stop_polling(self) -> None:
        if self._poll is not None:
            self._poll.cancel()
            self._poll = None

    def _is_new(self, lease: RemoteLease) -> bool:
        """Whether the worker has never had this lease. A generation is claimed once, so a second delivery is an answer
        that was sent again."""
        where = place(lease)
        return where not in self._seen and all(place(each) != where for each in self._ready)

    def _given(self, lease: RemoteLease) -> RemoteLease:
        where = place(lease)
        self._held[where] = lease
        self._seen[where] = None
        while len(self._seen) > MOST_SEEN:
            self._seen.popitem(last=False)
        return lease

    # ---- reports

    def _judge(self, verdict: Verdict, where: Place) -> None:
        """Raise what a report was refused for."""
        match verdict.kind:
            case "ok" | "already":
                self._held.pop(where, None)
            case "lost":
                self._held.pop(where, None)
                raise LeaseLost(verdict.why)
            case "stale":
                raise StaleWrite(verdict.key, json.decode(verdict.current), verdict.version, verdict.is_there)
            case "invalid":
                raise InvalidValue(verdict.path, verdict.why)
            case "refused":
                raise Conflict(verdict.why)

    async def _payload(self, run: str, data: bytes) -> Payload:
        """Send a large value first, as a blob, and return its name."""
        if len(data) <= INLINE:
            return data
        hash = hashlib.sha256(data).hexdigest()
        await self._sent("PUT", f"{DESK}/blobs/{segment(run)}/{hash}", data)
        return BlobName(hash, len(data))

    def _counted(self, where: Place) -> Counted:
        found = self._lines.get(where)
        if found is None:
            found = self._lines[where] = Counted(asyncio.Lock())
            while len(self._lines) > MOST_COUNTED:
                self._lines.popitem(last=False)
        return found

    # ---- the heartbeat

    async def _beat(self, body: BeatBody) -> list[Lease]:
        found = await self._call("beat", body, Beaten)
        self._hear(found)
        leases = [kept_lease(each, self.worker) for each in found.kept]
        kept = {place(each) for each in leases}
        for where in body.held:
            if where not in kept:
                self._held.pop(where, None)
        return [*leases]

    def _hear(self, found: Beaten) -> None:
        self.clock.hear(found.now)
        if found.stop and not self.is_stopping:
            self.is_stopping = True
            self.doorbell.ring()

    # ---- requests

    async def _call(self, name: str, body: Struct, kind: type[T], waits: float = 0.0) -> T:
        reply = await self._asked(name, encoded(body), waits)
        return decoded(reply.body, kind)

    async def _asked(self, name: str, body: bytes, waits: float = 0.0) -> ServerReply:
        return await self._sent("POST", f"{DESK}/{name}", body, waits)

    async def _sent(self, method: str, path: str, body: bytes = b"", waits: float = 0.0) -> ServerReply:
        """Send a call until it is answered; say hello again if the session is gone. Raises the error that the answer
        stands for."""
        async with self._on_this_loop() as connection:
            call = os.urandom(16).hex()
            for is_last in (False, True):
                session = self._session
                headers = {**self._headers(), CALL: call}
                if method == "POST":
                    headers["content-type"] = MEDIA
                reply = await connection.repeated(method, path, body, headers=headers, waits=waits)
                if reply.status != 410 or is_last:
                    break
                await self._hello_again(connection, session)
            if reply.is_good:
                return reply
            raise self._error(reply)

    def _error(self, reply: ServerReply) -> RefoldError:
        problem = problem_of(reply)
        if (reply.status, problem.code) == (409, "lost"):
            return LeaseLost(problem.detail)
        if reply.status == 426:
            return self._fail(Unusable(problem.detail))
        address = self._connection.address if self._connection is not None else "the server"
        error = error_of(problem, address)
        return self._fail(error) if isinstance(error, NotAllowed) else error

    def _fail(self, error: RefoldError) -> RefoldError:
        """The worker cannot go on: its token is not valid any more, or the server is of another release."""
        loop, failed = self._loop, self.failed
        if loop is not None and failed is not None:

            def tell() -> None:
                if not failed.done():
                    failed.set_exception(error)

            loop.call_soon_threadsafe(tell)
        return error

    def _headers(self) -> dict[str, str]:
        return {SESSION: self._session}

    def _on_this_loop(self) -> "OnLoop":
        if asyncio.get_running_loop() is self._loop and self._connection is not None:
            return OnLoop(self._connection, False)
        return OnLoop(self._connect(), True)

    async def _hello_again(self, connection: Connection, before: str) -> None:
        if self._session != before:
            return  # another call has said it
        event(log, INFO, "the session has ended: the worker says hello again", worker=self.worker)
        await self._hello(connection)

    async def _hello(self, connection: Connection) -> Welcome:
        queues = None if self.queues is None else tuple(self.queues)
        self._hellos += 1
        hello = Hello(self.worker, PROTOCOLS, tuple(sorted(self._tools)), self.slots, __version__, queues, self._hellos)
        headers = {SESSION: self._session, CALL: os.urandom(16).hex(), "content-type": MEDIA}
        reply = await connection.repeated("POST", f"{DESK}/hello", encoded(hello), headers=headers)
        if not reply.is_good:
            raise self._error(reply)
        try:
            welcome = decoded(reply.body, Welcome)
        except (InvalidValue, DecodeError) as error:
            raise Unusable(f"{connection.address} is not a server of Refold with a desk: {error}") from None
        self._session, self.lease_for = welcome.session, welcome.lease_for
        self.longest_wait = min(self.longest_wait, welcome.longest_wait)
        self.clock.hear(welcome.now)
        return welcome


class OnLoop:
    """A connection of this event loop; one that was made for a single call is closed after it."""

    def __init__(self, connection: Connection, closes: bool) -> None:
        self._connection, self._closes = connection, closes

    async def __aenter__(self) -> Connection:
        return self._connection

    async def __aexit__(self, *_: object) -> None:
        if self._closes:
            await self._connection.close()


def place(lease: Lease) -> Place:
    return lease.run, lease.command.id, lease.generation


def voucher(lease: Lease) -> bytes:
    assert isinstance(lease, RemoteLease)
    return lease.voucher
