"""A workflow as data: steps, arcs and policies, with one canonical form and its hash."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import compress
from math import inf
from operator import is_not
from typing import Any, Literal

from msgspec import NODEFAULT, Struct, json, structs

Template = Any
"""A JSON value in which `Evaluate` may find expressions; the core itself never looks inside."""

VISIT_LIMIT = 10_000
START, STOP = "StartEvent", "StopEvent"  # the events that a run begins and ends with
BODY = "workflow"  # the tool of steps that are code
LONGEST = 100 * 365 * 86_400.0  # seconds; an instant must fit into 64 bits
SCOPES = ("ctx.", "iter.", "step.")


def bare_key(key: str) -> str:
    """The context key that a key of `set` means: a scope before it is only a spelling, any other dot belongs to it."""
    return next((key.removeprefix(scope) for scope in SCOPES if key.startswith(scope)), key)


class PlanData(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True, gc=False):
    """What all plan data has in common: frozen, strict, and short when encoded."""


class Arc(PlanData, frozen=True):
    to: str
    on: Literal["success", "failure", "both", "timeout"] = "success"  # timeout: of a gate that goes elsewhere then
    when: Template = None  # None: no condition
    set: dict[str, Template] = {}
    each_pass: bool = False
    input: dict[str, Template] = {}  # for the visit it leads to, over the input that the target itself has


class Retry(PlanData, frozen=True):
    """How often and when a failed command is tried again; `attempts` counts the first try."""

    attempts: int = 1
    backoff: Literal["fixed", "linear", "exponential"] = "fixed"
    delay: float = 0.0
    max_delay: float | None = None
    jitter: float = 0.0  # 0.5 takes between 50 and 100 % of the delay
    on: tuple[str, ...] = ()  # kinds of fault; empty: any


ONCE = Retry()
PATIENT = Retry(attempts=5, backoff="exponential", delay=1.0, max_delay=60.0)


class Call(PlanData, frozen=True, tag="call"):
    """Work for a worker: the tool's name and its settings, opaque to the core."""

    tool: str = "noop"
    settings: dict[str, Any] = {}


class Wait(PlanData, frozen=True, tag="wait"):
    """No worker: the visit ends at a moment, on a signal, or by whichever comes first."""

    seconds: Template = None
    until: Template = None  # ISO text with its zone, or a number since 1970: microseconds, or seconds if below 1e11
    signal: Template = None  # a name, or a list of names


class Gate(PlanData, frozen=True, tag="gate"):
    """No worker: the visit ends with a person's decision, or by its timeout."""

    prompt: Template = ""
    options: tuple[str, ...] = ("approve", "reject")
    refuse: tuple[str, ...] = ("reject",)  # options that fail the visit
    timeout: float | None = None
    on_timeout: Literal["fail", "continue", "goto"] = "fail"  # goto: along the arcs that listen to the timeout
    labels: dict[str, str] = {}  # of options, for people
    form: dict[str, Any] | None = None  # JSON Schema of the feedback; one who refuses may say what he likes
    assignee: Template = None
    min_approvals: int = 1  # different people who must choose the same; one who refuses decides alone


class Quality(PlanData, frozen=True, tag="quality"):
    """No worker, no waiting: the visit ends at once, well if a number is high enough."""

    source: Template  # what is no number counts as 0
    threshold: Template
    on_fail: Literal["fail", "continue"] = "fail"


class Child(PlanData, frozen=True, tag="child"):
    """A run of another workflow, named by its hash; the step's input is the child's input."""

    plan: str = ""  # empty: the workflow itself, once more


Work = Call | Wait | Gate | Quality | Child


class Poll(PlanData, frozen=True):
    """The visit ends when this holds. A call is made again every so often, and `until` reads what came of it; a wait
    has nothing else to wait for, and `until` reads what the rest of the run has left."""

    until: Template
    every: float = 30.0
    timeout: float | None = None  # of the whole visit


class Source(PlanData, frozen=True):
    """Where the items of a loop come from, if not from a list: page by page, each of them fetched by a worker."""

    kind: str
    settings: Template = {}  # rendered when the loop is entered
    page: int = 500  # items
    retry: Retry = PATIENT
    timeout: float | None = None  # of a page


