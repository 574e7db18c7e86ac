"""What the reference of Python workflows says in addition to signatures and docstrings."""

HEAD = """\
# Python workflows

Every public name of `refold` for workflows in Python. This page is printed from the code, by
`python -m docs.build.python_page`; do not edit it. [The tutorial](../tutorial-python.md) begins at the beginning,
and [durable Python](../explanation/durable-python.md) says what is recorded and when.

A *span* of time is a number of seconds, or a text like `250ms`, `30s`, `5m`, `2h`, `1d`, `1h30m`.
"""

SECTIONS = {
    "Workflows": "How a workflow is written. Mistakes in it raise `refold.errors.InvalidPlan` before anything runs; "
    "its `problems` lists all of them: an event that no step takes, a step that nothing reaches, no way to a "
    "`StopEvent`.",
    "Events": "What steps send to each other. Subclasses of `Event` are the usual form; dataclasses, msgspec structs "
    "and pydantic models are events too. A step gets events of the classes it names and of their subclasses, each as a "
    "new object of the class that was sent. Fields are checked against their annotations when an event is sent and "
    "when it is read.",
    "In a step": "A step takes `ev`, or `ctx` and `ev`. With `async`, `ctx` is a `Context`. Without `async`, the step "
    'runs in a thread, `ctx` is a `SyncContext`, and nothing is awaited: `ctx.sleep("1s")` blocks.',
    "Running": '`async with refold.open_engine(db="runs.db") as engine` opens an engine that executes runs; `run_sync` '
    "does everything in one call. Keywords are always inputs of the run. Options of the run itself are given "
    'apart: `engine.options(key="order-7").start(order, amount=25)`.',
    "Pipelines": "Workflows one after the other, side by side, or again and again, as one workflow: `refold.stages`.",
    "Errors": "Each is named by what the caller should do. They are in `refold.errors`, with the whole tree.",
    "Workflows as data": "What playbooks and Python workflows become: `refold.plan`. A `Plan` can be written by hand, "
    "or by another program, and is started like any other workflow. What each part means is what the [keys of a "
    "playbook](playbook.md) mean.",
}

DECORATORS = frozenset({"step", "flow", "resource"})
NOT_CALLED = frozenset(
    {
        "Context",
        "SyncContext",
        "Engine",
        "Handle",
        "SyncEngine",
        "SyncHandle",
        "ctx.requests()",
        "Live",
        "PipelineState",
        "ctx.options()",
        "ctx.state",
        "ctx.session",
    }
)
"""Objects that a user is given and does not make."""

STEP = {
    "workers": "how many of it run at once in a run, for different events, in the order of their coming; 0: many",
    "retry": "how often it is tried, and when; without it, that of the workflow counts, and else it is tried once",
    "timeout": "a span for each try; what is cut off is a failed try",
    "queue": "where it waits for a worker; an engine takes from all queues, unless `Settings(queues=...)` or, on the "
    "command line, `REFOLD_QUEUES` names those that it serves",
    "priority": "those with a greater number come first; without it, that of the run, or 0",
    "share": "whom the work is for: shares take turns; without it, that of the run",
    "limit": "the limit that it counts for; without it, that of the run",
    "isolation": "`inline`: in this process. `process`: in one of its own, which is killed when the step must end. "
    "`ray`: in a process on a Ray cluster",
    "ray": "what it needs of the cluster, a `Ray`; without one, it needs a CPU",
    "collect": "it gets a list of events, gathered as `Collect` says",
    "on_error": "a subclass of `ErrorEvent`, which its final failure becomes; without one, the run fails",
    "sends": "events that it sends with `ctx.send` and that its return annotation does not tell of",
    "mapped": "it is run by `ctx.map` alone, for items, and no event leads to it",
}
OPTIONS = {
    "step": STEP,
    "flow": {
        "name": "the name by which it is known, instead of `module:function`",
        "timeout": "a span for the whole run",
        "retry": "how often the function is tried, and when",
        "types": "classes of objects that the context, results and signals may hold, besides those of annotations",
    },
}

