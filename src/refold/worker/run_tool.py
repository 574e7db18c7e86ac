"""Runs one try of a command and says what came of it; touches no lease."""

import asyncio
from collections.abc import Mapping
from typing import Any

from refold.core.facts import Cancelled, Failed, Fault, Parked, Succeeded, Suspended, TimedOut
from refold.core.faults import fault_of
from refold.ports import Call, Clock, Done, Lease, Say, Tool

OUTCOMES = frozenset({Succeeded, Failed, TimedOut, Cancelled, Parked, Suspended})


async def run_tool(
    lease: Lease, settings: Mapping[str, Any], tools: Mapping[str, Tool], clock: Clock, say: Say | None = None
) -> Done:
    """Everything a tool can do becomes an outcome; only being stopped from outside is passed on."""
    started_at = clock.now()
    command = lease.command
    if command.tool not in tools:
        return Done(Failed(Fault("unknown_tool", f"this worker has no tool {command.tool!r}")), started_at)
    call, limit = Call(lease.run, command, settings, say), None
    try:
        if command.timeout is None:
            value = await tools[command.tool](call)
        else:
            async with asyncio.timeout(command.timeout) as limit:
                value = await tools[command.tool](call)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return Done(Failed(fault_of(error)), started_at)  # the tool's own doing
    except Exception as error:
        if isinstance(error, TimeoutError) and limit is not None and limit.expired():
            return Done(TimedOut(command.timeout or 0.0), started_at)
        return Done(Failed(fault_of(error)), started_at)
    return _done(value, started_at)


def _done(value: Any, started_at: int) -> Done:
    kind = type(value)
    if kind is Done:
        return Done(value.outcome, value.started_at or started_at, value.writes, value.usage)
    if kind in OUTCOMES:
        return Done(value, started_at)
    return Done(Succeeded(value), started_at)
