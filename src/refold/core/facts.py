"""Every kind of fact that the log of a run can hold, as one closed union. `fact_kinds.py` says what a kind needs."""

from typing import Any

from msgspec import Struct

from refold.core.outcomes import NO_QUEUEING, Awaited, Blob, Fault, Instant, Outcome, Queueing, Report, Sent


class Parent(Struct, frozen=True, omit_defaults=True):
    run: str
    command: str
    call: str = ""  # the durable call inside the command, if the child was started there
    want: str = ""  # the step whose result the parent wants; empty: the result of the run
    detached: bool = False  # the parent does not wait for the child


class Planned(Struct, frozen=True, omit_defaults=True):
    """The planned time of a schedule for which a run was started."""

    id: str  # of the schedule
    planned: Instant
    previous: Instant | None = None  # the planned time of the start before
    backfill: str = ""


class RunStarted(Struct, frozen=True, tag="run_started", omit_defaults=True):
    plan: str
    input: dict[str, Any] = {}
    name: str = ""
    key: str = ""
    parent: Parent | None = None
    depth: int = 0
    code: str = ""  # of a Python workflow: module:name, shown to people and never imported
    labels: dict[str, str] = {}
    predecessor: str = ""  # the run that this one continues
    signals: dict[str, list[Any]] = {}  # that the predecessor received and did not take
    folder: str = ""  # in which the run was started: the working directory of its steps. Empty: that of the worker
    schedule: Planned | None = None
    budgeted: bool = False  # a run above it has a budget and learns at once what this one uses
    file: str = ""  # the playbook, as its path was given in that folder; read only to say that it has changed
    queueing: Queueing = NO_QUEUEING


class StepIssued(Struct, frozen=True, tag="step_issued", omit_defaults=True, gc=False):
    """The work of a visit began: a worker, a child run, or the engine (a wait, a gate) has it."""

    step: str
    visit: int
    attempt: int = 1
    input: Any = None
    not_before: Instant = 0
    until: Instant | None = None  # when a wait or a gate ends by itself
    signal: str = ""
    child: str = ""  # the child's run id
    signals: tuple[str, ...] = ()  # further signals; the first that comes ends the wait
    assignee: str = ""  # the person who is asked to decide
    choices: dict[str, str] = {}  # of a gate, with a label for each
    share: str = ""
    limit: str = ""


class StepSettled(Struct, frozen=True, tag="step_settled", omit_defaults=True, gc=False):
    step: str
    visit: int
    report: Report


class FanOutEntered(Struct, frozen=True, tag="fan_out_entered", omit_defaults=True):
    step: str
    visit: int
    count: int
    items: list[Any] | None = None
    blob: Blob | None = None
    capture: dict[str, Any] = {}
    redo: bool = False  # with the items of the visit before; completed items stay completed
    window: int = 0  # 0: as the plan says
    only: tuple[int, ...] = ()  # of a redo: these items and their dependents; empty: all that did not complete
    source: dict[str, Any] | None = None  # the rendered settings of the source of the items
    keys: tuple[str, ...] = ()  # the keys of the items, if they have any
    after: dict[int, tuple[str, ...]] = {}  # item -> keys of the items that it depends on
    left_out: int = 0  # how many items had a key that was seen before


class PageAsked(Struct, frozen=True, tag="page_asked", omit_defaults=True):
    """A worker was asked for the next page of a source."""

    step: str
    visit: int
    page: int  # from 1
    attempt: int = 1
    not_before: Instant = 0


class PageCame(Struct, frozen=True, tag="page_came", omit_defaults=True):
    """The worker reported a page: a map of `items` and `cursor`, or a failure."""

    step: str
    visit: int
    page: int
    report: Report


class PageTaken(Struct, frozen=True, tag="page_taken", omit_defaults=True):
    """The items of a page became items of the loop."""

    step: str
    visit: int
    page: int
    count: int
    cursor: Any = None  # None: this was the last page
    left_out: tuple[int, ...] = ()  # positions in the page of items whose key was seen before
    keys: tuple[str, ...] = ()
    after: dict[int, tuple[str, ...]] = {}


class PagesGivenUp(Struct, frozen=True, tag="pages_given_up", omit_defaults=True):
    """The source failed permanently: the loop has only the items that came before."""

    step: str
    visit: int
    page: int
    fault: Fault


class ItemsIssued(Struct, frozen=True, tag="items_issued", omit_defaults=True):
    """The items `first` to `first + count - 1` began; a sequential loop captures values again for each item."""

    step: str
    visit: int
    first: int
    count: int
    capture: dict[str, Any] | None = None
    items: tuple[int, ...] = ()  # these items instead: they were skipped over, or are run again


