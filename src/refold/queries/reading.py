"""The state of a run, folded from its log for readers: no lock is taken, and nothing is written."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import MsgspecError

from refold.core import codec
from refold.core.decide.migrate import Graphs, replay
from refold.core.expressions import Missing
from refold.core.fold.apply import Record
from refold.core.graph import Graph, analyse
from refold.core.plan import Plan, read_plan
from refold.core.read.loaded import Loaded
from refold.core.state import RunState
from refold.errors import Corrupt, NotFound, Unavailable
from refold.ports import Views

T = TypeVar("T")
PAGE = 10_000  # facts read at once


def graph_of(views: Views, plan: str) -> Graph:
    data = views.plan(plan)
    if data is None:
        raise NotFound(f"there is no workflow {plan}")
    return stored_graph(plan, data)


def stored_plan(plan: str, data: bytes) -> Plan:
    """Decode a stored plan. Raises Corrupt: plans are checked before they are stored, so Refold did not write it."""
    try:
        return read_plan(data)
    except (MsgspecError, RecursionError) as error:
        raise Corrupt(f"table plans, key ({plan!r}), column data: it is not a plan: {error}") from error


def stored_graph(plan: str, data: bytes) -> Graph:
    """Return the graph of a stored plan. Raises Corrupt."""
    try:
        return analyse(stored_plan(plan, data))
    except Corrupt:
        raise
    except Exception as error:  # whatever goes wrong in the analysis, the cause is a plan that was never checked
        raise Corrupt(f"table plans, key ({plan!r}), column data: it is not a plan: {error!r}") from error


def replayed(graphs: Graphs, records: Sequence[Record], state: RunState) -> Graph:
    """Fold the records into the state. Raises Corrupt for a log that Refold cannot have written, whatever error the
    fold meets in it."""
    try:
        return replay(graphs, records, state)
    except (Corrupt, NotFound, Unavailable):
        raise
    except Exception as error:
        raise Corrupt(f"the log of run {state.run} cannot be folded past fact {state.seq}: {error!r}") from error


class Reading:
    """One run. `read` folds only the facts that were added since the last call, so reading often is cheap."""

    def __init__(self, views: Views, run: str) -> None:
        self.views, self.run = views, run
        self._graphs: dict[str, Graph] = {}
        self._state: RunState | None = None

    def read(self) -> tuple[Graph, RunState]:
        """The state is changed by the next call."""
        state = self._state if self._state is not None else self._begin()
        while records := self.views.facts(self.run, state.seq, PAGE):
            replayed(self._graph, records, state)
            if len(records) < PAGE:
                break
        if not state.plan:
            raise NotFound(f"there is no run {self.run}")
        return self._graph(state.plan), state

    def _begin(self) -> RunState:
        data = self.views.snapshot(self.run)
        state = codec.decode_snapshot(data) if data is not None else None
        self._state = state if state is not None else RunState(run=self.run)
        return self._state

    def _graph(self, plan: str) -> Graph:
        if plan not in self._graphs:
            self._graphs[plan] = graph_of(self.views, plan)
        return self._graphs[plan]


def with_values(views: Views, run: str, compute: Callable[[Loaded], T]) -> T:
    """Compute something from values that are in blobs, or in the facts that brought the results of items; they are
    loaded as the computation asks for them."""
    loaded = Loaded()
    while True:
        try:
            return compute(loaded)
        except Missing as missing:
            for number, _, fact in views.some_facts(run, missing.facts - loaded.facts.keys()):
                loaded.facts[number] = fact
            for hash in missing.blobs:
                loaded.blobs[hash] = codec.unbox(views.blob(run, hash))