class Loop(PlanData, frozen=True):
    """A fan-out over a list or a source; results stand in the order of the items."""

    items: Template = None
    name: str = "item"
    window: int = 16
    sequential: bool = False
    at_once: Template = None  # a window that is computed when the loop is entered
    failures: Literal["all", "stop", "ignore", "halt"] = "all"  # all items run, then it fails; none is begun after one;
    # it is well; those that run are cancelled
    loose: bool = False  # maps, numbers and texts with commas are lists too
    source: Source | None = None
    key: Template = None  # of an item: what it is called; a second one of the same key is left out
    after: Template = None  # of an item: the keys of those that must have completed before it is begun
    on_cycle: Literal["fail", "drop"] = "fail"  # drop: what would close a circle is not waited for
    tolerate: int | str | None = (
        None  # so many may fail, as a number or as "1%"; None: none, or all if the next is given
    )
    min_success: int | str | None = None  # so many must complete


class Collect(PlanData, frozen=True):
    """Events are gathered before the step is run, once for all of a batch."""

    n: int | str = 1  # how many make a batch, or the context key that says so
    by: str = ""  # a field of the events: those with the same value make a batch
    timeout: float | None = None  # from the first of a batch on


class EventType(PlanData, frozen=True):
    """A type of events; whoever takes one of its bases takes it too."""

    name: str
    bases: tuple[str, ...] = ()


class Step(PlanData, frozen=True):
    name: str
    work: Work = Call()
    input: Template = None
    when: Template = None
    mode: Literal["exclusive", "inclusive"] = "exclusive"
    join: Literal["all", "any", "race"] | int = "all"  # a number: at least so many sources
    arcs: tuple[Arc, ...] = ()
    no_match: Literal["end", "quiet", "fail"] = "end"  # of its branch when no arc is taken; quiet: it is not told
    set: dict[str, Template] = {}
    retry: Retry = ONCE
    timeout: float | None = None
    loop: Loop | None = None
    poll: Poll | None = None
    visit_limit: int = VISIT_LIMIT
    result: dict[str, Any] | None = None  # JSON Schema of what a worker brings; each item of a loop is held against it
    keeps_input: bool = False  # its `set` and its arcs can read what it was issued with
    queue: str = "default"
    priority: int = 0
    accepts: tuple[str, ...] = ()  # types of events that it is run for
    collect: Collect | None = None
    workers: int = 0  # how many events it may be run for at once; 0: many
    on_error: str = ""  # the type of the event that its failure becomes


def is_body(step: Step) -> bool:
    """Whether it is code: only who has that of this very plan can run it."""
    return isinstance(step.work, Call) and step.work.tool == BODY


class Input(PlanData, frozen=True):
    """What an input of a run must be like, as a JSON Schema; the core itself never looks inside."""

    name: str
    schema: dict[str, Any] = {}
    required: bool = False


class Plan(PlanData, frozen=True):
    name: str
    steps: tuple[Step, ...]
    entry: str = ""  # empty: the first step
    on_failure: Literal["drain", "cancel"] = "drain"
    always: tuple[str, ...] = ()
    on_fail: tuple[str, ...] = ()
    final_step: str = ""
    timeout: float | None = None
    budget: dict[str, int | float] = {}  # unit -> how much a run may use up
    on_budget: str = "pause"  # or "fail", or the name of a step that is there for it
    defaults: dict[str, Any] = {}  # inputs of a run that does not give them
    inputs: tuple[Input, ...] = ()  # those that are declared
    computed: bool = False  # defaults may hold expressions, and maps in them are merged with those that are given
    constants: dict[str, Any] = {}  # what expressions can read besides
    events: tuple[EventType, ...] = ()  # of a workflow whose steps follow events and not arcs
    language: str = ""  # of its expressions; empty: there are none, or the engine was given a language


