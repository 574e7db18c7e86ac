"""The tool that runs the bodies of a Python workflow: async ones on the event loop, others in threads."""

from asyncio import CancelledError, current_task, get_running_loop
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

from refold.core.outcomes import Failed, Fault, Parked, Succeeded, Suspended
from refold.errors import InvalidValue, StaleWrite, ToolFailed
from refold.logs import WARNING, logger
from refold.logs import event as log_event
from refold.ports import Call, Done, Memory
from refold.python.body_call import House, Try, judged, listed
from refold.python.context import Context, SyncContext, waiting_on
from refold.python.definition import Body, Definition
from refold.python.durable_calls import Suspension
from refold.python.events import InputRequestEvent, InputResponseEvent
from refold.python.isolated import run_isolated
from refold.python.map import ON
from refold.python.session import Session, carried
from refold.python.values import MARK

log = logger("worker")

KEPT = 100  # exceptions that are kept for those who wait for their runs


class Originals:
    """Exceptions as they were raised here, by run, step and visit."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str, int], BaseException] = OrderedDict()

    def keep(self, call: Call, error: BaseException) -> None:
        self._kept[(call.run, call.command.step, call.command.visit)] = error
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    def find(self, run: str, step: str, visit: int) -> BaseException | None:
        return self._kept.get((run, step, visit))


class BodyTool:
    """Of one workflow; what others need of it is the plan alone."""

    def __init__(
        self, definition: Definition, house: House, session: Callable[[str], Session], originals: Originals
    ) -> None:
        self.definition, self.house, self.session, self.originals = definition, house, session, originals

    async def __call__(self, call: Call) -> Done:
        assert call.meanwhile is not None
        body = self.definition.bodies[call.command.step]
        mapped = call.command.item is not None  # it knows what it has recorded, and nothing of a context
        memory = Memory(recorded=call.command.recorded) if mapped else await call.meanwhile.recall()
        tried = Try(call, self.definition, memory, self.house, self.session(call.run))
        try:
            await self._run(body, tried)
        except Suspension:
            return await _suspended(tried)
        except BaseException as error:
            if _is_told_to_end(error):
                raise
            if tried.calls.pending and not isinstance(error, Exception):
                return await _suspended(tried)  # raised through a group of tasks
            await _flushed(tried)
            if isinstance(error, CancelledError):
                raise
            self.originals.keep(call, error)  # also what is no Exception: `sys.exit` ends the step, not the worker
            fault = judged(error, call.settings.get(ON) or self.definition.step(call.command.step).retry.on)
            return Done(Failed(fault), usage=tried.usage)
        if tried.calls.pending:
            return await _suspended(tried)  # the body has swallowed it
        if tried.published.count:
            await tried.published.flush()
        self._pass_on(tried)
        tried.state.ended = call.command.step
        return _told(tried) if mapped else _completed(tried)

    def _pass_on(self, tried: Try) -> None:
        """Live objects go with the events that refer to them."""
        if not len(tried.session):
            return
        for sent in tried.events:
            tried.session.sent(carried(sent.data, MARK), self.definition.takers(sent.type))
        for event in tried.call.input["events"]:
            tried.session.handled(carried(event["data"], MARK))

    async def _run(self, body: Body, tried: Try) -> None:
        try:
            events = [self.definition.received(each["type"], each["data"]) for each in tried.call.input["events"]]
        except InvalidValue as error:
            raise ToolFailed(Fault("schema", f"an event cannot be read: {error}", retryable=False)) from error
        if body.policy.isolation == "process":
            await run_isolated(body, tried)
            return
        for event in listed(body.name, await self._value(body, tried, events)):
            if isinstance(event, InputRequestEvent):
                id = event.request_id or f"{tried.call.command.id}/request"
                answer = await Context(tried).ask(event.prompt, id=id, metadata=event.metadata)
                tried.send(InputResponseEvent(request_id=id, response=answer))
            else:
                tried.send(event)

    async def _value(self, body: Body, tried: Try, events: list[Any]) -> Any:
        signature = body.signature
        given = events if signature.as_list else events[0]
        if not signature.is_async:
            seen = (
                (SyncContext(Context(tried), waiting_on(get_running_loop())), given)
                if signature.wants_context
                else (given,)
            )
            return await self.house.in_thread(partial(body.function, *seen))
        return await (body.function(Context(tried), given) if signature.wants_context else body.function(given))


def _is_told_to_end(error: BaseException) -> bool:
    task = current_task()
    return isinstance(error, CancelledError) and task is not None and task.cancelling() > 0


async def _flushed(tried: Try) -> None:
    try:
        await tried.published.flush()
    except Exception as error:
        at = {"run": tried.call.run, "step": tried.call.command.step, "command": tried.call.command.id}
        log_event(log, WARNING, "events of a failed body are not shown", at, why=type(error).__name__)
        return  # what went wrong before is what counts


async def _suspended(tried: Try) -> Done:
    await tried.published.flush()
    progress = {"published": tried.published.count} if tried.published.count else None
    return Done(Suspended(tuple(tried.calls.pending.values()), progress))


def _told(tried: Try) -> Done:
    """An item of `ctx.map`: what it gave goes back to who asked for it, and to no step."""
    if tried.state.writes():
        why = "an item of `ctx.map` has no context of its own to write to; return what is to be kept"
        return Done(Failed(Fault("context", why, retryable=False)), usage=tried.usage)
    events = [{"type": each.type, "data": each.data} for each in tried.events]
    return Done(Succeeded({"events": events}), usage=tried.usage)


def _completed(tried: Try) -> Done:
    def renew(stale: StaleWrite) -> Done:
        if tried.state.renewed(stale):
            return _completed(tried)
        return Done(Parked(until=tried.house.clock.now(), reason="somebody else was faster"))

    writes = tried.state.writes()
    return Done(
        Succeeded(None), writes=writes, usage=tried.usage, events=tuple(tried.events), renew=renew if writes else None
    )
