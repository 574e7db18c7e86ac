"""Workflows written in Python: a class whose steps take and send events, or plain functions put together."""

import inspect
import typing
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, Protocol, overload

from msgspec import Struct, structs

from refold.core.plan import Retry
from refold.core.times import seconds
from refold.errors import InvalidPlan, InvalidValue
from refold.names import a
from refold.python.events import StartEvent, StopEvent
from refold.python.inputs import inputs_of_function

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import TypeVar

    R = TypeVar("R", default=Any)
else:
    R = typing.TypeVar("R")
P = ParamSpec("P")
Body = typing.TypeVar("Body", bound=Callable[..., Any])
POLICY, RESOURCE, FLOW = "__refold_step__", "__refold_resource__", "__refold_flow__"
ARGUMENTS, GIVEN_NAME = "__refold_arguments__", "__refold_name__"
ISOLATIONS = ("inline", "process", "ray")


class Collect:
    """Events that are gathered before a step is run: so many of these types, or as many as a context key says.

    If the key is 0, the step is run with an empty list as soon as nothing else is running or waiting, because no other
    step can set another number then.

    `by` names a field: those with the same value belong together. After `timeout`, counted from the first of a batch,
    the step fails instead.
    """

    def __init__(self, *types: type, n: int | str = 1, by: str = "", timeout: str | int | float | None = None) -> None:
        if not types:
            raise InvalidPlan(["Collect names no event: write Collect(Done, n=3)"])
        if isinstance(n, bool) or not isinstance(n, (int, str)) or (isinstance(n, int) and n < 1) or n == "":
            raise InvalidPlan([f"Collect: n is {n!r}; it is a number from 1 on, or the name of a context key"])
        self.types, self.n, self.by = types, n, by
        self.timeout = None if timeout is None else seconds(timeout)


class Ray(Struct, frozen=True, kw_only=True):
    """What a step with `isolation="ray"` needs of the cluster, and where it may run."""

    cpus: float = 1
    gpus: float = 0
    memory: int = 0  # bytes; 0: not counted
    custom: dict[str, float] = {}
    runtime_env: dict[str, Any] = {}
    placement: str | dict[str, str] = ""  # "spread", or labels that the node must have
    pending_timeout: float | None = None  # seconds until a try that has not started fails; None: never


class Policy(Struct, frozen=True, kw_only=True):
    """What `@step` says about a step."""

    workers: int = 0
    retry: Retry | None = None
    timeout: float | None = None
    queue: str = ""
    priority: int | None = None
    share: str = ""
    limit: str = ""
    isolation: str = "inline"
    ray: Ray | None = None
    collect: Collect | None = None
    on_error: type | None = None
    sends: tuple[type, ...] = ()
    mapped: bool = False
    settings: dict[str, Any] = {}  # of a step that Refold provides


@overload
def step(body: Body, /) -> Body: ...


@overload
def step(
    *,
    workers: int = 0,
    retry: Retry | None = None,
    timeout: str | int | float | None = None,
    queue: str = "",
    priority: int | None = None,
    share: str = "",
    limit: str = "",
    isolation: str = "inline",
    ray: Ray | None = None,
    collect: Collect | None = None,
    on_error: type | None = None,
    sends: Sequence[type] = (),
    mapped: bool = False,
) -> Callable[[Body], Body]: ...


def step(body: Any = None, /, **policy: Any) -> Any:
    """A step of a workflow; what it takes and sends stands in its annotations.

    `workers` of it run at once for different events (0: many), in the order of their coming. `sends` names events that
    it sends with `ctx.send` and that its return annotation does not tell of. `on_error` is the event that its final
    failure becomes; without one, the run fails. A step that is `mapped` is run by `ctx.map` alone. `isolation` is
    `inline`, `process` or `ray`, and `ray` says what the step needs of the cluster. Without `queue`, `priority`,
    `share` and `limit` it has those of its run.
    """
    said = _policy(**policy)

    def mark(body: Any) -> Any:
        function = body.__func__ if isinstance(body, (staticmethod, classmethod)) else body
        if not callable(function):
            raise InvalidPlan([f"@step is used on {a(type(body).__name__)}; it must be used on a function"])
        setattr(function, POLICY, said)
        return body

    return mark if body is None else mark(body)


