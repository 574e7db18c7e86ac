"""The context of a body: state, events, durable calls, questions, and what the run publishes."""

import asyncio
import hashlib
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar, Unpack, overload
from uuid import UUID

from msgspec.structs import replace

from refold.core.faults import short
from refold.core.outcomes import ANSWER, REQUEST_SIGNAL, SECOND, Awaited, Sent
from refold.core.plan import CONTINUE, Plan, Retry
from refold.core.queueing import checked_queueing
from refold.core.retry import delay, may_retry
from refold.core.times import seconds
from refold.errors import InvalidValue
from refold.python.annotations import classes_named, codec_for_call
from refold.python.body_call import BodyCall, EventPublisher, fault_for_policy
from refold.python.call_records import TASK, CalledFunction, TaskPlace, called_function
from refold.python.children import Children, result_of
from refold.python.definition import REQUEST, define, is_workflow
from refold.python.durable_calls import CallOptions, Continuation, Span
from refold.python.events import StopEvent
from refold.python.field_types import check as check_type
from refold.python.field_types import fitted, plain_kind
from refold.python.inputs import Inputs
from refold.python.map import FanOutCall, MapOptions, by_calls, check
from refold.python.requests import IncomingRequest, RequestAnswer
from refold.python.startable import is_playbook
from refold.python.state import Change, collect_events
from refold.python.values import Mapped, ValueCodec
from refold.python.workflow import Flow, Workflow, checked_retry

if TYPE_CHECKING:
    from refold.playbooks.playbook import Playbook
    from refold.python.startable import AnyWorkflow, StartInput

