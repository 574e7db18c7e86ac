"""Every fact: what a run's log can say, in the past tense, as one closed union."""

from typing import Any

from msgspec import Struct

from refold.core.outcomes import Blob, Fault, Instant, Outcome, Report


class Parent(Struct, frozen=True, omit_defaults=True):
    run: str
    command: str
    call: str = ""  # the durable call inside the command, if the child was started there
    want: str = ""  # the step whose result it asks for; empty: that of the run
    detached: bool = False  # it does not wait


class RunStarted(Struct, frozen=True, tag="run_started", omit_defaults=True):
    plan: str
    input: dict[str, Any] = {}
    name: str = ""
    key: str = ""
    parent: Parent | None = None
    depth: int = 0
    code: str = ""  # where that of a Python workflow was, as module:name; told to people, never imported


class StepIssued(Struct, frozen=True, tag="step_issued", omit_defaults=True, gc=False):
    """A visit was handed out: to a worker, to a child run, or to the world (a wait, a gate)."""

    step: str
    visit: int
    attempt: int = 1
    input: Any = None
    not_before: Instant = 0
    until: Instant | None = None  # a wait or gate ends by itself then
    signal: str = ""
    child: str = ""  # the child's run id
    signals: tuple[str, ...] = ()  # others, of which the first to come ends the wait too
    assignee: str = ""  # who is asked to decide


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
    redo: bool = False  # the items of the visit before; those that were done stay so
    window: int = 0  # 0: as the plan says
    only: tuple[int, ...] = ()  # of a redo: these and what waits for them; empty: all that were not done
    source: dict[str, Any] | None = None  # rendered: the items come from there, page by page
    keys: tuple[str, ...] = ()  # of the items, if they have any
    after: dict[int, tuple[str, ...]] = {}  # items that wait for others, by their keys
    left_out: int = 0  # items whose key was there before


class PageAsked(Struct, frozen=True, tag="page_asked", omit_defaults=True):
    """A worker was asked for the next items of a source."""

    step: str
    visit: int
    page: int  # from 1
    attempt: int = 1
    not_before: Instant = 0


class PageCame(Struct, frozen=True, tag="page_came", omit_defaults=True):
    """What the worker brought: a map of `items` and `cursor`, or why there is none."""

    step: str
    visit: int
    page: int
    report: Report


class PageTaken(Struct, frozen=True, tag="page_taken", omit_defaults=True):
    """The items of a page are items of the loop from here on."""

    step: str
    visit: int
    page: int
    count: int
    cursor: Any = None  # None: it was the last one
    left_out: tuple[int, ...] = ()  # places in the page whose key was there before
    keys: tuple[str, ...] = ()
    after: dict[int, tuple[str, ...]] = {}


class PagesGivenUp(Struct, frozen=True, tag="pages_given_up", omit_defaults=True):
    """The source has failed for good: there are no more items than came before."""

    step: str
    visit: int
    page: int
    fault: Fault


class ItemsIssued(Struct, frozen=True, tag="items_issued", omit_defaults=True):
    """Fresh items `first` to `first + count - 1`; a sequential loop captures anew for each."""

    step: str
    visit: int
    first: int
    count: int
    capture: dict[str, Any] | None = None
    items: tuple[int, ...] = ()  # these instead, of a visit that goes on with what was not done


class ItemsRetried(Struct, frozen=True, tag="items_retried"):
    """Items handed out again: (item, attempt, not before)."""

    step: str
    visit: int
    items: tuple[tuple[int, int, Instant], ...]


class ItemsSettled(Struct, frozen=True, tag="items_settled"):
    step: str
    visit: int
    reports: tuple[Report, ...]


class ItemsGivenUp(Struct, frozen=True, tag="items_given_up"):
    """Items whose last failure is final."""

    step: str
    visit: int
    items: tuple[int, ...]


class ItemsCancelled(Struct, frozen=True, tag="items_cancelled", omit_defaults=True):
    """Items that somebody does not want any more, or that are stopped because the loop halts."""

    step: str
    visit: int
    items: tuple[int, ...]
    by: str = ""
    halts: str = ""  # why the whole loop does
    page: int = 0  # of its source, that nobody waits for any more


class ItemsReopened(Struct, frozen=True, tag="items_reopened", omit_defaults=True):
    """Items of a loop that is going on: they had failed or were cancelled, and are run again."""

    step: str
    visit: int
    items: tuple[int, ...]
    by: str = ""


class EventsTaken(Struct, frozen=True, tag="events_taken", omit_defaults=True):
    """A step is run for these batches of events, one visit for each; an event is named by its fact and place there."""

    step: str
    first: int  # visit
    batches: tuple[tuple[tuple[int, int], ...], ...]
    groups: tuple[str, ...] = ()  # of a step that gathers them: what the events of each batch have in common


