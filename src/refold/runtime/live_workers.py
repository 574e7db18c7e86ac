"""What the workers that live can take, for those who ask why a run does not go on."""

from collections.abc import Mapping, Sequence

from refold.core.plan import BODY
from refold.core.read.why import Holder, World
from refold.ports import Abilities, Store
from refold.runtime.reading import stored_plan

LiveWorkers = Mapping[str, Abilities]
"""What each worker can take."""

CODE = f"{BODY}:"


def world(
    store: Store, workers: LiveWorkers, held: Mapping[str, Holder] | None = None, elsewhere: Sequence[Holder] = ()
) -> World:
    tools = {worker: can.tools for worker, can in workers.items() if can.tools is not None}
    queues = {worker: frozenset(can.queues) for worker, can in workers.items() if can.queues is not None}
    named = {tool.removeprefix(CODE) for can in tools.values() for tool in can if tool.startswith(CODE)}
    plans = {plan: data for plan in sorted(named) if (data := store.plan(plan)) is not None}
    named_plans = {plan: stored_plan(plan, data).name for plan, data in plans.items()}
    return World(held or {}, elsewhere, tuple(workers), tools, named_plans, queues)
