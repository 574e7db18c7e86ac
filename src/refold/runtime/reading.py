"""A run as its log tells it, for those who only look: no lock is taken, and nothing is written."""

from collections.abc import Callable
from typing import TypeVar

from refold.core import codec
from refold.core.expressions import Missing
from refold.core.loaded import Loaded
from refold.core.loops import Graph, analyse
from refold.core.migrating import replay
from refold.core.plan import read_plan
from refold.core.state import RunState
from refold.errors import NotFound
from refold.ports import Store

T = TypeVar("T")
PAGE = 10_000  # facts read at once


def graph_of(store: Store, plan: str) -> Graph:
    data = store.plan(plan)
    if data is None:
        raise NotFound(f"there is no workflow {plan}")
    return analyse(read_plan(data))


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
            replay(self._graph, records, state)
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