class VisitFailed(Struct, frozen=True, tag="visit_failed", omit_defaults=True):
    """For good; it becomes an event if the step says so."""

    step: str
    visit: int
    fault: Fault
    event: str = ""
    events: tuple[tuple[int, int], ...] = ()  # for which it was run, if it becomes an event


class Entered(Struct, frozen=True, tag="entered", array_like=True, gc=False):
    step: str
    visit: int


class Took(Struct, frozen=True, tag="took", array_like=True):
    """The visit is over: the arcs it took (by position), what they set, and why it failed if evaluation did."""

    step: str
    visit: int
    arcs: tuple[int, ...] = ()
    sets: dict[str, Any] = {}
    fault: Fault | None = None
    inputs: dict[int, dict[str, Any]] = {}  # what arcs, by position, give to the visit they lead to
    quiet: bool = False  # that none was taken is not worth a word


class Bypassed(Struct, frozen=True, tag="bypassed", array_like=True):
    """A visit without work: its guard was false."""

    step: str
    visit: int


class Skipped(Struct, frozen=True, tag="skipped", array_like=True):
    steps: tuple[str, ...]


class Dropped(Struct, frozen=True, tag="dropped", array_like=True):
    """Steps stopped or withdrawn because a race was lost or the run is ending; no failures."""

    steps: tuple[str, ...]


class PassBegan(Struct, frozen=True, tag="pass_began", array_like=True):
    """The loop of this head goes round again."""

    head: str


class LoopLeft(Struct, frozen=True, tag="loop_left", array_like=True):
    """The loop of this head is finished; the arcs it held are resolved."""

    head: str


Move = Entered | Took | Bypassed | Skipped | Dropped | PassBegan | LoopLeft


class Routed(Struct, frozen=True, tag="routed"):
    """What routing did, in order, where it had to evaluate, choose or skip."""

    moves: tuple[Move, ...]


class SignalReceived(Struct, frozen=True, tag="signal_received", omit_defaults=True):
    name: str
    value: Any = None
    sender: str = ""


class SignalTaken(Struct, frozen=True, tag="signal_taken"):
    """The oldest kept signal of this name went to the wait of this command."""

    name: str
    command: str


class CallSettled(Struct, frozen=True, tag="call_settled", omit_defaults=True):
    """A durable call of a suspended command has its result; it will never be made again."""

    command: str
    key: str
    outcome: Outcome


class ChildEnded(Struct, frozen=True, tag="child_ended", omit_defaults=True):
    """The child run of this command (or of a durable call inside it) reported its end."""

    child: str
    command: str
    outcome: Outcome
    call: str = ""
    usage: dict[str, int | float] = {}


class GateDecided(Struct, frozen=True, tag="gate_decided", omit_defaults=True):
    step: str
    visit: int
    option: str
    by: str = ""
    feedback: Any = None


class RunPaused(Struct, frozen=True, tag="run_paused", omit_defaults=True):
    by: str = ""


class RunResumed(Struct, frozen=True, tag="run_resumed", omit_defaults=True):
    by: str = ""
    budget: dict[str, int | float] = {}  # new limits


class BudgetExceeded(Struct, frozen=True, tag="budget_exceeded"):
    """More of the unit was used up than the budget allows; what follows from it is told next."""

    unit: str
    used: int | float
    limit: int | float


class CancelAsked(Struct, frozen=True, tag="cancel_asked", omit_defaults=True):
    reason: str = ""
    by: str = ""


class RunTimedOut(Struct, frozen=True, tag="run_timed_out"):
    after: float


class StepFault(Struct, frozen=True, omit_defaults=True):
    """A failure with its place: what lists and error messages show."""

    step: str
    visit: int
    why: str
    fault: Fault | None = None


class RunEnding(Struct, frozen=True, tag="run_ending", omit_defaults=True):
    """Nothing is entered from here on; only finalizers are still issued."""

    outcome: str  # completed, failed, cancelled
    error: StepFault | None = None
    withdrawn: tuple[str, ...] = ()  # commands taken back
    final: tuple[str, ...] = ()  # finalizers to come, in order


class RunEnded(Struct, frozen=True, tag="run_ended", omit_defaults=True):
    status: str
    result: Any = None
    blob: Blob | None = None
    error: StepFault | None = None
    also_failed: tuple[StepFault, ...] = ()


class RunReopened(Struct, frozen=True, tag="run_reopened", omit_defaults=True):
    """A run that had failed or was cancelled goes on."""

    again: tuple[str, ...] = ()  # had failed or were stopped: another visit, of a list loop for what was not done
    anew: tuple[str, ...] = ()  # visited anew: a step, and all that follows from it
    by: str = ""
    budget: dict[str, int | float] = {}  # new limits
    items: dict[str, tuple[int, ...]] = {}  # of list loops: only these


class RunMigrated(Struct, frozen=True, tag="run_migrated", omit_defaults=True):
    """From here on the run follows another plan; what comes after is told by that one."""

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
    | Routed
    | SignalReceived
    | SignalTaken
    | CallSettled
    | ChildEnded
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