def _policy(*, timeout: Any = None, sends: Iterable[type] = (), **rest: Any) -> Policy:
    workers, isolation = rest.get("workers", 0), rest.get("isolation", "inline")
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 0:
        raise InvalidPlan([f"@step: workers is {workers!r}; it is a number, and 0 means many"])
    if isolation not in ISOLATIONS:
        raise InvalidPlan([f"@step: isolation is {isolation!r}; it is one of {', '.join(ISOLATIONS)}"])
    if rest.get("ray") is not None and (isolation != "ray" or not isinstance(rest["ray"], Ray)):
        raise InvalidPlan([f'@step: ray is {rest["ray"]!r}; write it like isolation="ray", ray=Ray(gpus=1)'])
    known = [each for each in Policy.__struct_fields__ if each != "settings"]
    unknown = rest.keys() - {*known}
    if unknown:
        raise InvalidPlan([f"@step has no {', '.join(sorted(unknown))}; it has {', '.join(known)}"])
    rest["retry"] = checked_retry(rest.get("retry"), "@step")
    return Policy(timeout=None if timeout is None else seconds(timeout), sends=tuple(sends), **rest)


def checked_retry(retry: Retry | None, where: str) -> Retry | None:
    """Return the retry with its spans in seconds. Raises InvalidPlan."""
    if retry is None:
        return None
    if not isinstance(retry, Retry):
        raise InvalidPlan([f"{where}: retry is {retry!r}; write it like retry=Retry(attempts=3, delay=1)"])
    spans: dict[str, Any] = {"delay": retry.delay, "max_delay": retry.max_delay}
    for name, span in spans.items():
        try:
            spans[name] = None if span is None and name == "max_delay" else seconds(span)
        except InvalidValue as error:
            raise InvalidPlan([f"{where}: {name} of retry is {error}"]) from None
    return structs.replace(retry, **spans)


class Workflow(Generic[R]):
    """Subclass it and mark methods with `@step`, or put functions together: `Workflow("name", [first, second])`.

    Class attributes are its options: `name`, by which it is known instead of `module:Class`, `timeout` of a run,
    `retry` of steps that say nothing themselves, `types` of objects that the context and results may hold, `children`
    that its steps start, and whether a failure cancels steps that are at work or lets them finish
    (`on_failure = "drain"`). `live` says what an export does with live objects: leaves them out, refuses, or keeps
    those that say themselves how. `on_error` is the event that the final failure of a step becomes, if the step says
    nothing itself and does not take that event.

    Arguments of a constructor of its own that are plain data belong to what the workflow is: `Greet("Hello")` and
    `Greet("Adieu")` are two workflows, and any process that has registered `Greet` can run both. With other arguments,
    give each instance a `name`.

    `Workflow[int]` tells a type checker what its runs result in; nothing else depends on it.
    """

    name: str = ""
    timeout: str | int | float | None = None
    retry: Retry | None = None
    types: Sequence[type] = ()
    children: Sequence[Any] = ()
    hands_on: Sequence[Any] = ()  # workflows whose results are stored in its own state
    on_failure: Literal["cancel", "drain"] = "cancel"
    live: Literal["drop", "refuse", "keep"] = "drop"
    on_error: type | None = None

    def __new__(cls, *arguments: Any, **named: Any) -> "Self":
        workflow = super().__new__(cls)
        vars(workflow)[ARGUMENTS] = arguments, named  # here, because a subclass may have an `__init__` of its own
        return workflow

    def __init__(
        self,
        name: str = "",
        steps: Sequence[Callable[..., Any]] = (),
        *,
        timeout: str | int | float | None = None,
        retry: Retry | None = None,
        types: Sequence[type] = (),
        on_error: type | None = None,
    ) -> None:
        if on_error is not None:
            self.on_error = on_error
        if name:
            self.name = name
        if timeout is not None:
            self.timeout = timeout
        self.retry = checked_retry(retry, name) if retry is not None else self.retry
        self.types = types or self.types
        self.functions: tuple[Callable[..., Any], ...] = tuple(steps)


def bodies_of(workflow: Workflow[Any]) -> list[tuple[str, Policy, Callable[..., Any]]]:
    """Return the steps: methods in the order of the source, those of a parent class first, then functions."""
    found: dict[str, Callable[..., Any]] = {}
    for cls in reversed(type(workflow).__mro__):
        for name, member in vars(cls).items():
            if hasattr(getattr(member, "__func__", member), POLICY) or name in found:
                found[name] = getattr(workflow, name)
    marked = [(name, body) for name, body in found.items() if hasattr(body, POLICY)]
    marked += [(_name(body), body) for body in getattr(workflow, "functions", ())]
    twice = [name for i, (name, _) in enumerate(marked) if name in {each for each, _ in marked[:i]}]
    if twice:
        raise InvalidPlan([f"two steps are called {name!r}" for name in twice])
    return [(name, getattr(body, POLICY, Policy()), body) for name, body in marked]


