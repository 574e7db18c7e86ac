"""The plan of a workflow as data: steps, arcs and policies, with one canonical form and its hash."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import compress
from math import inf
from operator import is_not
from typing import TYPE_CHECKING, Any, Literal

from msgspec import NODEFAULT, Struct, convert, json, structs, to_builtins

from refold.core.pipeline import TaskPipeline, Template

VISIT_LIMIT = 10_000
START, STOP = "StartEvent", "StopEvent"  # the events that begin and end a run
CONTINUE = "refold:continue"  # the event that ends a run and starts its successor, with the inputs of that
BODY = "workflow"  # the tool of steps that are Python code
LONGEST = 100 * 365 * 86_400.0  # seconds; an instant must fit into 64 bits
SCOPES = ("ctx.", "iter.", "step.")


def bare_key(key: str) -> str:
    """Return the context key that a key of `set` means, without its scope; any other dot belongs to the key."""
    return next((key.removeprefix(scope) for scope in SCOPES if key.startswith(scope)), key)


class PlanData(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True, gc=False):
    """The parent of all plan data: frozen, strict, and short when encoded."""


class Arc(PlanData, frozen=True):
    to: str
    on: Literal["success", "failure", "both", "timeout"] = "success"  # timeout: of a gate with `on_timeout: goto`
    when: Template = None  # None: no condition
    set: dict[str, Template] = {}
    append: dict[str, Template] = {}  # each is a list, whose elements are added to the list in the context
    each_pass: bool = False
    input: dict[str, Template] = {}  # merged over the input of the target


if TYPE_CHECKING:
    FaultKind = str | type[BaseException]
else:
    FaultKind = str  # as it is stored


class Retry(PlanData, frozen=True):
    """How often and when a failed command is tried again. `attempts` includes the first try."""

    attempts: int = 1
    backoff: Literal["fixed", "linear", "exponential"] = "fixed"
    delay: float = 0.0
    max_delay: float | None = None
    jitter: float = 0.0  # 0.5 takes between 50 and 100 % of the delay
    on: tuple[FaultKind, ...] = ()  # kinds of fault, or classes of exceptions; empty: any

    def __post_init__(self) -> None:
        """A class of exceptions is kept by its name: a plan is data."""
        on: Any = self.on if isinstance(self.on, tuple | list) else (self.on,)
        if on is not self.on or any(isinstance(each, type) for each in on):
            names = tuple(each.__name__ if isinstance(each, type) else each for each in on)
            structs.force_setattr(self, "on", names)


ONCE = Retry()
PATIENT = Retry(attempts=5, backoff="exponential", delay=1.0, max_delay=60.0)


class Call(PlanData, frozen=True, tag="call"):
    """Work for a worker: the name of a tool and its settings, which the core does not read."""

    tool: str = "noop"
    settings: dict[str, Any] = {}


class Wait(PlanData, frozen=True, tag="wait"):
    """The visit needs no worker: it ends at a moment or on a signal, whichever comes first."""

    seconds: Template = None
    until: Template = None  # ISO text with a zone, or microseconds since 1970, or seconds if below 1e11
    signal: Template = None  # a name, or a list of names


class Gate(PlanData, frozen=True, tag="gate"):
    """The visit needs no worker: it ends with the decision of a person, or by its timeout."""

    prompt: Template = ""
    options: tuple[str, ...] = ("approve", "reject")
    refuse: tuple[str, ...] = ("reject",)  # options that fail the visit
    timeout: float | None = None
    # When nobody decides in time. refuse: as if a person had refused; goto: along the arcs that listen to the timeout
    on_timeout: Literal["fail", "refuse", "continue", "goto"] = "fail"
    labels: dict[str, str] = {}  # option -> its text for people
    form: dict[str, Any] | None = None  # JSON Schema of the feedback; a refusal may have any feedback
    assignee: Template = None
    min_approvals: int = 1  # different people who must choose the same option; one refusal decides
    choices: Template = None  # texts, or a map of values to labels: who does not refuse may name any number of them


class Quality(PlanData, frozen=True, tag="quality"):
    """A quality check, which needs no worker: the visit ends immediately, as failed if a number is too low."""

    source: Template  # a value that is not a number counts as 0
    threshold: Template
    on_fail: Literal["fail", "continue"] = "fail"


class Child(PlanData, frozen=True, tag="child"):
    """A run of another workflow, named by the hash of its plan; the input of the step is its input."""

    plan: str = ""  # empty: the workflow itself


class Fail(PlanData, frozen=True, tag="fail"):
    """The visit needs no worker: it fails immediately, with this kind of fault."""

    kind: Template
    message: Template = ""
    data: Template = None


WorkerWork = Call | TaskPipeline
"""What a worker does; all other work is done by the engine."""

Work = Call | TaskPipeline | Wait | Gate | Quality | Child | Fail


class Poll(PlanData, frozen=True):
    """The visit ends when `until` holds.

    A call is repeated at an interval, and `until` reads its result. A wait has no other end, and `until` reads the
    state of the run.
    """

    until: Template
    every: float = 30.0
    timeout: float | None = None  # seconds, of the whole visit


class Source(PlanData, frozen=True):
    """A source of the items of a loop, instead of a list. Workers fetch it page by page."""

    kind: str
    settings: Template = {}  # rendered when the loop is entered
    page: int = 500  # items of a page, at most
    retry: Retry = PATIENT
    timeout: float | None = None  # seconds, of one page


STORED_NAMES = {
    "iterator": "name",
    "max_in_flight": "window",
    "computed_max_in_flight": "at_once",
    "on_item_error": "failures",
}


class Loop(PlanData, frozen=True, rename=STORED_NAMES):
    """A fan-out over a list or a source. Results are in the order of the items."""

    items: Template = None
    iterator: str = "item"
    max_in_flight: int = 16
    sequential: bool = False
    computed_max_in_flight: Template = None  # in place of the number, if it is computed when the loop is entered
    # When an item fails: all: the others run, then the loop fails; stop: no further item begins; ignore: the loop
    # succeeds; halt: running items are cancelled.
    on_item_error: Literal["all", "stop", "ignore", "halt"] = "all"
    loose: bool = False  # maps, numbers and texts with commas are accepted as lists
    source: Source | None = None
    key: Template = None  # the key of an item; a second item with the same key is left out
    after: Template = None  # the keys of the items that must complete before an item begins
    on_cycle: Literal["fail", "drop"] = "fail"  # drop: a dependency that closes a circle is ignored
    on_unknown: Literal["fail", "drop"] = "fail"  # drop: a dependency on a key that no item has is ignored
    rate: float | None = None  # how many items may start in a second
    # How many items may fail, as a number or as "1%"; None: none, or any number if `min_success` is given.
    tolerate: int | str | None = None
    min_success: int | str | None = None  # how many items must complete, as a number or as "1%"


class Collect(PlanData, frozen=True):
    """A step collects events, and is run once for each batch of them."""

    n: int | str = 1  # how many events make a batch, or the context key with this number
    by: str = ""  # a field of the events; a batch has events with the same value
    timeout: float | None = None  # seconds, from the first event of a batch on


class EventType(PlanData, frozen=True):
    """A type of events. A step that takes one of its bases takes it too."""

    name: str
    bases: tuple[str, ...] = ()
    required: tuple[str, ...] = ()  # the names of its fields, sorted
    optional: tuple[str, ...] = ()  # fields with a default

    @property
    def field_names(self) -> frozenset[str]:
        return frozenset((*self.required, *self.optional))


class CodeIdentity(PlanData, frozen=True):
    """Which Python code the bodies of a workflow are. It is part of the hash of the plan, so that no worker runs the
    bodies of another workflow, however much alike they are."""

    name: str  # `module:qualname`, or the name that the author gave
    arguments: dict[str, Any] = {}  # of the constructor of an instance, in their stored form


class Step(PlanData, frozen=True):
    name: str
    work: Work = Call()
    input: Template = None
    when: Template = None
    mode: Literal["exclusive", "inclusive"] = "exclusive"
    join: Literal["all", "any", "race"] | int = "all"  # a number: at least so many origins
    arcs: tuple[Arc, ...] = ()
    no_match: Literal["end", "quiet", "fail"] = (
        "end"  # when no arc is taken: its branch ends, or ends without a notice, or fails
    )
    set: dict[str, Template] = {}
    append: dict[str, Template] = {}  # as of an arc
    patch: Template = None  # its value is a map: further keys of the context, whose names the result decides
    retry: Retry = ONCE
    timeout: float | None = None
    loop: Loop | None = None
    poll: Poll | None = None
    visit_limit: int = VISIT_LIMIT
    result: dict[str, Any] | None = None  # JSON Schema of the result, or of the result of each item
    keeps_input: bool = False  # its `set` and its arcs can read its input
    queue: str = ""  # empty: that of the run
    priority: int | None = None  # None: that of the run
    share: Template = None  # its commands take turns with those of other shares
    limit: Template = None  # the limit that its commands count for
    accepts: tuple[str, ...] = ()  # the types of events that it takes
    collect: Collect | None = None
    workers: int = 0  # how many of its commands may run at a time; 0: as many as the engine allows
    on_error: str = ""  # the type of the event that its failure becomes


SHOWN_KINDS = 3  # of the tools of a pipeline


def tool_of(work: WorkerWork) -> str:
    """Return the tool as the author wrote it: for a pipeline the kinds of its tasks."""
    if isinstance(work, Call):
        return work.tool
    kinds = list(dict.fromkeys(task.kind for task in work.tasks))
    return ", ".join(kinds[:SHOWN_KINDS]) + (", …" if len(kinds) > SHOWN_KINDS else "") or work.tool


def is_body(step: Step) -> bool:
    """Whether a step is Python code. Only a worker with the code of this plan can run it."""
    return isinstance(step.work, Call) and step.work.tool == BODY


class Input(PlanData, frozen=True):
    """A declared input of a run, with its JSON Schema, which the core does not read."""

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
    budget: dict[str, int | float] = {}  # unit -> how much a run may use
    on_budget: str = "pause"  # or "fail", or the name of the step that runs then
    defaults: dict[str, Any] = {}  # values of inputs that are not given at the start
    inputs: tuple[Input, ...] = ()  # declared inputs
    computed: bool = False  # defaults may have expressions, and maps are merged with the given ones
    constants: dict[str, Any] = {}  # further names that expressions can read
    events: tuple[EventType, ...] = ()  # the types of events, if steps follow each other by events and not by arcs
    result: Template = None  # what a completed run returns; None: the result of the step that completed last
    language: str = ""  # the language of expressions; empty: there are none, or the engine has a default
    typed: bool = False  # its items and results are values of Python workflows in their stored form
    code: CodeIdentity | None = None  # None: a playbook, or Python code that was hashed without it (`former_plan`)


def former_plan(plan: Plan) -> Plan:
    """Return the plan as it was hashed before code and fields of events were part of it."""
    events = tuple(structs.replace(each, required=(), optional=()) for each in plan.events)
    return structs.replace(plan, code=None, events=events)


def durations(plan: Plan) -> Iterator[tuple[str, float]]:
    """Return every duration that a plan names, in seconds, except those that are 0 or unlimited."""
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
    """Return the canonical bytes of a plan: keys are sorted, and values that equal their defaults are left out."""
    return _encoded(_as_stored(plan))


def normalised(plan: Plan) -> tuple[Plan, bytes]:
    """Return the plan as it is read from its canonical bytes, and those bytes."""
    stored = _as_stored(plan)
    return _with_pipelines(stored), _encoded(stored)


def _as_stored(plan: Plan) -> Plan:
    # Numbers and the order of keys become those of the stored bytes: 5 and 5.0 seconds are equal, and a body sees its
    # input in the same order before and after a restart.
    return json.decode(json.encode(_with_calls(plan), order="sorted"), type=Plan)


def _encoded(stored: Plan) -> bytes:
    return json.encode(_without_defaults(stored), order="sorted")


_SCALARS = frozenset({str, int, float, bool, type(None)})


def _without_defaults(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_without_defaults(item) for item in value]
    shape = _shape(value.__class__)
    if shape is None:
        return value
    tag, names, defaults = shape
    encoded = {} if tag is None else {"type": tag}
    values = structs.astuple(value)
    for name, item, default in compress(zip(names, values, defaults, strict=True), map(is_not, values, defaults)):
        if item != default:
            encoded[name] = item if item.__class__ in _SCALARS else _without_defaults(item)
    return encoded


@cache
def _shape(kind: Any) -> tuple[Any, list[str], list[Any]] | None:
    """Return the tag, the fields and the defaults of a class of plan data; cached, because looking them up is slow."""
    if not issubclass(kind, PlanData):
        return None
    fields = structs.fields(kind)
    defaults = [each.default if each.default_factory is NODEFAULT else each.default_factory() for each in fields]
    return kind.__struct_config__.tag, [each.encode_name for each in fields], defaults


def hash_of(data: bytes) -> str:
    """Return the hash of a plan from its canonical bytes."""
    return hashlib.sha256(data).hexdigest()


def plan_hash(plan: Plan) -> str:
    return hash_of(canonical(plan))


def read_plan(data: bytes) -> Plan:
    return _with_pipelines(json.decode(data, type=Plan))


def _with_calls(plan: Plan) -> Plan:
    """Store a pipeline as the settings of a call of the tool `pipeline`, so that plans keep their hashes."""
    if not any(isinstance(step.work, TaskPipeline) for step in plan.steps):
        return plan
    return structs.replace(plan, steps=tuple(map(_with_call, plan.steps)))


def _with_call(step: Step) -> Step:
    if not isinstance(step.work, TaskPipeline):
        return step
    settings = to_builtins(step.work)
    del settings["type"]
    return structs.replace(step, work=Call(tool=step.work.tool, settings=settings))


def _with_pipelines(plan: Plan) -> Plan:
    """Turn calls of the tool `pipeline`, which is their stored form, into pipelines."""
    if not any(isinstance(step.work, Call) and step.work.tool == TaskPipeline.tool for step in plan.steps):
        return plan
    return structs.replace(plan, steps=tuple(map(_with_pipeline, plan.steps)))


def _with_pipeline(step: Step) -> Step:
    if not isinstance(step.work, Call) or step.work.tool != TaskPipeline.tool:
        return step
    return structs.replace(step, work=convert(step.work.settings, TaskPipeline))


def finalizers_of(plan: Plan) -> tuple[str, ...]:
    diverted = (plan.on_budget,) if plan.on_budget not in ("pause", "fail") else ()
    return (*plan.always, *plan.on_fail, *((plan.final_step,) if plan.final_step else ()), *diverted)


def problems_of(plan: Plan) -> Iterator[str]:
    if not plan.steps:
        yield f"workflow {plan.name!r} has no steps"
    names: set[str] = set()
    for step in plan.steps:
        if step.name in names:
            yield f"two steps are called {step.name!r}"
        names.add(step.name)
        yield from _step_problems(step)
    finalizers = finalizers_of(plan)
    for name in (*finalizers, plan.entry):
        if name and name not in names:
            yield f"there is no step {name!r}"
    yield from (f"{name!r} is a finalizer twice" for name, times in Counter(finalizers).items() if times > 1)
    if plan.steps and (plan.entry or plan.steps[0].name) in finalizers:
        yield f"the entry {plan.entry or plan.steps[0].name!r} is a finalizer"
    yield from (f"the budget of {unit} is {limit:g}" for unit, limit in plan.budget.items() if not 0 <= limit < inf)
    times = (each for each in durations(plan) if not 0 <= each[1] <= LONGEST)
    yield from (f"{what} is {seconds:g} s; it must lie between 0 and 100 years" for what, seconds in times)
    yield from _arc_problems(plan, names, finalizers)
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
        yield f"{step.name!r} is not a name for a step: it must not be empty or contain '/' or '#'"
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
    """Check that steps follow each other either by arcs or by events."""
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
    if step.arcs or step.loop or step.poll or not isinstance(step.work, WorkerWork):
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
    if not (isinstance(step.work, WorkerWork) or step.work == Wait()):
        yield f"step {step.name!r}: only a call can be made again until something holds"


def _loop_problems(name: str, work: Work, loop: Loop) -> Iterator[str]:
    if loop.max_in_flight < 1:
        yield f"step {name!r} has max_in_flight {loop.max_in_flight}; at least 1 is needed"
    if isinstance(work, Wait | Gate | Quality | Fail):
        yield f"step {name!r} loops over a {type(work).__name__.lower()}, which has no items"
