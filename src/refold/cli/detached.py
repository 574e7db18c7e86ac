"""Starts a run without executing it, and knows who will."""

from collections.abc import Sequence
from typing import Any

from refold.cli.shown import run_object
from refold.cli.words import now
from refold.core.plan import BODY, Plan, plan_hash
from refold.runtime.reading import Reading
from refold.stores.sqlite.doctor import abilities
from refold.wiring import open_intake


def leave(
    db: str, plan: Plan, children: Sequence[Plan], input: dict[str, Any], *names: str
) -> tuple[dict[str, Any], list[str]]:
    """The run as an object, and the workers that serve everything and have its code if it needs any: a worker that
    serves one run says so in its name. The names are those of the run: id, name, key, and where its code is."""
    with open_intake(db) as (intake, store):
        for child in children:
            intake.register(child)
        intake.start(plan, input, *names)
        graph, state = Reading(store, names[0]).read()
        bodies = {f"{BODY}:{plan_hash(each)}" for each in (plan, *children) if each.events}
        serving = {worker: can.tools for worker, can in abilities(store).items() if worker.startswith("worker-")}
        workers = [worker for worker, tools in serving.items() if tools is None or bodies <= tools]
        return run_object(store, graph, state, now()), workers
