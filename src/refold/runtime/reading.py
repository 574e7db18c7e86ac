"""A run as its log tells it, for those who only look: no lock is taken, and nothing is written."""

from collections.abc import Callable
from typing import TypeVar

from refold.core import codec
from refold.core.expressions import Missing
from refold.core.facts import RunStarted
from refold.core.fold import fold
from refold.core.loops import Graph, analyse
from refold.core.plan import read_plan
from refold.core.state import RunState
from refold.core.view import Loaded
from refold.errors import Corrupt, NotFound
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
        self._graph: Graph | None = None
        self._state = RunState(run=run)

    def read(self) -> tuple[Graph, RunState]:
        """The state is changed by the next call."""
        graph = self._graph if self._graph is not None else self._begin()
        while records := self.store.facts(self.run, self._state.seq, PAGE):
            fold(graph, records, self._state)
            if len(records) < PAGE:
                break
        return graph, self._state

    def _begin(self) -> Graph:
        data = self.store.snapshot(self.run)
        state = codec.decode_snapshot(data) if data is not None else None
        if state is not None:
            self._state = state
        else:
            self._state.plan = self._plan()
        self._graph = graph_of(self.store, self._state.plan)
        return self._graph

    def _plan(self) -> str:
        first = next(iter(self.store.facts(self.run, 0, 1)), None)
        if first is None:
            raise NotFound(f"there is no run {self.run}")
        if not isinstance(first[2], RunStarted):
            raise Corrupt(f"the log of run {self.run} begins with {type(first[2]).__name__}")
        return first[2].plan


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