P = ParamSpec("P")
R = TypeVar("R")
Items = Iterable[Any] | AsyncIterable[Any] | Mapping[str, Any] | Callable[[], Iterable[Any] | AsyncIterable[Any]]
"""A list, an iterator, a source as a map with its `kind`, or a generator function."""


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class DurableCalls:
    """Calls whose results are recorded: a body that starts over gets the recorded result and repeats nothing.

    Keywords are always inputs of what is called. `ctx.options` gives calls a key, a retry or a timeout.
    """

    def __init__(self, body_call: BodyCall, options: CallOptions) -> None:
        self._body_call, self._options = body_call, options

    @overload
    async def call(self, work: Callable[P, Awaitable[R]], /, *inputs: P.args, **named: P.kwargs) -> R: ...

    @overload
    async def call(self, work: Callable[P, R], /, *inputs: P.args, **named: P.kwargs) -> R: ...

    async def call(self, work: Callable[..., Any], /, *inputs: Any, **named: Any) -> Any:
        """Call a function and record its result; one without `async` runs in a thread.

        Its arguments tell one call from another; if they cannot be stored, give the call a key:
        `ctx.options(key="charge").call(charge, card)`. With a timeout, each try raises TimeoutError when it is over;
        a function in a thread cannot be stopped, but its late result is ignored.
        """
        codec = codec_for_call(self._body_call.definition.codec, work)  # refuses a result that could not be recorded
        name = self._key(work, inputs, named)
        done = await self._body_call.calls.once(name, partial(self._tried, partial(work, *inputs, **named), codec))
        return codec.get(done)

    def _key(self, work: Callable[..., Any], inputs: tuple[Any, ...], named: dict[str, Any]) -> str:
        records, codec = self._body_call.calls.asked(), self._body_call.definition.codec.opened()
        function = called_function(work)
        if self._options.key is not None:
            return records.named(f"call:{function.former_name}", self._options.key)
        try:
            put = _put_arguments(codec, inputs, named)
        except InvalidValue as error:
            why = f"{str(error).partition(': ')[2]}; or give the call a key: ctx.options(key=...).call(...)"
            raise InvalidValue(f"{error.path} of {function.former_name}", why) from None
        if (function.inputs or function.named) and not records.by_former_rule:
            with suppress(InvalidValue):  # what it is bound to need not be data
                put = _put_arguments(codec, (*function.inputs, *inputs), {**function.named, **named})
        return records.call(function, *put)

    async def _tried(self, work: Callable[[], Any], codec: ValueCodec) -> Any:
        attempt, retry = 1, checked_retry(self._options.retry, "ctx.call") or Retry()
        limit = None if self._options.timeout is None else seconds(self._options.timeout)
        while True:
            try:
                result = self._made(work)
                if limit is None:
                    value = await result
                    break
                async with asyncio.timeout(limit):
                    value = await result
                break
            except Exception as error:
                fault = fault_for_policy(error, retry.on)
                if not may_retry(retry, attempt, fault):
                    raise
                await self._body_call.services.clock.sleep(delay(retry, attempt, fault, 0.5) / SECOND)
                attempt += 1
        return codec.put(value, "result")

    async def _made(self, work: Callable[[], Any]) -> Any:
        function = work.func if isinstance(work, partial) else work
        if inspect.iscoroutinefunction(inspect.unwrap(function)):
            return await work()
        with self._body_call.calls.uninterrupted():  # a thread cannot be stopped
            made = await self._body_call.services.in_thread(work)
        return await made if inspect.isawaitable(made) else made

    @overload
    async def run_child(self, workflow: Flow[P, R], /, *inputs: P.args, **named: P.kwargs) -> R: ...

    @overload
    async def run_child(
        self, workflow: Workflow[R] | type[Workflow[R]], input: "StartInput" = None, /, **named: Any
    ) -> R: ...

    @overload
    async def run_child(self, workflow: "Plan | Playbook", input: "StartInput" = None, /, **named: Any) -> Any: ...

    async def run_child(self, workflow: Any, /, *inputs: Any, **named: Any) -> Any:
        """Run another workflow as a child of this run and return its result. Raises ChildFailed or TimeoutError."""
        if self._options.retry is not None:
            raise InvalidValue("retry", "a child run is not retried as a whole: give its workflow or its steps a retry")
        takes = define(workflow).inputs if is_workflow(workflow) else Inputs()
        children = Children(self._body_call)
        return await children.result(workflow, takes.merged(inputs, named), self._options)

    async def start_child(self, workflow: "AnyWorkflow", /, *inputs: Any, **named: Any) -> str:
        """Start another workflow as a run of its own and return its id as soon as it is stored. It is not waited for,
        and continues when this run ends; `engine.attach` gives a handle for it. Raises ChildFailed if it cannot start.
        """
        if self._options.retry is not None or self._options.timeout is not None:
            raise InvalidValue("options", "a run that is not waited for has neither a retry nor a timeout here")
        takes = define(workflow).inputs if is_workflow(workflow) else Inputs()
        return await Children(self._body_call).started(workflow, takes.merged(inputs, named), self._options)

    @overload
    async def map(
        self, work: Flow[..., R] | Workflow[R] | type[Workflow[R]], items: Items, **how: Unpack[MapOptions]
    ) -> Mapped[R]: ...

    @overload
    async def map(self, work: "Plan | Playbook", items: Items, **how: Unpack[MapOptions]) -> Mapped[Any]: ...

    @overload
    async def map(
        self, work: Callable[..., Awaitable[StopEvent[R]]], items: Items, **how: Unpack[MapOptions]
    ) -> Mapped[R]: ...

    @overload
    async def map(self, work: Callable[..., Awaitable[R]], items: Items, **how: Unpack[MapOptions]) -> Mapped[R]: ...

    @overload
    async def map(self, work: Callable[..., R], items: Items, **how: Unpack[MapOptions]) -> Mapped[R]: ...

    async def map(self, work: Any, items: Items, **how: Unpack[MapOptions]) -> Mapped[Any]:
        """Run `work` for each item and return the results in the order of the items.

        `work` is a step of this workflow, which gets events; another workflow, which gets inputs; or a plain function.
        Items are a list, an iterator, a generator function, or a source such as `{"kind": "csv", "path": "all.csv"}`.
        Raises ChildFailed if more items failed than are tolerated; a failed item that is tolerated gives None.
        """
        check(how)
        own, mapping = self._options, FanOutCall(self._body_call, self._options)
        if is_workflow(work) or isinstance(work, Plan) or is_playbook(work) or mapping.step_of(work) is not None:
            return await mapping.over(work, items, how)
        name = own.key or getattr(work, "__qualname__", "map")

        async def one(number: int, item: Any) -> Any:
            return await DurableCalls(self._body_call, replace(own, key=f"{name}[{number}]")).call(work, item)

        return await by_calls(one, items, how)


