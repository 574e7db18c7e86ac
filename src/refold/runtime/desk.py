"""The desk of a worker that is in the same process as the store: claims, reports, heartbeats and durable calls."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import structs

from refold.core.codec import check_value, checked_outcome
from refold.core.faults import text_of
from refold.core.outcomes import (
    AddTo,
    Awaited,
    Failed,
    Fault,
    Outcome,
    Parked,
    PutIf,
    Sent,
    Succeeded,
    Suspended,
    Write,
)
from refold.errors import InvalidValue, LeaseLost, NotFound
from refold.ports import Abilities, Advance, ClaimRequest, Done, Lease, Memory, Place, Store
from refold.runtime.mail import Expect, Note, Settle, Wake
from refold.runtime.mailroom import Mailroom

FAR = 2**63  # every moment is below


class LocalDesk:
    def __init__(self, store: Store, advance: Advance, mailroom: Mailroom) -> None:
        self.store, self.advance, self.mailroom = store, advance, mailroom

    async def claim(self, can: Abilities, lease_for: float) -> Lease | None:
        def claim() -> ClaimRequest:
            with self.store.turn([]) as turn:
                return turn.ask(can, lease_for, 1)

        asked: ClaimRequest = await self.advance(claim)
        if asked.again is not None:
            self.mailroom.observer.limit_opens(asked.again)
        return next(iter(asked.leases), None)

    async def settle(self, lease: Lease, done: Done, then: Abilities | None = None) -> Lease | None:
        post = await self.mailroom.send(lease.run, Settle(lease, checked_report(done), then))
        return post.next

    async def extend(self, worker: str, lease_for: float, left: Mapping[Place, float] = {}) -> Sequence[Lease]:
        held: Sequence[Lease] = await self.advance(lambda: self.store.extend(worker, lease_for, left))
        return held

    async def leases_of(self, worker: str) -> Sequence[Lease]:
        held: Sequence[Lease] = await self.advance(lambda: self.store.leases_of(worker))
        return held

    async def interrupted(self, leases: Sequence[Lease]) -> Collection[Place]:
        found: Collection[Place] = await self.advance(lambda: self.mailroom.turns.interrupted(leases))
        return found

    async def hand_back(self, lease: Lease, lost: bool = False) -> None:
        await self.advance(lambda: self.store.hand_back(lease, lost))
        self.mailroom.doorbell.ring()

    async def publish(self, lease: Lease, lines: Sequence[Any]) -> None:
        if not await self.advance(lambda: self.store.publish(lease, lines)):
            raise LeaseLost(f"{lease.command.id} of run {lease.run} is no longer held")

    async def recall(self, lease: Lease) -> Memory:
        memory: Memory = await self.advance(lambda: self.mailroom.turns.recall(lease.run, lease.command.id))
        return memory

    async def record(self, lease: Lease, key: str, outcome: Outcome) -> None:
        if isinstance(outcome, Succeeded):
            check_value(outcome.result, key)
        await self.mailroom.send(lease.run, Note(lease, key, outcome))

    async def expect(self, lease: Lease, calls: Sequence[Awaited]) -> None:
        for call in calls:
            check_value(call.input, call.key)
        await self.mailroom.send(lease.run, Expect(lease, tuple(calls)))

    async def wake(self, lease: Lease) -> None:
        try:
            await self.mailroom.send(lease.run, Wake(lease))
        except NotFound as error:
            raise LeaseLost(str(error)) from error


def checked_report(done: Done) -> Done:
    """Check a report. One that cannot be stored fails its step with the path of the bad value; the body is not run
    again.

    Tools and their results come from users, so nothing about them is assumed before it was checked.
    """
    try:
        outcome = done.outcome
        if isinstance(outcome, Succeeded):
            check_value(outcome.result, "result")
        else:
            outcome = checked_outcome(outcome)
            _check_wait(outcome)
        for write in _listed(done.writes, "writes"):
            _check_write(write)
        for sent in _listed(done.events, "events"):
            _check_sent(sent)
        _check_usage(done.usage)
        _check_moment(done.started_at)
    except InvalidValue as error:
        return _refused(done, str(error))
    except Exception as error:  # methods of a value may raise anything, and a value can contain itself
        return _refused(done, f"{type(error).__name__} while it was looked at: {text_of(error)}")
    return done if outcome is done.outcome else structs.replace(done, outcome=outcome)


def _refused(done: Done, why: str) -> Done:
    started_at = done.started_at if isinstance(done.started_at, int) else 0
    return Done(Failed(Fault("invalid_value", why, retryable=False)), started_at, lines=done.lines)


def _listed(value: Any, path: str) -> Sequence[Any]:
    if not isinstance(value, tuple):
        raise InvalidValue(path, f"a {type(value).__name__} is not a tuple")
    return value


def _check_write(write: Any) -> None:
    if not isinstance(write, Write):
        raise InvalidValue("writes", f"a {type(write).__name__} is not a write to the context")
    if not isinstance(write.key, str):
        raise InvalidValue("context", f"the key {write.key!r} is not a string")
    check_value(write.key, "context")
    value = write.amount if isinstance(write, AddTo) else getattr(write, "value", None)
    check_value(value, f"context.{write.key}")
    if isinstance(write, AddTo) and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise InvalidValue(f"context.{write.key}", f"{value!r} is not a number that can be added")
    if isinstance(write, PutIf) and type(write.version) is not int:
        raise InvalidValue(f"context.{write.key}", f"{write.version!r} is not a version")


def _check_sent(sent: Any) -> None:
    if not isinstance(sent, Sent) or not isinstance(sent.type, str):
        raise InvalidValue("events", f"a {type(sent).__name__} is not an event")
    check_value(sent.type, "events")
    check_value(sent.data, f"event {sent.type}")


def _check_usage(usage: Any) -> None:
    if not isinstance(usage, dict):
        given = type(usage).__name__
        raise InvalidValue("usage", f"it must be a map of amounts, such as {{'tokens': 120}}, and not of type {given}")
    for unit, amount in usage.items():
        if not isinstance(unit, str):
            raise InvalidValue("usage", f"the key {unit!r} is not a string")
        check_value(unit, "usage")
        _check_amount(amount, f"usage.{unit}")


def _check_moment(moment: Any) -> None:
    if type(moment) is not int or not 0 <= moment < FAR:
        raise InvalidValue("started_at", f"{moment!r} is not a moment, which is a number of microseconds")


def _check_wait(outcome: Outcome) -> None:
    """Refuse an outcome that waits for nothing: it would be run again immediately for ever, or never."""
    match outcome:
        case Parked(until=None, signal=""):
            raise InvalidValue("outcome", "parked until neither a time nor a signal")
        case Suspended(calls=()):
            raise InvalidValue("outcome", "suspended without a call to wait for")
        case Suspended(calls=calls):
            for call in calls:
                if call.until is None and not call.signal and not call.child:
                    raise InvalidValue("outcome", f"nothing ends the wait for call {call.key!r}")
        case _:
            pass


def _check_amount(amount: Any, path: str) -> None:
    check_value(amount, path)
    if isinstance(amount, bool) or not isinstance(amount, (int, float)) or amount < 0:
        raise InvalidValue(path, f"{amount!r} is not an amount that can be used up")
