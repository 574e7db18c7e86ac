"""Runs one try of a command and returns its outcome, without secrets. It does not touch the lease.

The body of a step runs in a task of its own, so that what it does to its task or loop does not reach the worker.
"""

import asyncio
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import AsyncIterator, Coroutine, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import Context, ContextVar, copy_context
from opcode import opmap
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct, field, structs

from refold.core import codec
from refold.core.commands import Command
from refold.core.faults import fault_from_exception, text_of
from refold.core.outcomes import SECOND, Cancelled, Failed, Fault, Parked, Succeeded, Suspended, TimedOut, Write
from refold.core.pipeline import TaskPipeline
from refold.core.retry import asked_to_wait
from refold.errors import BodyLost, OverBound, ToolFailed
from refold.ports import (
    Clock,
    Done,
    Ending,
    Lease,
    Meanwhile,
    Parking,
    Redaction,
    Say,
    StreamRedaction,
    Tool,
    ToolCall,
)
from refold.schemas import QUICK, SHOWN, Misfit, misfits, misfits_text
from refold.time_limits import Stopwatch, TimeLimit

Result = TypeVar("Result")
ASKED_SINCE = "asked_since"  # in the progress of a command: when a busy service first asked it to wait


class NoRedaction:
    """For a process without secrets."""

    def text(self, text: str) -> str:
        return text

    def fault(self, fault: Fault) -> Fault:
        return fault

    def value(self, value: Any) -> Any:
        return value

    def stream(self) -> StreamRedaction:
        return _as_they_are

    def check_result(self, value: Any) -> None:
        return None


def _as_they_are(texts: Sequence[str], ending: Ending) -> Sequence[str]:
    return texts


NO_REDACTION = NoRedaction()


class StartedBody(Generic[Result]):
    """A coroutine that has made its first step under a task of its own.

    Python 3.12 has eager tasks for this; here it is done with the parts that asyncio documents for other task classes.
    """

    ended = False  # at its first step: `result` is what came of it, unless it was cancelled
    result: Result

    def __init__(self, coroutine: Coroutine[Any, Any, Result], context: Context | None = None) -> None:
        """Run it in a copy of this context, or of the current one."""
        context, loop = copy_context() if context is None else context.copy(), asyncio.get_running_loop()
        outer = asyncio.current_task(loop)
        assert outer is not None
        rest = _Rest(coroutine)
        self.task: asyncio.Task[Result] = loop.create_task(rest, context=context)
        if rest.begun:
            return  # the loop makes eager tasks
        _leave_task(loop, outer)
        _enter_task(loop, self.task)
        try:
            rest.wait_first_for(context.run(coroutine.send, None))
        except StopIteration as end:
            self.ended, self.result = True, end.value
        except asyncio.CancelledError:  # `is_cancelled` says so
            self.ended = True
            self.task.cancel()
        finally:
            rest.begun = True
            _leave_task(loop, self.task)
            _enter_task(loop, outer)

    def is_cancelled(self) -> bool:
        return self.task.cancelling() > 0 if self.ended else self.task.cancelled()


class _Rest(Coroutine[Any, Any, Any]):
    """What the task has to run: the coroutine from where its first step has stopped, or nothing.

    It knows nothing of its task: the two would keep each other alive until the garbage is collected.
    """

    begun = False
    _waits = False  # the coroutine has made its first step and has not ended
    _awaited: Any = None  # what the first step waits for, until the task has heard of it
    _unheard = False

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine

    def wait_first_for(self, awaited: Any) -> None:
        self._waits, self._awaited, self._unheard = True, awaited, True

    def send(self, value: Any) -> Any:
        if not self.begun:  # the loop makes eager tasks
            self.begun = self._waits = True
        elif not self._waits:
            raise StopIteration(None)
        if not self._unheard:
            return self._coroutine.send(value)
        self._unheard = False
        return self._awaited

    def throw(self, *error: Any) -> Any:
        if not self._waits:
            raise StopIteration(None)
        if self._unheard:
            self._unheard = False
            if self._awaited is not None and self._awaited.cancel():
                return self._awaited  # as when a task is cancelled that waits for it
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        raise TypeError("only its task runs it")


IN_A_BODY: ContextVar[bool] = ContextVar("refold_in_a_body", default=False)
"""Inherited by all that a body begins: its tasks, its callbacks and its threads."""