def durations(plan: Plan) -> Iterator[tuple[str, float]]:
    """Every span of time that a plan names, in seconds; those that are 0 or without end are left out."""
    if plan.timeout:
        yield f"the timeout of workflow {plan.name!r}", plan.timeout
    for step in plan.steps:
        for what, seconds in _of_step(step).items():
            if seconds:
                yield f"{what} of step {step.name!r}", seconds


def _of_step(step: Step) -> dict[str, float | None]:
    named = {"the timeout": step.timeout}
    if step.retry is not ONCE:
        named |= {"the retry delay": step.retry.delay, "the longest retry delay": step.retry.max_delay}
    if isinstance(step.work, Gate):
        named["the gate"] = step.work.timeout
    if step.collect is not None:
        named["the collect timeout"] = step.collect.timeout
    if step.poll is not None:
        named |= {"the interval": step.poll.every, "the poll": step.poll.timeout}
    return named


def canonical(plan: Plan) -> bytes:
    """The one byte string of a plan: keys sorted, defaults left out, also those that were spelt out."""
    return normalised(plan)[1]


def normalised(plan: Plan) -> tuple[Plan, bytes]:
    """Return the plan as it is read from its canonical bytes, and those bytes."""
    read_back = read_plan(json.encode(plan))  # 5 seconds are 5.0 seconds
    return read_back, json.encode(_without_defaults(read_back), order="sorted")


_SCALARS = frozenset({str, int, float, bool, type(None)})


def _without_defaults(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_without_defaults(each) for each in value]
    shape = _shape(value.__class__)
    if shape is None:
        return value
    tag, names, defaults = shape
    told = {} if tag is None else {"type": tag}
    given = structs.astuple(value)
    for name, each, default in compress(zip(names, given, defaults, strict=True), map(is_not, given, defaults)):
        if each != default:
            told[name] = each if each.__class__ in _SCALARS else _without_defaults(each)
    return told


@cache
def _shape(kind: Any) -> tuple[Any, list[str], list[Any]] | None:
    """Tag and fields of plan data, and what each is if nothing is said of it; to look for each step is slow."""
    if not issubclass(kind, PlanData):
        return None
    fields = structs.fields(kind)
    defaults = [each.default if each.default_factory is NODEFAULT else each.default_factory() for each in fields]
    return kind.__struct_config__.tag, [each.name for each in fields], defaults


def hash_of(data: bytes) -> str:
    """The name of a plan, from its canonical form."""
    return hashlib.sha256(data).hexdigest()


def plan_hash(plan: Plan) -> str:
    return hash_of(canonical(plan))


def read_plan(data: bytes) -> Plan:
    return json.decode(data, type=Plan)


def finalizers_of(plan: Plan) -> tuple[str, ...]:
    diverted = (plan.on_budget,) if plan.on_budget not in ("pause", "fail") else ()
    return (*plan.always, *plan.on_fail, *((plan.final_step,) if plan.final_step else ()), *diverted)


def problems_of(plan: Plan) -> Iterator[str]:
    if not plan.steps:
        yield f"workflow {plan.name!r} has no steps"
    known: set[str] = set()
    for step in plan.steps:
        if step.name in known:
            yield f"two steps are called {step.name!r}"
        known.add(step.name)
        yield from _step_problems(step)
    finalizers = finalizers_of(plan)
    for name in (*finalizers, plan.entry):
        if name and name not in known:
            yield f"there is no step {name!r}"
    yield from (f"{name!r} is a finalizer twice" for name, times in Counter(finalizers).items() if times > 1)
    if plan.steps and (plan.entry or plan.steps[0].name) in finalizers:
        yield f"the entry {plan.entry or plan.steps[0].name!r} is a finalizer"
    yield from (f"the budget of {unit} is {limit:g}" for unit, limit in plan.budget.items() if not 0 <= limit < inf)
    times = (each for each in durations(plan) if not 0 <= each[1] <= LONGEST)
    yield from (f"{what} is {seconds:g} s; it must lie between 0 and 100 years" for what, seconds in times)
    yield from _arc_problems(plan, known, finalizers)
    yield from _event_problems(plan, finalizers)


