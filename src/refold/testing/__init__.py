"""What tests of Refold and of its users run on: simulated processes, time and chance."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refold.testing.bench import Bench
    from refold.testing.facing import AsyncBench, AsyncRun, engine
    from refold.testing.fakes import Called, fails, hangs, http_answer, takes
    from refold.testing.runs import Run, StillGoing
    from refold.testing.trials import Asked, SimFailed, Simulated, sim

_HOME = {
    "bench": ("Bench",),
    "facing": ("AsyncBench", "AsyncRun", "engine"),
    "fakes": ("Called", "fails", "hangs", "http_answer", "takes"),
    "runs": ("Run", "StillGoing"),
    "trials": ("Asked", "SimFailed", "Simulated", "sim"),
}

__all__ = [
    "Asked",
    "AsyncBench",
    "AsyncRun",
    "Bench",
    "Called",
    "Run",
    "SimFailed",
    "Simulated",
    "StillGoing",
    "engine",
    "fails",
    "hangs",
    "http_answer",
    "sim",
    "takes",
]


def __getattr__(name: str) -> Any:
    """Names are imported when they are used: the parts below are used without each other."""
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(f"refold.testing.{module}"), name)
    raise AttributeError(f"module 'refold.testing' has no attribute {name!r}")
