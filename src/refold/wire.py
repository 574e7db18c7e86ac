"""What remote workers and their server send each other: the messages of the desk, and how leases are written.

A message is msgpack. Values of users are JSON inside it, written as the store writes them, because msgpack has no large
numbers. A worker holds each lease as a voucher that the server has signed; it cannot make one.
"""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

from msgspec import DecodeError, Struct, ValidationError, json, msgpack

from refold.core.codec import decode_command, encode_command
from refold.core.commands import Command
from refold.core.outcomes import Awaited, Instant, Outcome, Sent, Write
from refold.errors import InvalidValue
from refold.ports import Done, Lease, Memory, Place

T = TypeVar("T")

PROTOCOL = 1
PROTOCOLS = (1,)  # that this release speaks; of the next one, also the one before
MEDIA = "application/msgpack"
SESSION, CALL = "refold-session", "refold-call"  # headers

INLINE = 64 * 1024  # bytes of a value that is sent inside a message; a larger one is a blob first
MESSAGE_LIMIT = 1024 * 1024
BLOB_LIMIT = 64 * 1024 * 1024
LONGEST_WAIT = 30.0  # seconds
SIGNATURE = 16  # bytes


class BlobName(Struct, frozen=True):
    """A value that was sent before, as a blob."""

    hash: str
    size: int


Payload = bytes | BlobName
"""JSON, or where it is."""


class Hello(Struct, frozen=True):
    """A worker comes, or says that it can take something else from now on."""

    worker: str
    protocols: tuple[int, ...]
    tools: tuple[str, ...]  # bodies of Python workflows among them, by the hashes of their plans
    slots: int
    release: str
    queues: tuple[str, ...] | None = None  # None: all
    number: int = 1  # grows with every hello of a worker: one that comes late changes nothing


class Welcome(Struct, frozen=True):
    session: str
    protocol: int
    lease_for: float
    beat_every: float
    longest_wait: float
    now: Instant
    release: str


class ClaimBody(Struct, frozen=True):
    known: tuple[Place, ...] = ()  # leases that the worker holds, or has finished: it is given others
    full: tuple[str, ...] = ()  # kinds of executors that have no free place
    wait: float = 0.0


class SentLease(Struct, frozen=True):
    """A lease on its way to a worker."""

    voucher: bytes
    run: str
    command: bytes
    generation: int
    until: Instant
    claimed_at: Instant
    plan: str
    losses: int = 0
    deadline: Instant | None = None
    beat_at: Instant = 0
    memory: bytes | None = None


class Leases(Struct, frozen=True):
    leases: tuple[SentLease, ...] = ()


class SentReport(Struct, frozen=True):
    voucher: bytes
    done: Payload


class SettleBody(Struct, frozen=True):
    reports: tuple[SentReport, ...]
    claims: bool = False  # whether the slots of these reports are free for other commands
    full: tuple[str, ...] = ()


class Verdict(Struct, frozen=True):
    """What became of a report."""

    kind: Literal["ok", "already", "lost", "stale", "invalid", "refused"]
    why: str = ""
    path: str = ""  # where an invalid value is
    key: str = ""  # of a stale write
    current: bytes = b"null"
    version: int = 0
    is_there: bool = True


class Settled(Struct, frozen=True):
    verdicts: tuple[Verdict, ...]
    leases: tuple[SentLease, ...] = ()


class BeatBody(Struct, frozen=True):
    held: tuple[Place, ...] = ()
    left: tuple[tuple[Place, float], ...] = ()  # seconds that the bodies still have
    told: tuple[Place, ...] = ()  # of which the worker knows that their run is cancelled
    wait: float = 0.0  # seconds to wait until a held lease is taken away, or its run is cancelled
    runs: tuple[str, ...] = ()  # of which the worker has live objects


class KeptLease(Struct, frozen=True):
    voucher: bytes
    run: str
    command: str
    step: str
    generation: int
    until: Instant


class Beaten(Struct, frozen=True):
    now: Instant
    kept: tuple[KeptLease, ...] = ()
    interrupted: tuple[Place, ...] = ()  # those whose run is cancelled while their body is running
    stop: bool = False  # the worker is to end
    over: tuple[str, ...] = ()  # those of the runs that have ended


class HandBackBody(Struct, frozen=True):
    vouchers: tuple[bytes, ...]
    lost: bool = False


class HandedBack(Struct, frozen=True):
    is_back: tuple[bool, ...]


class PublishBody(Struct, frozen=True):
    voucher: bytes
    n: int  # lines that were published under this lease before, as far as the worker knows
    lines: Payload


class Published(Struct, frozen=True):
    n: int


class RecordBody(Struct, frozen=True):
    voucher: bytes
    key: str
    outcome: Payload


class ExpectBody(Struct, frozen=True):
    voucher: bytes
    calls: Payload


class VoucherBody(Struct, frozen=True):
    voucher: bytes


class Remembered(Struct, frozen=True):
    memory: bytes


class ChildBody(Struct, frozen=True):
    run: str


class ChildSeen(Struct, frozen=True):
    run: str
    started_at: Instant = 0
    ended_at: Instant = 0
    usage: dict[str, int | float] = {}


