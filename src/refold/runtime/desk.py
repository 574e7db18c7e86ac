"""The desk of a process that has the store at hand."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from refold.core.codec import check_value, checked_outcome
from refold.core.outcomes import Failed, Fault, Outcome, Parked, Succeeded, Suspended
from refold.core.writes import AddTo
from refold.errors import InvalidValue, LeaseLost
from refold.ports import Abilities, Advance, Done, Lease, Memory, Place, Store
from refold.runtime.mail import Note, Settle
from refold.runtime.mailroom import Mailroom


class LocalDesk:
    def __init__(self, store: Store, advance: Advance, mailroom: Mailroom) -> None:
        self.store, self.advance, self.mailroom = store, advance, mailroom

    async def claim(self, can: Abilities, lease_for: float) -> Lease | None:
        def claim() -> Lease | None:
            with self.store.turn([]) as turn:
                return next(iter(turn.claim(can, lease_for, 1)), None)

        lease: Lease | None = await self.advance(claim)
        return lease

    async def settle(self, lease: Lease, done: Done, then: Abilities | None = None) -> Lease | None:
        post = await self.mailroom.send(lease.run, Settle(lease, _honest(done), then))
        return post.next

    async def extend(self, worker: str, lease_for: float, left: Mapping[Place, float] = {}) -> Sequence[Lease]:
        held: Sequence[Lease] = await self.advance(lambda: self.store.extend(worker, lease_for, left))
        return held

    async def leases_of(self, worker: str) -> Sequence[Lease]:
        held: Sequence[Lease] = await self.advance(lambda: self.store.leases_of(worker))
        return held

    async def hand_back(self, lease: Lease) -> None:
        await self.advance(lambda: self.store.hand_back(lease))
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


def _honest(done: Done) -> Done:
    """What would not come back as it went in fails the try, by its path, instead of sticking in the log."""
    try:
        outcome = done.outcome
        if isinstance(outcome, Succeeded):
            check_value(outcome.result, "result")
        else:
            outcome = checked_outcome(outcome)
            _check_wait(outcome)
        for write in done.writes:
            value = write.amount if isinstance(write, AddTo) else getattr(write, "value", None)
            check_value(value, f"context.{write.key}")
        for sent in done.events:
            check_value(sent.data, f"event {sent.type}")
        for unit, amount in done.usage.items():
            _check_amount(amount, f"usage.{unit}")
    except InvalidValue as error:
        return Done(Failed(Fault("invalid_value", str(error), retryable=False)), done.started_at, lines=done.lines)
    return done if outcome is done.outcome else structs.replace(done, outcome=outcome)


def _check_wait(outcome: Outcome) -> None:
    """What waits for nothing would be run again at once for ever, or never."""
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
        raise InvalidValue(path, f"{amount!r} is no amount that can be used up")
