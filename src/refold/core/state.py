"""What a run looks like now. The fold owns it and changes it in place; everybody else reads."""

from typing import Any

from msgspec import Struct, field

from refold.core.facts import Parent, StepFault
from refold.core.outcomes import Awaited, Blob, Fault, Instant, Outcome, Write

# Step life
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
# Run life
INITIAL, RUNNING, PAUSED, ENDING, WAITING = "initial", "running", "paused", "ending", "waiting"
TERMINAL = frozenset({COMPLETED, FAILED, CANCELLED})

# Marks of a forward arc; a taken one is used up when its target is entered, or at once if that is not pending
UNRESOLVED, TAKEN, DEAD = 0, 1, 2

# States of an item of a list loop. They are stored as bytes of `FanOut.status`, so the numbers never change.
ITEM_WAITING, ITEM_RUNNING, ITEM_COMPLETED, ITEM_FAILED = 0, 1, 2, 3
ITEM_STOPPED = 4  # the run or the loop ended while it was running
ITEM_SKIPPED = 5  # an item that it depends on did not complete
ITEM_CANCELLED = 6  # an operator or an item policy took it back

# Life of a source: it has more, was asked, has brought a page; it is at its end, or has failed
MORE, ASKED, CAME, AT_END, BROKEN = "more", "asked", "came", "at_end", "broken"


class Pulls(Struct, gc=False):
    """Where the items of a loop come from, and how far it has come with that."""

    settings: dict[str, Any]
    life: str = MORE
    cursor: Any = None
    page: int = 0  # the last one asked for
    came: int = 0  # the fact that brought it
    pages: list[tuple[int, int, int]] = []  # of each: its first item, the fact that brought it, the fact that took it
    seen: set[str] = set()  # keys


class Order(Struct, gc=False):
    """Which items wait for which."""

    names: dict[str, int] = {}
    after: dict[int, tuple[str, ...]] = {}  # keys of those that an item waits for
    left: dict[int, int] = {}  # how many of those that an item waits for have not completed
    behind: dict[int, list[int]] = {}  # who waits for an item
    dropped: list[tuple[int, int]] = []  # who would have waited for whom, in a circle
    known: bool = False


class FanOut(Struct, gc=False):
    """One visit of a list loop: status, tries and the place of each result, never the value."""

    count: int
    items: list[Any] | None = None
    blob: Blob | None = None
    capture: dict[str, Any] = {}
    status: bytearray = field(default_factory=bytearray)
    places: list[int] = []  # the number of the fact that holds the item's last report
    next: int = 0  # the first item never issued
    open: int = 0
    done: int = 0
    failed: int = 0
    passed: int = 0
    taken_back: int = 0
    visit: int = 0  # of the step
    window: int = 0  # 0: as the plan says
    todo: list[int] = []  # heap of items that are free to run, besides those from `next` on
    pulls: Pulls | None = None
    order: Order | None = None
    fault: Fault | None = None  # why not all of the items are there, or in no order
    at: int = 0  # the fact that entered it
    since: Instant = 0
    before: int = 0  # items that were done then
    retried: dict[int, int] = {}  # item -> attempts, for those that needed more than one
    writes: dict[int, tuple[Write, ...]] = {}  # applied in item order when the visit ends


Ref = tuple[int, int]
"""An event: the number of the fact that tells of it, and its place there."""


class Inbox(Struct, gc=False):
    """Events on their way to a step."""

    waiting: list[Ref] = []
    head: int = 0  # the first of them that is not taken
    open: int = 0  # commands
    groups: dict[str, list[Ref]] = {}  # of a step that gathers them
    since: dict[str, Instant] = {}  # when the first of a group has come


class StepState(Struct, gc=False):
    """A step in the current pass of the loops around it, and what its last visit left behind."""

    life: str = PENDING
    due: bool = False  # was ready to be entered or skipped in this pass
    visits: int = 0
    unresolved: int = 0  # forward arcs into it that are not decided yet
    taken: int = 0  # arcs (of different sources, where those count) that wait for it to start
    possible: int = 0  # sources that have taken or may still take an arc into it
    attempts: int = 0  # tries reported, over all visits
    last: str = ""  # how the last visit ended, for a step that is pending again
    done_at: int = 0  # the number of the fact that completed the last visit
    result: Any = None
    blob: Blob | None = None
    fault: Fault | None = None
    fan: FanOut | None = None
    shown: FanOut | None = None  # the last one that was over: what others read while the next is under way
    redo: bool = False  # the next visit goes on with what this one left undone
    only: tuple[int, ...] = ()  # or with these of its items
    given: Any = None  # what the last visit was issued with, if its arcs read it


