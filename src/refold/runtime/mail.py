"""Mail: everything that can be sent to a run, by workers, by users and by the engine itself."""

from typing import Any

from msgspec import Struct

from refold.core.facts import GRACE, Parent, Planned
from refold.core.graph import Graph, PreparedPlan
from refold.core.outcomes import NO_QUEUEING, Awaited, Outcome, Queueing
from refold.ports import Abilities, Done, Lease


class Start(Struct, frozen=True, gc=False):
    plan: PreparedPlan
    input: dict[str, Any] = {}
    name: str = ""
    key: str = ""
    parent: Parent | None = None
    depth: int = 0
    code: str = ""
    labels: dict[str, str] = {}
    schedule: Planned | None = None
    fits: bool = False  # whether the input was checked before the lock was taken
    folder: str = ""  # the working directory of its steps
    file: str = ""  # the playbook, as its path was given in that folder
    is_fresh: bool = False  # the id of the run was never used
    queueing: Queueing = NO_QUEUEING


class Settle(Struct, frozen=True, gc=False):
    lease: Lease
    done: Done
    then: Abilities | None = None


class Note(Struct, frozen=True, gc=False):
    """The outcome of a durable call of a command that is running."""

    lease: Lease
    key: str
    outcome: Outcome


class Expect(Struct, frozen=True, gc=False):
    """The body of a command that is running waits for durable calls."""

    lease: Lease
    calls: tuple[Awaited, ...]


class Wake(Struct, frozen=True, gc=False):
    """A parked body asks for its command again. The lease is the one under which it was parked."""

    lease: Lease


class Expire(Struct, frozen=True):
    """The lease of this generation has passed its deadline, or the command has lost too many workers."""

    command: str
    generation: int
    losses: int


class Signal(Struct, frozen=True):
    name: str
    value: Any = None
    sender: str = ""


class Request(Struct, frozen=True):
    """A request that a body of the run answers. One that is sent twice is one request."""

    id: str
    name: str
    value: Any = None
    sender: str = ""


class DecideGate(Struct, frozen=True):
    step: str
    option: str
    by: str = ""
    feedback: Any = None
    visit: int | None = None  # None: the last one
    choices: tuple[str, ...] = ()


class Pause(Struct, frozen=True):
    by: str = ""


class Resume(Struct, frozen=True):
    by: str = ""
    budget: dict[str, int | float] = {}  # new limits


class Cancel(Struct, frozen=True):
    reason: str = ""
    by: str = ""
    command: str = ""  # empty: the whole run
    grace: float = GRACE  # seconds for bodies that clean up


class Look(Struct, frozen=True):
    """Nothing new: the run reads its letters and its due timers."""


class Migrate(Struct, frozen=True):
    """The run follows another plan from now on."""

    plan: str
    graph: Graph
    by: str = ""


class Reopen(Struct, frozen=True):
    """Resume a run that has failed or was cancelled; with a step, from that step."""

    by: str = ""
    step: str = ""
    budget: dict[str, int | float] = {}  # new limits
    to: Migrate | None = None  # the plan that the run follows from now on, in the same commit


class RetryItems(Struct, frozen=True):
    """Run items of a loop again that did not complete, while the loop runs or after the end of the run."""

    step: str = ""  # empty: all loops of a run that has completed although items failed
    items: tuple[int, ...] = ()  # empty: all of them
    by: str = ""
    follow: bool = False  # what follows from the loop is visited again, with the new values


class CancelItems(Struct, frozen=True):
    step: str
    items: tuple[int, ...]
    by: str = ""


Mail = (
    Start
    | Settle
    | Note
    | Expect
    | Wake
    | Expire
    | Signal
    | Request
    | DecideGate
    | Pause
    | Resume
    | Cancel
    | Look
    | Reopen
    | RetryItems
    | CancelItems
    | Migrate
)
