"""Runs one try of a command and says what came of it; touches no lease."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, field, structs

from refold.core import codec
from refold.core.faults import fault_from_exception, text_of
from refold.core.outcomes import SECOND, Cancelled, Failed, Fault, Parked, Succeeded, Suspended, TimedOut, Write
from refold.errors import OverBound, ToolFailed
from refold.ports import Call, Clock, Done, Ending, Lease, Meanwhile, Redaction, Say, StreamRedaction, Tool
from refold.schemas import QUICK, SHOWN, Misfit, misfits, said
from refold.time_limits import Limit, Stopwatch
from refold.worker.body import IN_A_BODY, is_ctrl_c


class NoRedaction:
    """Where there are no secrets."""

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


def redacted(done: Done, redaction: Redaction) -> Done:
    if redaction is NO_REDACTION:
        return done
    outcome = done.outcome
    try:
        if type(outcome) is Failed:
            outcome = Failed(redaction.fault(outcome.fault))
            done = Done(outcome, done.started_at, done.writes, done.usage)
        elif type(outcome) is Parked:
            reason = redaction.text(outcome.reason)  # often what an error says; it is no reason to fail
            done = done if reason == outcome.reason else structs.replace(done, outcome=_because(outcome, reason))
            redaction.check_result(_plain(done.outcome))
        elif type(outcome) is Succeeded:
            redaction.check_result(outcome.result)
        else:
            redaction.check_result(_plain(outcome))
        if done.writes or done.usage:
            redaction.check_result([_told(write) for write in done.writes])
            redaction.check_result(done.usage)
        for sent in done.events:
            redaction.check_result(getattr(sent, "data", None))
    except ToolFailed as error:
        return Done(Failed(error.fault), done.started_at)
    return done


def _because(parked: Parked, reason: str) -> Parked:
    return structs.replace(parked, reason=reason)


def _told(write: Write) -> list[Any]:
    """One that is no write at all is refused where it would be stored."""
    return [getattr(write, "key", None), getattr(write, "value", None)]


def _plain(value: Any) -> Any:
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError, RecursionError):
        return None  # it is refused where it would be stored


RESULT = "$result"  # the key of the settings that is not for the tool: the schema of its result
OUTCOMES = frozenset({Succeeded, Failed, TimedOut, Cancelled, Parked, Suspended})


class CallServices(Struct, frozen=True):
    """Whom a try can talk to while it goes on."""

    say: Say | None = None
    meanwhile: Meanwhile | None = None
    watch: Stopwatch = field(default_factory=Stopwatch)  # measures how long it runs


async def run_tool(
    lease: Lease,
    settings: Mapping[str, Any],
    tools: Mapping[str, Tool],
    clock: Clock,
    beside: CallServices | None = None,
    redaction: Redaction = NO_REDACTION,
) -> Done:
    """Everything a tool can do becomes an outcome without secrets; only being stopped is passed on."""
    beside = beside or CallServices()
    token = IN_A_BODY.set(True)
    try:
        with beside.watch:
            done = await _run(lease, settings, tools, clock, beside)
    finally:
        IN_A_BODY.reset(token)
    if beside.watch.delay:
        done = structs.replace(done, started_at=done.started_at + round(beside.watch.delay * SECOND))
    try:
        return redacted(done, redaction)
    except Exception as error:  # a value that is a circle, or that raises when it is looked at
        return Done(Failed(_unreadable(error)), done.started_at)


def _unreadable(error: Exception) -> Fault:
    """Nothing of the value is told, for it may hold a secret."""
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
    call, limit = Call(lease.run, command, settings, beside.say, beside.meanwhile), None
    try:
        if command.timeout is None:
            value = await tools[command.tool](call)
        else:
            async with Limit(command.timeout) as limit:
                value = await tools[command.tool](call)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return Done(Failed(fault_from_exception(error)), started_at)  # the tool's own doing
    except BaseException as error:  # of any class: a step that calls `exit()` has failed, and nothing else
        if is_ctrl_c(error):
            raise
        if isinstance(error, TimeoutError) and limit is not None and limit.expired():
            return Done(TimedOut(command.timeout or 0.0), started_at)
        return Done(Failed(fault_from_exception(error)), started_at)
    done = _done(value, started_at)
    try:
        return done if schema is None else await _fitting(done, schema)
    except Exception as error:
        fault = Fault(
            "schema", f"the result cannot be checked: {type(error).__name__}: {text_of(error)}", retryable=False
        )
        return Done(Failed(fault), done.started_at, usage=done.usage)


async def _fitting(done: Done, schema: Mapping[str, Any]) -> Done:
    """A result that is not as the step declares it is a failure, and so is one that cannot be checked within bounds."""
    if not isinstance(done.outcome, Succeeded):
        return done
    codec.check_value(done.outcome.result, "result")
    try:
        found = await _misfits(schema, done.outcome.result)
    except OverBound as error:
        fault = Fault("schema", f"the result cannot be checked against its schema: {error}", retryable=False)
        return Done(Failed(fault), done.started_at, usage=done.usage)
    if not found:
        return done
    why = f"the result does not fit its schema: {said(found, 'result')}"
    paths = [{"path": each.path, "message": each.message} for each in found[:SHOWN]]
    retryable = False if any(each.of_schema for each in found) else None  # another result would not be checked either
    return Done(Failed(Fault("schema", why, retryable=retryable, data=paths)), done.started_at, usage=done.usage)


async def _misfits(schema: Mapping[str, Any], value: Any) -> list[Misfit]:
    """A check that takes long is made in a thread, so that heartbeats and signals go on."""
    try:
        return misfits(schema, value, QUICK)
    except OverBound:
        return await asyncio.to_thread(misfits, schema, value)


def _done(value: Any, started_at: int) -> Done:
    kind = type(value)
    if kind is Done:
        return Done(value.outcome, value.started_at or started_at, value.writes, value.usage, value.events, value.renew)
    if kind in OUTCOMES:
        return Done(value, started_at)
    return Done(Succeeded(value), started_at)