class Context(DurableCalls):
    """What a step gets beside its event, one for each try.

    `run_id` and `idempotency_key` are the same for every try of the same event.
    """

    def __init__(self, body_call: BodyCall) -> None:
        super().__init__(body_call, CallOptions())
        self.run_id, self.idempotency_key = body_call.call.run, body_call.call.idempotency_key
        self.attempt = body_call.call.command.attempt
        self.state, self.session, self.children = body_call.state, body_call.session, Children(body_call)
        self._calls, self._services = body_call.calls, body_call.services
        self._definition, self._call = body_call.definition, body_call.call

    def options(
        self,
        *,
        key: str | None = None,
        retry: Retry | None = None,
        timeout: Span | None = None,
        queue: str = "",
        priority: int | None = None,
        share: str = "",
        limit: str = "",
    ) -> DurableCalls:
        """Options of one durable call, apart from its inputs: `ctx.options(key="x", timeout="5s").call(fetch, url)`.

        `key` names the call in place of its arguments, `retry` says how often it is tried, `timeout` how long it may
        take. `queue`, `priority`, `share` and `limit` are those of the steps of a child run; without them it has the
        queue, priority and share of this step.
        """
        queueing = checked_queueing(queue, priority, share, limit)
        return DurableCalls(self._body_call, CallOptions(key, retry, timeout, queueing))

    async def resource(self, name: str) -> Any:
        """Return the live object that the method of this name, marked with `@resource`, makes.

        It is made when this process has none for the run, and the same for all steps of the run and its child runs.
        """
        return await self.session.open(name)

    @overload
    def get(self, key: str, default: Any = None) -> Any: ...

    @overload
    def get(self, key: str, *, type: type[R]) -> R: ...

    @overload
    def get(self, key: str, default: R, *, type: type[R]) -> R: ...

    def get(self, key: str, default: Any = None, *, type: Any = None) -> Any:
        """Return a value of the run, or the default. With a type, anything else raises InvalidValue."""
        value = self.state.get(key, default)
        if type is not None:
            check_type(value, type, f"context.{key}")
        return value

    def set(self, key: str, value: Any) -> None:
        """Set a value of the run; other steps see it when this step has completed.

        Raises InvalidValue for what cannot be stored exactly.
        """
        self.state[key] = value

    def update(self, key: str, change: Change, default: Any = None) -> None:
        """Change a value that others change too; `change` gets what is there, or the default, and is called again if
        another step was faster. So it returns nothing: only `change` knows the value that counts. If the last of
        several steps has to decide something, use `Collect`, or `ctx.collect`, which gives the list to the last one.

        What `change` raises fails the step, also when it is called again.
        """
        self.state.change(key, change, default)

    def send(self, event: Any) -> None:
        """Send an event to other steps, when this step has completed."""
        self._body_call.send(event)

    async def publish(self, event: Any) -> None:
        """Show an event, or any value, to those who follow the run; no step gets it."""
        self.state.check_open()
        command = self._call.command
        name, data = self._definition.shown(event, command.step)
        await self._show(name, data, name or short(repr(event), 200))

    async def _show(self, type: str, data: Any, text: str) -> None:
        command = self._call.command
        line = {"at": self._services.clock.now(), "step": command.step, "visit": command.visit}
        line |= {"attempt": command.attempt, "stream": "event", "type": type, "data": data}
        await self._body_call.published.put({**line, "text": text})

    def collect(self, event: Any, n: int, by: str = "") -> list[Any] | None:
        """Keep this event with those that came before; return n of them in the order in which they came, or None if
        there are fewer.
        """
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise InvalidValue("n", f"{n!r} is not a number of events; it counts from 1")
        sent = self._definition.sent(event, self._call.command.step)
        full = collect_events(self.state, self._call.command, sent, n, by)
        return None if full is None else [self._definition.received(type, data) for type, data in full]

    @overload
    async def ask(
        self, prompt: str, *, id: str = "", metadata: Any = None, timeout: Span | None = None, type: type[R]
    ) -> R: ...

    @overload
    async def ask(
        self, prompt: str, *, id: str = "", metadata: Any = None, timeout: Span | None = None, type: Any = None
    ) -> Any: ...

    async def ask(
        self, prompt: str, *, id: str = "", metadata: Any = None, timeout: Span | None = None, type: Any = None
    ) -> Any:
        """Ask a person and wait for the answer, without limit or for `timeout`. Raises TimeoutError.

        Those who follow the run see the question as an InputRequestEvent. With a type, the answer is of that type, as
        in `wait_for`.
        """
        id = id or self._calls.asked().question(self._call.command.id)
        key = self._calls.asked().named("ask", id)
        input = {"id": id, "prompt": prompt, "metadata": self._put(metadata, "metadata")}
        if plain_kind(type):
            input["kind"] = plain_kind(type)
        if key in self._calls.recorded or key in self._calls.memory.awaited:
            self._body_call.published.pass_over()
        else:
            shown = {"prompt": prompt, "request_id": id, "metadata": input["metadata"]}
            await self._show(REQUEST, shown, short(str(prompt), 200))
        call = Awaited(key, self._until(timeout), f"{ANSWER}{id}", input=input)
        return await self._awaited(call, f"the question {prompt!r}", timeout, type)

    async def first(self, **waits: Awaitable[Any]) -> tuple[str, Any]:
        """Wait for the first of several waits, such as `ctx.first(paid=ctx.wait_for("paid"), late=ctx.sleep("1d"))`.

        Return its name and its result, or raise what it raises. The others are withdrawn: child runs are cancelled.
        """
        if not waits:
            raise InvalidValue("ctx.first", "there is nothing to wait for: give it waits by name")
        if self._calls.waits is None:
            return await self._calls.first(waits)
        tasks = {name: asyncio.ensure_future(wait) for name, wait in waits.items()}
        came: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def note(_: object) -> None:
            if not came.done():
                came.set_result(None)

        for task in tasks.values():
            task.add_done_callback(note)
        open_waits = self._calls.waits
        assert open_waits is not None
        try:
            await open_waits.inner(came)
            won = next(name for name, task in tasks.items() if task.done())
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
        return won, tasks[won].result()

    async def sleep(self, span: Span, *, key: str | None = None) -> None:
        """Sleep durably: the span is kept across restarts, and no worker is occupied meanwhile."""
        span = seconds(span)
        records = self._calls.asked()
        name = records.named("sleep", key) if key is not None else records.sleep(span)
        await self._calls.outcome(Awaited(name, self._until(span)))

    @overload
    async def wait_for(
        self, signal: str, *, timeout: Span | None = None, key: str | None = None, type: type[R]
    ) -> R: ...

    @overload
    async def wait_for(
        self, signal: str, *, timeout: Span | None = None, key: str | None = None, type: Any = None
    ) -> Any: ...

    async def wait_for(
        self, signal: str, *, timeout: Span | None = None, key: str | None = None, type: Any = None
    ) -> Any:
        """Wait for a signal of this name and return its value; a signal that came early is kept.

        With a type, the value is of that type: an object of it that was sent, or JSON that stands for one. Raises
        InvalidValue for any other value, and TimeoutError.
        """
        records = self._calls.asked()
        name = records.named("signal", key) if key is not None else records.signal(signal)
        return await self._awaited(Awaited(name, self._until(timeout), signal), f"signal {signal!r}", timeout, type)

    async def now(self) -> datetime:
        """Return the time, in UTC. It is recorded: a body that starts over gets the same."""
        return EPOCH + timedelta(microseconds=await self._once("now", self._services.clock.now))

    async def uuid(self) -> UUID:
        """Return a new UUID. It is recorded: a body that starts over gets the same."""
        return UUID(await self._once("uuid", lambda: uuid_text(self._services.new_id())))

    async def random(self) -> float:
        """Return a random number from 0 to 1, without 1. It is recorded: a body that starts over gets the same."""
        number: float = await self._once("random", self._services.chance)
        return number

    async def _once(self, name: str, make: Callable[[], Any]) -> Any:
        async def made() -> Any:
            return make()

        key = self._calls.asked().call(CalledFunction(f"refold:{name}", f"refold.{name}"), [], {})
        return await self._calls.once(key, made)

    async def next_request(self, name: str, *, timeout: Span | None = None, key: str | None = None) -> IncomingRequest:
        """Wait for a request of this name and return it; one that came early is kept. Raises TimeoutError.

        Answer it with `await request.reply(value)` or `await request.refuse(reason)`.
        """
        taken = await self.wait_for(f"{REQUEST_SIGNAL}{name}", timeout=timeout, key=key)
        return IncomingRequest(RequestAnswer(self._body_call, taken["id"], name), taken["value"])

    async def requests(self, name: str) -> AsyncIterator[IncomingRequest]:
        """The requests of this name, one after the other, without an end: use it with `async for`."""
        while True:
            yield await self.next_request(name)

    def continue_with(self, /, *inputs: Any, **named: Any) -> NoReturn:
        """End the run as continued, and start its successor with these inputs in the same commit. It does not return.

        The successor has the name, the key, the labels and the parent of the run, and the signals and requests that
        were not taken; its context is empty. Whoever waits for the result of the run gets that of the successor.
        """
        if self._call.command.item is not None:
            raise InvalidValue("continue_with", "an item of `ctx.map` cannot continue the run of its caller")
        data = self._definition.begun(self._definition.inputs.merged(inputs, named))
        self.state.check_open()
        self._body_call.events.append(Sent(CONTINUE, data))
        raise Continuation

    def usage(self, **amounts: int | float) -> None:
        """Report what was used, by unit: `ctx.usage(tokens=312, usd=0.004)`.

        It is counted once, when the step has ended.
        """
        self.state.check_open()
        for unit, amount in amounts.items():
            self._body_call.usage[unit] = self._body_call.usage.get(unit, 0) + amount

    def log(self, text: str) -> None:
        """Write a line that `refold runs logs` shows."""
        if self._call.say is not None:
            self._call.say("log", text)

    def _put(self, value: Any, path: str) -> Any:
        return self._definition.codec.put(value, path)

    async def _awaited(self, call: Awaited, what: str, timeout: Span | None, type: Any = None) -> Any:
        raw, codec = result_of(await self._calls.outcome(call), what, timeout), self._definition.codec
        if type is None:
            return codec.get(raw, what)
        return fitted(codec.with_classes(classes_named([type])).get(raw, what), type, what)

    def _until(self, span: Span | None) -> int | None:
        return None if span is None else self._services.clock.now() + round(seconds(span) * SECOND)


