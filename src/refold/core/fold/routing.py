"""How the fold changes arcs, joins, skipped paths and passes of loops when steps are entered and settle.

Arcs may give inputs to the visit they lead to; they are kept here too, and merged over the input of the step.
"""

from collections.abc import Collection
from heapq import heapify, heappop, heappush
from typing import Any

from refold.core.graph import Graph
from refold.core.state import DEAD, ENTERED, PENDING, SKIPPED, TAKEN, UNRESOLVED, RunState, StepState

ARC_INPUTS = "$given"  # the name of these inputs in scopes and in the captured values of a fan-out


def begin(graph: Graph, state: RunState) -> None:
    """Set up a run that starts: the entry may be entered, and steps that it cannot reach are skipped."""
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
    """Begin a visit of a step; the arcs that led here are used up."""
    unready(state, s)
    step = state.steps[s]
    step.life = life
    step.visits += 1
    if step.used:
        step.used = {}
    state.visiting += 1


def unready(state: RunState, s: int) -> None:
    """Remove a step from the heap of ready steps. It is usually the first one, which is cheap."""
    ready = state.ready
    if ready and ready[0] >> 1 == s:
        heappop(ready)
    elif state.steps[s].due:
        state.ready = [entry for entry in ready if entry >> 1 != s]
        heapify(state.ready)


def settle(graph: Graph, state: RunState, s: int, life: str, taken: Collection[int] = ()) -> None:
    """Settle a step for this pass: resolve each of its arcs, then count it in its loop."""
    state.steps[s].life = life
    if s in graph.finalizers:
        return
    if state.alive:
        state.alive[graph.rank[s]] = 0
    for a in graph.out[s]:
        if graph.settles_with_origin[a]:
            _resolve(graph, state, a, a in taken)
        elif a in taken:
            _remember(graph, state, a)
    if graph.loop_of[s] >= 0:
        _settle_member(state, graph.loop_of[s])


def _remember(graph: Graph, state: RunState, a: int) -> None:
    """Remember that a back arc, or an arc out of a loop, was taken; it takes effect when the pass ends."""
    if graph.back[a] >= 0:
        state.again[graph.back[a]] = 1
    else:
        state.ever[a] = 1


def _settle_member(state: RunState, loop: int) -> None:
    state.members[loop] -= 1
    if state.members[loop] == 0:
        state.over.append(loop)


def _resolve(graph: Graph, state: RunState, a: int, is_taken: bool) -> None:
    s = graph.target[a]
    step = state.steps[s]
    step.unresolved -= 1
    state.arcs[a] = TAKEN if is_taken else DEAD
    if step.life != PENDING:
        return  # the target was entered or skipped before
    need = graph.need[s]
    if need == 0:
        step.taken += is_taken
        if step.unresolved == 0:
            _make_ready(state, s, step.taken > 0)
        return
    parallel = graph.parallel_arcs.get(a, ())
    if is_taken:
        step.taken += all(state.arcs[b] != TAKEN for b in parallel)
    else:
        step.possible -= all(state.arcs[b] not in (UNRESOLVED, TAKEN) for b in parallel)
    if step.taken >= need or step.possible < need:
        _make_ready(state, s, step.taken >= need)


def _make_ready(state: RunState, s: int, enters: bool) -> None:
    step = state.steps[s]
    if not step.due:
        step.due = True
        heappush(state.ready, 2 * s + enters)


def ask_again(graph: Graph, state: RunState, s: int, enters: bool) -> None:
    """Count the arcs into a step again after some became unresolved, and make a pending step ready if it still is."""
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


def unsettled_among(graph: Graph, state: RunState, ranks: range) -> list[int]:
    """Return the steps of these ranks that are not settled, in file order. Settled steps cost almost nothing."""
    steps = []
    at = state.alive.find(1, ranks.start, ranks.stop)
    while at >= 0:
        steps.append(graph.order[at])
        at = state.alive.find(1, at + 1, ranks.stop)
    return sorted(steps)


def begin_pass(graph: Graph, state: RunState, loop: int) -> None:
    """Begin another pass of a loop: its body is pending again, and its head is entered whatever its join says."""
    it = graph.loops[loop]
    reset = it.pass_reset()
    steps, marks = state.steps, state.arcs
    for s, unresolved, possible in reset.body_counts:
        step = steps[s]
        step.life, step.due, step.taken = PENDING, False, 0
        step.unresolved, step.possible = unresolved, possible
        if state.alive:
            state.alive[graph.rank[s]] = 1
    for a in reset.inside:
        marks[a] = UNRESOLVED
    for a in reset.inside_exits:
        state.ever[a] = 0
    for a in reset.outside:
        if marks[a] != UNRESOLVED:
            marks[a] = DEAD
        else:
            step = steps[graph.target[a]]
            step.unresolved += 1
            step.possible += all(b > a for b in graph.parallel_arcs.get(a, ()))  # parallel arcs count once
    for k in (loop, *it.inner()):
        state.members[k] = graph.loops[k].members
        state.again[k] = 0
    _make_ready(state, it.head, True)


def leave_loop(graph: Graph, state: RunState, loop: int) -> None:
    """Finish a loop: resolve the arcs that leave it, and count it as settled in the loop around it."""
    it = graph.loops[loop]
    for a in it.exits:
        _resolve(graph, state, a, bool(state.ever[a]))
    if it.parent >= 0:
        _settle_member(state, it.parent)


def arc_inputs_of(graph: Graph, state: RunState, s: int) -> dict[str, Any]:
    """Return the inputs that arcs give to a step, merged in file order; each arc counts as it was last taken."""
    merged: dict[str, Any] = {}
    for a in sorted(state.arc_inputs):
        if graph.target[a] == s:
            merged.update(state.arc_inputs[a])
    return merged


def with_arc_inputs(value: Any, inputs: dict[str, Any]) -> Any:
    """Merge the inputs of arcs over the input of a step; for a tool, over the `input` among its keys."""
    if not inputs:
        return value
    if isinstance(value, dict) and isinstance(value.get("input"), dict):
        return {**value, "input": {**value["input"], **inputs}}
    return {**value, **inputs} if isinstance(value, dict) else inputs if value is None else value


def forget_arc_inputs(graph: Graph, state: RunState, s: int) -> None:
    """Forget the inputs of a visit that has ended. An unhandled failure keeps them, in case the run is reopened."""
    for a in [a for a in state.arc_inputs if graph.target[a] == s]:
        del state.arc_inputs[a]
