"""How steps follow each other: arcs, joins, dead paths and passes, as changes the fold makes to the state."""

from collections.abc import Collection
from heapq import heapify, heappop, heappush
from typing import Any

from refold.core.graph import Graph
from refold.core.state import DEAD, ENTERED, PENDING, SKIPPED, TAKEN, UNRESOLVED, RunState, StepState

ARC_INPUTS = "$given"  # the name of the inputs of arcs in a scope, and in what a fan-out captures


def begin(graph: Graph, state: RunState) -> None:
    """Nothing has happened yet; what the entry cannot reach is skipped, the entry may be entered."""
    state.steps = [StepState(unresolved=len(arcs), possible=graph.origin_count[s]) for s, arcs in enumerate(graph.into)]
    state.arcs = bytearray(len(graph.origin))
    state.ever = bytearray(len(graph.origin))
    state.members = [loop.members for loop in graph.loops]
    state.again = bytearray(len(graph.loops))
    state.alive = bytearray(graph.reached[s] for s in graph.order)
    for s, reached in enumerate(graph.reached):
        if not reached and s not in graph.finalizers:
            state.steps[s].life = state.steps[s].last = SKIPPED
    _make_ready(state, graph.entry, True)


def enter(state: RunState, s: int, life: str = ENTERED) -> None:
    """Count a visit; the arcs that led here are used up."""
    unready(state, s)
    step = state.steps[s]
    step.life = life
    step.visits += 1
    state.visiting += 1


def unready(state: RunState, s: int) -> None:
    """Take it from those that may be entered or skipped; it stands first, as a rule, and that is cheap."""
    ready = state.ready
    if ready and ready[0] >> 1 == s:
        heappop(ready)
    elif state.steps[s].due:
        state.ready = [entry for entry in ready if entry >> 1 != s]
        heapify(state.ready)


def settle(graph: Graph, state: RunState, s: int, life: str, taken: Collection[int] = ()) -> None:
    """The step is done for this pass: decide each of its arcs, then its loop."""
    state.steps[s].life = life
    if s in graph.finalizers:
        return
    if state.alive:
        state.alive[graph.rank[s]] = 0
    for a in graph.out[s]:
        if graph.settles_with_source[a]:
            _resolve(graph, state, a, a in taken)
        elif a in taken:
            _remember(graph, state, a)
    if graph.loop_of[s] >= 0:
        _settle_member(state, graph.loop_of[s])


def _remember(graph: Graph, state: RunState, a: int) -> None:
    """A back arc or one that a loop holds was taken; what follows waits for the end of the pass."""
    if graph.back[a] >= 0:
        state.again[graph.back[a]] = 1
    else:
        state.ever[a] = 1


def _settle_member(state: RunState, loop: int) -> None:
    state.members[loop] -= 1
    if state.members[loop] == 0:
        state.over.append(loop)


def _resolve(graph: Graph, state: RunState, a: int, hit: bool) -> None:
    s = graph.target[a]
    step = state.steps[s]
    step.unresolved -= 1
    state.arcs[a] = TAKEN if hit else DEAD
    if step.life != PENDING:
        return  # absorbed
    need = graph.need[s]
    if need == 0:
        step.taken += hit
        if step.unresolved == 0:
            _make_ready(state, s, step.taken > 0)
        return
    twins = graph.parallel_arcs.get(a, ())
    if hit:
        step.taken += all(state.arcs[b] != TAKEN for b in twins)
    else:
        step.possible -= all(state.arcs[b] not in (UNRESOLVED, TAKEN) for b in twins)
    if step.taken >= need or step.possible < need:
        _make_ready(state, s, step.taken >= need)


def _make_ready(state: RunState, s: int, enters: bool) -> None:
    step = state.steps[s]
    if not step.due:
        step.due = True
        heappush(state.ready, 2 * s + enters)


def ask_again(graph: Graph, state: RunState, s: int, enters: bool) -> None:
    """Arcs into this step are open again: count them, and see whether it is still ready if it is pending."""
    step, marks = state.steps[s], state.arcs
    taken = {graph.origin[a] for a in graph.into[s] if marks[a] == TAKEN}
    possible = {graph.origin[a] for a in graph.into[s] if marks[a] in (UNRESOLVED, TAKEN)}
    step.unresolved = sum(marks[a] == UNRESOLVED for a in graph.into[s])
    step.taken = len(taken) if graph.need[s] else sum(marks[a] == TAKEN for a in graph.into[s])
    step.possible = len(possible)
    if step.life != PENDING:
        return
    unready(state, s)
    step.due = False
    need = graph.need[s]
    if enters:
        _make_ready(state, s, True)
    elif need == 0 and step.unresolved == 0:
        _make_ready(state, s, step.taken > 0)
    elif need and (step.taken >= need or step.possible < need):
        _make_ready(state, s, step.taken >= need)


def unsettled_among(graph: Graph, state: RunState, places: range) -> list[int]:
    """The steps at these places that are not settled, in file order; what is settled costs next to nothing."""
    found = []
    at = state.alive.find(1, places.start, places.stop)
    while at >= 0:
        found.append(graph.order[at])
        at = state.alive.find(1, at + 1, places.stop)
    return sorted(found)


def begin_pass(graph: Graph, state: RunState, loop: int) -> None:
    """The body is pending again; its head is entered without asking its join."""
    it = graph.loops[loop]
    anew = it.anew()
    steps, marks = state.steps, state.arcs
    for s, unresolved, possible in anew.body_counts:
        step = steps[s]
        step.life, step.due, step.taken = PENDING, False, 0
        step.unresolved, step.possible = unresolved, possible
        if state.alive:
            state.alive[graph.rank[s]] = 1
    for a in anew.inside:
        marks[a] = UNRESOLVED
    for a in anew.inside_exits:
        state.ever[a] = 0
    for a in anew.outside:
        if marks[a] != UNRESOLVED:
            marks[a] = DEAD
        else:
            step = steps[graph.target[a]]
            step.unresolved += 1
            step.possible += all(b > a for b in graph.parallel_arcs.get(a, ()))  # twins count once
    for k in (loop, *it.inner()):
        state.members[k] = graph.loops[k].members
        state.again[k] = 0
    _make_ready(state, it.head, True)


def leave_loop(graph: Graph, state: RunState, loop: int) -> None:
    """The loop is finished: resolve what it held, and count it as a settled member of the loop around it."""
    it = graph.loops[loop]
    for a in it.exits:
        _resolve(graph, state, a, bool(state.ever[a]))
    if it.parent >= 0:
        _settle_member(state, it.parent)


def arc_inputs_of(graph: Graph, state: RunState, s: int) -> dict[str, Any]:
    """Merged in the order in which their sources stand in the file, the latest taking of each arc."""
    merged: dict[str, Any] = {}
    for a in sorted(state.arc_inputs):
        if graph.target[a] == s:
            merged.update(state.arc_inputs[a])
    return merged


def with_arc_inputs(value: Any, given: dict[str, Any]) -> Any:
    """An input with what was given over it; of a tool that is what it is bound to."""
    if not given:
        return value
    if isinstance(value, dict) and isinstance(value.get("input"), dict):
        return {**value, "input": {**value["input"], **given}}
    return {**value, **given} if isinstance(value, dict) else given if value is None else value


def forget_arc_inputs(graph: Graph, state: RunState, s: int) -> None:
    """What was given to a visit that is over; one that failed for good may be asked to go on with it."""
    for a in [a for a in state.arc_inputs if graph.target[a] == s]:
        del state.arc_inputs[a]
