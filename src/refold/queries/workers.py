"""Which workers are alive, what they can take, and which of them would execute a run."""

from collections.abc import Iterable, Mapping, Sequence

from refold.core.outcomes import Instant
from refold.core.plan import BODY
from refold.core.read.summary import Summary
from refold.core.read.why import Holder, WorkerView
from refold.core.state import PAUSED, TERMINAL
from refold.ports import Abilities, Views
from refold.queries.reading import stored_plan
from refold.queries.runs import ancestors

CODE = f"{BODY}:"
ANY_RUN = "worker-"  # how the names of workers begin that serve every run; others name the run that they serve


def abilities(views: Views) -> Mapping[str, Abilities]:
    """What each live worker can take, by its name."""
    return {worker.can.worker: worker.can for worker in views.workers()}


def serving(views: Views, row: Summary) -> Mapping[str, Abilities]:
    """The live workers that would execute this run: those that serve every run, this one, or one that it belongs to."""
    names = (ANY_RUN, *(f"run-{each.run[:8]}-" for each in (row, *ancestors(views, row))))
    return {worker: can for worker, can in abilities(views).items() if worker.startswith(names)}


def unserved(views: Views, rows: Iterable[Summary]) -> set[str]:
    """Return those of these runs that are not over or paused, and that no live worker would execute."""
    names, open_rows = list(abilities(views)), [row for row in rows if row.status not in (*TERMINAL, PAUSED)]
    if any(name.startswith(ANY_RUN) for name in names):
        return set()
    return {row.run for row in open_rows if not names or not serving(views, row)}


def serves_every_run(views: Views) -> bool:
    """Whether a live worker serves every run, and so the schedules."""
    return any(name.startswith(ANY_RUN) for name in abilities(views))


def serving_any(views: Views, bodies: frozenset[str]) -> list[str]:
    """The live workers that serve every run and have all this code."""
    workers = {worker: can.tools for worker, can in abilities(views).items() if worker.startswith(ANY_RUN)}
    return [worker for worker, tools in workers.items() if tools is None or bodies <= tools]


def world(
    views: Views,
    workers: Mapping[str, Abilities],
    held: Mapping[str, Holder] | None = None,
    elsewhere: Sequence[Holder] = (),
) -> WorkerView:
    """What the log does not say, for the reasons why a run waits. `held`: leases of the run by their commands,
    `elsewhere`: leases of other runs."""
    tools = {worker: can.tools for worker, can in workers.items() if can.tools is not None}
    queues = {worker: frozenset(can.queues) for worker, can in workers.items() if can.queues is not None}
    hashes = {tool.removeprefix(CODE) for can in tools.values() for tool in can if tool.startswith(CODE)}
    plans = {plan: data for plan in sorted(hashes) if (data := views.plan(plan)) is not None}
    known = {plan: stored_plan(plan, data) for plan, data in plans.items()}
    names = {hash: plan.name for hash, plan in known.items()}
    codes = {hash: plan.code for hash, plan in known.items() if plan.code is not None}
    return WorkerView(held or {}, elsewhere, tuple(workers), tools, names, codes, queues, used_up(views))


def used_up(views: Views) -> dict[str, Instant | None]:
    """The limits that allow nothing now, and when a rate allows more."""
    uses = {use.limit: use for use in views.limits()}
    full = {limit for limit, use in uses.items() if limit.slots is not None and use.leased >= limit.slots}
    return {limit.name: use.again for limit, use in uses.items() if limit in full or use.again is not None}


def world_of(views: Views, row: Summary, here: Sequence[Abilities] = ()) -> WorkerView:
    """The leases, and the live workers that would execute this run.

    `here` are workers of this process, which the store may not know yet.
    """
    workers = {**serving(views, row), **{can.worker: can for can in here}}
    leases = [lease for lease in views.leases() if lease.is_alive]
    held = {lease.command: Holder(lease.worker, lease.until) for lease in leases if lease.run == row.run}
    elsewhere = [Holder(each.worker, each.until) for each in leases if each.run != row.run and each.worker in workers]
    return world(views, workers, held, tuple(elsewhere))
