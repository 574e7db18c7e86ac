"""The orders that a turn gives to the store: commands for workers, and letters to other runs."""

import hashlib
from typing import Any

from msgspec import Struct

from refold.core.facts import GRACE, Parent
from refold.core.outcomes import NO_QUEUEING, QUEUE, Instant, Outcome, Queueing, Report

LONGEST_NAME = 200  # characters of the name of a child run

SOURCE_TOOL = "source"
"""The tool that fetches the next page of a source."""


def command_id(step: str, visit: int, item: int | None = None) -> str:
    return f"{step}/{visit}" if item is None else f"{step}/{visit}/{item}"


def page_id(step: str, visit: int, page: int) -> str:
    """Return the id of the command that fetches a page for the loop of this visit."""
    return f"{step}/{visit}/page{page}"


def child_id(run: str, owner: str, attempt: int = 1) -> str:
    """Return the id of the child run that a command, or a durable call in it, starts. It is always the same."""
    return hashlib.sha256(f"{run}/{owner}/{attempt}".encode()).hexdigest()[:32]


RATE = "rate:"


def rate_limit(run: str, step: str, visit: int) -> str:
    """Return the name of the limit that the rate of a loop is."""
    return f"{rate_limits_of(run)}{step}/{visit}"


def rate_limits_of(run: str) -> str:
    """Return how the names of all such limits of a run begin."""
    return f"{RATE}{run}/"


def child_name(parent: str, owner: str) -> str:
    """Return the name of the child run that a command, or a durable call in it, starts: the name of the parent, and the
    step with its item, with the visit if it is not the first, and with the durable call."""
    command, _, call = owner.partition("#")
    step, visit, *item = command.split("/")
    name = f"{parent}.{step}" + (f"#{visit}" if visit != "1" else "") + "".join(f"[{each}]" for each in item)
    return (f"{name}.{call}" if call else name)[:LONGEST_NAME]


class Command(Struct, frozen=True, omit_defaults=True, gc=False):
    """An order to run a visit of a step, or one of its items: what a worker gets, and how the store queues it."""

    id: str
    step: str
    visit: int
    attempt: int
    tool: str = "noop"
    item: int | None = None
    input: Any = None
    queue: str = QUEUE
    priority: int = 0
    not_before: Instant = 0
    timeout: float | None = None
    progress: Any = None
    recorded: dict[str, Outcome] = {}  # results of durable calls of earlier tries, by key
    executor: str = ""  # the kind of executor that the body needs; empty: none, it runs in the engine
    sealed: tuple[str, ...] = ()  # digests of the sealed results in the input; other data of that form is plain data
    last_error: str = ""  # the message of the failed try before this one
    folder: str = ""  # the working directory; empty: that of the worker
    prefer: str = ""  # the worker that holds its parked body, and is the only one that may claim it
    prefer_until: Instant = 0  # until this moment; then any worker may, and its body starts over there
    share: str = ""  # commands with another one take turns with it, by their weights
    limit: str = ""  # the limit that it counts for; empty: none
    rate: float = 0.0  # a second: how many commands of its limit may start, if no operator has set the limit
    longest_wait: float | None = None  # seconds: `max_delay` of its retries; a service that asks for more has failed

    def is_for(self, worker: str, now: Instant) -> bool:
        """Whether this worker may claim the command now, as far as parked bodies matter."""
        return not self.prefer or self.prefer == worker or now >= self.prefer_until


class Held(Struct, frozen=True):
    """The command continues later, and no worker may claim it now. The store keeps its generation."""


HELD = Held()


class LetterStart(Struct, frozen=True, tag="start", omit_defaults=True):
    """A run starts another one: its child, or its successor."""

    plan: str
    parent: Parent | None  # None: the successor of a run without a parent
    input: dict[str, Any] = {}
    depth: int = 1
    name: str = ""
    key: str = ""
    labels: dict[str, str] = {}
    predecessor: str = ""
    signals: dict[str, list[Any]] = {}
    folder: str = ""
    queueing: Queueing = NO_QUEUEING
    budgeted: bool = False


class LetterEnded(Struct, frozen=True, tag="ended", omit_defaults=True):
    """A child reports its end to its parent."""

    parent: Parent
    outcome: Outcome
    usage: dict[str, int | float] = {}


class LetterUsed(Struct, frozen=True, tag="used"):
    """A child tells its parent how much it has used since its start, because a run above has a budget."""

    parent: Parent
    usage: dict[str, int | float]


class LetterContinued(Struct, frozen=True, tag="continued"):
    """A child tells its parent which run continues it, and what it has used up itself."""

    parent: Parent
    successor: str
    usage: dict[str, int | float] = {}


class LetterCancel(Struct, frozen=True, tag="cancel", omit_defaults=True):
    reason: str = ""
    again: bool = False  # finalizers do not run either
    grace: float = GRACE


class LetterPause(Struct, frozen=True, tag="pause"):
    pass


class LetterResume(Struct, frozen=True, tag="resume"):
    pass


class LetterReport(Struct, frozen=True, tag="report", omit_defaults=True):
    """The report of a command, which a run keeps for itself while an internal error prevents that it is folded."""

    command: str
    report: Report


LetterBody = (
    LetterStart | LetterEnded | LetterUsed | LetterContinued | LetterCancel | LetterPause | LetterResume | LetterReport
)


class Letter(Struct, frozen=True):
    """A message from one run to another. A letter that is written twice with the same key is one message."""

    key: str
    sender: str
    to: str
    body: LetterBody
