"""Starts a run without executing it, and knows who will."""

from collections.abc import Sequence
from typing import Any

from refold.cli.shown import run_object
from refold.cli.words import now
from refold.core.plan import Plan
from refold.runtime.reading import Reading
from refold.stores.sqlite.doctor import living
from refold.wiring import open_intake


def leave(
    db: str, plan: Plan, children: Sequence[Plan], input: dict[str, Any], *names: str
) -> tuple[dict[str, Any], list[str]]:
    """The run as an object, and the workers that serve everything: a worker that serves one run says so in its name."""
    with open_intake(db) as (intake, store):
        for child in children:
            intake.register(child)
        intake.start(plan, input, *names)
        graph, state = Reading(store, names[0]).read()
        workers = [worker for worker in living(store) if worker.startswith("worker-")]
        return run_object(store, graph, state, now()), workers