class ItemsRetried(Struct, frozen=True, tag="items_retried"):
    """Items were issued again: (item, attempt, not before)."""

    step: str
    visit: int
    items: tuple[tuple[int, int, Instant], ...]


class ItemsSettled(Struct, frozen=True, tag="items_settled"):
    step: str
    visit: int
    reports: tuple[Report, ...]


class ItemsGivenUp(Struct, frozen=True, tag="items_given_up"):
    """The last failure of these items is final."""

    step: str
    visit: int
    items: tuple[int, ...]


class ItemsCancelled(Struct, frozen=True, tag="items_cancelled", omit_defaults=True):
    """Items were cancelled by an operator, or because the loop halts."""

    step: str
    visit: int
    items: tuple[int, ...]
    by: str = ""
    halts: str = ""  # why the whole loop halts
    page: int = 0  # the page of the source that is no longer wanted


class ItemsReopened(Struct, frozen=True, tag="items_reopened", omit_defaults=True):
    """Failed or cancelled items of a running loop are run again."""

    step: str
    visit: int
    items: tuple[int, ...]
    by: str = ""


class EventsTaken(Struct, frozen=True, tag="events_taken", omit_defaults=True):
    """A step is run for these batches of events, one visit each. An event is its fact and its index there."""

    step: str
    first: int  # the first visit
    batches: tuple[tuple[tuple[int, int], ...], ...]
    groups: tuple[str, ...] = ()  # of a step that collects events: the group of each batch


class VisitFailed(Struct, frozen=True, tag="visit_failed", omit_defaults=True):
    """The visit of a step failed permanently. The failure becomes an event if the step says so."""

    step: str
    visit: int
    fault: Fault
    event: str = ""
    events: tuple[tuple[int, int], ...] = ()  # the events that it was run for, if the failure becomes an event


class RequestAnswered(Struct, frozen=True, tag="request_answered"):
    """The oldest open request with this id has received the oldest kept answer, which is sent as an event."""

    id: str
    sent: Sent


class Entered(Struct, frozen=True, tag="entered", array_like=True, gc=False):
    step: str
    visit: int


class Took(Struct, frozen=True, tag="took", array_like=True):
    """The visit ended: the arcs it took (by position), what they set and append, and the fault if an expression
    failed."""

    step: str
    visit: int
    arcs: tuple[int, ...] = ()
    sets: dict[str, Any] = {}
    fault: Fault | None = None
    inputs: dict[int, dict[str, Any]] = {}  # arc, by position -> the inputs that it gives to the next visit
    quiet: bool = False  # no arc was taken, and people need not be told
    appends: dict[str, list[Any]] = {}  # elements that are added to lists in the context


class Bypassed(Struct, frozen=True, tag="bypassed", array_like=True):
    """A visit without work, because the `when` of the step did not hold."""

    step: str
    visit: int


class Skipped(Struct, frozen=True, tag="skipped", array_like=True):
    steps: tuple[str, ...]


class Dropped(Struct, frozen=True, tag="dropped", array_like=True):
    """Steps were cancelled because they lost a race or the run is ending. They have not failed."""

    steps: tuple[str, ...]


class PassBegan(Struct, frozen=True, tag="pass_began", array_like=True):
    """The loop with this head began another pass."""

    head: str


class LoopLeft(Struct, frozen=True, tag="loop_left", array_like=True):
    """The loop with this head is finished; the arcs out of it are resolved."""

    head: str


Move = Entered | Took | Bypassed | Skipped | Dropped | PassBegan | LoopLeft


class Routed(Struct, frozen=True, tag="routed"):
    """The moves of routing, in order, wherever it had to evaluate, choose or skip."""

    moves: tuple[Move, ...]


class SignalReceived(Struct, frozen=True, tag="signal_received", omit_defaults=True):
    name: str
    value: Any = None
    sender: str = ""
    request: str = ""  # the id of the request that the signal carries, if it carries one


class SignalTaken(Struct, frozen=True, tag="signal_taken"):
    """This command, or a durable call in it, received the oldest kept signal of this name."""

    name: str
    command: str


class CallSettled(Struct, frozen=True, tag="call_settled", omit_defaults=True):
    """A durable call has its result, so it is never made again."""

    command: str
    key: str
    outcome: Outcome


class CallsAwaited(Struct, frozen=True, tag="calls_awaited"):
    """A body that keeps running waits for these durable calls."""

    command: str
    calls: tuple[Awaited, ...]


class BodyWoke(Struct, frozen=True, tag="body_woke"):
    """A parked body has continued before what it waits for came, and asks for its command again."""

    command: str


