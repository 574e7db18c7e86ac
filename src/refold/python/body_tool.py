"""The tool that runs the bodies of a Python workflow: async ones on the event loop, others in threads."""

from asyncio import CancelledError, current_task, get_running_loop, sleep
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from functools import partial
from traceback import clear_frames
from typing import Any

from refold.core.faults import fault_from_exception
from refold.core.outcomes import RUN_CANCELLED, Cancelled, Failed, Fault, Parked, Succeeded, Suspended
from refold.errors import BodyLost, InvalidValue, StaleWrite, ToolFailed
from refold.logs import WARNING, logger
from refold.logs import event as log_event
from refold.ports import Done, Memory, ToolCall
from refold.python.body_call import BodyCall, BodyServices, as_events, fault_for_policy
from refold.python.call_records import TASK
from refold.python.context import Context, SyncContext, waiting_on
from refold.python.data_classes import MARK
from refold.python.definition import Body, Definition
from refold.python.durable_calls import Continuation
from refold.python.events import InputRequestEvent, InputResponseEvent
from refold.python.isolated import run_isolated
from refold.python.map import ON
from refold.python.parking import DurableWaits, Suspension
from refold.python.session import Session, live_keys

log = logger("worker")

RUN_WAS_CANCELLED = "its run was cancelled"
MOST_ERRORS = 10_000  # exceptions that are kept for those who wait for their runs
WHOLE_ERRORS = 100  # those of them that keep the variables of their frames, which may be large