ATTRIBUTES = {
    "Workflow": {
        "name": "how its runs are listed, and by which it is known instead of `module:Class`",
        "timeout": "a span for the whole run; pauses do not count",
        "retry": "of steps that say nothing themselves",
        "types": "classes of objects that the context and results may hold, besides those that events name",
        "children": "workflows that its steps start, if their bodies do not name them",
        "on_error": "what the final failure of a step becomes, if it says nothing itself and does not take this event",
        "on_failure": "what happens to running steps when one has failed permanently",
        "live": "what an export does with live objects: leaves them out, refuses, or keeps those that say how",
    },
    "Retry": {
        "attempts": "how often, the first try among them",
        "backoff": "how the delay grows from try to try",
        "delay": "before the second try: seconds, or any span where Python workflows take a `Retry`",
        "max_delay": "a span, at most",
    },
    "Ray": {
        "cpus": "how many it needs",
        "gpus": "how many it needs",
        "memory": "bytes that it needs; 0: not counted",
        "custom": "amounts of resources of your cluster, by name",
        "runtime_env": "the runtime environment, as Ray describes it",
        "placement": "`spread`, or a map of labels that the node must have",
        "pending_timeout": "seconds until a try that has not started fails; without it, it waits",
    },
    "Context": {
        "run_id": "the id of the run",
        "idempotency_key": "the same in every try for this event, and never another's: for the far side",
        "attempt": "which try this is, from 1",
        "state": "the values of the run: [`ctx.state`](#ctxstate)",
        "session": "live objects: [`ctx.session`](#ctxsession)",
    },
    "SyncContext": {
        "run_id, idempotency_key, attempt": "as in `Context`",
        "state, session": "as in `Context`",
        "get, set, update, send, collect, usage, log": "the methods of `Context`",
    },
    "Handle": {"id": "the id of the run"},
    "SyncHandle": {"id": "the id of the run"},
    "RunReport": {
        "id": "the id of the run",
        "status": "as in `engine.runs()`",
        "steps": "of each step, by its name: `status`, `visits`, `attempts`, `result`, `error`",
        "waits": "what it waits for, by command",
        "usage": "what was used, by unit",
        "state": "all that is known of the run, in its stored form",
    },
    "IncomingRequest": {
        "id": "of the request",
        "name": "with which it was sent",
        "value": "what was sent",
    },
    "Shown": {
        "number": "with which a later stream continues: `handle.stream(after=number)`",
        "step": "who has published it",
        "value": "what `ctx.publish` was given; a question is an `InputRequestEvent` with its id",
        "run": "that of a child, if it is one's",
    },
    "Request": {
        "id": "for `handle.answer`",
        "prompt": "what is asked",
        "metadata": "what was given with it",
        "event": "the event that a step has returned; None: a body asks with `ctx.ask`",
    },
    "RunFailed": {"run": "its id", "error": "`step`, `visit`, `why`, and the `fault`: `kind`, `message`, `traceback`"},
    "ChildFailed": {"fault": "`kind`, `message`, `traceback`"},
    "LiveObjectLost": {"key": "under which it was"},
    "StopEvent": {"result": "what the run gives"},
    "InputRequestEvent": {
        "answered_by": "the class of the answer",
        "prompt": "what is asked",
        "metadata": "whatever else the one who asks people should know",
    },
    "ErrorEvent": {
        "step": "that has failed",
        "visit": "for which event, counted from 1",
        "error": "`kind`, `message` and what else is known of the failure",
    },
    "Live": {"key": "its name in `ctx.session`"},
    "InputResponseEvent": {"request_id": "that of the request", "response": "what was answered"},
}

INTERNAL = {
    "Workflow": frozenset({"hands_on"}),
    "Context": frozenset({"children"}),
    "SyncContext": frozenset({"waiting_by"}),
    "Engine": frozenset(
        {"code", "lines", "follow", "workers", "started", "completed", "questions", "signal_stored", "last_line"}
    ),
    "SyncEngine": frozenset({"follow", "questions"}),
    "Settings": frozenset({"tool_limits"}),
    "State": frozenset(
        {"change", "check_open", "take_alone", "stored", "writes", "take_over", "news", "renewed", "keep", "kept"}
    ),
    "Session": frozenset({"sent", "handled", "end", "saved", "offer", "open", "close", "has_resources"}),
    "PipelineState": frozenset({"answered"}),
}
"""What is there for the engine."""

DATA = {
    "Plan": "a workflow: its name, its steps, and what holds for all of a run",
    "Step": "one step: its work, its input, its policies, its arcs",
    "Arc": "the way to another step, and when it is taken",
    "Call": "work for a worker: the name of a tool, and its settings",
    "Child": "a run of another plan",
    "Fail": "a failure, without any work",
    "Gate": "a wait for a person's decision",
    "Wait": "a wait for a moment or a signal",
    "Quality": "a check that a number is high enough",
    "Loop": "the step is run for each item of a list or a source",
    "Source": "where the items of a loop come from, page by page",
    "Poll": "the call is repeated until a condition holds",
    "Input": "an input that the workflow declares, with its JSON Schema",
}

