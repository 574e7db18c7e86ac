"""Reopening: a run that failed or was cancelled continues, with new visits of the steps that did not complete.

A failed or stopped step gets another visit, and a list loop continues with the items that did not complete. Reopening
from a step means that this step and all steps that follow from it are visited again, as if they had never run.
"""

from collections.abc import Iterable

from refold.core.facts import RunReopened
from refold.core.fold import events, routing
from refold.core.graph import Graph
from refold.core.outcomes import SECOND
from refold.core.state import COMPLETED, ENTERED, ISSUED, PENDING, RUNNING, UNRESOLVED, KeptEnd, Latest, RunState

_UNSETTLED = frozenset({PENDING, ENTERED, ISSUED})


def reopening(
    graph: Graph, state: RunState, step: str = "", by: str = "", loops: Iterable[str] = (), follow: bool = False
) -> RunReopened:
    """Return the fact that reopens all failed and stopped steps, these loops, and all that follows from `step`; to
    `follow` means that all that follows from the loops is visited again too."""
    if graph.by_events:
        return RunReopened(events.undone_steps(graph, state), by=by)
    again = undone(graph, state) | {graph.index[name] for name in loops}
    anew = _following(graph, graph.index[step]) if step else []
    if follow:
        anew = sorted({s for name in loops for s in _following(graph, graph.index[name])[1:]})
    names = tuple(graph.name(s) for s in sorted(again - set(anew)))
    return RunReopened(names, tuple(map(graph.name, anew)), by, follows=follow)


def undone(graph: Graph, state: RunState) -> set[int]:
    """Return the steps whose failure nothing handled, or that were stopped when the run ended."""
    unhandled = {graph.index[failure.step] for failure in state.failures if failure.step} - graph.finalizers
    return unhandled | state.cut.keys()


def _following(graph: Graph, first: int) -> list[int]:
    """Return the step and every step that it leads to by forward arcs, and by the arcs out of the loops around it."""
    steps, todo = {first: None}, [first]
    while todo:
        s = todo.pop()
        arcs = [a for a in graph.out[s] if graph.back[a] < 0]
        for loop in _around(graph, s):
            arcs += graph.loops[loop].exits
        for target in (graph.target[a] for a in arcs):
            if target not in steps:
                steps[target] = None
                todo.append(target)
    return [first, *sorted(steps.keys() - {first})]


def _around(graph: Graph, s: int) -> list[int]:
    """Return the loops around a step, the innermost first."""
    loops, loop = [], graph.loop_of[s]
    while loop >= 0:
        loops.append(loop)
        loop = graph.loops[loop].parent
    return loops


def _around_all(graph: Graph, steps: Iterable[int]) -> list[int]:
    return sorted({loop for s in steps for loop in _around(graph, s)})


def reopened(graph: Graph, state: RunState, fact: RunReopened) -> None:
    if graph.by_events:
        events.reopen(graph, state)
        _go_on(graph, state, fact.budget)
    elif fact.alone:
        _run_items_alone(graph, state, fact)
    else:
        _visit_again(graph, state, fact)


def _run_items_alone(graph: Graph, state: RunState, fact: RunReopened) -> None:
    """Enter list loops that had completed, for some of their items, and leave everything else as it is."""
    state.kept = KeptEnd(
        state.life,
        state.result,
        state.blob,
        state.error,
        state.also_failed,
        state.failures,
        state.cut,
        state.ready,
        state.over,
        state.exceeded,
    )
    state.ready, state.over = [], []
    for s in sorted(graph.index[name] for name in fact.again):
        step = state.steps[s]
        step.life, step.due, step.redo = PENDING, False, True
        step.only = fact.items.get(graph.name(s), ())
        routing.ask_again(graph, state, s, True)
    _go_on(graph, state, fact.budget)


def end_as_before(state: RunState, kept: KeptEnd) -> None:
    """The items have ended: what the run had left undone is there again, in case it is retried."""
    state.failures, state.cut, state.ready, state.over = kept.failures, kept.cut, kept.ready, kept.over
    state.exceeded, state.kept = kept.exceeded, None


def _visit_again(graph: Graph, state: RunState, fact: RunReopened) -> None:
    again, repeated = ([graph.index[name] for name in names] for names in (fact.again, fact.anew))
    first = () if fact.follows else repeated[:1]
    entered = {*again, *first}  # entered whatever their joins say, because they were entered before
    touched = sorted({*again, *repeated})
    targets = _undo_arcs(graph, state, touched, repeated)
    for s in (*touched, *sorted(graph.finalizers)):
        step = state.steps[s]
        step.redo = s in again and step.fan is not None and step.fan.visit == step.visits
        step.only = fact.items.get(graph.name(s), ())
        routing.unready(state, s)
        step.life, step.due = PENDING, False
        if state.alive and s not in graph.finalizers:
            state.alive[graph.rank[s]] = 1
    _count_members(graph, state, touched)
    for s in sorted({*targets, *touched}):
        routing.ask_again(graph, state, s, s in entered)
    if state.latest is not None and state.latest.step in repeated:
        state.latest = _latest(graph, state)
    _go_on(graph, state, fact.budget)


def _undo_arcs(graph: Graph, state: RunState, touched: list[int], repeated: list[int]) -> list[int]:
    """Make the arcs of these steps, and those out of finished loops around them, unresolved; return their targets."""
    arcs: list[int] = []
    for loop in _around_all(graph, touched):
        if _is_left(state, loop):
            arcs += graph.loops[loop].exits
        if any(graph.back[a] == loop for s in repeated for a in graph.out[s]):
            state.again[loop] = 0
    for s in touched:
        arcs += [a for a in graph.out[s] if graph.settles_with_origin[a]]
        for a in graph.out[s]:
            state.ever[a] = 0
    for a in arcs:
        state.arcs[a] = UNRESOLVED
    return [graph.target[a] for a in arcs]


def _is_left(state: RunState, loop: int) -> bool:
    return state.members[loop] == 0 and loop not in state.over


def _count_members(graph: Graph, state: RunState, touched: Iterable[int]) -> None:
    """Count the unsettled members of the loops around these steps: they continue in the pass they were in."""
    for loop in sorted(_around_all(graph, touched), key=lambda each: len(graph.loops[each].inner())):
        steps = sum(state.steps[s].life in _UNSETTLED for s, around in enumerate(graph.loop_of) if around == loop)
        inner = [each for each in graph.loops[loop].inner() if graph.loops[each].parent == loop]
        state.members[loop] = steps + sum(not _is_left(state, each) for each in inner)
        if loop in state.over:
            state.over.remove(loop)


def _latest(graph: Graph, state: RunState) -> Latest | None:
    """Return the visit that completed last among those that are not repeated."""
    done = [
        (step.done_at, s)
        for s, step in enumerate(state.steps)
        if step.life == COMPLETED and s not in graph.finalizers and step.done_at
    ]
    if not done:
        return None
    at, s = max(done)
    step = state.steps[s]
    return Latest(at, s, step.result, step.blob, step.shown)


def _go_on(graph: Graph, state: RunState, budget: dict[str, int | float]) -> None:
    state.life, state.outcome, state.ended_at = RUNNING, "", 0
    state.result = state.blob = state.error = state.cancel = state.timed_out = state.exceeded = None
    state.also_failed, state.failures, state.final = (), [], []
    state.cut, state.cancels = {}, 0
    state.budget.update(budget)
    if graph.plan.timeout is not None:
        state.deadline = state.at + round(graph.plan.timeout * SECOND)
