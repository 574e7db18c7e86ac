"""What a body of a Python workflow gets beside its event: state, events, durable calls, the outside."""

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any, Unpack

from refold.core.faults import short
from refold.core.outcomes import SECOND, Awaited
from refold.core.plan import Plan, Retry
from refold.core.read.gates import ANSWER
from refold.core.retry import delay, may_retry
from refold.core.times import seconds
from refold.errors import InvalidValue
from refold.python.body_call import Try, judged
from refold.python.children import Children, Span, result_of
from refold.python.definition import define, is_workflow
from refold.python.inputs import Inputs
from refold.python.map import Each, FanOutCall, by_calls, check
from refold.python.state import Change, gathered
from refold.python.values import Mapped
from refold.python.workflow import timed


class Context:
    """One for each try. `run_id` and `idempotency_key` are the same for every try of the same event."""

    def __init__(self, tried: Try) -> None:
        self.run_id, self.idempotency_key = tried.call.run, tried.call.idempotency_key
        self.attempt = tried.call.command.attempt
        self.state, self.session, self.children = tried.state, tried.session, Children(tried)
        self._try, self._calls, self._house = tried, tried.calls, tried.house
        self._definition, self._call = tried.definition, tried.call
        self._asked = 0

    def get(self, key: str, default: Any = None) -> Any:
        return self.state.get(key, default)

    def set(self, key: str, value: Any) -> None:
        """Others see it when this step has completed. Raises InvalidValue for what cannot be stored exactly."""
        self.state[key] = value

    def update(self, key: str, change: Change, default: Any = None) -> None:
        """Change a value that others change too; `change` gets what is there, or the default, and is called again if
        somebody else was faster. So it returns nothing: only `change` knows the value that counts."""
        self.state.change(key, change, default)

    def send(self, event: Any) -> None:
        """An event for other steps; it goes out when this step has completed."""
        self._try.send(event)

    async def publish(self, event: Any) -> None:
        """Show an event, or any value, to those who follow the run; no step gets it."""
        self.state.check_open()
        command = self._call.command
        known = type(event) in self._definition.names
        name, data = self._definition.sent(event, command.step) if known else ("", self._put(event, "published"))
        line = {"at": self._house.clock.now(), "step": command.step, "visit": command.visit}
        line |= {"attempt": command.attempt, "stream": "event", "type": name, "data": data}
        await self._try.published.put({**line, "text": name or short(repr(event), 200)})

    def collect(self, event: Any, n: int, by: str = "") -> list[Any] | None:
        """Put this event to the others that came here; n of them at once, in the order of their coming, or None."""
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise InvalidValue("n", f"{n!r} is no number of events; it counts from 1")
        sent = self._definition.sent(event, self._call.command.step)
        full = gathered(self.state, self._call.command, sent, n, by)
        return None if full is None else [self._definition.received(type, data) for type, data in full]

    async def ask(self, prompt: str, *, id: str = "", metadata: Any = None, timeout: Span | None = None) -> Any:
        """Ask a person, and wait for the answer as long as it takes, or for `timeout`. Raises TimeoutError."""
        self._asked += 1
        command = self._call.command
        id = id or f"{command.id}/{self._asked}"
        key = self._calls.key("ask", None, id)
        input = {"id": id, "prompt": prompt, "metadata": self._put(metadata, "metadata")}
        if key in self._calls.recorded or key in self._calls.memory.awaited:
            self._try.published.pass_over()
        else:
            await self.publish({"request_id": id, "prompt": prompt, "metadata": metadata})
        call = Awaited(key, self._until(timeout), f"{ANSWER}{id}", input=input)
        return await self._awaited(call, f"the question {prompt!r}", timeout)

    async def sleep(self, span: Span, *, key: str | None = None) -> None:
        """As long as that, whatever happens to this process; nothing is held meanwhile."""
        span = seconds(span)
        await self._calls.outcome(Awaited(self._calls.key("sleep", span, key), self._until(span)))

    async def wait_for(self, signal: str, *, timeout: Span | None = None, key: str | None = None) -> Any:
        """What a signal of this name brings; one that came early is kept. Raises TimeoutError."""
        name = self._calls.key("signal", signal, key)
        return await self._awaited(Awaited(name, self._until(timeout), signal), f"signal {signal!r}", timeout)

    async def run_child(
        self,
        workflow: Any,
        /,
        input: Any = None,
        *,
        timeout: Span | None = None,
        key: str | None = None,
        **inputs: Any,
    ) -> Any:
        """The result of a run of another workflow, or of a playbook's plan. Raises ChildFailed or TimeoutError."""
        said = {name: each for name, each in (("timeout", timeout), ("key", key)) if each is not None}
        takes = define(workflow).inputs if is_workflow(workflow) else Inputs()
        given, own = takes.sorted_out(input, said, inputs)
        return await self.children.result(workflow, given, own.get("key"), own.get("timeout"))

    async def map(self, work: Any, items: Any, **how: Unpack[Each]) -> Mapped:
        """What `work` gives for each item, in their order.

        It is a step of this workflow, which gets events; another workflow, which gets inputs; or a plain function.
        Items are a list, an iterator, a generator function, or a source such as `{"kind": "csv", "path": "all.csv"}`.
        Raises ChildFailed if more failed than is tolerated.
        """
        check(how)
        mapping = FanOutCall(self._try)
        if is_workflow(work) or isinstance(work, Plan) or mapping.step_of(work) is not None:
            return await mapping.over(work, items, how)
        name = how.get("key") or getattr(work, "__qualname__", "map")
        return await by_calls(
            lambda number, item: self.call(work, item, key=f"{name}[{number}]", retry=how.get("retry")), items, how
        )

    async def call(
        self, work: Callable[..., Any], *given: Any, key: str | None = None, retry: Retry | None = None, **named: Any
    ) -> Any:
        """A function whose result is recorded: this step may start over, but the function is not called again.

        Its arguments tell one call from another; if they cannot be stored, `key` has to.
        """
        arguments = None if key is not None else self._put([list(given), named], "arguments; give the call a `key`")
        name = self._calls.key(f"call:{getattr(work, '__qualname__', type(work).__name__)}", arguments, key)
        tried = partial(self._tried, partial(work, *given, **named), timed(retry, "ctx.call") or Retry())
        return self._definition.exact.get(await self._calls.once(name, tried))

    def usage(self, **amounts: int | float) -> None:
        """What was used up, by its unit: `ctx.usage(tokens=312, usd=0.004)`. Counted once, when the step has ended."""
        self.state.check_open()
        for unit, amount in amounts.items():
            self._try.usage[unit] = self._try.usage.get(unit, 0) + amount

    def log(self, text: str) -> None:
        """A line for `refold runs logs`."""
        if self._call.say is not None:
            self._call.say("log", text)

    def _put(self, value: Any, path: str) -> Any:
        return self._definition.exact.put(value, path)

    async def _tried(self, work: Callable[[], Any], retry: Retry) -> Any:
        attempt = 1
        while True:
            try:
                return self._put(await self._made(work), "result")
            except Exception as error:
                fault = judged(error, retry.on)
                if not may_retry(retry, attempt, fault):
                    raise
                await self._house.clock.sleep(delay(retry, attempt, fault, 0.5) / SECOND)
                attempt += 1

    async def _made(self, work: Callable[[], Any]) -> Any:
        function = work.func if isinstance(work, partial) else work
        if inspect.iscoroutinefunction(inspect.unwrap(function)):
            return await work()
        made = await self._house.in_thread(work)
        return await made if inspect.isawaitable(made) else made

    async def _awaited(self, call: Awaited, what: str, timeout: Span | None) -> Any:
        return self._definition.exact.get(result_of(await self._calls.outcome(call), what, timeout))

    def _until(self, span: Span | None) -> int | None:
        return None if span is None else self._house.clock.now() + round(seconds(span) * SECOND)


WAITING = frozenset({"ask", "call", "map", "publish", "run_child", "sleep", "wait_for"})


class Blocking:
    """Everything else is as it is."""

    def __init__(self, context: Context) -> None:
        self._context, self._loop = context, asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._context, name)
        return partial(self._wait, found) if name in WAITING else found

    def _wait(self, method: Callable[..., Any], *given: Any, **named: Any) -> Any:
        done: Future[Any] = Future()

        def begin() -> None:
            """On the loop: if that has ended, nothing was begun that nobody waits for."""
            self._loop.create_task(method(*given, **named)).add_done_callback(partial(_pass_on, done))

        self._loop.call_soon_threadsafe(begin)
        return done.result()


def _pass_on(done: "Future[Any]", task: "asyncio.Task[Any]") -> None:
    error = CancelledError() if task.cancelled() else task.exception()
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(task.result())
