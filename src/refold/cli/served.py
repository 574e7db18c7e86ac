"""Who lives and would serve a run, and what is said if nobody can."""

import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from refold.cli.needed import Need, needs
from refold.core.facts import RunStarted
from refold.core.plan import BODY
from refold.core.read.summary import Summary
from refold.core.read.why import SHORT, Holder, World
from refold.errors import NotFound
from refold.ports import Abilities
from refold.runtime.plans import graph_of
from refold.runtime.reading import world
from refold.stores.sqlite.doctor import abilities, holders
from refold.stores.sqlite.store import SqliteStore


def world_of(store: SqliteStore, row: Summary, here: Sequence[Abilities] = ()) -> World:
    """Leases, and who lives and would serve this run: whoever serves everything, it, or a run that it belongs to.

    `here` are workers of this process, which others may not have heard of yet.
    """
    leases, serving = holders(store), {**serving_it(store, row), **{can.worker: can for can in here}}
    held = {command: Holder(worker, until) for run, command, worker, until in leases if run == row.run}
    busy = (Holder(worker, until) for run, _, worker, until in leases if run != row.run and worker in serving)
    return world(store, serving, held, tuple(busy))


def serving_it(store: SqliteStore, row: Summary) -> Mapping[str, Abilities]:
    names = _names(store, row)
    return {worker: can for worker, can in abilities(store).items() if worker.startswith(names)}


def _names(store: SqliteStore, row: Summary) -> tuple[str, ...]:
    names, above = ["worker-", f"run-{row.run[:8]}-"], store.summary(row.parent) if row.parent else None
    while above is not None:
        names.append(f"run-{above.run[:8]}-")
        above = store.summary(above.parent) if above.parent else None
    return tuple(names)


class Found(NamedTuple):
    """A Python workflow whose code is at hand."""

    target: str  # where
    workflow: str


def who_has_its_code(store: SqliteStore, row: Summary, here: Mapping[str, Found]) -> Collection[str]:
    """Workers of other processes, if this one has not the code of the run; none if it has.

    `here` is what this one has, by the hashes of plans. Raises NotFound if nobody has it.
    """
    serving, having = serving_it(store, row), dict[str, None]()
    for need in needs(store, row):
        if need.plan in here:
            continue
        body = f"{BODY}:{need.plan}"
        others = [worker for worker, can in serving.items() if can.tools is None or body in can.tools]
        if not others:
            raise NotFound(_absent(store, row, need, here))
        having.update(dict.fromkeys(others))
    return having.keys()


def _absent(store: SqliteStore, row: Summary, need: Need, here: Mapping[str, Found]) -> str:
    workflow, run = graph_of(store, need.plan).plan.name, need.run
    told = f"the code of {workflow} (plan {need.plan[:SHORT]}) is not here"
    for plan, found in here.items():
        if found.workflow == workflow:
            now = f"{told}: {found.target} is plan {plan[:SHORT]} by now"
            if run is not None:
                return f"{now}; `refold runs migrate {run.name or run.run} --to {found.target}` moves the run to it"
            how = f"`refold runs migrate {row.name or row.run} --to FILE`"
            return f"{now}; {how}, with the playbook of {row.workflow}, lets it start that"
    where = shlex.split(home(store, row)) or ["MODULE:CLASS"]
    return f"{told}: give it with {' '.join(f'--code {shlex.quote(each)}' for each in where)}"


def home(store: SqliteStore, row: Summary) -> str:
    """Where its code was when it was started, or the run above it; only to be told, never to be imported."""
    first = next(iter(store.facts(row.run, 0, 1)), None)
    code = first[2].code if first is not None and isinstance(first[2], RunStarted) else ""
    above = store.summary(row.parent) if row.parent and not code else None
    return code if above is None else home(store, above)
