"""Compiles a Python workflow to a plan, with all that is needed to run its bodies here: classes, names, functions."""

import dataclasses
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from refold.core import plan as data
from refold.core.graph import analyse
from refold.core.outcomes import Fault, Question, Sent
from refold.core.plain_values import to_plain_data
from refold.core.plan import BODY, ONCE, START, STOP, CodeIdentity, EventType, Plan, Retry, former_plan, plan_hash
from refold.core.times import seconds
from refold.errors import InvalidPlan, InvalidValue
from refold.names import a
from refold.python.annotations import (
    classes_named,
    codec_for_class,
    field_hints,
    hints_in_body,
    hints_of,
    why_not_stored,
)
from refold.python.checks import Sketch, problems_of
from refold.python.data_classes import MARK, fields_of, make_object
from refold.python.events import (
    ErrorEvent,
    Event,
    InputRequestEvent,
    InputResponseEvent,
    StartEvent,
    StopEvent,
    defined_event,
)
from refold.python.field_types import check_fields, declared, needed, plain_kind, with_defaults
from refold.python.identity import OWN, identity_of, missing_arguments, module_name, rebuilt, stored_arguments
from refold.python.inputs import Inputs, inputs_of_event, inputs_of_function
from refold.python.session import NAME, Live
from refold.python.signatures import Signature, field_classes, generic_conflicts, is_event, read_signature
from refold.python.startable import is_playbook
from refold.python.values import ValueCodec
from refold.python.workflow import (
    FLOW,
    POLICY,
    Flow,
    Policy,
    Workflow,
    bodies_of,
    checked_retry,
    resources_of,
    with_default_error,
)

DEFINITION = "__refold_definition__"
REQUEST = "refold.InputRequestEvent"  # the type of a question that no annotation of the workflow names


class Body(Struct, frozen=True):
    """The function of a step, and how it is called."""

    name: str
    function: Callable[..., Any]
    signature: Signature
    policy: Policy

    @property
    def can_be_parked(self) -> bool:
        """Whether it may make durable calls, for which it needs a context, on the event loop."""
        return self.signature.wants_context and self.signature.is_async and self.policy.isolation == "inline"


