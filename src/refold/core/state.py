"""The state of a run, as its facts add up to it. Only the fold changes it, in place; everything else reads it.

A snapshot is this state, encoded by the names of its fields. A field that was renamed keeps its old name in the bytes
(`rename=`), so that snapshots of older releases stay readable.
"""

from typing import Any

from msgspec import Struct, field

from refold.core.facts import GRACE, Parent, Planned, StepFault
from refold.core.outcomes import NO_QUEUEING, Awaited, Blob, Fault, Instant, Outcome, Question, Queueing, Write

# States of a step
PENDING, ENTERED, ISSUED, COMPLETED, FAILED, SKIPPED, BYPASSED, CANCELLED = (
    "pending",
    "entered",
    "issued",
    "completed",
    "failed",
    "skipped",
    "bypassed",
    "cancelled",
)
# States of a run
INITIAL, RUNNING, PAUSED, ENDING, WAITING = "initial", "running", "paused", "ending", "waiting"
CONTINUED = "continued"  # by a successor, which has its result
TERMINAL = frozenset({COMPLETED, FAILED, CANCELLED, CONTINUED})

# Marks of a forward arc. A taken arc is used up when its target is entered, or immediately if the target is not pending
UNRESOLVED, TAKEN, DEAD = 0, 1, 2

# States of an item of a list loop. They are stored as bytes of `FanOut.status`, so the numbers never change.
ITEM_WAITING, ITEM_RUNNING, ITEM_COMPLETED, ITEM_FAILED = 0, 1, 2, 3
ITEM_STOPPED = 4  # the run or the loop ended while it was running
ITEM_SKIPPED = 5  # an item that it depends on did not complete
ITEM_CANCELLED = 6  # an operator or an item policy took it back

# States of a source of items: it has more pages, a page was asked for, a page came; it has ended, or it has failed
MORE, ASKED, CAME, AT_END, BROKEN = "more", "asked", "came", "at_end", "broken"


class SourceState(Struct, gc=False):
    """The source that the items of a loop come from, and how much of it has been read."""

    settings: dict[str, Any]
    life: str = MORE
    cursor: Any = None
    page: int = 0  # the number of the last page that was asked for
    came: int = 0  # the fact that brought this page
    pages: list[tuple[int, int, int]] = []  # per page: its first item, the fact that brought it, the fact that took it
    seen: set[str] = set()  # keys of items that were taken


class ItemOrder(Struct, gc=False):
    """Which items of a loop depend on which."""

    names: dict[str, int] = {}  # key -> item
    after: dict[int, tuple[str, ...]] = {}  # item -> keys of the items that it depends on
    left: dict[int, int] = {}  # item -> how many of the items that it depends on have not completed
    behind: dict[int, list[int]] = {}  # item -> the items that depend on it
    dropped: list[tuple[int, int]] = []  # dependencies that were ignored because they form a circle
    known: bool = False  # all items are there, so `left` and `behind` are complete


_FAN_OUT_NAMES = {"running": "open", "skipped": "passed", "cancelled": "taken_back", "report_facts": "places"}


class FanOut(Struct, gc=False, rename=_FAN_OUT_NAMES):
    """One visit of a list loop: per item its state, its tries and the fact with its result, never the value."""

    count: int
    items: list[Any] | None = None
    blob: Blob | None = None
    capture: dict[str, Any] = {}
    status: bytearray = field(default_factory=bytearray)
    report_facts: list[int] = []  # per item: the number of the fact with its last report
    next: int = 0  # the first item that was never issued
    running: int = 0  # items in flight
    done: int = 0
    failed: int = 0
    skipped: int = 0
    cancelled: int = 0
    visit: int = 0  # the visit of the step
    window: int = 0  # how many items may run at a time; 0: as the plan says
    todo: list[int] = []  # heap of items before `next` that may run now
    pulls: SourceState | None = None
    order: ItemOrder | None = None
    fault: Fault | None = None  # why the items could not all be read, or could not be ordered
    at: int = 0  # the number of the fact that entered it
    since: Instant = 0
    before: int = 0  # items that had completed before `since`
    retried: dict[int, int] = {}  # item -> attempts, where there was more than one
    writes: dict[int, tuple[Write, ...]] = {}  # applied in item order when the visit ends


Ref = tuple[int, int]
"""An event: the number of the fact that sent it, and its index among the events of that fact."""