def with_default_error(workflow: Workflow[Any], takes: Sequence[type], policy: Policy) -> Policy:
    """Return the policy of a step with the `on_error` of its workflow, unless the step has its own.

    A step that takes the event itself is left out: else its own failure would lead to it again, without end. So is a
    step that only `ctx.map` runs.
    """
    error = workflow.on_error
    if policy.on_error is not None or policy.mapped or not isinstance(error, type):
        return policy
    return policy if any(issubclass(error, each) for each in takes) else structs.replace(policy, on_error=error)


def resource(make: Body) -> Body:
    """A method that makes a live object of that name, whenever this process has none: `await ctx.resource("name")`.

    It is a function or a generator, with `async` or without. A generator yields the object once; what follows the
    `yield` closes it, when the run has ended or the engine closes. Without `async`, `ctx.session["name"]` does it too.
    """
    setattr(make, RESOURCE, True)
    return make


def resources_of(workflow: Workflow[Any]) -> dict[str, Callable[[], Any]]:
    names = {name for cls in type(workflow).__mro__ for name, member in vars(cls).items() if hasattr(member, RESOURCE)}
    return {name: getattr(workflow, name) for name in sorted(names)}


def _name(body: Callable[..., Any]) -> str:
    name = getattr(body, "__name__", "")
    if not name or name == "<lambda>":
        raise InvalidPlan([f"{body!r} is not a step: it must be a function with a name"])
    return str(name)


class Flow(Generic[P, R]):
    """A plain function as a workflow; made by `@flow`. `P` are the inputs of its runs, `R` is their result."""

    def __init__(self, function: Callable[..., Any], workflow: Workflow[R]) -> None:
        self.function, self.workflow = function, workflow
        self.__name__, self.__doc__ = _name(function), function.__doc__

    def __call__(self, ctx: Any, /, *inputs: P.args, **named: P.kwargs) -> Any:
        """Call the function itself, without a run: for tests."""
        return self.function(ctx, *inputs, **named)


class FlowDecorator(Protocol):
    """What `flow(timeout=...)` returns."""

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], /
    ) -> Flow[P, R]: ...

    @overload
    def __call__(  # type: ignore[overload-cannot-match]
        self, function: Callable[..., Coroutine[Any, Any, R]], /
    ) -> Flow[..., R]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[Any, P], R], /) -> Flow[P, R]: ...

    @overload
    def __call__(  # type: ignore[overload-cannot-match]
        self, function: Callable[..., R], /
    ) -> Flow[..., R]: ...


@overload
def flow(  # type: ignore[overload-overlap]
    function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], /
) -> Flow[P, R]: ...


@overload  # for a function with `**inputs`, of which mypy says that `ctx` might be one of them
def flow(  # type: ignore[overload-cannot-match]
    function: Callable[..., Coroutine[Any, Any, R]], /
) -> Flow[..., R]: ...


@overload
def flow(function: Callable[Concatenate[Any, P], R], /) -> Flow[P, R]: ...


@overload
def flow(  # type: ignore[overload-cannot-match]
    function: Callable[..., R], /
) -> Flow[..., R]: ...


@overload
def flow(
    *, name: str = "", timeout: str | int | float | None = None, retry: Retry | None = None, types: Sequence[type] = ()
) -> FlowDecorator: ...


def flow(
    function: Any = None,
    /,
    *,
    name: str = "",
    timeout: Any = None,
    retry: Retry | None = None,
    types: Sequence[type] = (),
) -> Any:
    """A function of `ctx` and inputs as a workflow; what it returns is the result of the run.

    It is known by `module:function`, or by `name`.

    Its durable calls are recorded: after a crash it starts over, and finds what was done. One without `async` is run in
    a thread, and awaits nothing. Inputs are checked against the annotations, and the classes that the annotations of
    the function name can be stored; `types` names others.
    """

    def made(function: Callable[..., Any]) -> Flow[..., Any]:
        inputs_of_function(function)
        body = _awaiting(function) if inspect.iscoroutinefunction(inspect.unwrap(function)) else _plain(function)
        body.__name__ = _name(function)
        setattr(body, FLOW, function)
        setattr(body, GIVEN_NAME, name)
        step(body)
        return Flow(function, Workflow(name or body.__name__, [body], timeout=timeout, retry=retry, types=types))

    return made if function is None else made(function)


def _awaiting(function: Callable[..., Any]) -> Callable[..., Any]:
    async def body(ctx: Any, ev: StartEvent) -> StopEvent:
        return StopEvent(result=await function(ctx, **vars(ev)))

    return body


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    def body(ctx: Any, ev: StartEvent) -> StopEvent:
        return StopEvent(result=function(ctx, **vars(ev)))

    return body