ABOUT = {
    "step": """A step of a workflow. It is written before a method or a function, which takes `ev`, or `ctx` and `ev`;
        what it takes and sends is read from its annotations: one event, a union, a list, or None.""",
    "Context": "What a step gets together with its event; one for each try.",
    "ctx.options()": """What `ctx.options(key=..., retry=..., timeout=...)` returns: the durable calls of the context,
        with these options.""",
    "Settings": """Everything that can be set about an engine; on the command line each is an environment variable, such
        as `REFOLD_SLOTS`.""",
    "Context.get": "A value of the run, as it was when this step was claimed, or as the step has set it; a fresh copy.",
    "Engine": """What `open_engine` gives. `start` and `run` take a flow, a `Workflow` class or object, a `Plan`, or a
        playbook. A flow takes its inputs as its function does, by place or by name. Any other workflow takes them by
        name, or as one map, or as one start event. No keyword has another meaning: options of the run are given to
        `engine.options`.""",
    "Engine.result": "The run's result, when it is over. Raises RunFailed or RunCancelled.",
    "Engine.show": "The run as it is now, as under [`engine.show()`](#engineshow).",
    "Engine.history": "The facts of a run, from the first on or after a number.",
    "Engine.signal": "For `ctx.wait_for`, or for a step of a playbook that waits; kept if it comes early.",
    "Engine.pause": "Work that is running finishes; no new work is started.",
    "Handle": "A run that was started. It may have any number of handles, and continues when there is none.",
    "Handle.pause": "Work that is running finishes; no new work is started, and the time does not count.",
    "Handle.resume": "Lifts a pause.",
    "Handle.signal": "For `ctx.wait_for`; kept if it comes early.",
    "ctx.state.get": "The value of a key, or the default.",
    "ctx.state.bytes": "The value, if it is bytes.",
    "ctx.state.keys": "All that there are.",
    "ctx.session.get": "The object, or the default. Raises LiveObjectLost if an export left it out.",
    "ctx.session.put": "As `ctx.session[key] = value`, and `until` says how long it is kept.",
    "InputResponseEvent": "What an `InputRequestEvent` becomes when it was answered.",
    "RunFailed": "The run ended as failed.",
    "StepFailed": "A run of a Python workflow ended as failed; `__cause__` is the exception, if it was raised here.",
    "RunCancelled": "The run ended as cancelled.",
    "ChildFailed": "The run that a step has started ended badly.",
    "StageFailed": "A stage of a pipeline failed.",
    "LiveObjectLost": "The object lived in a process that is gone: make it again, or declare how with `@resource`.",
    "engine.runs()": """A row of the list that `engine.runs()` gives, the newest first. The list has a `cursor`, which
        is empty at its end.""",
    "engine.show()": "What `engine.show()` and `engine.wait()` give.",
    "handle.stream()": "What `handle.stream()` gives, one for each `ctx.publish`.",
    "handle.requests()": "What `handle.requests()` gives: a question that waits for a person.",
    "PipelineState.get": "A value that functions of this pipeline share, or the default.",
    "PipelineState.set": "Recorded with the answer of the function that writes it.",
    "PipelineState.delete": "Nothing happens if it is not there.",
    "PipelineState.keys": "All that there are.",
    "PipelineResult.stage": "The result of the stage of this name.",
}

VALUES = """\
## Values

Inputs, events, the context, signals, results of durable calls and of runs come back exactly as they were: text, numbers
of any size, `Decimal`, `Fraction`, NaN, bytes, `datetime`, `date`, `time`, `timedelta`, `UUID`, paths, tuples, sets,
lists, maps with any such keys, `OrderedDict`, `defaultdict`, `Counter`, `deque`, events, and objects of classes that
the workflow knows: dataclasses, pydantic models, msgspec structs, enums and flags, named tuples, and subclasses of
`str`, `int`, `float` and `bytes`. An object is restored without its constructor: no validator and no `__post_init__`
runs again, and aliases play no part.

A workflow knows the classes that annotations name, at any depth:

- the parameters and the result of a flow, and the fields of events;
- the result of a class, as in `Workflow[Receipt]`, or of a step, as in `-> StopEvent[Receipt]`;
- the parameters and the result of a function that is given to `ctx.call` or `ctx.map`, for that call, and of the
  functions that a body names, everywhere;
- `type=` of `ctx.wait_for` and `ctx.ask`, for that value;
- `types` of the workflow or of `@flow(types=[...])`.

Anything else is refused when it is written, with the path to it, and raises `refold.errors.Unstorable`. If the
annotated result of a function or of a flow cannot be stored, it is refused before anything runs. A result that turns
out not to be storable fails its step, and is never tried again: the call was made. Nothing is pickled, and nothing
that is read is ever imported or called because data says so. A secret, such as pydantic's `SecretStr`, is always
refused: hand on its name, and read it where it is used.

Inputs of a flow, and the fields of a `StartEvent`, are checked against their annotations before a run starts. JSON
that represents a value is converted, as in `{"x": 1, "y": 2}` for a dataclass or `"2026-01-02"` for a date, so that
the command line and playbooks can give such inputs; text is not taken for a number. An input that is not declared is
refused by name. The same conversion is made for `ctx.wait_for("paid", type=Payment)`.
"""
