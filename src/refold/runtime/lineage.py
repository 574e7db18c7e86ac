"""Whether a run may have a child: how deep it stands, and whether there is such a workflow."""

from collections.abc import Callable, Iterator
from typing import Any

from refold.core.expressions import Evaluate
from refold.core.loops import Graph
from refold.core.outcomes import Fault
from refold.core.state import RunState
from refold.errors import InvalidPlan, NotFound
from refold.ports import Store
from refold.runtime.inputs import begun_with

DEPTH = 100  # runs below the first
ENDS = 3  # workflows that are named at each end of a long chain


class Lineage:
    """Asked before a child is started; what it says becomes a fault in the log of the parent."""

    def __init__(self, store: Store, known: Callable[[str], tuple[Graph, Evaluate]]) -> None:
        self.store, self.known, self.limit = store, known, DEPTH

    def refuses(self, graph: Graph, state: RunState, plan: str) -> Fault | None:
        if state.depth >= self.limit:
            chain = _shortened([*reversed(list(self._above(state))), graph.plan.name])
            why = f"a run may have {self.limit} runs above it, and the child would have one more: {chain}"
            return Fault("too_deep", why, retryable=False)
        try:
            self.known(plan)
        except (NotFound, InvalidPlan) as error:
            return Fault("no_workflow", str(error), retryable=False)
        return None

    def misfit(self, plan: str, input: dict[str, Any]) -> Fault | None:
        """Why no child of this workflow begins with this input."""
        graph, evaluate = self.known(plan)
        if not graph.plan.inputs and not graph.plan.computed:
            return None
        return begun_with(graph.plan, "", input, evaluate)[1]

    def _above(self, state: RunState) -> Iterator[str]:
        run = state.parent.run if state.parent is not None else ""
        while run:
            row = self.store.summary(run)
            yield row.workflow if row is not None else run
            run = row.parent if row is not None else ""


def _shortened(names: list[str]) -> str:
    left_out = len(names) - 2 * ENDS
    if left_out > 0:
        names = [*names[:ENDS], f"({left_out} more)", *names[-ENDS:]]
    return " > ".join(names)