class OpenCommand(Struct, gc=False):
    """A command that was issued and is not over."""

    step: int
    visit: int
    item: int | None = None
    attempt: int = 1
    input: Any = None
    not_before: Instant = 0
    until: Instant | None = None
    signal: str = ""
    child: str = ""
    held: bool = False  # reported, parked on a signal or suspended: nobody may claim it
    progress: Any = None
    reason: str = ""
    report: Outcome | None = None  # the last report, until it is judged
    calls: dict[str, Awaited] = {}  # durable calls it waits for
    recorded: dict[str, Outcome] = {}
    signals: tuple[str, ...] = ()  # others that end it too
    events: tuple[Ref, ...] = ()  # that it was issued for
    group: str = ""  # of the step's inbox, where they come from
    deadline: Instant | None = None  # of what no worker looks after
    assignee: str = ""
    page: int = 0  # of the source of its loop, from 1


class Latest(Struct, gc=False):
    """What the visit that completed last left behind, by the number of the fact that completed it."""

    at: int
    step: int
    result: Any = None
    blob: Blob | None = None
    fan: FanOut | None = None


class RunState(Struct):
    """Everything the log says about a run. A snapshot is this struct, encoded."""

    run: str
    seq: int = 0
    at: Instant = 0
    life: str = INITIAL
    paused: bool = False
    paused_at: Instant = 0
    paused_by: str = ""
    outcome: str = ""  # of an ending or ended run
    plan: str = ""
    name: str = ""
    key: str = ""
    input: dict[str, Any] = {}
    parent: Parent | None = None
    depth: int = 0
    started_at: Instant = 0
    ended_at: Instant = 0
    deadline: Instant | None = None  # of the run
    steps: list[StepState] = []
    arcs: bytearray = field(default_factory=bytearray)  # marks of forward arcs
    ever: bytearray = field(default_factory=bytearray)  # held arcs that were taken
    members: list[int] = []  # per loop: members not settled in this pass
    again: bytearray = field(default_factory=bytearray)  # per loop: a back arc was taken in this pass
    alive: bytearray = field(default_factory=bytearray)  # steps of the graph not settled now, if races want to know
    # open obligations: all that decide ever looks at
    ready: list[int] = []  # heap of 2 * step + (1 if it is to be entered, 0 if skipped)
    over: list[int] = []  # loops whose pass is over
    ended: dict[int, int] = {}  # steps whose visit is over and whose arcs want deciding, with the fact that ended it
    judge: dict[str, int] = {}  # commands whose report wants judging, with the fact that holds it
    entered: dict[int, None] = {}  # steps entered and not issued yet (dicts are sets with an order here)
    filling: dict[int, None] = {}  # fan-outs that may have room in their window
    deliverable: dict[str, None] = {}  # signals that somebody waits for
    polls: dict[str, int] = {}  # commands that end when something holds, with the fact after which to look
    cancel: str | None = None  # asked for, not yet acted on
    cancels: int = 0  # how often that was
    cut: dict[int, None] = {}  # steps whose visit was stopped because the run ended
    timed_out: float | None = None
    failures: list[StepFault] = []  # unhandled, first first
    final: list[str] = []  # finalizers still to run
    # of a workflow of events
    inboxes: dict[int, Inbox] = {}
    taking: dict[int, None] = {}  # steps that may take an event
    stopped: Ref | None = None  # the event that ends the run
    untaken: list[tuple[str, str]] = []  # types that nobody takes, and who has sent them
    lost: list[tuple[int, tuple[Ref, ...], str]] = []  # what was not done because the run ended, and its group
    # what is going on
    visiting: int = 0  # visits open now, finalizers included
    open: dict[str, OpenCommand] = {}
    children: dict[str, str] = {}  # command or command#call -> its child run
    orphans: dict[str, None] = {}  # child runs of dropped commands that have not ended yet
    signals: dict[str, list[Any]] = {}  # kept until somebody waits for them
    waiting: dict[str, list[str]] = {}  # signal -> commands, or command#call
    given: dict[int, dict[str, Any]] = {}  # arc -> what its latest taking gives to the visit it leads to
    ctx: dict[str, Any] = {}
    versions: dict[str, int] = {}
    sealed: set[str] = set()  # results that were sealed, by their digest: whatever else looks so is plain data
    usage: dict[str, int | float] = {}
    budget: dict[str, int | float] = {}  # limits of it
    latest: Latest | None = None
    result: Any = None
    blob: Blob | None = None
    error: StepFault | None = None
    also_failed: tuple[StepFault, ...] = ()


def shown_life(step: StepState) -> str:
    """A step is shown as skipped only if it was never entered."""
    return step.last if step.life in (PENDING, SKIPPED) and step.visits and step.last else step.life