RAISE = opmap["RAISE_VARARGS"]
WHY = "a step must not stop the event loop: it belongs to the process, and other steps run on it"


@asynccontextmanager
async def guarded_loop() -> AsyncIterator[None]:
    """While it lasts, `stop` of the running event loop raises RuntimeError for bodies, and does its work for others.

    Without this, a body that stops the loop would end the process, and the next process would do the same.
    """
    loop = asyncio.get_running_loop()
    stop = loop.stop

    def stop_unless_in_a_body() -> None:
        if IN_A_BODY.get():
            raise RuntimeError(WHY)
        stop()

    try:
        loop.stop = stop_unless_in_a_body  # type: ignore[method-assign]
    except AttributeError:  # a loop that is not written in Python
        yield
        return
    try:
        yield
    finally:
        if vars(loop).get("stop") is stop_unless_in_a_body:
            del loop.stop


def is_ctrl_c(error: BaseException) -> bool:
    """Whether a KeyboardInterrupt comes from the keyboard. One that a `raise` of the body has made does not."""
    if not isinstance(error, KeyboardInterrupt):
        return False
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None:
        return True
    code = last.tb_frame.f_code
    return code.co_name == "_on_sigint" or code.co_code[last.tb_lasti] != RAISE


RESULT = "$result"  # a key of the settings that is not for the tool: the schema of its result
OUTCOMES = frozenset({Succeeded, Failed, TimedOut, Cancelled, Parked, Suspended})


class CallServices(Struct, frozen=True):
    """What a try can use while it runs."""

    say: Say | None = None
    meanwhile: Meanwhile | None = None
    parking: Parking | None = None
    watch: Stopwatch = field(default_factory=Stopwatch)  # measures how long it runs


async def run_tool(
    lease: Lease,
    settings: Mapping[str, Any],
    tools: Mapping[str, Tool],
    clock: Clock,
    beside: CallServices | None = None,
    redaction: Redaction = NO_REDACTION,
) -> Done:
    """Return the outcome of a tool without secrets, whatever the tool does. Only a cancellation from outside is
    raised."""
    beside = beside or CallServices()
    token = IN_A_BODY.set(True)
    try:
        with beside.watch:
            done = await _run(lease, settings, tools, clock, beside)
    finally:
        IN_A_BODY.reset(token)
    done = _put_off(done, lease.command, clock)
    if beside.watch.delay:
        done = structs.replace(done, started_at=done.started_at + round(beside.watch.delay * SECOND))
    try:
        return redacted(done, redaction)
    except Exception as error:  # a value that contains itself, or that raises when it is read
        return Done(Failed(_unreadable(error)), done.started_at)


def _put_off(done: Done, command: Command, clock: Clock) -> Done:
    """Park a try that a busy service has turned away with the time to come back: no try is used up."""
    fault = done.outcome.fault if isinstance(done.outcome, Failed) else None
    if fault is None or fault.retry_after is None:
        return done
    progress, now = command.progress, clock.now()
    since = progress.get(ASKED_SINCE, 0) if isinstance(progress, dict) else 0
    until = asked_to_wait(fault, since, now, command.longest_wait)
    if until is None:
        return done
    reason = f"{fault.message}; it is asked again"[:500]
    return structs.replace(done, outcome=Parked(until=until, progress={ASKED_SINCE: since or now}, reason=reason))


def _unreadable(error: Exception) -> Fault:
    """The message quotes nothing of the value, because it may hold a secret."""
    why = f"the result cannot be searched for secrets: {type(error).__name__} while it was looked at"
    return Fault("invalid_value", why, retryable=False)


