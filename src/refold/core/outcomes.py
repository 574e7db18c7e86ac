"""The outcomes of a try of a command, and the report of a worker about it."""

from typing import Any

from msgspec import Struct


class SetKey(Struct, frozen=True, tag="set", omit_defaults=True):
    key: str
    value: Any = None
    read: int | None = None  # the version that the writer had read before, if it had; a newer one is overwritten


class DeleteKey(Struct, frozen=True, tag="delete"):
    key: str


class AddTo(Struct, frozen=True, tag="add"):
    key: str
    amount: int | float


class AppendTo(Struct, frozen=True, tag="append", omit_defaults=True):
    key: str
    value: Any = None


class PutIf(Struct, frozen=True, tag="put_if", omit_defaults=True):
    """Set the key if its version is still this one. The condition is checked before the write becomes a fact."""

    key: str
    version: int
    value: Any = None


Write = SetKey | DeleteKey | AddTo | AppendTo | PutIf

Instant = int
"""Microseconds since 1970, UTC, by the store's clock."""

SECOND = 1_000_000


class Fault(Struct, frozen=True, omit_defaults=True):
    """Why something failed, as data that outlives the process in which it happened."""

    kind: str
    message: str = ""
    type: str = ""
    traceback: str = ""
    code: str | int | None = None
    retryable: bool | None = None  # False: trying again is useless, whatever the policy
    retry_after: float | None = None
    data: Any = None


class Blob(Struct, frozen=True):
    """A reference to a value that is too large for the log."""

    hash: str
    size: int


class Succeeded(Struct, frozen=True, tag="succeeded", omit_defaults=True, gc=False):
    result: Any = None
    blob: Blob | None = None  # the result, if it is too large


class Failed(Struct, frozen=True, tag="failed", omit_defaults=True):
    fault: Fault


class TimedOut(Struct, frozen=True, tag="timed_out", omit_defaults=True):
    after: float = 0.0


class Cancelled(Struct, frozen=True, tag="cancelled", omit_defaults=True):
    reason: str = ""
    signal: str = ""  # that a withdrawn call gives back, if it had taken one that its body has not got


class Parked(Struct, frozen=True, tag="parked", omit_defaults=True):
    """The command continues at a time or on a signal, with the progress so far. No try is used up."""

    until: Instant | None = None
    signal: str = ""
    progress: Any = None
    reason: str = ""


WITHDRAWN = "the body no longer waits for it"
"""The reason of a durable wait that was cancelled by its body, or because the run is cancelled."""

RUN_CANCELLED = "run cancelled"
"""The key of the record that says when the run of a running body was cancelled: calls recorded before it came first."""

ITSELF = "itself"
"""The child of a call that starts the workflow of the run again."""


QUEUE = "default"


class Queueing(Struct, frozen=True, omit_defaults=True):
    """Where the commands of a run wait, unless a step says otherwise."""

    queue: str = ""  # empty: `default`
    priority: int | None = None  # None: 0
    share: str = ""
    limit: str = ""


NO_QUEUEING = Queueing()


class Awaited(Struct, frozen=True, omit_defaults=True):
    """A durable call that a suspended body waits for. At least one of `until`, `signal` and `child` ends it."""

    key: str
    until: Instant | None = None
    signal: str = ""
    child: str = ""  # plan hash, or ITSELF
    input: Any = None
    want: str = ""  # the step of the child whose result is wanted; empty: the result of the child
    detached: bool = False  # the call ends as soon as the child has started
    queueing: Queueing = NO_QUEUEING  # what the child is given, where it is not that of the command


class Suspended(Struct, frozen=True, tag="suspended", omit_defaults=True):
    """The body waits for durable calls. It takes no slot meanwhile, and continues, or starts over with the recorded
    calls."""

    calls: tuple[Awaited, ...] = ()
    progress: Any = None
    known: int = -1  # how many recorded calls the body knows, of all its tries; -1: this is not counted


Outcome = Succeeded | Failed | TimedOut | Cancelled | Parked | Suspended


ANSWER = "answer:"  # the prefix of signals that answer questions, before the id of the question

REQUEST_SIGNAL = "request:"
"""Begins the name of a signal that carries a request to the run: a map of `id` and `value`."""

REPLY = "reply:"
"""Begins the key under which a body records the answer to a request; the id of the request follows."""


class Question(Struct, frozen=True, omit_defaults=True):
    """What makes an event a request to a person: it waits, and its answer is an event of another type."""

    id: str
    answer: str  # the type of the event that the answer becomes
    fields: dict[str, bool] = {}  # the fields of that event, and which are required; empty: it has only `response`
    kinds: dict[str, str] = {}  # of fields that take one kind of plain value: boolean, integer, number or string


class Sent(Struct, frozen=True, omit_defaults=True):
    """An event that a step has sent."""

    type: str
    data: Any = None
    blob: Blob | None = None  # the data, if it is too large
    by: dict[str, Any] = {}  # fields by which steps collect it into groups
    asks: Question | None = None  # no step takes it: a person answers it


class Report(Struct, frozen=True, omit_defaults=True, gc=False):
    """The report of a worker about one try."""

    attempt: int
    outcome: Outcome
    item: int | None = None
    worker: str = ""
    generation: int = 0  # the generation of the lease of this try
    claimed_at: Instant = 0
    started_at: Instant = 0
    losses: int = 0  # leases of this command that expired without a report
    writes: tuple[Write, ...] = ()
    usage: dict[str, int | float] = {}
    events: tuple[Sent, ...] = ()
    unasked: tuple[str, ...] = ()  # recorded durable calls that the body did not ask for before it completed


def fault_of_outcome(outcome: Outcome) -> Fault | None:
    """Return the fault of an outcome that is a failure, else None."""
    match outcome:
        case Failed(fault=fault):
            return fault
        case TimedOut(after=after):
            return Fault("timeout", f"no result after {after:g} s")
        case Cancelled(reason=reason):
            return Fault("cancelled", reason or "cancelled", retryable=False)
        case _:
            return None
