"""What tests of Refold and of its users run on: simulated processes, time and chance."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refold.testing.bench.async_bench import AsyncBench, AsyncRun, engine
    from refold.testing.bench.bench import Bench
    from refold.testing.bench.fakes import Called, fails, hangs, http_answer, takes
    from refold.testing.bench.run import Run, StillGoing
    from refold.testing.simulator.trials import SimFailed, Simulated, SimulationOptions, sim

__all__ = [
    "AsyncBench",
    "AsyncRun",
    "Bench",
    "Called",
    "Run",
    "SimFailed",
    "Simulated",
    "SimulationOptions",
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
        from refold.testing.bench import bench

        return getattr(bench, name)
    if name in ("AsyncBench", "AsyncRun", "engine"):
        from refold.testing.bench import async_bench

        return getattr(async_bench, name)
    if name in ("Called", "fails", "hangs", "http_answer", "takes"):
        from refold.testing.bench import fakes

        return getattr(fakes, name)
    if name in ("Run", "StillGoing"):
        from refold.testing.bench import run

        return getattr(run, name)
    if name in ("SimulationOptions", "SimFailed", "Simulated", "sim"):
        from refold.testing.simulator import trials

        return getattr(trials, name)
    raise AttributeError(f"module 'refold.testing' has no attribute {name!r}")
