"""What tests of Refold and of its users run on: simulated processes, time and chance."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refold.testing.bench import Bench
    from refold.testing.facing import AsyncBench, AsyncRun, engine
    from refold.testing.fakes import Called, fails, hangs, http_answer, takes
    from refold.testing.runs import Run, StillGoing
    from refold.testing.trials import Asked, SimFailed, Simulated, sim

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
    """Import a name when it is first used, so that a test loads only the parts it needs."""
    if name == "Bench":
        from refold.testing import bench

        return getattr(bench, name)
    if name in ("AsyncBench", "AsyncRun", "engine"):
        from refold.testing import facing

        return getattr(facing, name)
    if name in ("Called", "fails", "hangs", "http_answer", "takes"):
        from refold.testing import fakes

        return getattr(fakes, name)
    if name in ("Run", "StillGoing"):
        from refold.testing import runs

        return getattr(runs, name)
    if name in ("Asked", "SimFailed", "Simulated", "sim"):
        from refold.testing import trials

        return getattr(trials, name)
    raise AttributeError(f"module 'refold.testing' has no attribute {name!r}")