class Inbox(Struct, gc=False):
    """Events that wait for a step."""

    waiting: list[Ref] = []
    head: int = 0  # index of the first event that is not taken
    open: int = 0  # unfinished commands of the step
    groups: dict[str, list[Ref]] = {}  # of a step that collects events: its groups
    since: dict[str, Instant] = {}  # when the first event of a group came
    emptied: int = 0  # version of the key with the number of events, when the step was run for none of them


class OpenRequest(Struct, gc=False):
    """An event that a person has to answer, with the step and the visit that sent it."""

    step: str
    visit: int
    ref: Ref
    type: str
    data: Any
    asks: Question


class StepState(Struct, gc=False, rename={"kept_input": "given"}):
    """A step in the current pass of the loops around it, with the result of its last visit."""

    life: str = PENDING
    due: bool = False  # it became ready to be entered or skipped in this pass
    visits: int = 0
    unresolved: int = 0  # forward arcs into it that are not resolved yet
    taken: int = 0  # taken arcs into it that are not used up; where the join counts origins, one per origin
    possible: int = 0  # origins that have taken an arc into it, or still may
    attempts: int = 0  # tries reported, over all visits
    last: str = ""  # how the last visit ended, for a step that is pending again
    done_at: int = 0  # the number of the fact that completed the last visit
    result: Any = None
    blob: Blob | None = None
    fault: Fault | None = None
    took: Instant = 0  # how long the last try took that completed the visit
    used: dict[str, int | float] = {}  # what the tries of the last visit have used
    fan: FanOut | None = None
    shown: FanOut | None = None  # the last finished fan-out: what expressions read while the next one is running
    redo: bool = False  # the next visit continues with the items that this one left undone
    only: tuple[int, ...] = ()  # and with these items only, if there are any
    kept_input: Any = None  # the input of the last visit, if its arcs read it


class OpenCommand(Struct, gc=False):
    """A command that was issued and has not ended."""

    step: int
    visit: int
    item: int | None = None
    attempt: int = 1
    input: Any = None
    not_before: Instant = 0
    until: Instant | None = None
    signal: str = ""
    child: str = ""
    held: bool = False  # no worker may claim it: it has reported, is parked on a signal, or is suspended
    progress: Any = None
    reason: str = ""
    report: Outcome | None = None  # the last report, until a rule has judged it
    calls: dict[str, Awaited] = {}  # durable calls it waits for
    recorded: dict[str, Outcome] = {}
    signals: tuple[str, ...] = ()  # further signals that end it
    events: tuple[Ref, ...] = ()  # the events that it was issued for
    group: str = ""  # the group of the inbox that these events come from
    deadline: Instant | None = None  # when the engine ends it, if no worker does
    assignee: str = ""
    choices: dict[str, str] = {}  # of a gate, with a label for each
    page: int = 0  # the page of the source that it fetches, from 1
    parks: bool = False  # its body has been parked, so a cancellation can reach it where it waits
    parked_by: str = ""  # the worker that has parked its body
    grace: float | None = None  # seconds for the clean-up of its body; None: it is not cancelled
    last_error: str = ""  # the message of its last failed try, shortened
    share: str = ""
    limit: str = ""
    awake: bool = False  # a call was answered, and its body has not said yet which other calls it still waits for


class Latest(Struct, gc=False):
    """The result of the visit that completed last, with the number of the fact that completed it."""

    at: int
    step: int
    result: Any = None
    blob: Blob | None = None
    fan: FanOut | None = None


class KeptEnd(Struct):
    """How a run had ended whose items are run again alone, and what it had left undone: it will end so again."""

    outcome: str
    result: Any = None
    blob: Blob | None = None
    error: StepFault | None = None
    also_failed: tuple[StepFault, ...] = ()
    failures: list[StepFault] = []
    cut: dict[int, None] = {}
    ready: list[int] = []
    over: list[int] = []
    exceeded: float | None = None