class Definition(Struct, frozen=True):
    workflow: Any
    plan: Plan
    hash: str
    bodies: Mapping[str, Body]
    classes: Mapping[str, type]  # of events, by the names of their types
    names: Mapping[type, str]
    codec: ValueCodec
    resources: Mapping[str, Callable[[], Any]] = {}  # how live objects are made, by their keys
    mapped: Mapping[str, data.Step] = {}  # steps that are run for items alone
    inputs: Inputs = Inputs()
    found_at: str = ""  # where somebody has found it, as module:name
    former_rule: bool = False  # its runs were hashed, and their durable calls recorded, before plans named their code

    @property
    def place(self) -> str:
        """The class as `module:name`, for another process to import."""
        return f"{type(self.workflow).__module__}:{type(self.workflow).__qualname__}"

    @property
    def home(self) -> str:
        """Where the code is, as a user would write it; empty if it cannot be named."""
        if self.found_at:
            return self.found_at
        flows = [getattr(body.function, FLOW) for body in self.bodies.values() if hasattr(body.function, FLOW)]
        named = flows[0] if flows else type(self.workflow)
        module = module_name(named.__module__)
        unknown = module == "__main__" or module.startswith(OWN) or "<" in named.__qualname__
        return "" if unknown else f"{module}:{named.__qualname__}"

    @property
    def identity(self) -> CodeIdentity:
        return identity_of(self.workflow) if self.plan.code is None else self.plan.code

    @property
    def former(self) -> "Definition":
        """The same code for runs that were hashed before plans named their code."""
        plan = former_plan(self.plan)
        return structs.replace(self, plan=plan, hash=plan_hash(plan), former_rule=True)

    def is_of(self, workflow: Any, known: "Definition | None") -> bool:
        """Whether it runs instances of a class, or older runs of a workflow that is known here."""
        is_older = self.former_rule and known is not None and known.identity == self.identity
        return type(self.workflow) is workflow or is_older

    def step(self, name: str) -> data.Step:
        return self.mapped[name] if name in self.mapped else next(s for s in self.plan.steps if s.name == name)

    def sent(self, event: Any, sender: str) -> tuple[str, Any]:
        """Return an event as its type and its stored data. Raises InvalidValue."""
        cls = type(event)
        if isinstance(event, StopEvent):
            result = event.result if cls is StopEvent else event
            return STOP, {"result": self.codec.put(result, f"{cls.__name__}.result")}
        if cls not in self.names:
            raise InvalidValue(sender, self._unknown(cls))
        fields = fields_of(event, cls.__name__)
        check_fields(cls, fields, cls.__name__)
        return self.names[cls], self.codec.put_fields(fields, cls.__name__)

    def request(self, event: InputRequestEvent, id: str, sender: str) -> Sent:
        """Return a request to a person as an event that waits for the answer with this id. Raises InvalidValue."""
        cls, answer = type(event), type(event).answered_by
        if answer not in self.names:
            raise InvalidValue(sender, f"it asks with {cls.__name__}, and no step takes its answer, {answer.__name__}")
        if cls not in self.names and cls is not InputRequestEvent:
            raise InvalidValue(sender, self._unknown(cls))
        fields = fields_of(event, cls.__name__) | {"request_id": id}
        check_fields(cls, fields, cls.__name__)
        data = self.codec.put_fields(fields, cls.__name__)
        asks = Question(id, self.names[answer], _answer_fields(answer), _answer_kinds(answer))
        return Sent(self.names.get(cls, REQUEST), data, asks=asks)

    def answer(self, event: InputResponseEvent) -> Any:
        """Return an event that answers a request as the value of an answer. Raises InvalidValue."""
        cls = type(event)
        fields = {name: each for name, each in fields_of(event, cls.__name__).items() if name != "request_id"}
        stored = self.codec.put_fields(fields, cls.__name__)
        return stored if _answer_fields(cls) else stored.get("response")

    def shown(self, value: Any, sender: str) -> tuple[str, Any]:
        """Return a published value as its type and its stored data. An event needs no declaration to be published."""
        if type(value) in self.names:
            return self.sent(value, sender)
        if isinstance(value, Event):
            check_fields(type(value), vars(value), type(value).__name__)
            return "", codec_for_class(self.codec, type(value)).put(value, "published")
        return "", self.codec.put(value, "published")

    def seen(self, type: str, data: Any) -> Any:
        """Return a published value. An event that no step takes is of its class, or plain data if this process has not
        defined that class.
        """
        if type:
            return self.received(type, data)
        marked = data.get(MARK) if isinstance(data, dict) else None
        if not isinstance(marked, list) or marked[:1] != ["object"] or marked[1] in self.codec.classes:
            return self.codec.get(data)
        cls = defined_event(marked[1])
        return to_plain_data(data) if cls is None else codec_for_class(self.codec, cls).get(data)

    def _unknown(self, cls: type) -> str:
        if not is_event(cls):
            return f"it gave {a(cls.__name__)}; a step gives an event, a list of events, or None"
        takes = "; ".join(f"{step.name} takes {', '.join(step.accepts)}" for step in self.plan.steps)
        near = next((name for each, name in self.names.items() if issubclass(cls, each) and each is not Event), "")
        hint = f" ({near} is known; name {cls.__name__} in the return annotation too)" if near else ""
        return f"no step takes the event {cls.__name__!r}{hint}: {takes}"

    def takers(self, type: str) -> int:
        """Return how many steps take events of a type."""
        bases = next((each.bases for each in self.plan.events if each.name == type), ())
        return sum(1 for step in self.plan.steps if {type, *bases} & {*step.accepts})

    def received(self, type: str, raw: Any) -> Any:
        """Return a stored event as a new object of its class. Raises InvalidValue."""
        cls = self.classes[type] if type != REQUEST else InputRequestEvent
        of_error = issubclass(cls, ErrorEvent)
        if not isinstance(raw, dict):
            raise InvalidValue(type, f"a map of fields is wanted, and this is {a(raw.__class__.__name__)}")
        fields = with_defaults(cls, self.codec.get_fields({**raw, "events": None} if of_error else raw, cls.__name__))
        if type == START:
            fields = self.inputs.fitted(fields)
        if of_error:
            fields["events"] = [self.received(each["type"], each["data"]) for each in raw.get("events", ())]
        check_fields(cls, fields, cls.__name__)
        return make_object(cls, fields, cls.__name__)

    def begun(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs of a run as they are stored, checked against what the workflow declares.

        Raises InvalidValue.
        """
        given = self.inputs.checked(self.plan.name, inputs)
        raw = {name: self.codec.put(each, f"input.{name}") for name, each in given.items()}
        self.received(START, raw)
        return raw


def _answer_fields(cls: type) -> dict[str, bool]:
    """Return the fields of an answer, and which are required; nothing if `response` is all that it has."""
    names = [name for name in field_hints(cls) if name != "request_id"]
    return {name: name in needed(cls) for name in names} if names != ["response"] else {}


def _answer_kinds(cls: type) -> dict[str, str]:
    """Return the kinds of the fields that take one kind of plain value."""
    kinds = {name: plain_kind(hint) for name, hint in field_hints(cls).items() if name != "request_id"}
    return {name: kind for name, kind in kinds.items() if kind}


def define(workflow: Any, found_at: str = "") -> Definition:
    """Return the definition of a Workflow class, an instance or a flow; it is made once. Raises InvalidPlan."""
    owner = workflow.workflow if isinstance(workflow, Flow) else workflow
    if not is_workflow(workflow):
        raise InvalidPlan([f"{workflow!r} is not a workflow: it must be a subclass or an instance of refold.Workflow"])
    known: Definition | None = vars(owner).get(DEFINITION)
    if known is None:
        known = _made(_instance(owner) if isinstance(owner, type) else owner)
        setattr(owner, DEFINITION, known)
    if found_at and known.found_at != found_at:
        known = structs.replace(known, found_at=found_at)
        setattr(owner, DEFINITION, known)
    return known


def _instance(cls: type[Workflow[Any]]) -> Workflow[Any]:
    missing = missing_arguments(cls)
    if missing:
        why = f"{cls.__qualname__} needs arguments ({', '.join(missing)}): give an instance, as in"
        raise InvalidPlan([f"{why} `{cls.__name__}({'=…, '.join(missing)}=…)`, or name one of its module"])
    return cls()


def define_stored(cls: type[Workflow[Any]], plan: Plan) -> Definition | None:
    """Return the workflow of a stored plan, built again from a class and the arguments in the plan; None if the plan is
    not one of this class, or is not what the class is by now. Raises what the constructor raises."""
    if plan.code is None or plan.code.name != class_name(cls):
        return None
    definition = define(rebuilt(cls, plan.code.arguments))
    return definition if definition.hash == plan_hash(plan) else None


def class_name(cls: type[Workflow[Any]]) -> str:
    """Return the name by which instances of a class are known, unless they are given names of their own."""
    return cls.name or f"{module_name(cls.__module__)}:{cls.__qualname__}"


def is_workflow(value: Any) -> bool:
    return isinstance(value, Workflow | Flow) or (isinstance(value, type) and issubclass(value, Workflow))


def child_workflows(definition: Definition) -> Iterator[Any]:
    """Yield the workflows that its bodies name or that it declares: it may start them as children.

    One that needs arguments is a class of which the bodies make instances.
    """
    yield from definition.workflow.children
    for body in definition.bodies.values():
        function = inspect.unwrap(getattr(body.function, FLOW, body.function))
        code, known = getattr(function, "__code__", None), getattr(function, "__globals__", {})
        for name in code.co_names if code is not None else ():
            if is_workflow(known.get(name)) and not _is_of_refold(known[name]):
                yield known[name]


def _is_of_refold(value: Any) -> bool:
    """Whether it is a class of Refold from which workflows are made."""
    return isinstance(value, type) and value.__module__.startswith("refold.python.")


def with_children(definition: Definition) -> list[Definition]:
    """Return the workflow and every workflow it can start, transitively."""
    found = {definition.hash: definition}
    todo = [definition]
    while todo:
        children = [each for each in child_workflows(todo.pop()) if not missing_arguments(each)]
        for each in map(define, children):
            if each.hash not in found:
                found[each.hash] = each
                todo.append(each)
    return list(found.values())


def _made(workflow: Workflow[Any]) -> Definition:
    problems = list(_option_problems(workflow))
    if problems:
        raise InvalidPlan(problems)
    bodies = {}
    for step, policy, function in bodies_of(workflow):
        signature = read_signature(step, function)
        bodies[step] = Body(step, function, signature, with_default_error(workflow, signature.takes, policy))
    name = workflow.name or type(workflow).__name__
    classes = list(_event_classes(bodies.values()))
    names = _names(classes)
    problems += list(problems_of(name, [_sketch(body) for body in bodies.values() if not body.policy.mapped]))
    problems += _unfit_for_processes(workflow, bodies.values())
    problems += _unfit_for_items(bodies.values())
    problems += generic_conflicts((name, body.signature) for name, body in bodies.items())
    if problems:
        raise InvalidPlan(problems)
    retry = checked_retry(workflow.retry, name)
    by_type = {each: cls for cls, each in names.items() if cls is not StartEvent or START not in _others(names)}
    inputs = _inputs(bodies.values(), by_type[START])
    plan = Plan(
        name=name,
        steps=tuple(_step(body, names, retry) for body in bodies.values() if not body.policy.mapped),
        on_failure=workflow.on_failure,
        timeout=None if workflow.timeout is None else seconds(workflow.timeout),
        events=tuple(_types(names, by_type[START], inputs)),
        code=identity_of(workflow),
    )
    analyse(plan)
    stored = {*workflow.types, *(each for cls in classes for each in field_classes(cls))}
    stored |= {cls for cls in classes if issubclass(cls, StopEvent) and cls is not StopEvent}
    known = {cls: each for cls, each in names.items() if each not in (START, STOP)}
    of_data = {each: cls for cls, each in (_names(sorted(stored, key=_full)) | known | {Live: NAME}).items()}
    handed_on = {cls for each in workflow.hands_on for cls in define(each).codec.classes.values()}
    of_data |= {_full(cls): cls for cls in handed_on.difference(of_data.values())}
    flow = next((getattr(body.function, FLOW) for body in bodies.values() if hasattr(body.function, FLOW)), None)
    codec = ValueCodec(of_data).with_classes(classes_named(_hints_of(workflow, bodies.values(), flow)))
    if flow is not None:
        _check_flow(name, flow, codec)
    return Definition(
        workflow=workflow,
        plan=plan,
        hash=plan_hash(plan),
        bodies=bodies,
        classes=by_type,
        names=names,
        codec=codec,
        resources=resources_of(workflow),
        mapped={body.name: _step(body, names, retry) for body in bodies.values() if body.policy.mapped},
        inputs=inputs,
    )


def _hints_of(workflow: Workflow[Any], bodies: Iterable[Body], flow: Callable[..., Any] | None) -> Iterator[Any]:
    """Yield the annotations whose classes the values of a workflow may have."""
    yield from (Fault, *workflow.types)
    yield from (base for cls in type(workflow).__mro__ for base in getattr(cls, "__orig_bases__", ()))
    for body in bodies:
        yield from (*body.signature.takes, *body.signature.hints, *body.policy.sends)
        yield from hints_in_body(body.function if flow is None else flow)
    yield from hints_of(flow).values() if flow is not None else ()


def _check_flow(name: str, flow: Callable[..., Any], codec: ValueCodec) -> None:
    """Raise InvalidPlan if no result, or no value of an input, could be stored."""
    hints, needed = hints_of(flow), inputs_of_function(flow).needed
    why = why_not_stored(hints.get("return"), codec.names)
    if why:
        raise InvalidPlan([f"flow {name!r}: its result could not be stored: {why}"])
    for input in sorted(needed):
        why = why_not_stored(hints.get(input), codec.names)
        if why:
            raise InvalidPlan([f"flow {name!r}: its input {input!r} could not be stored: {why}"])


_OPTIONS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "name": (lambda value: isinstance(value, str), "a text: the name by which it is known"),
    "timeout": (lambda value: value is None or isinstance(value, str | int | float), "the time limit of a run"),
    "retry": (lambda value: value is None or isinstance(value, Retry), "a Retry, for steps that have none"),
    "types": (lambda value: _are(lambda each: True, value), "classes whose objects may be stored"),
    "children": (lambda value: _are(_is_startable, value), "the workflows that its steps start"),
    "hands_on": (lambda value: _are(_is_startable, value), "workflows whose results it stores"),
    "on_failure": (lambda value: value in ("cancel", "drain"), "'cancel' or 'drain'"),
    "live": (lambda value: value in ("drop", "refuse", "keep"), "'drop', 'refuse' or 'keep'"),
    "on_error": (lambda value: value is None or isinstance(value, type), "the event that a failure becomes"),
    "functions": (lambda value: _are(callable, value), "the functions that are its steps"),
}
"""The attributes of a workflow that are its options: what each may be, and what it is for."""


def _are(fits: Callable[[Any], bool], value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(map(fits, value))


def _is_startable(value: Any) -> bool:
    return isinstance(value, Plan) or is_workflow(value) or is_playbook(value)


def _option_problems(workflow: Workflow[Any]) -> Iterator[str]:
    """Yield the steps and attributes of a user that have the name of an option."""
    for name, (fits, meaning) in _OPTIONS.items():
        value = getattr(workflow, name, None)
        if hasattr(value, POLICY):
            yield (
                f"a step of {type(workflow).__name__} is called {name!r}, which is an option of Workflow: {meaning}; "
                "give the step another name"
            )
        elif hasattr(workflow, name) and not fits(value):
            yield (
                f"{type(workflow).__name__}.{name} is {value!r}, and it is an option of Workflow: {meaning}; "
                "an attribute of your own needs another name"
            )


def _inputs(bodies: Iterable[Body], start: type) -> Inputs:
    flow = next((getattr(body.function, FLOW) for body in bodies if hasattr(body.function, FLOW)), None)
    return inputs_of_event(start) if flow is None else inputs_of_function(flow)


def _unfit_for_processes(workflow: Workflow[Any], bodies: Iterable[Body]) -> Iterator[str]:
    cls = type(workflow)
    found = cls is not Workflow and cls.__module__ != "__main__" and "<locals>" not in cls.__qualname__
    for body in bodies:
        if body.policy.isolation != "inline" and not found:
            where = f"{cls.__module__}.{cls.__qualname__}"
            yield f"step {body.name!r} wants a process, which could not import {where}: write a class, in a module"
        elif body.policy.isolation != "inline" and stored_arguments(workflow) is None:
            yield f"step {body.name!r} wants a process, and the arguments of {cls.__qualname__} are not plain data"


def _unfit_for_items(bodies: Iterable[Body]) -> Iterator[str]:
    """A step that `ctx.map` runs returns a result to the body that called it, so that no answer could follow later."""
    for body in bodies:
        for sent in body.signature.sends or () if body.policy.mapped else ():
            if issubclass(sent, InputRequestEvent):
                yield f"step {body.name!r} is run by `ctx.map`, so it cannot return {sent.__name__}: use `ctx.ask`"


def _others(names: Mapping[type, str]) -> set[str]:
    """Return the event types that have a class of the user."""
    return {name for cls, name in names.items() if cls is not StartEvent}


def _event_classes(bodies: Iterable[Body]) -> Iterator[type]:
    yield from (StartEvent, StopEvent)
    for body in bodies:
        yield from body.signature.takes
        for sent in (*(body.signature.sends or ()), *body.policy.sends):
            yield sent
            if issubclass(sent, InputRequestEvent):
                yield sent.answered_by
        if body.policy.on_error is not None:
            yield body.policy.on_error


def _names(classes: Iterable[type]) -> dict[type, str]:
    """Name each class by its own name, or with its module if another class has the same name."""
    found = list(dict.fromkeys(classes))
    times = Counter(cls.__name__ for cls in found)
    return {cls: _reserved(cls) or (cls.__name__ if times[cls.__name__] == 1 else _full(cls)) for cls in found}


def _reserved(cls: type) -> str:
    return START if issubclass(cls, StartEvent) else STOP if issubclass(cls, StopEvent) else ""


def _full(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _types(names: Mapping[type, str], start: type, inputs: Inputs) -> Iterator[EventType]:
    told: set[str] = set()
    for cls, name in names.items():
        if not issubclass(cls, InputRequestEvent) and name not in told:  # people take requests, no step does
            told.add(name)
            above = (names[each] for each in cls.__mro__[1:] if each in names)
            bases = tuple(dict.fromkeys(each for each in above if each != name))
            required, optional = _shape_of_inputs(start, inputs) if name == START else _shape(cls)
            yield EventType(name=name, bases=bases, required=required, optional=optional)


Shape = tuple[tuple[str, ...], tuple[str, ...]]
"""The fields of events that must be given, and those with a default. Both are sorted: their order has no meaning."""


def _shape(cls: Any) -> Shape:
    """Return the fields of a class of the user; those that it has from a class of Refold are left out."""
    if issubclass(cls, StopEvent):
        return (), ()  # no step takes it
    own: list[Any] = [each for each in cls.__mro__ if each.__module__.startswith(OWN)]
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    transient = {each.name for each in fields if each.metadata.get("transient")}  # these are never stored
    names = declared(cls).keys() - transient - {name for each in own for name in declared(each)}
    required = needed(cls)
    return tuple(sorted(names & required)), tuple(sorted(names - required))


def _shape_of_inputs(start: type, inputs: Inputs) -> Shape:
    if start is not StartEvent:
        return _shape(start)
    return tuple(sorted(inputs.needed)), tuple(sorted(set(inputs.names) - inputs.needed))


def _sketch(body: Body) -> Sketch:
    sends = body.signature.sends
    if sends is not None:
        sends = (*sends, *body.policy.sends)
    collect = body.policy.collect
    return Sketch(
        body.name,
        body.signature.takes,
        sends,
        body.policy.on_error,
        body.signature.as_list,
        None if collect is None else tuple(collect.types),
    )


def _step(body: Body, names: Mapping[type, str], retry: Retry | None) -> data.Step:
    policy = body.policy
    collect = policy.collect
    return data.Step(
        name=body.name,
        work=data.Call(tool=BODY, settings=policy.settings),
        retry=policy.retry or retry or ONCE,
        timeout=policy.timeout,
        queue=policy.queue,
        priority=policy.priority,
        share=policy.share or None,
        limit=policy.limit or None,
        accepts=tuple(dict.fromkeys(names[each] for each in body.signature.takes)),
        collect=None if collect is None else data.Collect(n=collect.n, by=collect.by, timeout=collect.timeout),
        workers=policy.workers,
        on_error="" if policy.on_error is None else names[policy.on_error],
    )