class RaisedErrors:
    """The last exceptions that bodies of this process have raised, by run, step and visit: causes of StepFailed."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str, int], BaseException] = OrderedDict()
        self._whole: deque[BaseException] = deque()

    def keep(self, call: ToolCall, error: BaseException) -> None:
        self._kept[(call.run, call.command.step, call.command.visit)] = error
        self._whole.append(error)
        if len(self._whole) > WHOLE_ERRORS:
            clear_frames(self._whole.popleft().__traceback__)
        while len(self._kept) > MOST_ERRORS:
            self._kept.popitem(last=False)

    def find(self, run: str, step: str, visit: int) -> BaseException | None:
        return self._kept.get((run, step, visit))


class BodyTool:
    """Runs the step bodies of one workflow."""

    def __init__(
        self, definition: Definition, services: BodyServices, session: Callable[[str], Session], originals: RaisedErrors
    ) -> None:
        self.definition, self.services, self.session, self.originals = definition, services, session, originals

    async def __call__(self, call: ToolCall) -> Done:
        assert call.meanwhile is not None
        body = self.definition.bodies[call.command.step]
        mapped = call.command.item is not None  # it has its own records, and nothing of a context
        if mapped:
            recorded = {**call.command.recorded, **await call.meanwhile.recorded_before()}
            memory = Memory(recorded=recorded, count=len(recorded))
        else:
            memory = await call.meanwhile.recall()
        parks = call.parking is not None and body.can_be_parked
        if memory.is_cancelled and (not parks or memory.recorded.keys() <= {RUN_CANCELLED}):
            return Done(Cancelled(RUN_WAS_CANCELLED))  # nothing was recorded that its clean-up could undo
        body_call = BodyCall(call, self.definition, memory, self.services, self.session(call.run))
        if parks and call.parking is not None:
            body_call.calls.waits = DurableWaits(call.parking, body_call)
        elif call.parking is not None:
            call.parking.attach(None)
            if _is_cancelled():
                await sleep(0)  # its run was cancelled meanwhile: it ends here
        try:
            try:
                await self._run(body, body_call)
            finally:
                if body_call.calls.waits is not None:
                    await body_call.calls.waits.finish()
        except Suspension:
            return await _suspended(body_call)
        except BaseException as error:
            if _is_told_to_end(error) or isinstance(error, BodyLost):
                raise
            if body_call.calls.pending:
                return await _suspended(body_call)  # whatever it has raised on its way out
            await _flushed(body_call)
            if isinstance(error, CancelledError):
                if body_call.calls.memory.is_cancelled:
                    return Done(Cancelled(RUN_WAS_CANCELLED))
                raise
            _log_clean_up(body_call, f"it has raised {type(error).__name__}")
            return self._failed(body_call, error)
        finally:
            body_call.calls.waits = None  # the two would keep each other alive
        if body_call.calls.pending:
            return await _suspended(body_call)  # the body has swallowed it
        if body_call.published.count:
            await body_call.published.flush()
        diverged = body_call.calls.records.diverged
        if diverged is not None:
            self.originals.keep(call, diverged)
            return Done(Failed(fault_from_exception(diverged)), usage=body_call.usage)
        unasked = tuple(body_call.calls.records.unasked())
        if unasked:
            _log_unasked(body_call, unasked)
        if body_call.calls.memory.is_cancelled:
            _log_clean_up(body_call, "it has returned")
            return Done(Succeeded(None))
        self._pass_on(body_call)
        body_call.state.ended = call.command.step
        return _told(body_call) if mapped else self._completed(body_call, unasked)

    def _completed(self, body_call: BodyCall, unasked: tuple[str, ...]) -> Done:
        def renew(stale: StaleWrite) -> Done:
            """Apply the changes of `ctx.update` to the newest value. What they raise fails the try, like the body."""
            try:
                can_renew = body_call.state.renewed(stale)
            except Exception as error:
                return self._failed(body_call, error)
            if can_renew:
                return self._completed(body_call, unasked)
            return Done(Parked(until=body_call.services.clock.now(), reason="somebody else was faster"))

        writes, events = body_call.state.writes(), tuple(body_call.events)
        return Done(
            Succeeded(None),
            writes=writes,
            usage=body_call.usage,
            events=events,
            renew=renew if writes else None,
            unasked=unasked,
        )

    def _failed(self, body_call: BodyCall, error: BaseException) -> Done:
        call = body_call.call
        self.originals.keep(call, error)  # also what is not Exception: `sys.exit` ends the step, not the worker
        fault = fault_for_policy(error, call.settings.get(ON) or self.definition.step(call.command.step).retry.on)
        return Done(Failed(fault), usage=body_call.usage)

    def _pass_on(self, body_call: BodyCall) -> None:
        """Count the references to live objects in events, and let go of objects that are used up."""
        if not len(body_call.session):
            return
        for sent in body_call.events:
            body_call.session.sent(live_keys(sent.data, MARK), self.definition.takers(sent.type))
        for event in body_call.call.input["events"]:
            body_call.session.handled(live_keys(event["data"], MARK))

    async def _run(self, body: Body, body_call: BodyCall) -> None:
        try:
            events = [self.definition.received(each["type"], each["data"]) for each in body_call.call.input["events"]]
        except InvalidValue as error:
            raise ToolFailed(Fault("schema", f"an event cannot be read: {error}", retryable=False)) from error
        if body.policy.isolation != "inline":
            await run_isolated(body, body_call)
            return
        try:
            value = await self._value(body, body_call, events)
        except Continuation:
            return  # the event that says so is sent
        for event in as_events(body.name, value):
            id = _asked_before(body_call, event)
            if id:
                answer = await Context(body_call).ask(event.prompt, id=id, metadata=event.metadata)
                event = InputResponseEvent(request_id=id, response=answer)
            body_call.send(event)

    async def _value(self, body: Body, body_call: BodyCall, events: list[Any]) -> Any:
        signature = body.signature
        self.services.task_numbers.begin(get_running_loop())
        TASK.set(body_call.calls.records.body)
        given = events if signature.as_list else events[0]
        if not signature.is_async:
            context = SyncContext(Context(body_call), waiting_on(get_running_loop()))
            return await self.services.in_thread(partial(body.function, *signature.arguments(context, given)))
        if not signature.wants_context:
            return await body.function(given)
        return await body.function(*signature.arguments(Context(body_call), given))


def _asked_before(body_call: BodyCall, event: Any) -> str:
    """Return the id of a request that an earlier release has asked inside the body, which waits for it; else nothing.

    Only such a request is a durable call of the body, and its answer is found there.
    """
    if not isinstance(event, InputRequestEvent):
        return ""
    id = event.request_id or f"{body_call.call.command.id}/request"
    calls, key = body_call.calls, f"ask:{id}"
    return id if key in calls.recorded or key in calls.memory.awaited else ""


def _log_unasked(body_call: BodyCall, unasked: Iterable[str]) -> None:
    """A body that completes without having asked for recorded calls is not the body that made them."""
    at = {"run": body_call.call.run, "step": body_call.call.command.step, "command": body_call.call.command.id}
    log_event(log, WARNING, "body has not asked for recorded calls", at, calls=", ".join(unasked))


def _log_clean_up(body_call: BodyCall, why: str) -> None:
    """A body whose run was cancelled has not ended with CancelledError. Its run ends as cancelled all the same."""
    if body_call.calls.memory.is_cancelled:
        at = {"run": body_call.call.run, "step": body_call.call.command.step, "command": body_call.call.command.id}
        log_event(log, WARNING, "cancelled body has ended in another way", at, why=why)


def _is_told_to_end(error: BaseException) -> bool:
    return isinstance(error, CancelledError) and _is_cancelled()


def _is_cancelled() -> bool:
    """Whether the task that runs here was cancelled, or will be at its next wait."""
    task = current_task()
    return task is not None and task.cancelling() > 0


async def _flushed(body_call: BodyCall) -> None:
    try:
        await body_call.published.flush()
    except Exception as error:
        at = {"run": body_call.call.run, "step": body_call.call.command.step, "command": body_call.call.command.id}
        log_event(log, WARNING, "events of a failed body are not shown", at, why=type(error).__name__)
        return  # what went wrong before is what counts


async def _suspended(body_call: BodyCall) -> Done:
    await body_call.published.flush()
    return Done(Suspended(tuple(body_call.calls.pending.values()), body_call.progress()))


def _told(body_call: BodyCall) -> Done:
    """Return the result of an item of `ctx.map`: its events go to the body that called `map`, not to other steps."""
    if body_call.state.writes():
        why = "an item of `ctx.map` has no context of its own to write to; return what is to be kept"
        return Done(Failed(Fault("context", why, retryable=False)), usage=body_call.usage)
    events = [{"type": each.type, "data": each.data} for each in body_call.events]
    return Done(Succeeded({"events": events}), usage=body_call.usage)