async def _run(
    lease: Lease, settings: Mapping[str, Any], tools: Mapping[str, Tool], clock: Clock, beside: CallServices
) -> Done:
    started_at = clock.now()
    command = lease.command
    if command.tool not in tools:
        return Done(Failed(Fault("unknown_tool", f"this worker has no tool {command.tool!r}")), started_at)
    schema = settings.get(RESULT)
    if schema is not None:
        settings = {name: value for name, value in settings.items() if name != RESULT}
    call, limit = ToolCall(lease.run, command, settings, beside.say, beside.meanwhile, beside.parking), None
    try:
        if command.timeout is None:
            value = await tools[command.tool](call)
        else:
            async with TimeLimit(command.timeout) as limit:
                value = await tools[command.tool](call)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return Done(Failed(fault_from_exception(error)), started_at)  # the tool has cancelled its own task
    except BaseException as error:  # of any class: a call of `exit()` fails the step, and nothing else
        if is_ctrl_c(error) or isinstance(error, BodyLost):
            raise
        if isinstance(error, TimeoutError) and limit is not None and limit.expired():
            return Done(TimedOut(command.timeout or 0.0), started_at)
        return Done(Failed(fault_from_exception(error)), started_at)
    done = _done(value, started_at)
    try:
        return done if schema is None else await _fitting(done, schema, _reads(settings))
    except Exception as error:
        fault = Fault(
            "schema", f"the result cannot be checked: {type(error).__name__}: {text_of(error)}", retryable=False
        )
        return Done(Failed(fault), done.started_at, usage=done.usage)


def _reads(settings: Mapping[str, Any]) -> str:
    pipeline = settings.get(TaskPipeline.tool)
    return pipeline.reads if isinstance(pipeline, TaskPipeline) else ""


async def _fitting(done: Done, schema: Mapping[str, Any], reads: str = "") -> Done:
    """A result that does not fit the schema of the step is a failure, and so is one that cannot be checked within
    bounds. `reads` says how the data in the result of a JamJet node is found."""
    if not isinstance(done.outcome, Succeeded):
        return done
    codec.check_value(done.outcome.result, "result")
    value = done.outcome.result
    if reads:
        from refold.templates.jamjet.results import NO_RESULT, checked_data

        value = checked_data(value, reads)
        if value is NO_RESULT:
            return done
    try:
        found = await _misfits(schema, value)
    except OverBound as error:
        fault = Fault("schema", f"the result cannot be checked against its schema: {error}", retryable=False)
        return Done(Failed(fault), done.started_at, usage=done.usage)
    if not found:
        return done
    why = f"the result does not fit its schema: {misfits_text(found, 'result')}"
    paths = [{"path": each.path, "message": each.message} for each in found[:SHOWN]]
    retryable = False if any(each.of_schema for each in found) else None  # no result fits a wrong schema
    return Done(Failed(Fault("schema", why, retryable=retryable, data=paths)), done.started_at, usage=done.usage)


async def _misfits(schema: Mapping[str, Any], value: Any) -> list[Misfit]:
    """Check in a thread if it takes long, so that it does not block the event loop."""
    try:
        return misfits(schema, value, QUICK)
    except OverBound:
        return await asyncio.to_thread(misfits, schema, value)


def _done(value: Any, started_at: int) -> Done:
    kind = type(value)
    if kind is Done:
        done: Done = value
        return done if done.started_at else structs.replace(done, started_at=started_at)
    if kind in OUTCOMES:
        return Done(value, started_at)
    return Done(Succeeded(value), started_at)


def redacted(done: Done, redaction: Redaction) -> Done:
    """Remove secrets from the texts of a report. A result, a write or an event that holds a secret fails the step."""
    if redaction is NO_REDACTION:
        return done
    outcome = done.outcome
    try:
        if type(outcome) is Failed:
            outcome = Failed(redaction.fault(outcome.fault))
            done = Done(outcome, done.started_at, done.writes, done.usage)
        elif type(outcome) is Parked:
            reason = redaction.text(outcome.reason)  # often the text of an error; it does not fail the step
            done = done if reason == outcome.reason else structs.replace(done, outcome=_because(outcome, reason))
            redaction.check_result(_plain(done.outcome))
        elif type(outcome) is Succeeded:
            redaction.check_result(outcome.result)
        else:
            redaction.check_result(_plain(outcome))
        if done.writes or done.usage:
            redaction.check_result([_write_values(write) for write in done.writes])
            redaction.check_result(done.usage)
        for sent in done.events:
            redaction.check_result(getattr(sent, "data", None))
    except ToolFailed as error:
        return Done(Failed(error.fault), done.started_at)
    return done


def _because(parked: Parked, reason: str) -> Parked:
    return structs.replace(parked, reason=reason)


def _write_values(write: Write) -> list[Any]:
    """An object that is not a write is refused where it would be stored."""
    return [getattr(write, "key", None), getattr(write, "value", None)]


def _plain(value: Any) -> Any:
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError, RecursionError):
        return None  # such a value is refused where it would be stored
