"""Runs one try of a command and returns its outcome. It does not touch the lease."""

import asyncio
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field, structs

from refold.core import codec
from refold.core.faults import fault_from_exception, text_of
from refold.core.outcomes import SECOND, Cancelled, Failed, Fault, Parked, Succeeded, Suspended, TimedOut
from refold.errors import OverBound
from refold.ports import Call, Clock, Done, Lease, Meanwhile, Redaction, Say, Tool
from refold.schemas import QUICK, SHOWN, Misfit, misfits, misfits_text
from refold.time_limits import Limit, Stopwatch
from refold.worker.body import IN_A_BODY, is_ctrl_c
from refold.worker.redaction import NO_REDACTION, redacted

RESULT = "$result"  # a key of the settings that is not for the tool: the schema of its result
OUTCOMES = frozenset({Succeeded, Failed, TimedOut, Cancelled, Parked, Suspended})


class CallServices(Struct, frozen=True):
    """What a try can use while it runs."""

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
    """Return the outcome of a tool without secrets, whatever the tool does. Only a cancellation from outside is
    raised."""
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
    except Exception as error:  # a value that contains itself, or that raises when it is read
        return Done(Failed(_unreadable(error)), done.started_at)


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
        return Done(Failed(fault_from_exception(error)), started_at)  # the tool has cancelled its own task
    except BaseException as error:  # of any class: a call of `exit()` fails the step, and nothing else
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
    """A result that does not fit the schema of the step is a failure, and so is one that cannot be checked within
    bounds."""
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
        return Done(value.outcome, value.started_at or started_at, value.writes, value.usage, value.events, value.renew)
    if kind in OUTCOMES:
        return Done(value, started_at)
    return Done(Succeeded(value), started_at)