def _put_arguments(
    codec: ValueCodec, inputs: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    listed = [codec.put(each, f"argument {number}") for number, each in enumerate(inputs, 1)]
    return listed, {name: codec.put(each, f"argument {name!r}") for name, each in named.items()}


def uuid_text(id: str) -> str:
    """Return a UUID of version 4 that is made from a random id."""
    return str(UUID(bytes=hashlib.sha256(id.encode()).digest()[:16], version=4))


Wait = Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]
"""Begins a coroutine and blocks until it is done."""


def published_by(context: Context) -> EventPublisher:
    """Return what the body of a context has shown to those who follow the run."""
    return context._body_call.published


class SyncDurableCalls:
    """The same as DurableCalls, for steps without `async`: each call blocks the thread of the step."""

    def __init__(self, calls: DurableCalls, wait: Wait) -> None:
        self._durable, self._waits = calls, wait

    @overload
    def call(self, work: Callable[P, Awaitable[R]], /, *inputs: P.args, **named: P.kwargs) -> R: ...

    @overload
    def call(self, work: Callable[P, R], /, *inputs: P.args, **named: P.kwargs) -> R: ...

    def call(self, work: Callable[..., Any], /, *inputs: Any, **named: Any) -> Any:
        """Call a function and record its result; see `Context.call`."""
        return self._wait(self._durable.call, work, *inputs, **named)

    @overload
    def run_child(self, workflow: Flow[P, R], /, *inputs: P.args, **named: P.kwargs) -> R: ...

    @overload
    def run_child(
        self, workflow: Workflow[R] | type[Workflow[R]], input: "StartInput" = None, /, **named: Any
    ) -> R: ...

    @overload
    def run_child(self, workflow: "Plan | Playbook", input: "StartInput" = None, /, **named: Any) -> Any: ...

    def run_child(self, workflow: Any, /, *inputs: Any, **named: Any) -> Any:
        """Run another workflow as a child of this run and return its result. Raises ChildFailed or TimeoutError."""
        return self._wait(self._durable.run_child, workflow, *inputs, **named)

    def start_child(self, workflow: "AnyWorkflow", /, *inputs: Any, **named: Any) -> str:
        """Start another workflow that is not waited for, and return the id of its run; see `Context.start_child`."""
        run: str = self._wait(self._durable.start_child, workflow, *inputs, **named)
        return run

    @overload
    def map(
        self, work: Flow[..., R] | Workflow[R] | type[Workflow[R]], items: Items, **how: Unpack[MapOptions]
    ) -> Mapped[R]: ...

    @overload
    def map(self, work: "Plan | Playbook", items: Items, **how: Unpack[MapOptions]) -> Mapped[Any]: ...

    @overload
    def map(
        self, work: Callable[..., Awaitable[StopEvent[R]]], items: Items, **how: Unpack[MapOptions]
    ) -> Mapped[R]: ...

    @overload
    def map(self, work: Callable[..., Awaitable[R]], items: Items, **how: Unpack[MapOptions]) -> Mapped[R]: ...

    @overload
    def map(self, work: Callable[..., R], items: Items, **how: Unpack[MapOptions]) -> Mapped[R]: ...

    def map(self, work: Any, items: Items, **how: Unpack[MapOptions]) -> Mapped[Any]:
        """Run `work` for each item and return the results in the order of the items; see `Context.map`."""
        results: Mapped[Any] = self._wait(self._durable.map, work, items, **how)
        return results

    def _wait(self, method: Callable[..., Any], *inputs: Any, **named: Any) -> Any:
        return self._waits(partial(method, *inputs, **named))


