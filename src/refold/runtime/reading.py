"""Runs, plans and workers, read without taking a lock and without writing anything."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from msgspec import MsgspecError

from refold.core import codec
from refold.core.expressions import Missing
from refold.core.graph import Graph, analyse
from refold.core.plan import BODY, Plan, read_plan
from refold.core.read.loaded import Loaded
from refold.core.read.why import Holder, World
from refold.core.state import RunState
from refold.errors import Corrupt, NotFound
from refold.ports import Abilities, Store
from refold.runtime.operations import replayed

T = TypeVar("T")
PAGE = 10_000  # facts read at once


def graph_of(store: Store, plan: str) -> Graph:
    data = store.plan(plan)
    if data is None:
        raise NotFound(f"there is no workflow {plan}")
    return stored_graph(plan, data)


def stored_plan(plan: str, data: bytes) -> Plan:
    """Raises Corrupt: a plan was checked before it was stored, so one that does not fit was not stored by Refold."""
    try:
        return read_plan(data)
    except (MsgspecError, RecursionError) as error:
        raise Corrupt(f"table plans, key ({plan!r}), column data: it is not a plan: {error}") from error


def stored_graph(plan: str, data: bytes) -> Graph:
    """The same, with all that is known of its graph."""
    try:
        return analyse(stored_plan(plan, data))
    except Corrupt:
        raise
    except Exception as error:  # whatever the analysis stumbles over, it is in a plan that nobody has checked
        raise Corrupt(f"table plans, key ({plan!r}), column data: it is not a plan: {error!r}") from error


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
    while True:
        try:
            return compute(loaded)
        except Missing as missing:
            with store.turn([]) as turn:
                for number, _, fact in turn.some_facts(run, missing.facts - loaded.facts.keys()):
                    loaded.facts[number] = fact
                for hash in missing.blobs:
                    loaded.blobs[hash] = codec.unbox(turn.blob(run, hash))


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
