"""What a try can come to, and what a worker reports of it."""

from typing import Any

from msgspec import Struct


class SetKey(Struct, frozen=True, tag="set", omit_defaults=True):
    key: str
    value: Any = None


class DeleteKey(Struct, frozen=True, tag="delete"):
    key: str


class AddTo(Struct, frozen=True, tag="add"):
    key: str
    amount: int | float


class AppendTo(Struct, frozen=True, tag="append", omit_defaults=True):
    key: str
    value: Any = None


class PutIf(Struct, frozen=True, tag="put_if", omit_defaults=True):
    """Set the key if its version is still this one; judged before it becomes a fact."""

    key: str
    version: int
    value: Any = None


Write = SetKey | DeleteKey | AddTo | AppendTo | PutIf

Instant = int
"""Microseconds since 1970, UTC, by the store's clock."""

SECOND = 1_000_000


class Fault(Struct, frozen=True, omit_defaults=True):
    """Why something failed, as data that outlives the process it happened in."""

    kind: str
    message: str = ""
    type: str = ""
    traceback: str = ""
    code: str | int | None = None
    retryable: bool | None = None  # False: trying again is useless, whatever the policy
    retry_after: float | None = None
    data: Any = None


class Blob(Struct, frozen=True):
    """Where a value too large for the log stands."""

    hash: str
    size: int


class Succeeded(Struct, frozen=True, tag="succeeded", omit_defaults=True, gc=False):
    result: Any = None
    blob: Blob | None = None  # the result stands there instead


class Failed(Struct, frozen=True, tag="failed", omit_defaults=True):
    fault: Fault


class TimedOut(Struct, frozen=True, tag="timed_out", omit_defaults=True):
    after: float = 0.0


class Cancelled(Struct, frozen=True, tag="cancelled", omit_defaults=True):
    reason: str = ""


class Parked(Struct, frozen=True, tag="parked", omit_defaults=True):
    """Come back at a time or on a signal, with what was achieved so far; no try is used up."""

    until: Instant | None = None
    signal: str = ""
    progress: Any = None
    reason: str = ""


ITSELF = "itself"
"""As the child of a call: the workflow of the run, once more."""


class Awaited(Struct, frozen=True, omit_defaults=True):
    """A durable call that a suspended body waits for; at least one of the three ends it."""

    key: str
    until: Instant | None = None
    signal: str = ""
    child: str = ""  # plan hash, or ITSELF
    input: Any = None
    want: str = ""  # the step of the child whose result is asked for; empty: the child's own
    detached: bool = False  # the call ends when the child was started


class Suspended(Struct, frozen=True, tag="suspended", omit_defaults=True):
    """The body waits inside; it holds no slot and starts over with its recorded calls."""

    calls: tuple[Awaited, ...] = ()
    progress: Any = None


Outcome = Succeeded | Failed | TimedOut | Cancelled | Parked | Suspended


class Sent(Struct, frozen=True, omit_defaults=True):
    """An event that a step has sent."""

    type: str
    data: Any = None
    blob: Blob | None = None  # the data stands there instead
    by: dict[str, Any] = {}  # fields by which it is gathered, if it does


class Report(Struct, frozen=True, omit_defaults=True, gc=False):
    """What a worker handed in for one try."""

    attempt: int
    outcome: Outcome
    item: int | None = None
    worker: str = ""
    generation: int = 0  # of the lease it was made under
    claimed_at: Instant = 0
    started_at: Instant = 0
    losses: int = 0
    writes: tuple[Write, ...] = ()
    usage: dict[str, int | float] = {}
    events: tuple[Sent, ...] = ()


def fault_of_outcome(outcome: Outcome) -> Fault | None:
    """The fault of an outcome that is a failure."""
    match outcome:
        case Failed(fault=fault):
            return fault
        case TimedOut(after=after):
            return Fault("timeout", f"no result after {after:g} s")
        case Cancelled(reason=reason):
            return Fault("cancelled", reason or "cancelled", retryable=False)
        case _:
            return None