class SyncContext(SyncDurableCalls):
    """What a step without `async` gets together with its event.

    It has what Context has, and nothing in it is awaited. `ctx.later` is the same context with waits that do not wait
    by themselves: `ctx.first` takes them.
    """

    def __init__(self, context: Context, wait: Wait) -> None:
        super().__init__(context, wait)
        self._context = context
        self.run_id, self.idempotency_key, self.attempt = context.run_id, context.idempotency_key, context.attempt
        self.state, self.session = context.state, context.session
        self.get, self.set, self.update = context.get, context.set, context.update
        self.send, self.collect, self.usage, self.log = context.send, context.collect, context.usage, context.log

    def options(
        self,
        *,
        key: str | None = None,
        retry: Retry | None = None,
        timeout: Span | None = None,
        queue: str = "",
        priority: int | None = None,
        share: str = "",
        limit: str = "",
    ) -> SyncDurableCalls:
        """Options of one durable call, apart from its inputs; see `Context.options`."""
        calls = self._context.options(
            key=key, retry=retry, timeout=timeout, queue=queue, priority=priority, share=share, limit=limit
        )
        return SyncDurableCalls(calls, self._waits)

    def waiting_by(self, wait: Wait) -> "SyncContext":
        """The same context with another way to wait: a simulation has no second thread."""
        return SyncContext(self._context, wait)

    def resource(self, name: str) -> Any:
        """Return the live object that the method of this name, marked with `@resource`, makes."""
        return self._wait(self._context.resource, name)

    def publish(self, event: Any) -> None:
        """Show an event, or any value, to those who follow the run; no step gets it."""
        self._wait(self._context.publish, event)

    @overload
    def ask(
        self, prompt: str, *, id: str = "", metadata: Any = None, timeout: Span | None = None, type: type[R]
    ) -> R: ...

    @overload
    def ask(
        self, prompt: str, *, id: str = "", metadata: Any = None, timeout: Span | None = None, type: Any = None
    ) -> Any: ...

    def ask(
        self, prompt: str, *, id: str = "", metadata: Any = None, timeout: Span | None = None, type: Any = None
    ) -> Any:
        """Ask a person and wait for the answer, for `timeout` at most. Raises TimeoutError."""
        return self._wait(self._context.ask, prompt, id=id, metadata=metadata, timeout=timeout, type=type)

    @property
    def later(self) -> Context:
        """The waits that `first` takes: `ctx.later.wait_for("paid")` waits only there."""
        return self._context

    def first(self, **waits: Awaitable[Any]) -> tuple[str, Any]:
        """Wait for the first of several waits, as in
        `ctx.first(paid=ctx.later.wait_for("paid"), late=ctx.later.sleep("1d"))`; see `Context.first`.
        """
        for name, wait in waits.items():
            if not inspect.isawaitable(wait):
                why = f"{name} is not a wait: give it waits of `ctx.later`, as in {name}=ctx.later.wait_for(...)"
                raise InvalidValue("ctx.first", why)
        came: tuple[str, Any] = self._wait(self._context.first, **waits)
        return came

    def sleep(self, span: Span, *, key: str | None = None) -> None:
        """Sleep durably; the thread of the step is free meanwhile."""
        self._wait(self._context.sleep, span, key=key)

    @overload
    def wait_for(self, signal: str, *, timeout: Span | None = None, key: str | None = None, type: type[R]) -> R: ...

    @overload
    def wait_for(
        self, signal: str, *, timeout: Span | None = None, key: str | None = None, type: Any = None
    ) -> Any: ...

    def wait_for(self, signal: str, *, timeout: Span | None = None, key: str | None = None, type: Any = None) -> Any:
        """Wait for a signal and return its value; one that came early is kept. Raises TimeoutError."""
        return self._wait(self._context.wait_for, signal, timeout=timeout, key=key, type=type)

    def now(self) -> datetime:
        """Return the time, in UTC. It is recorded: a body that starts over gets the same."""
        moment: datetime = self._wait(self._context.now)
        return moment

    def uuid(self) -> UUID:
        """Return a new UUID. It is recorded: a body that starts over gets the same."""
        id: UUID = self._wait(self._context.uuid)
        return id

    def random(self) -> float:
        """Return a random number from 0 to 1, without 1. It is recorded: a body that starts over gets the same."""
        number: float = self._wait(self._context.random)
        return number

    def continue_with(self, /, *inputs: Any, **named: Any) -> NoReturn:
        """End the run as continued and start its successor with these inputs; see `Context.continue_with`."""
        self._context.continue_with(*inputs, **named)

    def next_request(self, name: str, *, timeout: Span | None = None, key: str | None = None) -> "SyncIncomingRequest":
        """Wait for a request of this name and return it; see `Context.next_request`. Raises TimeoutError."""
        request = self._wait(self._context.next_request, name, timeout=timeout, key=key)
        return SyncIncomingRequest(request, self._waits)

    def requests(self, name: str) -> "Iterator[SyncIncomingRequest]":
        """The requests of this name, one after the other, without an end."""
        while True:
            yield self.next_request(name)


