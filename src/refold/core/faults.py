"""Exceptions as data: class, message and traceback, which outlive the process that raised them."""

import math
import traceback
from typing import Any

from msgspec import to_builtins

from refold.core.outcomes import Fault

MOST = 64 * 1024  # characters of a message or a traceback that are kept
LEFT_OUT = "…"  # stands where a text was cut, so that what is left of a secret there is recognized


def fault_from_exception(error: BaseException) -> Fault:
    """Return the fault of an exception.

    The exception may have a `fault`, or a `kind`, `retryable` and `retry_after`; they are used if they are valid.
    """
    fault = _attribute(error, "fault")
    if isinstance(fault, Fault):
        return fault
    kind, retryable = _attribute(error, "kind"), _attribute(error, "retryable")
    return Fault(
        kind=kind if isinstance(kind, str) else "error",
        message=text_of(error),
        type=f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins."),
        traceback=_storable(_traceback(error)),
        retryable=retryable if isinstance(retryable, bool) else None,
        retry_after=_seconds(_attribute(error, "retry_after")),
    )


def error_value(fault: Fault | None) -> Any:
    """Return a fault as the plain data that templates read as `error`."""
    return None if fault is None else to_builtins(fault)


def fault_text(fault: Fault) -> str:
    """Return a fault as one text with its class, such as `KeyError: 'id'`: the message alone may be only `'id'`."""
    name = fault.type.rpartition(".")[2]
    text = fault.message or fault.kind
    if name and not text.startswith(name):
        text = f"{name}: {fault.message}" if fault.message else name
    task = fault.data.get("task") if isinstance(fault.data, dict) else None
    return f"task {task!r}: {text}" if isinstance(task, str) and f"task {task!r}" not in text else text


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except BaseException:
        return "".join(traceback.format_tb(error.__traceback__))  # formatting the exception itself failed


def _attribute(error: BaseException, name: str) -> Any:
    try:
        return getattr(error, name, None)
    except BaseException:
        return None  # reading the attribute raised an error


def _seconds(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < math.inf else None


def text_of(error: BaseException) -> str:
    """Return the message of an exception, or a replacement if its `__str__` raises."""
    try:
        return _storable(str(error))
    except BaseException:
        return f"a {type(error).__name__} whose message cannot be read"


def _storable(text: str) -> str:
    """Escape lone surrogates, which cannot be stored, and cut out the middle of a text that is too long."""
    if len(text) > MOST:
        note = f"{LEFT_OUT}\n[{len(text) - MOST} characters are left out]\n{LEFT_OUT}"
        text = f"{text[: MOST // 2]}{note}{text[-MOST // 2 :]}"
    return text.encode("utf-8", "backslashreplace").decode()


def short(text: str, most: int) -> str:
    """Return the text, or its beginning with a mark if it is longer than `most`."""
    return text if len(text) <= most else text[:most] + LEFT_OUT