class ChildEnded(Struct, frozen=True, tag="child_ended", omit_defaults=True):
    """The child run of this command, or of a durable call in it, ended."""

    child: str
    command: str
    outcome: Outcome
    call: str = ""
    usage: dict[str, int | float] = {}


class ChildUsed(Struct, frozen=True, tag="child_used", omit_defaults=True):
    """The child run of this command, or of a durable call in it, has used so much, its own child runs included."""

    child: str
    command: str
    usage: dict[str, int | float]  # since its start
    call: str = ""


class ChildContinued(Struct, frozen=True, tag="child_continued", omit_defaults=True):
    """The child run of this command, or of a durable call in it, is continued by another run, which is waited for."""

    child: str
    command: str
    successor: str
    call: str = ""
    usage: dict[str, int | float] = {}  # of the run that is continued, without that of its successor


class GateDecided(Struct, frozen=True, tag="gate_decided", omit_defaults=True):
    step: str
    visit: int
    option: str
    by: str = ""
    feedback: Any = None
    choices: tuple[str, ...] = ()  # those of the gate's choices that were taken


class RunPaused(Struct, frozen=True, tag="run_paused", omit_defaults=True):
    by: str = ""


class RunResumed(Struct, frozen=True, tag="run_resumed", omit_defaults=True):
    by: str = ""
    budget: dict[str, int | float] = {}  # new limits


class BudgetExceeded(Struct, frozen=True, tag="budget_exceeded"):
    """The run used more of a unit than its budget allows. The facts that follow say what was done about it."""

    unit: str
    used: int | float
    limit: int | float


GRACE = 30.0  # seconds for the clean-up of cancelled bodies, unless whoever cancels says otherwise


class CancelAsked(Struct, frozen=True, tag="cancel_asked", omit_defaults=True):
    reason: str = ""
    by: str = ""
    grace: float = GRACE


class RunTimedOut(Struct, frozen=True, tag="run_timed_out"):
    after: float


class StepFault(Struct, frozen=True, omit_defaults=True):
    """A failure with its step and visit, for lists and error messages."""

    step: str
    visit: int
    why: str
    fault: Fault | None = None


class RunEnding(Struct, frozen=True, tag="run_ending", omit_defaults=True):
    """The run enters no more steps, except its finalizers."""

    outcome: str  # completed, failed, cancelled
    error: StepFault | None = None
    withdrawn: tuple[str, ...] = ()  # commands that were cancelled
    final: tuple[str, ...] = ()  # finalizers still to run, in order
    cleaning: tuple[str, ...] = ()  # commands whose bodies waited: they stay open while the bodies clean up
    grace: float = 0.0  # seconds that they have for it


class RunEnded(Struct, frozen=True, tag="run_ended", omit_defaults=True):
    status: str
    result: Any = None
    blob: Blob | None = None
    error: StepFault | None = None
    also_failed: tuple[StepFault, ...] = ()
    successor: str = ""  # the run that continues this one


class RunReopened(Struct, frozen=True, tag="run_reopened", omit_defaults=True):
    """A run that had ended continues."""

    again: tuple[str, ...] = ()  # failed or stopped steps: another visit; a list loop continues with what was not done
    anew: tuple[str, ...] = ()  # a step, and all steps that follow from it: visited as if they had never run
    by: str = ""
    budget: dict[str, int | float] = {}  # new limits
    items: dict[str, tuple[int, ...]] = {}  # list loop -> only these items
    alone: bool = False  # only items run: no arc is taken, and the run then ends as it had ended
    follows: bool = False  # `anew` is entered by the arcs of `again`, when that has completed


class RunMigrated(Struct, frozen=True, tag="run_migrated", omit_defaults=True):
    """The run follows another plan from here on; later facts belong to that plan."""

    plan: str
    by: str = ""


Fact = (
    RunStarted
    | StepIssued
    | StepSettled
    | FanOutEntered
    | ItemsIssued
    | ItemsRetried
    | ItemsSettled
    | ItemsGivenUp
    | ItemsCancelled
    | ItemsReopened
    | PageAsked
    | PageCame
    | PageTaken
    | PagesGivenUp
    | EventsTaken
    | VisitFailed
    | RequestAnswered
    | Routed
    | SignalReceived
    | SignalTaken
    | CallSettled
    | CallsAwaited
    | BodyWoke
    | ChildEnded
    | ChildUsed
    | ChildContinued
    | GateDecided
    | RunPaused
    | RunResumed
    | CancelAsked
    | RunTimedOut
    | RunEnding
    | RunEnded
    | RunReopened
    | BudgetExceeded
    | RunMigrated
)
