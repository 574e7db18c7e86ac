"""The state of a run after any of its facts, folded from keyframes that are kept in memory and follow from the log."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from refold.core import codec
from refold.core.fold.apply import Record
from refold.core.graph import Graph
from refold.core.read.summary import Progress, StepProgress, progress
from refold.core.state import RunState
from refold.errors import NotFound
from refold.ports import Views
from refold.queries.reading import graph_of, replayed

EVERY = 1000  # facts between two keyframes
MOST_BYTES = 64 * 1024 * 1024  # of all keyframes; those of the run that was asked for longest ago go first


class Frame(Struct, frozen=True):
    """What one fact changed in the rows of a run."""

    record: Record
    shown: Progress
    changed: tuple[str, ...]  # steps whose rows are others than before


def _is_dated(row: StepProgress) -> bool:
    """Whether the text of its reason says how long it is until a moment, so that it is another one at each fact."""
    return row.reason is not None and row.reason.until is not None


class Moments:
    """Called on threads for readers; two of them may compute the same keyframe, which is then kept once."""

    def __init__(self, views: Views) -> None:
        self._views = views
        self._keyframes: OrderedDict[str, dict[int, bytes]] = OrderedDict()
        self._graphs: dict[str, Graph] = {}
        self._size = 0

    def at(self, run: str, number: int) -> tuple[Graph, RunState, Record]:
        """Return the state after a fact, and the fact. Raises NotFound."""
        if number < 1:
            raise NotFound(f"run {run} has no fact {number}")
        graph, state, last = None, self._nearest(run, number), None
        while state.seq < number:
            part = min(EVERY - state.seq % EVERY, number - state.seq)
            records = self._views.facts(run, state.seq, part)
            if not records:
                raise NotFound(f"run {run} has {state.seq} facts, and {number} is asked for")
            graph, last = replayed(self._graph, records, state), records[-1]
            if state.seq % EVERY == 0:
                self._keep(run, state)
        if last is None or graph is None:
            found = self._views.facts(run, number - 1, 1)
            if not found:
                raise NotFound(f"run {run} has no fact {number}")
            graph, last = self._graph(state.plan), found[0]
        return graph, state, last

    def frames(self, run: str, after: int, limit: int) -> tuple[Progress | None, Iterator[Frame]]:
        """Return the rows after a fact (None: before the first), and what each of the next facts changed in them."""
        records = self._views.facts(run, after, limit)
        if not after:
            return None, self._changes(records, RunState(run=run), {})
        graph, state, (_, at, _) = self.at(run, after)
        before = progress(graph, state, at)
        return before, self._changes(records, state, {row.step: row for row in before.rows})

    def _changes(self, records: Any, state: RunState, rows: dict[str, Any]) -> Iterator[Frame]:
        for record in records:
            graph = replayed(self._graph, [record], state)
            shown = progress(graph, state, record[1])
            changed = tuple(row.step for row in shown.rows if rows.get(row.step) != row or _is_dated(row))
            rows = {row.step: row for row in shown.rows}
            yield Frame(record, shown, changed)

    def _graph(self, plan: str) -> Graph:
        if plan not in self._graphs:
            if len(self._graphs) >= 100:
                self._graphs.clear()
            self._graphs[plan] = graph_of(self._views, plan)
        return self._graphs[plan]

    def _nearest(self, run: str, number: int) -> RunState:
        """A state of this run from which the wanted one is reached forwards."""
        kept = self._keyframes.get(run, {})
        before = max((each for each in tuple(kept) if each <= number), default=0)
        data = kept.get(before)
        state = codec.decode_snapshot(data) if data is not None else None
        return state if state is not None else RunState(run=run)

    def _keep(self, run: str, state: RunState) -> None:
        kept = self._keyframes.setdefault(run, {})
        if state.seq in kept:
            return
        data = codec.encode_snapshot(state)
        kept[state.seq] = data
        self._size += len(data)
        self._keyframes.move_to_end(run)
        while self._size > MOST_BYTES and len(self._keyframes) > 1:
            _, gone = self._keyframes.popitem(last=False)
            self._size -= sum(map(len, gone.values()))
        if self._size > MOST_BYTES:  # of a single run every second one stays
            for number in sorted(kept)[::2]:
                self._size -= len(kept.pop(number))