class OpenPlansBody(Struct, frozen=True):
    workflows: tuple[str, ...]
    known: tuple[str, ...] = ()
    newest: int | None = None


class OpenPlans(Struct, frozen=True):
    plans: dict[str, bytes]


class Nothing(Struct, frozen=True):
    """An answer that says only that it was done."""


class WrittenDone(Struct, frozen=True, omit_defaults=True):
    """A report as JSON. What computes it again stays with the worker."""

    outcome: Outcome
    started_at: Instant = 0
    writes: tuple[Write, ...] = ()
    usage: dict[str, int | float] = {}
    events: tuple[Sent, ...] = ()
    lines: tuple[Any, ...] = ()
    unasked: tuple[str, ...] = ()


class Voucher(Struct, frozen=True):
    """What a server must know of a lease to believe a report."""

    run: str
    command: str
    generation: int
    worker: str
    step: str
    visit: int
    attempt: int
    item: int | None
    tool: str
    claimed_at: Instant
    plan: str
    losses: int

    def lease(self) -> Lease:
        command = Command(self.command, self.step, self.visit, self.attempt, self.tool, self.item)
        return Lease(self.run, command, self.worker, self.generation, 0, self.claimed_at, self.plan, self.losses)

    @property
    def place(self) -> Place:
        return self.run, self.command, self.generation


class Vouchers:
    """Writes vouchers and reads them again, on any server that has the key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def written(self, lease: Lease) -> bytes:
        order = lease.command
        data = msgpack.encode(
            Voucher(
                lease.run,
                order.id,
                lease.generation,
                lease.worker,
                order.step,
                order.visit,
                order.attempt,
                order.item,
                order.tool,
                lease.claimed_at,
                lease.plan,
                lease.losses,
            )
        )
        return self._signature(data) + data

    def read(self, voucher: bytes) -> Voucher:
        """Raises InvalidValue."""
        signature, data = voucher[:SIGNATURE], voucher[SIGNATURE:]
        if not hmac.compare_digest(signature, self._signature(data)):
            raise InvalidValue("voucher", "this server has not written it")
        return msgpack.decode(data, type=Voucher)

    def sent(self, lease: Lease) -> SentLease:
        return SentLease(
            self.written(lease),
            lease.run,
            encode_command(lease.command),
            lease.generation,
            lease.until,
            lease.claimed_at,
            lease.plan,
            lease.losses,
            lease.deadline,
            lease.beat_at,
            None if lease.memory is None else json.encode(lease.memory),
        )

    def _signature(self, data: bytes) -> bytes:
        return hmac.new(self._key, b"voucher:" + data, hashlib.sha256).digest()[:SIGNATURE]


class RemoteLease(Lease, frozen=True, gc=False):
    """A lease in a remote worker, with what proves it."""

    voucher: bytes = b""


def received(sent: SentLease, worker: str) -> RemoteLease:
    return RemoteLease(
        sent.run,
        decode_command(sent.command),
        worker,
        sent.generation,
        sent.until,
        sent.claimed_at,
        sent.plan,
        sent.losses,
        sent.deadline,
        sent.beat_at,
        None if sent.memory is None else json.decode(sent.memory, type=Memory),
        sent.voucher,
    )


def kept_lease(kept: KeptLease, worker: str) -> RemoteLease:
    """A lease of which the worker knows the rest already, or does not want to know it."""
    command = Command(kept.command, kept.step, 0, 0)
    return RemoteLease(kept.run, command, worker, kept.generation, kept.until, 0, "", voucher=kept.voucher)


def written_done(done: Done) -> bytes:
    return json.encode(
        WrittenDone(
            done.outcome, done.started_at, done.writes, done.usage, done.events, tuple(done.lines), done.unasked
        )
    )


def read_done(data: bytes) -> Done:
    """Raises InvalidValue."""
    found: WrittenDone = from_json(data, WrittenDone, "report")
    return Done(
        found.outcome,
        found.started_at,
        found.writes,
        found.usage,
        found.events,
        lines=found.lines,
        unasked=found.unasked,
    )


def read_calls(data: bytes) -> Sequence[Awaited]:
    calls: tuple[Awaited, ...] = from_json(data, tuple[Awaited, ...], "calls")
    return calls


def from_json(data: bytes, kind: Any, where: str) -> Any:
    """Decode a value, of which nothing is believed. Raises InvalidValue, with the path."""
    try:
        return json.decode(data, type=kind)
    except ValidationError as error:
        why, _, at = str(error).partition(" - at `$")
        raise InvalidValue(f"{where}{at.rstrip('`')}", why) from None
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidValue(where, f"it is not JSON that can be read: {error}") from None


def encoded(message: Struct) -> bytes:
    return msgpack.encode(message)


def decoded(data: bytes, kind: type[T]) -> T:
    """Raises InvalidValue."""
    try:
        return msgpack.decode(data, type=kind)
    except ValidationError as error:
        why, _, at = str(error).partition(" - at `$")
        raise InvalidValue(at.rstrip("`").lstrip(".") or "message", why) from None
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidValue("message", f"it is not msgpack that can be read: {error}") from None
