"""Runs, plans and workers, read without taking a lock and without writing anything."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from refold.core import codec
from refold.core.graph import Graph
from refold.core.plan import BODY
from refold.core.read.loaded import Loaded
from refold.core.read.why import Holder, World
from refold.core.state import RunState
from refold.errors import NotFound
from refold.ports import Abilities, Store
from refold.runtime.loading import with_loaded
from refold.runtime.operations import replayed
from refold.runtime.plans import graph_of, stored_plan

T = TypeVar("T")
PAGE = 10_000  # facts read at once


class Reading:
    """`read` folds what has come since the last time, so to look often costs little."""

    def __init__(self, store: Store, run: str) -> None:
        self.store, self.run = store, run
        self._graphs: dict[str, Graph] = {}
        self._state: RunState | None = None

    def read(self) -> tuple[Graph, RunState]:
        """The state is changed by the next call."""
        state = self._state if self._state is not None else self._begin()
        while records := self.store.facts(self.run, state.seq, PAGE):
            replayed(self._graph, records, state)
            if len(records) < PAGE:
                break
        if not state.plan:
            raise NotFound(f"there is no run {self.run}")
        return self._graph(state.plan), state

    def _begin(self) -> RunState:
        data = self.store.snapshot(self.run)
        state = codec.decode_snapshot(data) if data is not None else None
        self._state = state if state is not None else RunState(run=self.run)
        return self._state

    def _graph(self, plan: str) -> Graph:
        if plan not in self._graphs:
            self._graphs[plan] = graph_of(self.store, plan)
        return self._graphs[plan]


def with_values(store: Store, run: str, compute: Callable[[Loaded], T]) -> T:
    """What is computed from values that stand in blobs, or in the facts that brought the results of items."""
    loaded = Loaded()
    return with_loaded(lambda: store.turn([]), run, loaded, lambda: compute(loaded))


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
