"""Runs one try of a command and says what came of it; touches no lease."""

import asyncio
import math
import traceback
from collections.abc import Mapping
from typing import Any

from refold.core.facts import Cancelled, Failed, Fault, Parked, Succeeded, Suspended, TimedOut
from refold.ports import Call, Clock, Done, Lease, Tool

OUTCOMES = (Succeeded, Failed, TimedOut, Cancelled, Parked, Suspended)


async def run_tool(lease: Lease, settings: Mapping[str, Any], tools: Mapping[str, Tool], clock: Clock) -> Done:
    """Everything a tool can do becomes an outcome; only being stopped from outside is passed on."""
    started_at = clock.now()
    command = lease.command
    tool = tools.get(command.tool)
    if tool is None:
        return Done(Failed(Fault("unknown_tool", f"this worker has no tool {command.tool!r}")), started_at)
    try:
        async with asyncio.timeout(command.timeout) as limit:
            value = await tool(Call(lease.run, command, settings))
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return Done(Failed(_fault(error)), started_at)  # the tool's own doing
    except Exception as error:
        if isinstance(error, TimeoutError) and limit.expired():
            return Done(TimedOut(command.timeout or 0.0), started_at)
        return Done(Failed(_fault(error)), started_at)
    return _done(value, started_at)


def _done(value: Any, started_at: int) -> Done:
    if isinstance(value, Done):
        return Done(value.outcome, value.started_at or started_at, value.writes, value.usage)
    if isinstance(value, OUTCOMES):
        return Done(value, started_at)
    return Done(Succeeded(value), started_at)


def _fault(error: BaseException) -> Fault:
    """Class, message and traceback outlive the process; what the error says of itself is believed if it can be."""
    fault = getattr(error, "fault", None)
    if isinstance(fault, Fault):
        return fault
    kind, retryable = getattr(error, "kind", None), getattr(error, "retryable", None)
    return Fault(
        kind=kind if isinstance(kind, str) else "error",
        message=_text(error),
        type=f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins."),
        traceback=_storable("".join(traceback.format_exception(error))),
        retryable=retryable if isinstance(retryable, bool) else None,
        retry_after=_seconds(getattr(error, "retry_after", None)),
    )


def _seconds(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < math.inf else None


def _text(error: BaseException) -> str:
    try:
        return _storable(str(error))
    except Exception:
        return f"a {type(error).__name__} that cannot be put into words"


def _storable(text: str) -> str:
    """A lone surrogate is no text; it is spelt out."""
    return text.encode("utf-8", "backslashreplace").decode()
