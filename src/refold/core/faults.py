"""An exception as data: class, message and traceback outlive the process it was raised in."""

import math
import traceback
from typing import Any

from refold.core.facts import Fault


def fault_of(error: BaseException) -> Fault:
    """What the error says of itself (`fault`, or `kind`, `retryable`, `retry_after`) is believed if it can be."""
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
