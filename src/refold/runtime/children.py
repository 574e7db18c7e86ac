"""Inputs of runs that start, checked against what their workflows declare; and limits on child runs."""

from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any

from refold.core.decide.inputs import started_with
from refold.core.expressions import CannotEvaluate, Evaluate
from refold.core.graph import Graph
from refold.core.outcomes import Fault
from refold.core.plan import Input, Plan
from refold.core.state import RunState
from refold.errors import InvalidPlan, InvalidValue, NotFound, OverBound
from refold.ports import Store
from refold.schemas import WORK, WORK_UNDER_LOCK, misfits, misfits_text


def begun_with(plan: Plan, run: str, given: dict[str, Any], evaluate: Evaluate) -> tuple[dict[str, Any], Fault | None]:
    """Return the inputs of a child, and a fault if they cannot be computed or do not fit."""
    input, fault = given, None
    try:
        input = started_with(plan, run, given, evaluate)
        check_inputs(plan, input, WORK_UNDER_LOCK)
    except CannotEvaluate as error:
        fault = Fault("expression", str(error), retryable=False)
    except InvalidValue as error:
        fault = Fault("schema", str(error), retryable=False)
    return input, fault


def fits(plan: Plan, given: dict[str, Any], work: int = WORK) -> bool | None:
    """Whether each given input fits its schema; None if checking it takes more than this work."""
    try:
        for declared in plan.inputs:
            if declared.name in given:
                _check(plan, declared, given[declared.name], work // len(plan.inputs))
    except OverBound:
        return None
    except InvalidValue:
        return False
    return True


def known_inputs(plan: Plan) -> list[str]:
    return list(dict.fromkeys([*plan.defaults, *(declared.name for declared in plan.inputs)]))


def unread_inputs(plan: Plan, given: Iterable[str]) -> list[str]:
    """Return the names of inputs that nothing in the plan can read."""
    known = known_inputs(plan)
    if plan.language == "noetl" or (plan.language == "jamjet" and not known):
        return []  # any value may be read
    return [name for name in given if name not in known]


def check_inputs(plan: Plan, given: dict[str, Any], work: int = WORK, known: Container[str] = ()) -> None:
    """Raises InvalidValue, with the name of the first input that is missing or does not fit; or OverBound.

    All inputs together take no more than this work: while other runs wait, it is WORK_UNDER_LOCK. Those that are known
    to fit are not checked again.
    """
    for declared in plan.inputs:
        if declared.name in given and declared.name in known:
            continue
        if declared.name in given:
            _check(plan, declared, given[declared.name], work // len(plan.inputs))
        elif declared.name in plan.defaults:
            continue  # defaults were checked when the workflow was read
        elif declared.required:
            raise InvalidValue(f"input `{declared.name}`", f"`{plan.name}` needs it, and it is not given")


def _check(plan: Plan, declared: Input, value: Any, work: int) -> None:
    try:
        found = misfits(declared.schema, value, work) if declared.schema else []
    except OverBound as error:
        raise OverBound(f"input `{declared.name}`", f"it cannot be checked for `{plan.name}`: {error}") from None
    if found:
        raise InvalidValue(
            f"input `{declared.name}`", f"it is not as `{plan.name}` wants it: {misfits_text(found, declared.name)}"
        )


DEPTH = 100  # runs above a run
ENDS = 3  # workflows that a message names at each end of a long chain


class ChildLimits:
    """Decides whether a child may start. A refusal becomes a fault in the log of the parent."""

    def __init__(self, store: Store, known: Callable[[str], tuple[Graph, Evaluate]], limit: int = DEPTH) -> None:
        self.store, self.known, self.limit = store, known, limit

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
        """Return a fault if a child of this workflow cannot start with this input."""
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
