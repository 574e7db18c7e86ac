"""The runs that a body starts and waits for: one, or several of which the first to succeed is enough."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from refold.core.commands import child_id
from refold.core.faults import fault_from_exception, text_of
from refold.core.outcomes import SECOND, Awaited, Cancelled, Failed, Fault, Instant, Outcome, Succeeded, TimedOut
from refold.core.plan import Plan
from refold.core.times import seconds
from refold.errors import ChildFailed, Unavailable
from refold.logs import WARNING, event, logger
from refold.python.body_call import BodyCall, ChildRun
from refold.python.call_records import unnumbered
from refold.python.durable_calls import CallOptions, Span
from refold.python.startable import is_playbook
from refold.python.values import ValueCodec

log = logger("worker")

KIND = "child"
STORE_PAUSE = 0.2  # seconds before the store is asked again
T = TypeVar("T")


class ChildCall(NamedTuple):
    call: Awaited
    codec: ValueCodec  # of the child


class Children:
    """The child runs of one body, each with its key."""

    def __init__(self, body_call: BodyCall) -> None:
        self._body_call, self._calls, self._services = body_call, body_call.calls, body_call.services

    def now(self) -> Instant:
        return self._services.clock.now()

    async def result(self, workflow: Any, given: Mapping[str, Any], options: CallOptions) -> Any:
        """Run a workflow as a child and return its result. Raises ChildFailed or TimeoutError."""
        start = await self._start(workflow, given, options.key, options.timeout)
        outcome = await self._calls.outcome(replace(start.call, queueing=options.queueing))
        return start.codec.get(result_of(outcome, start.call.key, options.timeout))

    async def started(self, workflow: Any, given: Mapping[str, Any], options: CallOptions) -> str:
        """Start a workflow that is not waited for, and return the id of its run. Raises ChildFailed."""
        start = await self._start(workflow, given, options.key, None)
        outcome = await self._calls.outcome(replace(start.call, detached=True, queueing=options.queueing))
        return str(result_of(outcome, start.call.key, None)["run"])

    async def first(
        self, starts: Mapping[str, tuple[Any, Mapping[str, Any]]], timeout: Span | None = None
    ) -> tuple[str, Any]:
        """Of several workflows with their inputs, by keys: the key and the result of the first that succeeds.

        The others are cancelled. Raises ChildFailed, which tells of all, if none has succeeded.
        """
        made = {key: await self._start(each, given, key, timeout) for key, (each, given) in starts.items()}
        keys = {start.call.key: key for key, start in made.items()}
        done = {keys[name]: outcome for name, outcome in self._calls.recorded.items() if name in keys}
        won = next((key for key, outcome in done.items() if isinstance(outcome, Succeeded)), None)
        if self._calls.waits is not None:
            for key in done:
                self._calls.waits.met(made[key].call.key)
        if won is None:
            won = await self._race({key: start.call for key, start in made.items() if key not in done}, done)
        if won is None:
            raise ChildFailed(Fault("child_failed", "; ".join(f"{key}: {_why(done[key], timeout)}" for key in made)))
        for start in made.values():
            await self._calls.give_up(start.call.key, f"{won} was first")
        outcome = await self._calls.outcome(made[won].call)
        return won, made[won].codec.get(result_of(outcome, won, timeout))

    async def _race(self, calls: Mapping[str, Awaited], done: dict[str, Outcome]) -> str | None:
        """Wait until one of the calls has succeeded, and return its key; None if all of them have ended without.

        What has ended is noted in `done`. A body that cannot be parked is ended instead, and starts over.
        """
        waits = self._calls.waits
        if waits is None:
            await asyncio.gather(*map(self._calls.outcome, calls.values()))
            return None
        with unnumbered():
            tasks = {key: asyncio.ensure_future(self._calls.outcome(call)) for key, call in calls.items()}
        try:
            while tasks:
                came: asyncio.Future[None] = asyncio.get_running_loop().create_future()

                def note(_: object, came: "asyncio.Future[None]" = came) -> None:
                    if not came.done():
                        came.set_result(None)

                for task in tasks.values():
                    task.add_done_callback(note)
                await waits.inner(came)
                for key in [key for key, task in tasks.items() if task.done()]:
                    done[key] = await tasks.pop(key)
                    if isinstance(done[key], Succeeded):
                        return key
            return None
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    async def seen(self, key: str) -> ChildRun:
        """Return the state of the child run that was started with this key."""
        call = self._body_call.call
        run = child_id(call.run, f"{call.command.id}#{KIND}:{key}")
        return await self._patiently(lambda: self._services.look(run))

    async def _start(self, workflow: Any, given: Mapping[str, Any], key: str | None, timeout: Span | None) -> ChildCall:
        if isinstance(workflow, Plan) or is_playbook(workflow):
            plan = await self._patiently(lambda: self._services.register(workflow))
            codec = self._body_call.definition.codec
            former, called = plan, (workflow if isinstance(workflow, Plan) else workflow.plan).name
        else:
            child = await self._patiently(lambda: self._services.adopt(workflow))
            plan, codec, called = child.hash, child.codec, child.plan.name
            given = child.inputs.checked(child.plan.name, given)
            former = child.former.hash if self._calls.records.by_former_rule else ""
        put = {name: codec.put(each, f"input.{name}") for name, each in given.items()}
        records = self._calls.asked()
        name = records.named(KIND, key) if key is not None else records.child(KIND, called, former, put)
        until = None if timeout is None else self.now() + round(seconds(timeout) * SECOND)
        return ChildCall(Awaited(name, until, child=plan, input=put), codec)

    async def _patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """Repeat the work while the store is unavailable, so that the body does not see the outage."""
        while True:
            try:
                with unnumbered():
                    return await work()
            except Unavailable as error:
                call = self._body_call.call
                at = {"run": call.run, "step": call.command.step, "command": call.command.id}
                event(log, WARNING, "body waits for the store, which did not answer", at, why=text_of(error))
                await self._services.clock.sleep(STORE_PAUSE)


def result_of(outcome: Outcome, what: str, timeout: Span | None) -> Any:
    if isinstance(outcome, Succeeded):
        return outcome.result
    if isinstance(outcome, TimedOut):
        raise TimeoutError(f"nothing came for {what} within {timeout}")
    if isinstance(outcome, Failed):
        raise ChildFailed(outcome.fault)
    raise ChildFailed(
        fault_from_exception(RuntimeError(outcome.reason if isinstance(outcome, Cancelled) else "it did not end"))
    )


def _why(outcome: Outcome, timeout: Span | None) -> str:
    try:
        return str(result_of(outcome, "it", timeout))
    except (ChildFailed, TimeoutError) as error:
        return str(error)