class RunState(Struct, rename={"arc_inputs": "given", "undone": "lost"}):
    """Everything that the facts of a run add up to."""

    run: str
    seq: int = 0
    at: Instant = 0
    life: str = INITIAL
    paused: bool = False
    paused_at: Instant = 0
    paused_by: str = ""
    outcome: str = ""  # how an ending or ended run ends
    plan: str = ""
    name: str = ""
    key: str = ""
    labels: dict[str, str] = {}
    predecessor: str = ""  # the run that this one continues
    successor: str = ""  # the run that continues this one
    input: dict[str, Any] = {}
    folder: str = ""  # the working directory of its steps; empty: that of the worker
    queueing: Queueing = NO_QUEUEING
    parent: Parent | None = None
    depth: int = 0
    started_at: Instant = 0
    ended_at: Instant = 0
    schedule: Planned | None = None  # the time for which a schedule has started the run
    deadline: Instant | None = None  # of the run
    steps: list[StepState] = []
    arcs: bytearray = field(default_factory=bytearray)  # marks of forward arcs
    ever: bytearray = field(default_factory=bytearray)  # arcs out of loops that were taken in any pass
    members: list[int] = []  # per loop: how many of its members are not settled in this pass
    again: bytearray = field(default_factory=bytearray)  # per loop: a back arc was taken in this pass
    alive: bytearray = field(default_factory=bytearray)  # by rank: steps that are not settled, if the plan has races
    # Obligations: what the rules of decide still have to look at. A dict is used as a set with an order
    ready: list[int] = []  # heap of 2 * step + 1 for a step to enter, 2 * step for a step to skip
    over: list[int] = []  # loops whose pass has ended
    ended: dict[int, int] = {}  # steps whose visit has ended and whose arcs must be evaluated, and the fact of its end
    judge: dict[str, int] = {}  # commands whose report must be judged, with the fact that holds it
    entered: dict[int, None] = {}  # steps that were entered and not issued yet
    filling: dict[int, None] = {}  # fan-outs that may have room in their window
    deliverable: dict[str, None] = {}  # signals that have come and that a command waits for
    polls: dict[str, int] = {}  # polling commands, with the fact after which their condition must be looked at
    cancel: str | None = None  # the reason of a cancellation that was asked for and not acted on yet
    cancel_reason: str = ""  # of the last cancellation that was asked for, also after it was acted on
    cancels: int = 0  # how often a cancellation was asked for
    grace: float = GRACE  # seconds that a cancellation leaves to bodies for their clean-up
    cut: dict[int, None] = {}  # steps whose visit was stopped because the run ended
    timed_out: float | None = None  # seconds, if the run exceeded its time limit and does not end yet
    exceeded: float | None = None  # the same, also after the run has ended because of it
    failures: list[StepFault] = []  # unhandled failures, the first one first
    final: list[str] = []  # finalizers still to run
    # Of a Python workflow, whose steps follow each other by events
    inboxes: dict[int, Inbox] = {}
    taking: dict[int, None] = {}  # steps that may take an event
    stopped: Ref | None = None  # the event that ends the run
    untaken: list[tuple[str, str]] = []  # types of events that no step takes, and the steps that have sent them
    requests: dict[str, list[OpenRequest]] = {}  # id -> the requests that a person has to answer, the oldest first
    answered: dict[str, None] = {}  # ids of requests whose answer has come
    undone: list[tuple[int, tuple[Ref, ...], str]] = []  # step, events and group of visits that the run's end cut off
    # What is running or waiting
    visiting: int = 0  # unfinished visits, finalizers included
    open: dict[str, OpenCommand] = {}
    children: dict[str, str] = {}  # command or command#call -> its child run
    orphans: dict[str, None] = {}  # child runs of dropped commands that have not ended yet
    signals: dict[str, list[Any]] = {}  # signal -> values that no command has taken yet
    waiting: dict[str, list[str]] = {}  # signal -> commands, or command#call
    replies: dict[str, int] = {}  # id of a request to the run -> the fact with its answer; 0: it is not answered
    arc_inputs: dict[int, dict[str, Any]] = {}  # arc -> the inputs that it gives to the visit it leads to
    ctx: dict[str, Any] = {}
    versions: dict[str, int] = {}
    sealed: set[str] = set()  # digests of the sealed results of this run; other data of that form is plain data
    usage: dict[str, int | float] = {}
    budget: dict[str, int | float] = {}  # the limit per unit of usage
    budgeted: bool = False  # a run above this one has a budget, so its parent learns at once what this one uses
    counted: dict[str, dict[str, int | float]] = {}  # child run that has not ended -> what is in `usage` already
    latest: Latest | None = None
    kept: KeptEnd | None = None  # while only items of an ended run are run again
    result: Any = None
    blob: Blob | None = None
    error: StepFault | None = None
    also_failed: tuple[StepFault, ...] = ()


def shown_life(step: StepState) -> str:
    """Return the state of a step for people: it is shown as skipped only if it was never entered."""
    return step.last if step.life in (PENDING, SKIPPED) and step.visits and step.last else step.life
