"""The state of a run, folded from its log for readers: no lock is taken, and nothing is written."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec import MsgspecError

from refold.core import codec
from refold.core.decide.migrate import Graphs, replay
from refold.core.expressions import Missing
from refold.core.fold.apply import Record
from refold.core.graph import Graph, analyse
from refold.core.plan import Plan, read_plan
from refold.core.read.loaded import Loaded
from refold.core.state import RunState
from refold.errors import Corrupt, NotFound, RefoldError, Unavailable
from refold.ports import Store, StoreTurn, Views

T = TypeVar("T")
PAGE = 10_000  # facts read at once


def graph_of(views: Views, plan: str) -> Graph:
    """Return the graph of a plan that a run follows. Raises Corrupt."""
    return stored_graph(plan, plan_data(views, plan))


def plan_data(views: Views | Store, plan: str) -> bytes:
    """Raises Corrupt if the plan is missing: it is stored together with the first run that follows it."""
    data = views.plan(plan)
    if data is None:
        raise Corrupt(f"table plans, key ({plan!r}): the row is missing, and a run refers to it")
    return data


def stored_plan(plan: str, data: bytes) -> Plan:
    """Decode a stored plan. Raises Corrupt: plans are checked before they are stored, so Refold did not write it."""
    try:
        return read_plan(data)
    except (MsgspecError, UnicodeDecodeError, RecursionError) as error:
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


class RunReader:
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
            load_missing(views, run, missing, loaded)
        except RefoldError:
            raise
        except Exception as error:  # whatever goes wrong, the cause is a value that was never checked
            if not loaded.blobs and not loaded.facts:
                raise
            raise Corrupt(f"values of run {run} (table blobs, column data) do not fit its log: {error!r}") from error


def load_missing(views: Views | StoreTurn, run: str, missing: Missing, loaded: Loaded) -> None:
    """Raises Corrupt if something is not in the store: a log refers to nothing that was not written."""
    wanted = missing.facts - loaded.facts.keys()
    loaded.facts.update((number, fact) for number, _, fact in views.some_facts(run, wanted))
    for number in sorted(wanted - loaded.facts.keys()):
        raise Corrupt(f"table facts, key ({run!r}, {number}): the row is missing, and a later fact refers to it")
    for hash in missing.blobs:
        loaded.blobs[hash] = stored_value(views, run, hash)


def stored_value(views: Views | StoreTurn, run: str, hash: str) -> Any:
    """Return the value of a blob to which the log of the run refers. Raises Corrupt, which names the row."""
    data = stored_blob(views, run, hash)
    try:
        return codec.unbox(data)
    except Corrupt as error:
        raise Corrupt(f"table blobs, key ({run!r}, {hash!r}), column data: {error}") from error


def stored_blob(views: Views | StoreTurn, run: str, hash: str) -> bytes:
    """Return the bytes of a blob to which the log of the run refers. Raises Corrupt."""
    try:
        return views.blob(run, hash)
    except NotFound:
        row = f"table blobs, key ({run!r}, {hash!r})"
        raise Corrupt(f"{row}: the row is missing, and the log of the run refers to it") from None