def _arc_problems(plan: Plan, known: set[str], finalizers: tuple[str, ...]) -> Iterator[str]:
    for step in plan.steps:
        goes_elsewhere = isinstance(step.work, Gate) and step.work.on_timeout == "goto"
        if goes_elsewhere != any(arc.on == "timeout" for arc in step.arcs):
            yield f"step {step.name!r}: a gate that goes elsewhere on its timeout has arcs for that, and no other step"
        for arc in step.arcs:
            if arc.to not in known:
                yield f"step {step.name!r} leads to {arc.to!r}, which does not exist"
            if arc.to in finalizers or step.name in finalizers:
                yield f"arc {step.name!r} -> {arc.to!r}: a finalizer has no arcs"


def _step_problems(step: Step) -> Iterator[str]:
    if not step.name or "/" in step.name or "#" in step.name:
        yield f"{step.name!r} is no name for a step: it must not be empty or contain '/' or '#'"
    if isinstance(step.join, int) and step.join < 1:
        yield f"step {step.name!r} waits for {step.join} sources; at least 1 is needed"
    if step.retry.attempts < 1:
        yield f"step {step.name!r} has {step.retry.attempts} attempts; at least 1 is needed"
    if step.visit_limit < 1:
        yield f"step {step.name!r} has a visit limit of {step.visit_limit}; at least 1 is needed"
    if isinstance(step.work, Gate):
        yield from _gate_problems(step.name, step.work)
    if step.poll is not None:
        yield from _poll_problems(step, step.poll)
    if step.loop is not None:
        yield from _loop_problems(step.name, step.work, step.loop)


def _event_problems(plan: Plan, finalizers: tuple[str, ...]) -> Iterator[str]:
    """Steps follow either arcs or events."""
    types = {each.name for each in plan.events}
    if plan.events and finalizers:
        yield f"workflow {plan.name!r} follows events, so it has no finalizer such as {finalizers[0]!r}"
    if plan.events and not any(START in step.accepts for step in plan.steps):
        yield f"no step takes {START}, so that nothing would ever begin"
    for step in plan.steps:
        if bool(step.accepts) != bool(plan.events):
            yield f"step {step.name!r} " + ("takes no event" if plan.events else "takes events, and there are none")
        if step.accepts:
            yield from _taker_problems(step, types)


def _taker_problems(step: Step, types: set[str]) -> Iterator[str]:
    for each in (*step.accepts, *([step.on_error] if step.on_error else [])):
        if each not in types:
            yield f"step {step.name!r} names the event {each!r}, which is not among those of the workflow"
    if step.arcs or step.loop or step.poll or not isinstance(step.work, Call):
        yield f"step {step.name!r} takes events: it is a plain call, without arcs, a loop or a poll"
    if step.workers < 0:
        yield f"step {step.name!r} has {step.workers} workers; 0 means many"
    if step.collect is not None and isinstance(step.collect.n, int) and step.collect.n < 1:
        yield f"step {step.name!r} gathers {step.collect.n} events; at least 1 is needed"


def _gate_problems(name: str, gate: Gate) -> Iterator[str]:
    if not gate.options:
        yield f"gate {name!r} has no options"
    for option in (*gate.refuse, *gate.labels):
        if option not in gate.options:
            yield f"gate {name!r} has no option {option!r}"
    if gate.min_approvals < 1:
        yield f"gate {name!r} wants {gate.min_approvals} approvals; at least 1 is needed"


def _poll_problems(step: Step, poll: Poll) -> Iterator[str]:
    if poll.every <= 0:
        yield f"step {step.name!r} looks again every {poll.every:g} s; that must be more than 0"
    if step.loop is not None:
        yield f"step {step.name!r} loops over a poll, which has no items"
    if not (isinstance(step.work, Call) or step.work == Wait()):
        yield f"step {step.name!r}: only a call can be made again until something holds"


def _loop_problems(name: str, work: Work, loop: Loop) -> Iterator[str]:
    if loop.window < 1:
        yield f"step {name!r} has a window of {loop.window}; at least 1 is needed"
    if isinstance(work, Wait | Gate | Quality):
        yield f"step {name!r} loops over a {type(work).__name__.lower()}, which has no items"
