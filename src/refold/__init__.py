"""Refold: durable workflows for Python, as a log of facts, a pure fold and one commit per step."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refold.core.plan import Arc, Call, Child, Gate, Loop, Plan, Retry, Step, Wait
    from refold.errors import RefoldError, RunCancelled, RunFailed
    from refold.runtime.engine import Engine
    from refold.wiring import open_engine, run_sync

__version__ = "0.1.0"

_HOME = {
    "refold.core.plan": ("Arc", "Call", "Child", "Gate", "Loop", "Plan", "Retry", "Step", "Wait"),
    "refold.errors": ("RefoldError", "RunCancelled", "RunFailed"),
    "refold.runtime.engine": ("Engine",),
    "refold.wiring": ("open_engine", "run_sync"),
}

__all__ = [
    "Arc",
    "Call",
    "Child",
    "Engine",
    "Gate",
    "Loop",
    "Plan",
    "RefoldError",
    "Retry",
    "RunCancelled",
    "RunFailed",
    "Step",
    "Wait",
    "open_engine",
    "run_sync",
]


def __getattr__(name: str) -> Any:
    """Names are imported when they are used: `import refold` alone costs next to nothing."""
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'refold' has no attribute {name!r}")