class SyncIncomingRequest:
    """The same as IncomingRequest, for steps without `async`."""

    def __init__(self, request: IncomingRequest, wait: Wait) -> None:
        self._request, self._waits = request, wait
        self.id, self.name, self.value = request.id, request.name, request.value

    def reply(self, value: Any = None) -> None:
        self._waits(partial(self._request.reply, value))

    def refuse(self, reason: str) -> None:
        self._waits(partial(self._request.refuse, reason))


def waiting_on(loop: asyncio.AbstractEventLoop) -> Wait:
    """Let a thread wait for what is done on the loop."""

    def wait(begin: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        done: Future[Any] = Future()

        def begin_on_loop() -> None:
            """If the loop has ended, nothing is begun: no thread would wait for it."""
            place = TASK.get()
            TASK.set(None)  # this task is not one that the body has created
            loop.create_task(_begin_at(place, begin)).add_done_callback(partial(_pass_on, done))

        loop.call_soon_threadsafe(begin_on_loop)
        return done.result()

    return wait


async def _begin_at(place: TaskPlace | None, begin: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    TASK.set(place)
    return await begin()


def _pass_on(done: "Future[Any]", task: "asyncio.Task[Any]") -> None:
    error = CancelledError() if task.cancelled() else task.exception()
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(task.result())
